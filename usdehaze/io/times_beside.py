"""When frames were taken, as what lies beside them in a file of arrays says by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod

import numpy as np

from usdehaze.io.stored_cine import TIMES_UNUSED, TIMES_WITHOUT_UNIT

_RATES = {"framerate", "frameratehz", "fps"}  # frames/s
_STEPS = {"frametime", "frameinterval", "frameperiod"}
_TIMES = {"time", "times", "timestamp", "timestamps", "frametimes", "frametimestamps"}
_PREFIXES = {"": 1.0, "m": 1e-3, "milli": 1e-3, "n": 1e-9, "nano": 1e-9}
_PREFIXES |= dict.fromkeys(("u", "\xb5", "\u03bc", "micro"), 1e-6)
_UNIT = re.compile(rf"({'|'.join(_PREFIXES)})(s|secs?|seconds?)\b")  # also of netCDF, "ms since ..."
_FASTEST = 1e6  # frames/s


def tells_times(name: str) -> bool:
    """Whether something of this name may be a frame rate, or the times of frames."""
    return _meaning(name)[0] in _RATES | _STEPS | _TIMES


def around(name: str, shapes: Mapping[str, tuple[int, ...]], n_frames: int) -> list[str]:
    """Which arrays of a file, by their paths and shapes, may tell times of the frames at ``name``, nearest first."""
    parts = name.split("/")[:-1]
    groups = ["/".join(parts[:depth]) for depth in range(len(parts), -1, -1)]
    split = {other: other.rpartition("/") for other, shape in shapes.items() if prod(shape) in (1, n_frames)}
    return [other for group in groups for other, (at, _, last) in split.items() if at == group and tells_times(last)]


def times_of(beside: Iterable[tuple[str, np.ndarray, str]], n_frames: int) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Frame times ``(T,)`` float64 s, None where nothing that can be used tells them, and a sentence on these.

    Times of all frames tell more than a rate. One frame has none.

    Args:
        beside: name or path, values and unit ("" where it is not said) of numbers beside the frames, the nearest first.
        n_frames: in the file.
    """
    times_s, notes = None, tuple[str, ...]()
    for name, values, unit in beside if n_frames > 1 else ():
        name = name.rpartition("/")[2]
        word, unit_of_name = _meaning(name)
        values, scale = np.ravel(values).astype(np.float64), seconds_in(unit.strip() or unit_of_name)
        if values.size == 1 and word in _RATES | _STEPS and times_s is None:
            rate = float(values[0]) if word in _RATES else 1 / (float(values[0]) * (scale or 0) or np.inf)
            if 0 < rate < _FASTEST:
                times_s = np.arange(n_frames) / rate
                notes = (f"Frame times by {name} in the file, {rate:.4g} frames/s.",)
        if word not in _TIMES or values.size != n_frames:
            continue
        if scale is not None and np.isfinite(values).all() and (np.diff(values) > 0).all():
            return values * scale, (f"Frame times by {name} in the file.",)
        if times_s is None:
            notes = (TIMES_WITHOUT_UNIT if scale is None else TIMES_UNUSED,)
    return times_s, notes


def _meaning(name: str) -> tuple[str, str]:
    """A name as one word in lower case, without the unit that ends it; and this."""
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split("_")
    unit = words.pop() if len(words) > 1 and seconds_in(words[-1]) is not None else ""
    return "".join(words), unit


def seconds_in(unit: str) -> float | None:
    """A unit of time in s, such as 1e-3 for "ms"; None for any other."""
    found = _UNIT.match(unit.lower())
    return None if found is None else _PREFIXES[found[1]]
