"""When each frame was taken."""

from __future__ import annotations

import numpy as np
from pydicom.dataset import Dataset

from usdehaze.io.dicom.header import numbers

FRAME_TIME, FRAME_TIME_VECTOR = 0x00181063, 0x00181065


def frame_times_s(attributes: Dataset, n_frames: int) -> np.ndarray | None:
    """Times of all frames in s, the first at 0, or None where the file does not say.

    From Frame Time Vector (0018,1065) or Frame Time (0018,1063), both in ms, whichever Frame Increment Pointer names;
    else from either; else from Cine Rate (0018,0040) or Recommended Display Frame Rate (0008,2144), frames/s.
    """
    vector, step = _vector_ms(attributes, n_frames), _positive(attributes, "FrameTime")
    pointer = numbers(attributes, "FrameIncrementPointer")
    if vector is not None and not (step is not None and pointer and int(pointer[0]) == FRAME_TIME):
        return np.cumsum(vector) / 1000
    if step is None:
        rate = _positive(attributes, "CineRate") or _positive(attributes, "RecommendedDisplayFrameRate")
        step = None if rate is None else 1000 / rate
    return None if step is None else np.arange(n_frames) * step / 1000


def _vector_ms(attributes: Dataset, n_frames: int) -> np.ndarray | None:
    """Time since the frame before, ms, with 0 for the first frame."""
    values = np.array(numbers(attributes, "FrameTimeVector"))
    if len(values) != n_frames or not np.all(np.isfinite(values)) or np.any(values[1:] < 0):
        return None
    return np.concatenate([[0.0], values[1:]])


def _positive(attributes: Dataset, keyword: str) -> float | None:
    value = (numbers(attributes, keyword) or [0.0])[0]
    return value if np.isfinite(value) and value > 0 else None
