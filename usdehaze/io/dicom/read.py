"""DICOM file -> Scan."""

from __future__ import annotations

import os
from functools import cached_property

import numpy as np
from pydicom.dataset import Dataset
from pydicom.uid import UID

from usdehaze.cine import Geometry
from usdehaze.errors import InputError
from usdehaze.geometry import image_mask
from usdehaze.geometry.screen import images_of
from usdehaze.geometry.sector import FRAMES_USED
from usdehaze.io.dicom.codecs import PixelFormat
from usdehaze.io.dicom.colour import Picture, is_colour
from usdehaze.io.dicom.file import DicomFile
from usdehaze.io.dicom.geometry import Place, find_place
from usdehaze.io.dicom.modes import CONTRAST, has_traces, other_mode
from usdehaze.io.dicom.tint import DARKEST, Tint, find_tint
from usdehaze.io.reading import with_options
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.stored_scan import StoredScan, sector_frames

LEAST_GREY = 0.05  # of what is lit in the image: with less there is nothing to dehaze


def open_dicom(
    path: str | os.PathLike[str],
    *,
    frames: slice | None = None,
    dynamic_range_db: float | None = None,
    force: bool = False,
) -> DicomScan:
    """Opens an ultrasound image, multi-frame image or secondary capture; its frames are decoded a few at a time.

    Args:
        path: the file.
        frames: which frames, as a slice without a step; all by default.
        dynamic_range_db: dB that the grey levels span, 60 by default: no DICOM attribute says.
        force: go on with a screen that shows no grey-scale B-mode.

    Raises:
        InputError: anything in the file that stands in the way, in one line without a word from its attributes.
    """
    return DicomScan(path, with_options(None, path, frames=frames, dynamic_range_db=dynamic_range_db, force=force))


