"""DICOM file -> Scan."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydicom.dataset import Dataset
from pydicom.uid import UID

from usdehaze.cine import Cine, Source
from usdehaze.errors import InputError
from usdehaze.geometry import sector_mask
from usdehaze.geometry.sector import FRAMES_USED
from usdehaze.io.detect import sha256_of
from usdehaze.io.dicom.codecs import Layout, make_decoder, read_layout
from usdehaze.io.dicom.colour import Picture, is_colour, make_picture
from usdehaze.io.dicom.frames import frame_reader
from usdehaze.io.dicom.header import Header, numbers, open_header, sop_class, whole_number
from usdehaze.io.dicom.place import find_place
from usdehaze.io.dicom.timing import frame_times_s
from usdehaze.io.dicom.video import VIDEO_SYNTAXES, VideoFrames
from usdehaze.io.layouts.found import Found
from usdehaze.io.scan import Scan, check_image, selection
from usdehaze.io.units import Scale, find_scale

SECTOR_BYTES = 2**28  # that the frames which the sector finder looks at may fill


@dataclass(frozen=True)
class Levels:
    """How the stored values of grey frames become levels from 0 up.

    Attributes:
        low, high: stored values at black and white; the other way round for MONOCHROME1.
        full_scale: level of white.
        note: what was assumed, or "".
    """

    low: float
    high: float
    full_scale: float
    note: str = ""

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """``(H, W)`` stored values to levels; the very array where nothing changes."""
        if self.low == 0 and self.high > 0:
            return samples
        return np.clip((samples.astype(np.float32) - self.low) * np.sign(self.high - self.low), 0, None)


def open_dicom(
    path: str | os.PathLike[str], *, frames: slice | None = None, dynamic_range_db: float | None = None
) -> DicomScan:
    """Opens an ultrasound image, multi-frame image or secondary capture; its frames are decoded a few at a time.

    Args:
        path: the file.
        frames: which frames, as a slice without a step; all by default.
        dynamic_range_db: dB that the grey levels span, 60 by default: no DICOM attribute says.

    Raises:
        InputError: anything in the file that stands in the way, in one line without a word from its attributes.
    """
    return DicomScan(path, frames, dynamic_range_db)


class DicomScan(Scan):
    """Frames of a DICOM file; see `open_dicom`.

    Grey levels of 8 bits span the dynamic range, 255 = 0 dB. Of those of more bits, Window Center and Width span it
    where the file has them (they map such values to the screen), else all values of Bits Stored.

    Attributes:
        attributes: everything in the file but the pixel data.
        transfer_syntax: how its pixel data are stored.
        layout: size, colours and bits of the frames.
        n_frames_in_file: frames in the file, whichever were asked for.
    """

    def __init__(
        self, path: str | os.PathLike[str], frames: slice | None = None, dynamic_range_db: float | None = None
    ) -> None:
        self.path = Path(path)
        header = self._open()
        try:
            self.attributes: Dataset = header.attributes
            self.transfer_syntax: UID = header.transfer_syntax
            self.layout: Layout = read_layout(header, path)
            self.n_frames_in_file = whole_number(header.attributes, "NumberOfFrames", path, 1)
            if self.n_frames_in_file < 1:
                raise InputError(path, f"{self.n_frames_in_file} frames", "at least one")
            first, stop = selection(frames, self.n_frames_in_file, path)
            self.n_frames, self.shape = stop - first, (self.layout.rows, self.layout.columns)
            self._levels = find_levels(header, self.layout)
            self.source = Source(first_frame=first)  # what was found about it follows
            self._connect(header)
            self._scale = self._find_scale(dynamic_range_db)
            self.dynamic_range_db = self._scale.dynamic_range_db
            times = frame_times_s(header.attributes, self.n_frames_in_file)
            self.frame_times_s = None if times is None else times[first:stop]
            notes = self._find_place()
        except BaseException:
            self.close()
            raise
        self.source = Source(
            name=self.path.name,
            sha256=sha256_of(path),
            dataset="PixelData",
            layout=f"DICOM {sop_class(self.attributes).name}, {self.transfer_syntax.name}",
            units=self._scale.units,
            assumptions=(*self._scale.assumptions, *notes),
            first_frame=first,
        )

    _header: Header | None = None
    _decode: Callable[[int], Picture] | None = None
    _video: VideoFrames | None = None
    _opened_by = 0

    def _open(self) -> Header:
        self._header, self._opened_by = open_header(self.path), os.getpid()
        return self._header

    def _connect(self, header: Header) -> Callable[[int], Picture]:
        """From a frame's index in the file to its picture, with the file's handle."""
        picture = make_picture(header.attributes, self.layout, self.path)
        if header.transfer_syntax in VIDEO_SYNTAXES and header.encapsulated:
            video = self._video = VideoFrames(header, self.n_frames_in_file, self.layout, self.path)
            self._decode = lambda index: picture(*video.read(index))
            return self._decode
        decode = make_decoder(header.transfer_syntax, self.layout, self.path)
        stored = frame_reader(header, self.n_frames_in_file, self.layout.frame_bytes, self.path)
        self._decode = lambda index: picture(*decode(stored(index), index))
        return self._decode

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_header", "_decode", "_video")}

    def _picture(self, index: int) -> Picture:
        """Frame ``index`` of the file, through a handle of this very process: they do not survive a fork."""
        decode = self._decode
        if decode is None or self._opened_by != os.getpid():
            decode = self._connect(self._open())
        return decode(index)

    def picture(self, index: int) -> Picture:
        """Frame ``index`` of those asked for, decoded.

        Raises:
            InputError: a frame that cannot be decoded.
        """
        return self._picture(self.source.first_frame + index)

    @cached_property
    def has_colour(self) -> bool:
        """True where any pixel of the frames asked for is not grey; decodes them until one is found."""
        return is_colour(self.layout) and any(self.picture(i).grey() is not None for i in range(self.n_frames))

    def read_db(self, start: int, stop: int) -> np.ndarray:
        return np.stack([self._to_db(self.picture(index), index) for index in range(start, stop)])

    def read(self, start: int = 0, stop: int | None = None) -> Cine:
        """As `Scan.read`; the cine has a ``tissue_mask``, False where there is colour or another region."""
        stop = self.n_frames if stop is None else stop
        frames_db = np.empty((stop - start, *self.shape), np.float32)
        masks: list[np.ndarray | None] = []
        for row, index in enumerate(range(start, stop)):
            picture = self.picture(index)
            frames_db[row] = self._to_db(picture, index)
            masks.append(picture.grey())
        return Cine(
            frames_db,
            self.geometry,
            self.dynamic_range_db,
            None if self.frame_times_s is None else self.frame_times_s[start:stop],
            replace(self.source, first_frame=self.source.first_frame + start),
            self._tissue_mask(masks),
        )

    def close(self) -> None:
        if self._header is not None and self._opened_by == os.getpid():
            self._header.file.close()
            if self._video is not None:
                self._video.close()
        self._header = self._decode = self._video = None

    def _tissue_mask(self, grey: list[np.ndarray | None]) -> np.ndarray | None:
        if self._region_mask is None and all(mask is None for mask in grey):
            return None
        inside = np.ones(self.shape, bool) if self._region_mask is None else self._region_mask
        return np.stack([inside if mask is None else inside & mask for mask in grey])

    def _to_db(self, picture: Picture, index: int | None = None) -> np.ndarray:
        """``(H, W)`` float32 dB; frame ``index`` of those asked for is checked to hold an image."""
        levels = picture.levels if picture.rgb is not None else self._levels(picture.levels)
        frame_db = self._scale.to_db(levels)
        if index is not None:
            check_image(frame_db, f"frame {self.source.first_frame + index}", self.path)
        return frame_db

    def _find_scale(self, dynamic_range_db: float | None) -> Scale:
        levels = self._levels
        eight_bits = is_colour(self.layout) or levels.full_scale == 255
        unknown = not eight_bits and levels == Levels(0, 2**16 - 1, 2**16 - 1)  # only the largest value can tell
        found = Found(
            "",
            "PixelData",
            (self.n_frames_in_file, *self.shape),
            np.dtype(np.uint16 if unknown else np.uint8),
            lambda index: self._picture(index).levels,
            units=None if unknown else "8-bit",
        )
        scale = find_scale(found, dynamic_range_db, None, self.path)
        if eight_bits or unknown:
            return scale
        notes = (*scale.assumptions, *filter(None, [levels.note]))
        return replace(scale, units="grey", full_scale=levels.full_scale, assumptions=notes)

    def _find_place(self) -> tuple[str, ...]:
        """Sets the geometry, from frames all over the file: it does not depend on which of them are processed."""
        height, width = self.shape
        most = min(FRAMES_USED, self.n_frames_in_file, max(1, SECTOR_BYTES // (4 * height * width)))
        pictures: list[Picture] = []
        for index in np.unique(np.linspace(0, self.n_frames_in_file - 1, most).round().astype(int)):
            try:
                pictures.append(self._picture(int(index)))
            except InputError as error:
                damage = error
        if not pictures:
            raise damage
        frames_db = np.stack([self._to_db(picture) for picture in pictures])
        self.geometry, region, notes = find_place(self.attributes, frames_db, self.dynamic_range_db)
        self._region_mask = None if region is None else region.mask(self.shape)
        sector = self.geometry.sector
        image = np.ones(self.shape, bool) if sector is None else sector_mask(sector, self.shape)
        colours = [~grey[image] for grey in (picture.grey() for picture in pictures) if grey is not None]
        share = sum(float(colour.mean()) for colour in colours) / len(pictures)
        if share > 0:
            notes += (f"Colour is left as it is: {100 * share:.2g} % of the pixels in the image.",)
        return notes


def find_levels(header: Header, layout: Layout) -> Levels:
    """How the stored values of grey frames become levels, by Photometric Interpretation, bits and window."""
    largest = 2**layout.bits_stored - 1
    low, high, note = 0.0, float(largest), ""
    centre, width = (numbers(header.attributes, f"Window{name}")[:1] for name in ("Center", "Width"))
    if layout.bits_stored > 8 and centre and width and 1 < width[0] < 2**17 and abs(centre[0]) < 2**17:
        low, high = (centre[0] - 0.5 + side * (width[0] - 1) / 2 for side in (-1, 1))  # PS3.3 C.11.2.1.2.1
        note = "The window in the file spans the dynamic range."
    if layout.photometric == "MONOCHROME1":
        low, high = high, low
    return Levels(low, high, abs(high - low), note)
