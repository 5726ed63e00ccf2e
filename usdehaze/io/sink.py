"""Sink: a file made from a result, a few frames at a time; and sets of them, which appear together."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from usdehaze.io import together
from usdehaze.io.atomic import PartFile, writing
from usdehaze.io.scan import Scan
from usdehaze.stopping import uninterrupted

if TYPE_CHECKING:
    from usdehaze.result import Result

_Self = TypeVar("_Self", bound="Sink")


class Sink(ABC):
    """A context manager that results are appended to in the order of their frames.

    The file appears under its name, whole, when the block ends without an error; else nothing of it remains. Entering
    the block claims the name, so that two runs never write one file. `SinkSet` writes several as one thing.

    A kind of file is a subclass with `_append`, which writes to ``self.part.path``, and `_close`.

    Args:
        path: the file to write.
        scan: what the frames come from: their number, shape, geometry, times and source are known before any result.
        overwrite: replace a file that exists.

    Raises:
        InputError: on entering, see `usdehaze.io.atomic.PartFile`; later, a full disk and other errors of the system;
            in the end, where the scan's file is another by then.
    """

    part: PartFile

    def __init__(self, path: str | os.PathLike[str], scan: Scan, overwrite: bool = False) -> None:
        self.path, self.scan, self.overwrite = Path(path), scan, overwrite
        self.n_done = 0

    def append(self, result: Result) -> None:
        """Writes the next frames: ``result.cine``, ``tissue``, ``haze`` and ``std``, each ``(n, H, W)`` dB."""
        with uninterrupted(), writing(self.path):  # an exception inside the HDF5 library's own calls would crash it
            self._append(result)
        self.n_done += len(result.tissue)

    @abstractmethod
    def _append(self, result: Result) -> None:
        """Writes frames; ``self.n_done`` were written before."""

    @abstractmethod
    def _close(self, complete: bool) -> None:
        """Lets go of the file; ``complete`` where every frame was written, else it is removed afterwards."""

    def claim(self) -> None:
        """Claims the name."""
        self.part = PartFile(self.path, self.overwrite, [self.scan.path])

    def finish(self) -> None:
        """Completes the file, still under its temporary name."""
        if self.n_done != self.scan.n_frames:
            raise RuntimeError(f"{self.n_done} of {self.scan.n_frames} frames written to {self.path.name}")
        with uninterrupted(), writing(self.path):
            self._close(complete=True)

    def discard(self) -> None:
        """Lets go of the file and removes it."""
        with uninterrupted():
            with suppress(Exception):  # the error that brought us here is the one to tell
                self._close(complete=False)
            self.part.discard()

    def __enter__(self: _Self) -> _Self:
        self.claim()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.finish()
                self.scan.check_unchanged()
                self.part.commit()
                return
        except BaseException:
            self.discard()
            raise
        self.discard()


class SinkSet:
    """Several sinks of one scan as one thing: all are completed, then all appear under their names, back to back.

    A context manager like `Sink`. Where a process dies between two of the names, the next run finishes the set: see
    `usdehaze.io.together.finish`.

    Args:
        sinks: the files; the first is the result.
        scan: what they come from.
    """

    def __init__(self, sinks: Sequence[Sink], scan: Scan) -> None:
        self.sinks, self.scan = list(sinks), scan
        self._claimed: list[Sink] = []
        self._more: list[PartFile] = []

    def append(self, result: Result) -> None:
        """See `Sink.append`."""
        for sink in self.sinks:
            sink.append(result)

    def leave_out(self, sink: Sink) -> None:
        """Goes on without one of the files, of which nothing remains."""
        sink.discard()
        self.sinks.remove(sink)
        self._claimed.remove(sink)

    def finish(self) -> None:
        """Completes all files."""
        for sink in self.sinks:
            sink.finish()

    def add(self, path: Path, overwrite: bool, write: Callable[[Path], object]) -> None:
        """Adds a file that is made from the completed others; ``write`` gets its temporary name.

        Raises:
            InputError: it cannot be written, or what ``write`` raises; the set is then without it.
        """
        part = PartFile(path, overwrite, [self.scan.path])
        try:
            with writing(path):
                write(part.path)
        except BaseException:
            part.discard()
            raise
        self._more.append(part)

    def commit(self) -> None:
        """Gives all files their names.

        Raises:
            InputError: the scan's file is another by now, or a name cannot be taken.
        """
        parts = [*(sink.part for sink in self.sinks), *self._more]
        self.scan.check_unchanged()
        together.prepare(parts)
        if len(parts) > 1:
            self._claimed, self._more = [], []  # they stay, whatever happens now: the set is finished here or later
        together.commit(parts)
        self._claimed = []

    def __enter__(self) -> SinkSet:
        try:
            for sink in self.sinks:
                sink.claim()
                self._claimed.append(sink)
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()  # what was not committed

    def _discard(self) -> None:
        for sink in reversed(self._claimed):
            sink.discard()
        for part in self._more:
            part.discard()
        self._claimed, self._more = [], []
