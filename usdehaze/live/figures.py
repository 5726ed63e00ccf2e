"""How a stream is kept up with: counts, rate and latency, in memory that does not grow."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

SHORTEST_S, LONGEST_S = 1e-4, 1e3
STEP = 1.02  # between neighbouring bins: percentiles are right to 2 %
BINS = math.ceil(math.log(LONGEST_S / SHORTEST_S, STEP)) + 1


@dataclass(frozen=True)
class Figures:
    """A count of frames.

    Attributes:
        came: all that the source gave.
        dehazed, dropped, unusable: what became of them; one more may be at work.
        seconds: that this took.
        latencies: ``(BINS,)`` counts of dehazed frames by the time from when a frame was here until its result was.
    """

    came: int
    dehazed: int
    dropped: int
    unusable: int
    seconds: float
    latencies: np.ndarray

    @property
    def frames_per_s(self) -> float:
        """Frames dehazed a second."""
        return self.dehazed / self.seconds if self.seconds > 0 else 0.0

    def latency_s(self, share: float) -> float:
        """Time that this share of the results took at most, s, to 2 %; NaN of none."""
        total = int(self.latencies.sum())
        if total == 0:
            return math.nan
        reached = int(np.searchsorted(np.cumsum(self.latencies), math.ceil(share * total)))
        return float(SHORTEST_S * STEP**reached)

    def since(self, before: Figures) -> Figures:
        """What came after ``before``."""
        return Figures(
            self.came - before.came,
            self.dehazed - before.dehazed,
            self.dropped - before.dropped,
            self.unusable - before.unusable,
            self.seconds - before.seconds,
            self.latencies - before.latencies,
        )

    def line(self) -> str:
        """All of it in words."""
        unusable = f", {self.unusable} unusable" if self.unusable else ""
        latency = ""
        if self.dehazed:
            p50, p99 = (1000 * self.latency_s(share) for share in (0.5, 0.99))
            latency = f", latency {p50:.0f} ms (99th percentile {p99:.0f} ms)"
        return (
            f"{self.came} frames in, {self.dehazed} dehazed, {self.dropped} dropped{unusable}, "
            f"{self.frames_per_s:.1f} frames/s{latency}"
        )


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.dehazed = self.unusable = 0
        self._began_s: float | None = None
        self._latencies = np.zeros(BINS, np.int64)

    def begin(self) -> None:
        """The clock starts."""
        self._began_s = time.monotonic()

    def add(self, latency_s: float) -> None:
        """A frame was dehazed."""
        self.dehazed += 1
        place = math.ceil(math.log(max(latency_s, SHORTEST_S) / SHORTEST_S, STEP))
        self._latencies[min(place, BINS - 1)] += 1

    def figures(self, came: int, dropped: int, left_out: int = 0) -> Figures:
        """The figures of now; what came, was dropped and was left out before, others have counted."""
        seconds = 0.0 if self._began_s is None else time.monotonic() - self._began_s
        return Figures(came, self.dehazed, dropped + left_out, self.unusable, seconds, self._latencies.copy())
