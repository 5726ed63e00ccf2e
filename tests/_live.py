"""Sources and dehazers that stand in for real ones where streams are tested."""

import time

import numpy as np

from usdehaze.io import Reading
from usdehaze.live.stream import Frame, FrameSource, found_in
from usdehaze.result import Result

SETTINGS = {"preset": "preview", "guidance": "learned", "steps": 1, "seed": 0, "posterior": "p sha256:0"}


def dimmed(cine):
    """Stands in for dehazing: takes off 1 dB."""
    tissue = np.maximum(cine.frames - 1, -cine.dynamic_range_db)
    return Result(cine, tissue, np.full_like(tissue, -cine.dynamic_range_db), None, SETTINGS)


class Given(FrameSource):
    """A source of given frames; ``before(index)`` is called before each."""

    name = "given"

    def __init__(self, frames, first_frames=1, before=lambda index: None):
        self.given, self.first_frames, self.before, self.closed = frames, first_frames, before, False

    def frames(self, every, stop):
        for index, values in enumerate(self.given):
            self.before(index)
            yield Frame(time.monotonic(), values)
        self.before(len(self.given))

    def stream(self, first):
        return found_in(first, self.name, Reading(), "given")

    def close(self):
        self.closed = True
