"""Rate, latency and memory of ``usdehaze live`` on this machine: ``python -m validation.live``.

    python -m validation.live --seconds 60                          # 30 frames/s of 256 x 128, two threads
    python -m validation.live --fan 480 --write --web               # as from a screen; to a file and a page, too
    python -m validation.live --frames 108000 --every-frame         # an hour's worth, as fast as it goes

Simulated frames, over and over, are given at a fixed rate to the very loop of the command. Latency counts from when a
frame is there until its result is.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import numpy as np
import torch

from usdehaze.cine import Cine, Polar, Source
from usdehaze.decibels import db_to_grey
from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.geometry.sector import FRAMES_USED
from usdehaze.io.reading import Reading
from usdehaze.io.sink import Sink
from usdehaze.live import run
from usdehaze.live.figures import Figures
from usdehaze.live.files import LiveResult
from usdehaze.live.screen import Screen
from usdehaze.live.stream import Frame, Frames, FrameSource, Stream, found_in
from usdehaze.live.web import WebScreen
from usdehaze.preview import scan_convert
from usdehaze.simulate import simulate_cine

DISTINCT = 8  # frames, over and over
PARTS = 10  # of the run, after each of which memory is looked at


class Synthetic(FrameSource):
    """Frames of a cine over and over, at a rate or as fast as they are taken.

    Args:
        cine: in dB, polar.
        fan_rows: rows of the fan that is made of it, 8-bit, its sector unknown; None for the polar frames.
        rate: frames a second; None for as fast as it goes.
        count: frames in all.
    """

    name = "simulated frames"

    def __init__(self, cine: Cine, fan_rows: int | None, rate: float | None, count: int) -> None:
        self._cine, self._fan, self._rate, self._count = cine, fan_rows is not None, rate, count
        self.first_frames = FRAMES_USED if self._fan else 0
        self._values: Sequence[np.ndarray] = list(cine.frames)
        if fan_rows is not None and isinstance(cine.geometry, Polar):
            grey = db_to_grey(cine.frames, cine.dynamic_range_db)
            self._values = [scan_convert(frame, cine.geometry, fan_rows) for frame in grey]

    @property
    def shape(self) -> tuple[int, ...]:
        """``(H, W)``."""
        return self._values[0].shape

    def frames(self, every: bool, stop: Event) -> Frames:
        began_s = time.monotonic()
        for index in range(self._count):
            due_s = began_s if self._rate is None else began_s + index / self._rate
            if stop.wait(max(0.0, due_s - time.monotonic())):
                return
            yield Frame(time.monotonic(), self._values[index % len(self._values)])

    def stream(self, first: list[Frame]) -> Stream:
        if self._fan:
            return found_in(first, self.name, Reading(), self.name)
        cine = self._cine
        shape = (cine.frames.shape[1], cine.frames.shape[2])
        source = Source(name=self.name)
        return Stream(Path(self.name), shape, cine.geometry, cine.dynamic_range_db, source, np.asarray)


class Memory:
    """Resident memory, MiB, after each part of a run."""

    def __init__(self, count: int) -> None:
        self._next, self._step, self.mebibytes = count // PARTS, count // PARTS, list[float]()

    def __call__(self, figures: Figures) -> None:
        if figures.came >= self._next and len(self.mebibytes) < PARTS:
            self._next += self._step
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.mebibytes.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def look_on(address: str) -> None:
    """A browser's part: takes the pictures as they come."""

    def read() -> None:
        try:
            with urllib.request.urlopen(address + "stream") as stream:
                while stream.read(2**16):
                    pass
        except OSError:
            return

    threading.Thread(target=read, daemon=True).start()


def main() -> None:
    """Prints the settings, the figures and the memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="that frames come for")
    parser.add_argument("--rate", type=float, default=30, help="frames a second")
    parser.add_argument("--frames", type=int, help="in all, instead of --seconds")
    parser.add_argument("--every-frame", action="store_true", help="as fast as they are dehazed, none dropped")
    parser.add_argument("--depth", type=int, default=256)
    parser.add_argument("--angle", type=int, default=128)
    parser.add_argument("--fan", type=int, metavar="ROWS", help="scan-converted to so many rows, the fan to be found")
    parser.add_argument("--write", action="store_true", help="write a result, too")
    parser.add_argument("--web", action="store_true", help="serve the page to a reader, too")
    parser.add_argument("--threads", type=int, default=2, help="CPU cores to use")
    parser.add_argument("--preset", default="preview")
    parser.add_argument("--engine", default="auto")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    count = args.frames or max(PARTS, round(args.seconds * args.rate))
    cine = simulate_cine(DISTINCT, seed=1, n_depth=args.depth, n_angle=args.angle).cine
    source = Synthetic(cine, args.fan, None if args.every_frame else args.rate, count)
    dehazer = Dehazer.from_pretrained(args.preset, device="cpu", engine=args.engine, batch_size=1)
    memory, screens = Memory(count), list[Screen]()
    if args.web:
        screens.append(page := WebScreen(0, False, lambda: ""))
        look_on(page.address)
    with tempfile.TemporaryDirectory() as folder:

        def files(stream: Stream) -> list[Sink]:
            return [LiveResult(Path(folder) / "live.dehazed.h5", stream)] if args.write else []

        how = {"screens": screens, "files": files, "every": args.every_frame, "watch": memory}
        figures = run(source, dehazer.dehaze, Event(), **how)
    for screen in screens:
        screen.close()
    height, width = source.shape
    given = "as fast as it goes" if args.every_frame else f"{args.rate:g} frames/s"
    extras = "".join(f", {name}" for name in ("write", "web") if getattr(args, name))
    engine = dehazer.engine.name if dehazer.engine else "torch"
    where = f"engine {engine}, {args.threads} threads, torch {torch.__version__}"
    print(f"preset {args.preset}, {height} x {width}, {given}{extras}, {where}")
    print(figures.line())
    print(f"resident MiB after each tenth: {', '.join(f'{value:.0f}' for value in memory.mebibytes)}")


if __name__ == "__main__":
    main()
