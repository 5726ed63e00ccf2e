"""Files made of a stream: they grow a frame at a time, and appear under their names, whole, in the end."""

from __future__ import annotations

import math
import os

import h5py
import numpy as np

from usdehaze.io.own_files import create_frames
from usdehaze.io.result import ResultWriter
from usdehaze.live.stream import Stream
from usdehaze.preview import DEFAULT_FRAME_TIME_S, PreviewWriter
from usdehaze.result import Result

TIMES_AT_ONCE = 4096  # in a chunk of the file
RESERVE = 2**20  # bytes that a result takes beside the frames, at most
LONGEST_PAUSE_S = 1.0  # that a film shows


class LiveResult(ResultWriter):
    """A result file of a stream, as `ResultWriter` writes it: datasets grow, times and notes are those of the end.

    Where the disk is full it takes no further frame, and can be finished with those that it has.
    """

    @property
    def _reserve(self) -> int:  # type: ignore[override]
        most = 4  # tissue, haze, input, deviation
        return most * math.prod(self.scan.shape) * np.dtype(np.float32).itemsize + RESERVE

    def _create(self, file: h5py.File, name: str) -> None:
        create_frames(file, name, (0, *self.scan.shape), growing=True)
        if "frame_times_s" not in file:
            kind = {"maxshape": (None,), "chunks": (TIMES_AT_ONCE,)}
            file.create_dataset("frame_times_s", (0,), np.float64, **kind)

    def _append(self, result: Result) -> None:
        if self._output is not None and self._output.full is not None:
            raise self._output.full
        super()._append(result)
        assert self._output is not None and result.cine.frame_times_s is not None
        times = self._output.file["frame_times_s"]
        times.resize(self.n_done + 1, axis=0)
        times[self.n_done] = result.cine.frame_times_s[0]

    def _room_for(self, dataset: h5py.Dataset, n_frames: int) -> None:
        dataset.resize(n_frames, axis=0)


class LiveFilm(PreviewWriter):
    """An MP4 of input, tissue and haze that runs as the stream ran: a picture stays until the next one's time.

    Args:
        path: the film.
        stream: what it is of.
        overwrite: replace a file that exists.
        with_screen: see `PreviewWriter`.
    """

    def __init__(self, path: str | os.PathLike[str], stream: Stream, overwrite: bool, with_screen: bool) -> None:
        super().__init__(path, stream, "mp4", overwrite=overwrite, with_screen=with_screen)
        self.shown_s = stream.frame_time_s or DEFAULT_FRAME_TIME_S
        self._at_s = 0.0  # until when pictures are shown
        self._last: Result | None = None

    def _append(self, result: Result) -> None:
        assert result.cine.frame_times_s is not None
        at_s = float(result.cine.frame_times_s[0])
        if self._last is None:
            self._at_s = at_s
        self._at_s = max(self._at_s, at_s - LONGEST_PAUSE_S)
        while self._last is not None and self._at_s < at_s - self.shown_s / 2:
            self._show(self._last)
        if self._at_s <= at_s + self.shown_s / 2:  # else faster than the film: its picture stands for this one, too
            self._show(result)
        self._last = result

    def _show(self, result: Result) -> None:
        super()._append(result)
        self._at_s += self.shown_s
