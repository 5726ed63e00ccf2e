"""Scan: an opened file of frames, read a few at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np

from usdehaze.cine import Cine, Geometry, Source
from usdehaze.errors import InputError


class Scan(ABC):
    """What is known of a scan before its frames are read, and the frames a few at a time; a context manager.

    A scan is opened with the frames that were asked for: index 0 is the first of these, ``source.first_frame`` its
    index in the file.

    Attributes:
        path: the file or folder.
        n_frames: frames asked for.
        shape: ``(H, W)`` of a frame.
        geometry: Polar or Cartesian, the same whichever frames were asked for.
        dynamic_range_db: dB between full scale and the floor.
        frame_times_s: ``(n_frames,)`` s, or None where the file does not say.
        source: provenance, with everything that had to be assumed.
    """

    path: Path
    n_frames: int
    shape: tuple[int, int]
    geometry: Geometry
    dynamic_range_db: float
    frame_times_s: np.ndarray | None
    source: Source

    @abstractmethod
    def read_db(self, start: int, stop: int) -> np.ndarray:
        """Frames ``start`` to ``stop - 1`` as ``(stop - start, H, W)`` float32 dB, each checked.

        Raises:
            InputError: a frame that cannot be used.
        """

    @abstractmethod
    def close(self) -> None:
        """Lets go of the file."""

    def read(self, start: int = 0, stop: int | None = None) -> Cine:
        """Frames ``start`` to ``stop - 1`` (all by default) as a cine that knows where in the file it begins.

        Raises:
            InputError: a frame that cannot be used.
        """
        stop = self.n_frames if stop is None else stop
        source = replace(self.source, first_frame=self.source.first_frame + start)
        times = None if self.frame_times_s is None else self.frame_times_s[start:stop]
        try:
            return Cine(self.read_db(start, stop), self.geometry, self.dynamic_range_db, times, source)
        except ValueError as error:
            raise InputError(self.path, str(error)) from error

    def __enter__(self) -> Scan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
