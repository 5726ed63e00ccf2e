"""Which way up a fan is: its left half mirrors its right half, its top does not mirror its bottom."""

from __future__ import annotations

import numpy as np

from .sector import block_mean, largest_component, mostly_seen

SIZE = 128  # of the mask that is compared with its mirror images
LEVEL = 0.06  # of the range above the background: how bright a pixel must be to count as image


def turned_symmetry(frames_db: np.ndarray, floor_db: float) -> float:
    """How much more alike the image's top and bottom are than its left and right, in [-1, 1].

    Above 0 for a fan that lies on its side, below 0 for an upright one, about 0 for a rectangle.

    Args:
        frames_db: ``(T, H, W)`` dB in ``[floor_db, 0]``.
        floor_db: the value of black, negative dB.
    """
    image = mostly_seen(frames_db)
    bright = image > float(np.quantile(image, 0.05)) + LEVEL * abs(floor_db)
    mask = largest_component(block_mean(bright, max(1, max(bright.shape) // SIZE)) > 0.5)
    if not mask.any():
        return 0.0
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    image = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return _alike(image, image[::-1]) - _alike(image, image[:, ::-1])


def _alike(one: np.ndarray, other: np.ndarray) -> float:
    """Intersection over union."""
    return float((one & other).sum() / (one | other).sum())
