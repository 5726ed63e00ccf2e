"""HDF5 file -> Scan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from usdehaze.cine import Cartesian, Geometry, Source
from usdehaze.errors import InputError
from usdehaze.io.detect import sha256_of
from usdehaze.io.h5 import check_frame, open_h5, reading
from usdehaze.io.layouts import Found, recognise
from usdehaze.io.scan import Scan, selection
from usdehaze.io.units import Scale, find_scale

SECTOR_FRAMES = 64  # that the sector finder looks at, spread over the dataset
SECTOR_BYTES = 2**28  # that these frames may fill


class Hdf5Scan(Scan):
    """Frames in an HDF5 file, with their geometry: the file's own, else a sector found in the image, else a rectangle.

    Args:
        path: the file.
        dataset: path of the dataset inside it; needed only where several could be the frames.
        axes: one letter for each dimension of the dataset as it is stored, longer than one: T, H, W and C for colour
            channels; needed only where the guess of `usdehaze.io.layouts.axes` is wrong.
        dynamic_range_db: dB between full scale and the floor; by default what the file says, else 60.
        frames: which frames, as a slice without a step; all by default.
        units: what the stored values are, where the guess of `usdehaze.io.units` is wrong:
            "dB", "8-bit", "grey", "envelope" or "I/Q".

    Raises:
        InputError: anything in the file that stands in the way, in one line.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        dataset: str | None = None,
        axes: str | None = None,
        dynamic_range_db: float | None = None,
        frames: slice | None = None,
        units: str | None = None,
    ) -> None:
        self.path = Path(path)
        self._layout = (dataset, axes)
        try:
            found = self._open()
            first, stop = selection(frames, found.shape[0], path)
            self.n_frames, self.shape = stop - first, found.shape[1:]
            with reading(path):
                self._scale = find_scale(found, dynamic_range_db, units, path)
                assumptions = self._scale.assumptions
                if found.geometry is None:
                    self.geometry, note = _look_for_sector(found, self._scale)
                    assumptions += (note,)
                else:
                    self.geometry = found.geometry
        except BaseException:
            self.close()
            raise
        self.dynamic_range_db = self._scale.dynamic_range_db
        self.frame_times_s = None if found.frame_times_s is None else found.frame_times_s[first:stop]
        self.source = Source(
            name=self.path.name,
            sha256=sha256_of(path),
            dataset=found.dataset,
            layout=found.layout,
            units=self._scale.units,
            assumptions=assumptions,
            first_frame=first,
        )

    _file: h5py.File | None = None
    _found: Found | None = None
    _opened_by = 0

    def _open(self) -> Found:
        """The frames, in a file that this very process has opened: handles do not survive a fork."""
        if self._found is None or self._opened_by != os.getpid():
            self._file, self._opened_by = open_h5(self.path), os.getpid()
            with reading(self.path):
                self._found = recognise(self._file, self.path, *self._layout)
                check_frame(self._found.shape[1:], self.path)
        return self._found

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_file", "_found")}

    def read_db(self, start: int, stop: int) -> np.ndarray:
        found = self._open()
        frames_db = np.empty((stop - start, *self.shape), dtype=np.float32)
        with reading(self.path):
            for row, index in enumerate(range(self.source.first_frame + start, self.source.first_frame + stop)):
                frames_db[row] = _frame_db(found, self._scale, index, self.path)
        return frames_db

    def close(self) -> None:
        if self._file is not None and self._opened_by == os.getpid():
            self._file.close()
        self._file = self._found = None


def _frame_db(found: Found, scale: Scale, index: int, path: object) -> np.ndarray:
    """Frame ``index`` as ``(H, W)`` float32 dB, checked."""
    stored = found.read(index)
    usable = np.isfinite(stored)
    if scale.units == "dB":
        usable |= np.isneginf(stored)  # log of a zero echo: the floor
    if not usable.all():
        bad = stored.size - int(np.count_nonzero(usable))
        raise InputError(
            path,
            f"frame {index} of dataset {found.dataset!r} has {bad} values that are not numbers (NaN or infinite)",
            advice="leave it out with --frames",
        )
    frame = scale.to_db(stored)
    if frame.min() == frame.max():
        raise InputError(
            path,
            f"frame {index} of dataset {found.dataset!r} is constant ({frame.flat[0]:g} dB everywhere)",
            "frames with an image in them",
            "leave it out with --frames",
        )
    return frame


def _look_for_sector(found: Found, scale: Scale) -> tuple[Geometry, str]:
    """Geometry of frames about which the file says nothing, and the sentence that says so.

    Looks at frames from all over the dataset, so that the sector does not depend on which of them are processed.
    """
    from usdehaze.geometry import find_sector

    n_frames, height, width = found.shape
    most = min(SECTOR_FRAMES, n_frames, max(1, SECTOR_BYTES // (4 * height * width)))
    chosen = np.linspace(0, n_frames - 1, most).round().astype(int)
    floor = -np.inf if scale.units == "dB" else 0
    frames_db = np.empty((most, height, width), np.float32)
    for row, index in enumerate(chosen):
        frame = found.read(int(index))
        frames_db[row] = scale.to_db(np.where(np.isfinite(frame), frame, floor))
    row_m, column_m = found.spacing_m or (1.0, 1.0)
    sector = find_sector(frames_db, -scale.dynamic_range_db, row_m / column_m)
    place = Cartesian(found.spacing_m, found.origin_m, sector, "none" if sector is None else "sector finder")
    known = "No geometry in the file" if found.spacing_m is None else "The file gives the pixel grid alone"
    if sector is None:
        return place, f"{known} and no sector found: the frames are taken as a rectangle."
    square = ", pixels taken as square" if found.spacing_m is None else ""
    return place, f"{known}: the sector was found in the image{square}."
