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
from usdehaze.io.dicom.colour import is_colour
from usdehaze.io.dicom.file import DicomFile
from usdehaze.io.dicom.geometry import Place, find_place
from usdehaze.io.dicom.modes import CONTRAST, has_traces, other_mode
from usdehaze.io.picture import Picture
from usdehaze.io.reading import with_options
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.stored_scan import StoredScan, sector_frames
from usdehaze.io.tint import Tint


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
    where the file has them (they map such values to the screen), else all values of Bits Stored, or of 8 or 12
    bits where none is larger. The cines have a ``tissue_mask``, False where there is colour or another region.

    Attributes:
        attributes: everything in the file but the pixel data.
        transfer_syntax: how its pixel data are stored.
        pixel_format: size, colours and bits of the frames.
        n_frames_in_file: frames in the file, whichever were asked for.
    """

    attributes: Dataset
    transfer_syntax: UID
    pixel_format: PixelFormat
    n_frames_in_file: int
    _file: DicomFile | None = None
    _region_mask: np.ndarray | None = None

    def _open(self) -> StoredCine:
        file = self._file = DicomFile(self.path, all_levels=self.reading.levels is not None)
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

    @property
    def tints(self) -> tuple[tuple[np.ndarray, Tint], ...]:
        """Colour maps of B-mode, each with the ``(H, W)`` bool mask of the image that it tints."""
        return self._colours.tints

    @property
    def dark_on_white(self) -> bool:
        """Whether the largest grey levels of the file are no echo."""
        return self._scale.dark_on_white

    @property
    def shown(self) -> tuple[float, float]:
        """Levels of 8 bits that show the floor and 0 dB: those of the file, or what was asked for instead."""
        if self._scale.units == "8-bit":
            return self._scale.black, self._scale.full_scale
        return (255.0, 0.0) if self.dark_on_white else (0.0, 255.0)

    def shown_grey(self, index: int) -> np.ndarray | None:
        """``(H, W)`` uint8 levels of frame ``index`` of those asked for; None where they are as its dB say."""
        if self._scale.units != "8-bit" or self.shown in ((0.0, 255.0), (255.0, 0.0)):
            return None
        return self._picture(self.source.first_frame + index).levels.astype(np.uint8)

    def _read_with_mask(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        frames_db, mask = super()._read_with_mask(start, stop)
        if self._region_mask is None:
            return frames_db, mask
        return frames_db, np.repeat(self._region_mask[None], stop - start, axis=0) if mask is None else (
            mask & self._region_mask
        )

    def _name_of(self, index: int) -> str:
        return f"frame {index}"

    def _find_geometry(self, stored: StoredCine) -> tuple[Geometry, tuple[str, ...]]:
        """From the file's regions and from frames all over the file, those that are damaged left out."""
        file = self._dicom
        pictures: list[Picture] = []
        for index in sector_frames(stored.shape, FRAMES_USED):
            try:
                pictures.append(self._picture(index))
            except InputError as error:
                damage = error
        if not pictures:
            raise damage
        place, notes = self._find_place(np.stack([self._scale.to_db(picture.levels) for picture in pictures]))
        notes += place.notes
        self._region_mask = place.inside
        if file.levels.note:
            notes = (file.levels.note, *notes)
        inside = True if place.inside is None else place.inside
        images = [image_mask(part, self.shape) & inside for part in images_of(place.geometry)]
        notes += self._look_at_colours(pictures, images, seek_tints=not place.colour_flow)
        mode = self._other_mode(place)
        if mode and not self.reading.force:
            raise self._no_b_mode(mode)
        return place.geometry, notes + ((f"Not grey-scale B-mode ({mode}), dehazed all the same.",) if mode else ())

    def _find_place(self, frames_db: np.ndarray) -> tuple[Place, tuple[str, ...]]:
        """Where the images are in some frames, and what had to be assumed of their grey levels."""
        how = {"force": self.reading.force, "seek": not self.reading.rectangle}
        how["may_be_inverted"] = self._may_be_inverted
        place = find_place(self.attributes, frames_db, self.dynamic_range_db, **how)
        notes = self._check_screen(place.screen, can_turn=False)
        if place.traces_alone:
            raise self._no_b_mode("regions of M-mode or spectral Doppler alone")
        return place, notes

    def _other_mode(self, place: Place) -> str:
        """What the file says is shown instead of grey-scale B-mode; "" where there is some."""
        said = other_mode(self.attributes)
        if said and (place.inside is None or said == CONTRAST):
            return said
        if place.inside is None and not place.has_fan and has_traces(self.attributes):
            return "no fan beside the M-mode or spectral Doppler that Image Type names"
        return ""
