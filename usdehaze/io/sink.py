"""Sink: a file made from a result, a few frames at a time."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from usdehaze.io.atomic import PartFile, writing
from usdehaze.io.scan import Scan

if TYPE_CHECKING:
    from usdehaze.result import Result

_Self = TypeVar("_Self", bound="Sink")


class Sink(ABC):
    """A context manager that results are appended to in the order of their frames.

    The file appears under its name, whole, when the block ends without an error; else nothing of it remains. Entering
    the block claims the name, so that two runs never write one file.

    A kind of file is a subclass with `_append`, which writes to ``self.part.path``, and `_close`.

    Args:
        path: the file to write.
        scan: what the frames come from: their number, shape, geometry, times and source are known before any result.
        overwrite: replace a file that exists.

    Raises:
        InputError: on entering, see `usdehaze.io.atomic.PartFile`; later, a full disk and other errors of the system.
    """

    part: PartFile

    def __init__(self, path: str | os.PathLike[str], scan: Scan, overwrite: bool = False) -> None:
        self.path, self.scan, self.overwrite = Path(path), scan, overwrite
        self.n_done = 0

    def append(self, result: Result) -> None:
        """Writes the next frames: ``result.cine``, ``tissue``, ``haze`` and ``std``, each ``(n, H, W)`` dB."""
        with writing(self.path):
            self._append(result)
        self.n_done += len(result.tissue)

    @abstractmethod
    def _append(self, result: Result) -> None:
        """Writes frames; ``self.n_done`` were written before."""

    @abstractmethod
    def _close(self, complete: bool) -> None:
        """Lets go of the file; ``complete`` where every frame was written, else it is removed afterwards."""

    def __enter__(self: _Self) -> _Self:
        self.part = PartFile(self.path, self.overwrite)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                if self.n_done != self.scan.n_frames:
                    raise RuntimeError(f"{self.n_done} of {self.scan.n_frames} frames written to {self.path.name}")
                with writing(self.path):
                    self._close(complete=True)
                self.part.commit()
                return
            with suppress(Exception):  # the error that brought us here is the one to tell
                self._close(complete=False)
        except BaseException:
            self.part.discard()
            raise
        self.part.discard()
