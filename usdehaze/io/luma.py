"""Colours -> grey levels."""

from __future__ import annotations

import numpy as np

_WEIGHTS = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601


@np.errstate(over="ignore", invalid="ignore")  # what is no number stays none, and is told by those who ask
def luma(frame: np.ndarray) -> np.ndarray:
    """Luma of ``(H, W, 3 or 4)`` red, green, blue: ``(H, W)`` of the same type; a fourth channel is left out.

    Grey stays what it is, exactly.
    """
    red, green, blue = (frame[..., channel] for channel in range(3))
    if np.array_equal(red, green) and np.array_equal(red, blue):
        return red
    mixed = frame[..., :3].astype(np.float64) @ _WEIGHTS
    return np.rint(mixed).astype(frame.dtype) if frame.dtype.kind in "ui" else mixed.astype(frame.dtype)