class DicomScan(StoredScan):
    """Frames of a DICOM file.

    Grey levels of 8 bits span the dynamic range, 255 = 0 dB. Of those of more bits, Window Center and Width span it
    where the file has them (they map such values to the screen), else all values of Bits Stored. The cines have a
    ``tissue_mask``, False where there is colour or another region.

    Attributes:
        attributes: everything in the file but the pixel data.
        transfer_syntax: how its pixel data are stored.
        pixel_format: size, colours and bits of the frames.
        n_frames_in_file: frames in the file, whichever were asked for.
        tints: colour maps of B-mode, each with the ``(H, W)`` bool mask of the image that it tints.
    """

    attributes: Dataset
    transfer_syntax: UID
    pixel_format: PixelFormat
    n_frames_in_file: int
    _file: DicomFile | None = None
    _region_mask: np.ndarray | None = None
    tints: tuple[tuple[np.ndarray, Tint], ...] = ()

    def _open(self) -> StoredCine:
        file = self._file = DicomFile(self.path)
        self.attributes, self.transfer_syntax = file.header.attributes, file.header.transfer_syntax
        self.pixel_format, self.n_frames_in_file = file.pixel_format, file.n_frames
        return file.stored()

    @property
    def _dicom(self) -> DicomFile:
        """The file, opened by this very process."""
        self._opened()
        assert self._file is not None
        return self._file

    def picture(self, index: int) -> Picture:
        """Frame ``index`` of those asked for, decoded.

        Raises:
            InputError: a frame that cannot be decoded.
        """
        return self._dicom.picture(self.source.first_frame + index)

    @cached_property
    def has_colour(self) -> bool:
        """True where any pixel of the frames asked for is not grey; decodes them until one is found."""
        return is_colour(self.pixel_format) and any(self.picture(i).grey() is not None for i in range(self.n_frames))

    def _read_with_mask(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        file, first = self._dicom, self.source.first_frame
        frames_db = np.empty((stop - start, *self.shape), np.float32)
        masks: list[np.ndarray | None] = []
        for row, index in enumerate(range(first + start, first + stop)):
            picture = file.picture(index)
            frames_db[row] = self._to_db(file.levels_of(picture), index)
            masks.append(self._grey(picture))
        return frames_db, self._tissue_mask(masks)

    def _tissue_mask(self, grey: list[np.ndarray | None]) -> np.ndarray | None:
        if self._region_mask is None and all(mask is None for mask in grey):
            return None
        inside = np.ones(self.shape, bool) if self._region_mask is None else self._region_mask
        return np.stack([inside if mask is None else inside & mask for mask in grey])

    def _name_of(self, index: int) -> str:
        return f"frame {index}"

    def _find_geometry(self, stored: StoredCine) -> tuple[Geometry, tuple[str, ...]]:
        """From the file's regions and from frames all over the file, those that are damaged left out."""
        file = self._dicom
        self.shape = stored.shape[1:]
        pictures: list[Picture] = []
        for index in sector_frames(stored.shape, FRAMES_USED):
            try:
                pictures.append(file.picture(index))
            except InputError as error:
                damage = error
        if not pictures:
            raise damage
        frames_db = np.stack([self._scale.to_db(file.levels_of(picture)) for picture in pictures])
        how = {"force": self.reading.force, "seek": not self.reading.rectangle}
        place = find_place(self.attributes, frames_db, self.dynamic_range_db, **how)
        if place is None:
            raise self._no_b_mode("no area that looks like it, or regions of M-mode or spectral Doppler alone")
        notes = place.notes
        self._region_mask = place.inside
        if self._scale.units == "grey" and file.levels.note:
            notes = (file.levels.note, *notes)
        if not place.colour_flow:
            notes += self._find_tints(place, pictures)
        image = self._image_of(place)
        colours = [~grey[image] for grey in map(self._grey, pictures) if grey is not None]
        share = sum(float(colour.mean()) for colour in colours) / len(pictures)
        if share > 0:
            notes += (f"Colour is left as it is: {100 * share:.2g} % of the pixels in the image.",)
        mode = self._other_mode(place, pictures, image)
        if mode and not self.reading.force:
            raise self._no_b_mode(mode)
        return place.geometry, notes + ((f"Not grey-scale B-mode ({mode}), dehazed all the same.",) if mode else ())

    def _image_of(self, place: Place) -> np.ndarray:
        image = image_mask(place.geometry, self.shape)
        return image if place.inside is None else image & place.inside

    def _find_tints(self, place: Place, pictures: list[Picture]) -> tuple[str, ...]:
        """Colour maps of the images on the screen, each by itself."""
        coloured = [picture for picture in pictures if picture.grey() is not None and picture.rgb is not None]
        self.tints = ()
        for part in images_of(place.geometry) if coloured else ():
            mask = image_mask(part, self.shape) & (True if place.inside is None else place.inside)
            rgb = np.concatenate([picture.rgb[mask] for picture in coloured if picture.rgb is not None])
            tint = find_tint(rgb, np.concatenate([picture.levels[mask] for picture in coloured]))
            if tint is not None:
                self.tints += ((mask, tint),)
        return ("The B-mode is tinted: its luma is dehazed, its tint is kept.",) if self.tints else ()

    def _grey(self, picture: Picture) -> np.ndarray | None:
        """``(H, W)`` bool, pixels that are grey, or in a tinted image of its tint; None where that is all of them."""
        grey = picture.grey()
        if grey is None or picture.rgb is None:
            return None
        for mask, tint in self.tints:
            grey = np.where(mask, tint.matches(picture.rgb, picture.levels), grey)
        return grey

    def _other_mode(self, place: Place, pictures: list[Picture], image: np.ndarray) -> str:
        """What is shown instead of grey-scale B-mode; "" where there is some."""
        said = other_mode(self.attributes)
        if said and (place.inside is None or said == CONTRAST):
            return said
        if place.inside is None and not place.has_fan and has_traces(self.attributes):
            return "no fan beside the M-mode or spectral Doppler that Image Type names"
        lit = [image & (picture.levels >= DARKEST) for picture in pictures if picture.rgb is not None]
        grey = [self._grey(picture) for picture in pictures if picture.rgb is not None]
        n_lit = sum(int(np.count_nonzero(some)) for some in lit)
        kept = sum(int(np.count_nonzero(some if g is None else some & g)) for some, g in zip(lit, grey, strict=True))
        return "colour all over the image" if n_lit and kept < LEAST_GREY * n_lit else ""

    def _no_b_mode(self, found: str) -> InputError:
        advice = "leave it out, or go on with --force"
        return InputError(self.path, f"shows no grey-scale B-mode ({found})", "an image to dehaze", advice)
