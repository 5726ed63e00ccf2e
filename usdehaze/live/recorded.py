"""A scan in a file, played at its own rate."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event

import numpy as np

from usdehaze.io import Reading, open_scan
from usdehaze.live.stream import Frame, Frames, FrameSource, Stream
from usdehaze.preview import frame_time_s


class Recorded(FrameSource):
    """Any file that ``usdehaze process`` reads; geometry and units are those that it finds.

    Args:
        path: the file.
        reading: what it leaves unsaid.

    Raises:
        InputError: see `usdehaze.io.open_scan`.
    """

    first_frames = 0

    def __init__(self, path: Path, reading: Reading) -> None:
        self.name, self._scan = str(path), open_scan(path, reading)
        self._times_s = times_of(self._scan.frame_times_s, self._scan.n_frames)

    def frames(self, every: bool, stop: Event) -> Frames:
        began_s, index, missed = time.monotonic(), 0, 0
        due_s = self._times_s - self._times_s[0]
        while index < len(due_s) and not stop.wait(max(0.0, began_s + due_s[index] - time.monotonic())):
            if not every:  # what is due by now, if reading has taken that long
                now = int(np.searchsorted(due_s, time.monotonic() - began_s, side="right")) - 1
                missed, index = max(0, now - index), max(now, index)
            cine = self._scan.read(index, index + 1)
            mask = None if cine.tissue_mask is None else cine.tissue_mask[0]
            at_s = float(self._times_s[index])
            yield Frame(time.monotonic(), cine.frames[0], mask=mask, at_s=at_s, missed=missed)
            index += 1

    def stream(self, first: list[Frame]) -> Stream:
        scan = self._scan
        how = frame_time_s(scan.frame_times_s)
        return Stream(scan.path, scan.shape, scan.geometry, scan.dynamic_range_db, scan.source, np.asarray, how)

    def close(self) -> None:
        self._scan.close()


def times_of(times_s: np.ndarray | None, n_frames: int) -> np.ndarray:
    """``(n_frames,)`` s at which frames are shown: their own, if these rise, else evenly spaced ones."""
    if times_s is None or not np.isfinite(times_s).all() or (np.diff(times_s) < 0).any():
        return np.arange(n_frames) * frame_time_s(times_s)
    return np.asarray(times_s, np.float64)
