"""Find thin graphics that a scanner burned into the image, such as an ECG trace, to see whether they survive."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

LOWEST = 0.8  # of the frame's height: rows below are searched
THIN_PX = 9  # window of the medians along a column and along a row; a line is thinner than half of it
MARGIN_DB = 8.0  # by which a line outshines such a median
STEADY_DB = 0.5  # median absolute deviation over the frames; speckle moves by several dB
LEAST_PX = 12  # of a connected piece; smaller ones are chance


def burned_in(frames_db: np.ndarray) -> np.ndarray:
    """Pixels of lines that stand still in the lowest fifth of a cine.

    The median over the frames outshines its own median along the column, or along the row, by 8 dB; pixels hardly
    change from frame to frame, where tissue does; and they hang together. A cursor that sweeps by does not matter. Over
    bright tissue a line is not told from it, and left out; a line that moves on with every frame is not found.

    Args:
        frames_db: ``(T, H, W)`` dB; a dozen frames tell what stands still from tissue, a single one does not.

    Returns:
        bool ``(H, W)``.
    """
    middle = np.median(frames_db, axis=0)
    steady = np.median(np.abs(frames_db - middle), axis=0) <= STEADY_DB
    around = [ndimage.median_filter(middle, size) for size in ((THIN_PX, 1), (1, THIN_PX))]
    line = steady & (middle - np.minimum(*around) >= MARGIN_DB)
    line[: int(LOWEST * len(line))] = False
    pieces, _ = ndimage.label(line, np.ones((3, 3)))
    large = np.bincount(pieces.ravel()) >= LEAST_PX
    large[0] = False
    return large[pieces]
