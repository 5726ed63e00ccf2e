"""Values that are not numbers: outside the image they are its floor, as scan converters leave them."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

MIN_OUTSIDE = 0.005  # of a frame: fewer at its border are no background


def gaps_outside(values: np.ndarray) -> np.ndarray:
    """``(H, W)`` bool: NaN that lie outside the image, in areas that reach the border of the frame."""
    missing = np.isnan(values)
    border = np.ones_like(missing)
    border[1:-1, 1:-1] = False
    outside: np.ndarray = ndimage.binary_propagation(missing & border, mask=missing)
    return outside if outside.mean() >= MIN_OUTSIDE else np.zeros_like(missing)


def note_on_gaps(frames: list[np.ndarray]) -> tuple[str, ...]:
    """What to tell about NaN outside the image in some ``(H, W)`` frames; nothing where there are none."""
    if all(np.isfinite(frame).all() for frame in frames):
        return ()
    share = float(np.mean([gaps_outside(frame).mean() for frame in frames]))
    return (f"NaN outside the image taken as the floor: {100 * share:.2g} % of the pixels.",) if share > 0 else ()
