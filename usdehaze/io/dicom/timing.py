"""When each frame was taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydicom.dataset import Dataset

from usdehaze.io.dicom.header import numbers
from usdehaze.notes import Guess

FRAME_TIME, FRAME_TIME_VECTOR = 0x00181063, 0x00181065
FITS = 0.2  # of the time between frames by Cine Rate, that another may differ from it
FAR_OFF = 2  # times that, from which on it is told
SHORTEST_MS = 0.1  # between frames of a cine
MANY = 8  # frames: no cine takes longer for each of as many than for the one before
BY_TIMES = "frame times that fit Cine Rate"
IN_MS = "frame times in ms"


@dataclass(frozen=True)
class FrameTimes:
    """When the frames of a file were taken.

    Attributes:
        times_s: ``(n,)`` s, the first at 0; None where the file does not say.
        steps_ms: ``(n,)`` time since the frame before, 0 for the first, where each is given.
        step_ms: time between frames, where it is one.
        notes: what is to be told of them, one sentence each.
    """

    times_s: np.ndarray | None = None
    steps_ms: np.ndarray | None = None
    step_ms: float | None = None
    notes: tuple[str, ...] = ()


def find_frame_times(attributes: Dataset, n_frames: int) -> FrameTimes:
    """Times of all frames in the file.

    From Frame Time Vector (0018,1065) or Frame Time (0018,1063), both in ms, whichever Frame Increment Pointer names;
    else from either; else from Cine Rate (0018,0040) or Recommended Display Frame Rate (0008,2144), frames/s. A vector
    of times since the first frame, and a Frame Time in s, are known by Cine Rate, else by times that rise all along, or
    are too short.
    """
    step, rate = _positive(attributes, "FrameTime"), _positive(attributes, "CineRate")
    pointer, usual_ms = numbers(attributes, "FrameIncrementPointer"), None if rate is None else 1000 / rate
    notes: tuple[str, ...] = ()
    if not (step is not None and pointer and int(pointer[0]) == FRAME_TIME):
        steps, notes = _vector_ms(attributes, n_frames, usual_ms)
        if steps is not None:
            notes += _note_on_rate(float(np.mean(steps[1:])) if n_frames > 1 else None, usual_ms)
            return FrameTimes(np.cumsum(steps) / 1000, steps, notes=notes)
    if step is not None and _fits(1000 * step, usual_ms) and not _fits(step, usual_ms):
        notes += (Guess(f"Frame Time is {step:g} ms, Cine Rate {rate:g} frames/s: taken as s.", BY_TIMES),)
        step *= 1000
    elif step is not None and step < SHORTEST_MS and not _fits(step, usual_ms):
        notes += (Guess(f"Frame Time is {step:g} ms, as of no cine: taken as s.", IN_MS),)
        step *= 1000
    notes += _note_on_rate(step, usual_ms)
    if step is None:
        rate = rate or _positive(attributes, "RecommendedDisplayFrameRate")
        step = None if rate is None else 1000 / rate
    return FrameTimes(None if step is None else np.arange(n_frames) * step / 1000, step_ms=step, notes=notes)


def _vector_ms(attributes: Dataset, n_frames: int, usual_ms: float | None) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Time since the frame before, ms, with 0 for the first frame; and what is to be told of it."""
    values = np.array(numbers(attributes, "FrameTimeVector"))
    if len(values) not in (0, n_frames):
        return None, (f"Frame Time Vector has {len(values)} times for {n_frames} frames: it is not used.",)
    if len(values) == 0 or not np.all(np.isfinite(values)):
        return None, ()
    steps, between = np.concatenate([[0.0], values[1:]]), np.diff(values)
    if np.any(steps < 0):
        return None, ("Frame Time Vector has negative times: it is not used.",)
    if n_frames > 1 and not np.any(steps):
        return None, ("Frame Time Vector has no time above 0: it is not used.",)
    notes, since_first = tuple[str, ...](), np.concatenate([[0.0], between])
    if usual_ms is None and n_frames >= MANY and np.all(between > 0):
        note = "Frame Time Vector rises from frame to frame: taken as times since the first."
        steps, notes = since_first, (Guess(note, "frame times since the frame before"),)
    elif (
        n_frames > 1
        and np.all(between >= 0)
        and _fits(between.mean(), usual_ms)
        and not _fits(steps[1:].mean(), usual_ms)
    ):
        note = "Frame Time Vector, as times since the frame before, does not fit Cine Rate: taken as since the first."
        steps, notes = since_first, (Guess(note, BY_TIMES),)
    if n_frames > 1 and steps[1:].max() < SHORTEST_MS and not _fits(steps[1:].mean(), usual_ms):
        notes += (Guess("Frame Time Vector has times under 0.1 ms, as of no cine: taken as s.", IN_MS),)
        steps = 1000 * steps
    return steps, notes


def _fits(step_ms: float, usual_ms: float | None) -> bool:
    """Whether a time between frames is that of Cine Rate; False where there is none."""
    return usual_ms is not None and abs(step_ms - usual_ms) <= FITS * usual_ms


def _note_on_rate(step_ms: float | None, usual_ms: float | None) -> tuple[str, ...]:
    if not step_ms or usual_ms is None or 1 / FAR_OFF <= step_ms / usual_ms <= FAR_OFF:
        return ()
    return (f"Frame times are of {1000 / step_ms:.3g} frames/s, Cine Rate says {1000 / usual_ms:.3g}: not used.",)


def _positive(attributes: Dataset, keyword: str) -> float | None:
    value = (numbers(attributes, keyword) or [0.0])[0]
    return value if np.isfinite(value) and value > 0 else None
