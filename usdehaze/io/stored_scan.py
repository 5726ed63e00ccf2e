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
from usdehaze.geometry.sector import Fit, find_fan, frames_used
from usdehaze.geometry.upright import turned_symmetry
from usdehaze.io.detect import sha256_of
from usdehaze.io.gaps import gaps_outside, note_on_gaps
from usdehaze.io.limits import check_frames
from usdehaze.io.names import readable
from usdehaze.io.reading import Reading
from usdehaze.io.scan import Scan, check_image
from usdehaze.io.stored_cine import StoredCine, turned
from usdehaze.io.unchanged import Fingerprint
from usdehaze.io.units import find_decibel_scale
from usdehaze.notes import Guess, refuse_guesses

SECTOR_FRAMES = 64  # spread over the scan, of which the sector finder takes those that it uses
ON_ITS_SIDE = 0.05  # see `turned_symmetry`; -0.6 to 0.04 in real images
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
        self.path, self.reading, self._lies_on_its_side = Path(path), reading, False
        self._fingerprint, sha256 = Fingerprint.of(self.path), ""
        try:
            stored = self._opened()
            first, stop = reading.frame_range(stored.shape[0], path)
            self.n_frames, self.shape = stop - first, stored.shape[1:]
            with self._errors():
                self._scale = find_decibel_scale(stored, reading, path)
                self.dynamic_range_db = self._scale.dynamic_range_db
                self.geometry, notes = self._find_geometry(stored)
                self.shape = self._opened().shape[1:]
            notes = self._scale.assumptions + notes
            if stored.frame_times_s is None and stored.shape[0] > 1:
                notes += ("No frame times in the file.",)
            if reading.strict:
                refuse_guesses(notes, path)
            sha256 = self._hash()
        except BaseException as error:
            self.close()
            if isinstance(error, InputError):
                self._fingerprint.check()
            raise
        self.frame_times_s = None if stored.frame_times_s is None else stored.frame_times_s[first:stop]
        self.source = Source(
            name=readable(self.path.name),
            sha256=sha256,
            dataset=stored.dataset,
            layout=stored.layout,
            units=self._scale.units,
            assumptions=notes,
            first_frame=first,
        )

    def _hash(self) -> str:
        """SHA-256 of the file, once it is sure that it is the one that was looked at."""
        sha256 = sha256_of(self.path)
        self._fingerprint.check()
        return sha256

    @abstractmethod
    def _open(self) -> StoredCine:
        """Opens the file, kept in ``_file`` where it stays open, and finds the frames in it."""

    def _errors(self) -> AbstractContextManager[None]:
        """Turns what the library that reads the file stumbles over into an `InputError`."""
        return nullcontext()

    def _find_geometry(self, stored: StoredCine) -> tuple[Geometry, tuple[str, ...]]:
        """Geometry of the frames, and what had to be assumed, one sentence each."""
        asked = self.reading.frame_range(stored.shape[0], self.path)[0]
        chosen = sector_frames(stored.shape, SECTOR_FRAMES) if stored.geometry is None else [asked]
        values = [stored.read(index) for index in chosen]
        notes = note_on_gaps(values)
        if stored.geometry is not None:
            return stored.geometry, notes
        fit = None if self.reading.rectangle else self._find_fan(stored, values)
        order = stored.guessed_axes
        if self._lies_on_its_side:
            self._stored = stored = turned(stored)
            order = order.translate(str.maketrans("HW", "WH"))
            notes += (Guess(f"The fan lies on its side in the file: axes taken as {order}.", "--axes"),)
        elif order not in ("", "HW", "THW"):
            notes += (Guess(f"Axes taken as {order}{stored.axes_because}.", "--axes"),)
        spacing_m = stored.spacing_m
        known = "No geometry in the file" if spacing_m is None else "The file gives the pixel grid alone"
        if fit is None:
            if not self.reading.rectangle:
                told = f"{known} and no sector found: the frames are taken as a rectangle."
                notes += (Guess(told, "--rectangle"),)
            return Cartesian(spacing_m, stored.origin_m, None, "none"), notes
        square = ", pixels taken as square" if spacing_m is None else ""
        notes += (f"{known}: the sector was found in the image{square}.",)
        return Cartesian(spacing_m, stored.origin_m, fit.sector, "sector finder"), notes

    def _find_fan(self, stored: StoredCine, values: list[np.ndarray]) -> Fit | None:
        """The fan in some frames, and in ``_lies_on_its_side`` whether rows and columns are the other way round."""
        row_m, column_m = stored.spacing_m or (1.0, 1.0)
        floor_db = -self.dynamic_range_db
        frames_db = np.stack([self._scale.to_db(np.where(np.isfinite(v), v, self._scale.floor)) for v in values])
        fit = find_fan(frames_db, floor_db, row_m / column_m)
        if not stored.guessed_axes or (fit and fit.certain) or turned_symmetry(frames_db, floor_db) < ON_ITS_SIDE:
            return fit
        lying = find_fan(frames_db.swapaxes(1, 2), floor_db, column_m / row_m)
        self._lies_on_its_side = lying is not None
        return lying or fit

    def _opened(self) -> StoredCine:
        """The frames, in a file that this very process has opened: handles do not survive a fork."""
        if self._stored is None or self._opened_by != os.getpid():
            self._opened_by = os.getpid()
            with spending(self.path), self._errors():
                self._stored = turned(self._open()) if self._lies_on_its_side else self._open()
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
        frame_db = self._numbers_to_db(values, where)
        check_image(frame_db, where, self.path)
        return frame_db

    def _numbers_to_db(self, values: np.ndarray, where: str) -> np.ndarray:
        """The same, of a frame that may be of one value."""
        usable = np.isfinite(values)
        if not usable.all():
            outside = gaps_outside(values)
            values, usable = np.where(outside, self._scale.floor, values), usable | outside
        if self._scale.units == "dB":
            usable |= np.isneginf(values)  # log of a zero echo: the floor
        if not usable.all():
            bad = values.size - int(np.count_nonzero(usable))
            raise InputError(
                self.path,
                f"{where} has {bad} values that are not numbers (NaN or infinite)",
                advice="leave it out with --frames",
            )
        return self._scale.to_db(values)

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
