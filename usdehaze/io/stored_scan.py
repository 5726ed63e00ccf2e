"""A scan in a file: its stored values as dB, and what had to be found out about them."""

from __future__ import annotations

import os
from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from usdehaze.budget import spending
from usdehaze.cine import Cartesian, Cine, Geometry, Source
from usdehaze.errors import InputError
from usdehaze.geometry.sector import find_sector, frames_used
from usdehaze.io.detect import sha256_of
from usdehaze.io.limits import check_frames
from usdehaze.io.reading import Reading
from usdehaze.io.scan import Scan, check_image
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.unchanged import Fingerprint
from usdehaze.io.units import find_decibel_scale

SECTOR_FRAMES = 64  # spread over the scan, of which the sector finder takes those that it uses
SECTOR_BYTES = 2**28  # that these frames may fill


class OpenFile(Protocol):
    """What is held open between frames."""

    def close(self) -> None:
        """Closes it."""


class StoredScan(Scan):
    """Frames in a file with what had to be found out about them: units, full scale, and geometry.

    The geometry is the file's own, else a sector found in the image, else a rectangle. Scans can be pickled, and used
    after a fork: the file is then opened again.

    Args:
        path: the file or folder.
        reading: which frames to read, and what the file leaves unsaid.

    Raises:
        InputError: anything in the file that stands in the way, in one line.
    """

    _file: OpenFile | None = None
    _stored: StoredCine | None = None
    _opened_by = 0

    def __init__(self, path: str | os.PathLike[str], reading: Reading) -> None:
        self.path, self.reading = Path(path), reading
        self._fingerprint, sha256 = Fingerprint.of(self.path), ""
        try:
            stored = self._opened()
            first, stop = reading.frame_range(stored.shape[0], path)
            self.n_frames, self.shape = stop - first, stored.shape[1:]
            with self._errors():
                self._scale = find_decibel_scale(stored, reading, path)
                self.dynamic_range_db = self._scale.dynamic_range_db
                self.geometry, notes = self._find_geometry(stored)
            sha256 = sha256_of(path)
            self._fingerprint.check()
        except BaseException as error:
            self.close()
            if isinstance(error, InputError):
                self._fingerprint.check()
            raise
        self.frame_times_s = None if stored.frame_times_s is None else stored.frame_times_s[first:stop]
        self.source = Source(
            name=self.path.name,
            sha256=sha256,
            dataset=stored.dataset,
            layout=stored.layout,
            units=self._scale.units,
            assumptions=self._scale.assumptions + notes,
            first_frame=first,
        )

    @abstractmethod
    def _open(self) -> StoredCine:
        """Opens the file, kept in ``_file`` where it stays open, and finds the frames in it."""

    def _errors(self) -> AbstractContextManager[None]:
        """Turns what the library that reads the file stumbles over into an `InputError`."""
        return nullcontext()

    def _find_geometry(self, stored: StoredCine) -> tuple[Geometry, tuple[str, ...]]:
        """Geometry of the frames, and what had to be assumed, one sentence each."""
        if stored.geometry is not None:
            return stored.geometry, ()
        floor = -np.inf if self._scale.units == "dB" else 0

        def to_db(values: np.ndarray) -> np.ndarray:
            return self._scale.to_db(np.where(np.isfinite(values), values, floor))

        chosen = sector_frames(stored.shape, SECTOR_FRAMES)
        frames_db = np.empty((len(chosen), *stored.shape[1:]), np.float32)
        for row, index in enumerate(chosen):
            frames_db[row] = to_db(stored.read(index))
        row_m, column_m = stored.spacing_m or (1.0, 1.0)
        sector = find_sector(frames_db, -self.dynamic_range_db, row_m / column_m)
        known = "No geometry in the file" if stored.spacing_m is None else "The file gives the pixel grid alone"
        if sector is None:
            note = f"{known} and no sector found: the frames are taken as a rectangle."
            return Cartesian(stored.spacing_m, stored.origin_m, None, "none"), (note,)
        square = ", pixels taken as square" if stored.spacing_m is None else ""
        note = f"{known}: the sector was found in the image{square}."
        return Cartesian(stored.spacing_m, stored.origin_m, sector, "sector finder"), (note,)

    def _opened(self) -> StoredCine:
        """The frames, in a file that this very process has opened: handles do not survive a fork."""
        if self._stored is None or self._opened_by != os.getpid():
            self._opened_by = os.getpid()
            with spending(self.path), self._errors():
                self._stored = self._open()
                check_frames(self._stored.shape, self.path)
        return self._stored

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_file", "_stored")}

    def read(self, start: int = 0, stop: int | None = None) -> Cine:
        try:
            return super().read(start, stop)
        except InputError:
            self.check_unchanged()
            raise

    def check_unchanged(self) -> None:
        try:
            self._fingerprint.check()
        except InputError:
            if not self.path.exists() or sha256_of(self.path) != self.source.sha256:
                raise

    def read_db(self, start: int, stop: int) -> np.ndarray:
        stored, first = self._opened(), self.source.first_frame
        frames_db = np.empty((stop - start, *self.shape), dtype=np.float32)
        with self._errors():
            for row, index in enumerate(range(first + start, first + stop)):
                frames_db[row] = self._to_db(stored.read(index), index)
        return frames_db

    def _to_db(self, values: np.ndarray, index: int) -> np.ndarray:
        """``(H, W)`` stored values of frame ``index`` of the file as float32 dB, checked."""
        where = self._name_of(index)
        usable = np.isfinite(values)
        if self._scale.units == "dB":
            usable |= np.isneginf(values)  # log of a zero echo: the floor
        if not usable.all():
            bad = values.size - int(np.count_nonzero(usable))
            raise InputError(
                self.path,
                f"{where} has {bad} values that are not numbers (NaN or infinite)",
                advice="leave it out with --frames",
            )
        frame_db = self._scale.to_db(values)
        check_image(frame_db, where, self.path)
        return frame_db

    def _name_of(self, index: int) -> str:
        """What messages call frame ``index`` of the file."""
        dataset = self.source.dataset
        return f"frame {index} of dataset {dataset!r}" if dataset else f"frame {index}"

    def close(self) -> None:
        if self._file is not None and self._opened_by == os.getpid():
            self._file.close()
        self._file = self._stored = None


def sector_frames(shape: tuple[int, int, int], most: int) -> list[int]:
    """Which frames of a scan the sector finder is shown: from all over it, whichever are read afterwards.

    Args:
        shape: ``(T, H, W)`` of the scan.
        most: frames to choose among, evenly spread; fewer where they would fill more than `SECTOR_BYTES` as float32.
    """
    n_frames, height, width = shape
    most = min(most, n_frames, max(1, SECTOR_BYTES // (4 * height * width)))
    spread = np.linspace(0, n_frames - 1, most).round().astype(int)
    return [int(index) for index in spread[frames_used(most)]]
