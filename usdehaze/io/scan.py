"""Scan: an opened file of frames, read a few at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np

from usdehaze.cine import Cine, Geometry, Source, blocks
from usdehaze.errors import InputError
from usdehaze.io.reading import Reading


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
        reading: how it was opened.
    """

    path: Path
    n_frames: int
    shape: tuple[int, int]
    geometry: Geometry
    dynamic_range_db: float
    frame_times_s: np.ndarray | None
    source: Source
    reading = Reading()

    @abstractmethod
    def read_db(self, start: int, stop: int) -> np.ndarray:
        """Frames ``start`` to ``stop - 1`` as ``(stop - start, H, W)`` float32 dB, each checked.

        Raises:
            InputError: a frame that cannot be used.
        """

    @abstractmethod
    def close(self) -> None:
        """Lets go of the file."""

    def check_unchanged(self) -> None:  # noqa: B027 (what is in memory does not change)
        """Refuses what was read if the file has become another meanwhile, by size, time, identity or content.

        Raises:
            InputError: it has; says what happened.
        """

    def _read_with_mask(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        """As `read_db`, and the ``tissue_mask`` of these frames, see `usdehaze.cine.Cine`."""
        return self.read_db(start, stop), None

    def read(self, start: int = 0, stop: int | None = None) -> Cine:
        """Frames ``start`` to ``stop - 1`` (all by default) as a cine that knows where in the file it begins.

        Raises:
            InputError: a frame that cannot be used, or that there is not among those asked for.
        """
        stop = self.n_frames if stop is None else stop
        if not 0 <= start < stop <= self.n_frames:
            raise InputError(self.path, f"no frames {start}:{stop}", f"frames within 0:{self.n_frames}")
        times = None if self.frame_times_s is None else self.frame_times_s[start:stop]
        frames_db, tissue_mask = self._read_with_mask(start, stop)
        source = replace(self.source, first_frame=self.source.first_frame + start)
        try:
            return Cine(frames_db, self.geometry, self.dynamic_range_db, times, source, tissue_mask)
        except ValueError as error:
            raise InputError(self.path, str(error)) from error

    def chunks(self, n_frames: int) -> Iterator[Cine]:
        """All frames in order, at most ``n_frames`` at a time.

        Raises:
            InputError: a frame that cannot be used.
        """
        for block in blocks(self.n_frames, n_frames):
            yield self.read(block.start, block.stop)

    def __enter__(self) -> Scan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class CineScan(Scan):
    """A cine in memory as a scan; ``path`` is where it was read from, by default the name that its source has."""

    def __init__(self, cine: Cine, path: Path | None = None) -> None:
        self.path = path or Path(cine.source.name)
        self.n_frames, *size = cine.frames.shape
        self.shape = (size[0], size[1])
        self.geometry, self.dynamic_range_db = cine.geometry, cine.dynamic_range_db
        self.frame_times_s, self.source = cine.frame_times_s, cine.source
        self._frames = cine.frames

    def read_db(self, start: int, stop: int) -> np.ndarray:
        return self._frames[start:stop]

    def close(self) -> None:
        pass
