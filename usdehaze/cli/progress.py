"""Progress bars of long work: how far, how fast and time left, on stderr, and only where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from usdehaze.plain_text import one_line


@contextmanager
def frame_progress(
    label: str, n_frames: int, quiet: bool, unit: str = "frames"
) -> Iterator[Callable[[int, int], None] | None]:
    """Yields a callback ``(frames done, frames in all)``, or of another unit; None where nobody watches."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()

    def rate(done: int | None) -> str:
        return f"{done / max(time.monotonic() - started, 1e-6):.2f} {unit}/s" if done else ""

    with click.progressbar(
        length=n_frames, label=one_line(label), file=sys.stderr, show_pos=True, show_eta=True, item_show_func=rate
    ) as bar:

        def update(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos, current_item=done)

        yield update


@contextmanager
def step_progress(
    label: str, n_steps: int, quiet: bool, figure: str = "loss"
) -> Iterator[Callable[[int, float], None] | None]:
    """Yields a callback ``(steps done, figure)`` for training or tuning, or None where nobody watches."""
    if quiet or not sys.stderr.isatty():
        yield None
        return

    def tell(value: float | None) -> str:
        return f"{figure} {value:.4f}" if value is not None else ""

    with click.progressbar(
        length=n_steps, label=one_line(label), file=sys.stderr, show_pos=True, show_eta=True, item_show_func=tell
    ) as bar:
        yield lambda step, value: bar.update(step - bar.pos, current_item=value)
