"""A scan whose values are known by their numbers alone: HDF5 datasets, images."""

from __future__ import annotations

import os
from abc import abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.cine import Cartesian, Geometry, Source
from usdehaze.errors import InputError
from usdehaze.io.detect import sha256_of
from usdehaze.io.h5 import check_frame
from usdehaze.io.layouts.found import Found
from usdehaze.io.scan import Scan, check_image, selection
from usdehaze.io.units import Scale, find_scale

SECTOR_FRAMES = 64  # that the sector finder looks at, spread over the scan
SECTOR_BYTES = 2**28  # that these frames may fill


class FoundScan(Scan):
    """Frames with what had to be found out about them: units, full scale, and geometry.

    The geometry is the file's own, else a sector found in the image, else a rectangle. Scans can be pickled, and used
    after a fork: the file is then opened again.

    Args:
        path: the file or folder.
        dynamic_range_db: dB between full scale and the floor; by default what the file says, else 60.
        frames: which frames, as a slice without a step; all by default.
        units: what the stored values are, where the guess of `usdehaze.io.units` is wrong:
            "dB", "8-bit", "grey", "envelope" or "I/Q".

    Raises:
        InputError: anything in the file that stands in the way, in one line.
    """

    _found: Found | None = None
    _opened_by = 0

    def __init__(
        self,
        path: str | os.PathLike[str],
        dynamic_range_db: float | None = None,
        frames: slice | None = None,
        units: str | None = None,
    ) -> None:
        self.path = Path(path)
        try:
            found = self._opened()
            first, stop = selection(frames, found.shape[0], path)
            self.n_frames, self.shape = stop - first, found.shape[1:]
            with self._reading():
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

    @abstractmethod
    def _open(self) -> Found:
        """Opens the file and finds the frames in it."""

    @abstractmethod
    def _release(self) -> None:
        """Closes what `_open` opened."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[None]:
        """Turns what the library that reads the file stumbles over into an `InputError`."""

    def _opened(self) -> Found:
        """The frames, in a file that this very process has opened: handles do not survive a fork."""
        if self._found is None or self._opened_by != os.getpid():
            self._opened_by = os.getpid()
            with self._reading():
                self._found = self._open()
                check_frame(self._found.shape[1:], self.path)
        return self._found

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_file", "_found")}

    def read_db(self, start: int, stop: int) -> np.ndarray:
        found = self._opened()
        frames_db = np.empty((stop - start, *self.shape), dtype=np.float32)
        with self._reading():
            for row, index in enumerate(range(self.source.first_frame + start, self.source.first_frame + stop)):
                frames_db[row] = _frame_db(found, self._scale, index, self.path)
        return frames_db

    def close(self) -> None:
        self._found = None
        if self._opened_by == os.getpid():
            self._release()


def _frame_db(found: Found, scale: Scale, index: int, path: object) -> np.ndarray:
    """Frame ``index`` as ``(H, W)`` float32 dB, checked."""
    where = f"frame {index} of dataset {found.dataset!r}" if found.dataset else f"frame {index}"
    stored = found.read(index)
    usable = np.isfinite(stored)
    if scale.units == "dB":
        usable |= np.isneginf(stored)  # log of a zero echo: the floor
    if not usable.all():
        bad = stored.size - int(np.count_nonzero(usable))
        raise InputError(
            path,
            f"{where} has {bad} values that are not numbers (NaN or infinite)",
            advice="leave it out with --frames",
        )
    frame = scale.to_db(stored)
    check_image(frame, where, path)
    return frame


def _look_for_sector(found: Found, scale: Scale) -> tuple[Geometry, str]:
    """Geometry of frames about which the file says nothing, and the sentence that says so.

    Looks at frames from all over the scan, so that the sector does not depend on which of them are processed.
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
