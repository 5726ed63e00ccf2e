"""First and last radius of a fan, once its apex and edges are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BEAMS = 96
MIN_ARC_SHARE = 0.12  # of the beams, that must end on a common arc for it to be the end of the image


@dataclass(frozen=True)
class Radii:
    """In columns from the apex.

    Attributes:
        r_min, r_max: first and last radius of image.
        ends: fraction of the beams on which image lasts up to ``r_max`` or to the border of the frame.
    """

    r_min: float
    r_max: float
    ends: float


def find_radii(
    image: np.ndarray,
    thick: np.ndarray,
    radius: np.ndarray,
    angle: np.ndarray,
    opening: tuple[float, float],
    tolerance: float,
) -> Radii | None:
    """Where image starts and ends between two angles.

    It starts where it first fills a quarter of the arc, and ends where most beams that stay inside the frame end
    together; where they do not (shadow, a bottom that was cut off), at the farthest image.

    Args:
        image: ``(H, W)`` bool, black holes filled.
        thick: the same without thin parts (an ECG trace that runs out of the image would pass for its end).
        radius, angle: ``(H, W)`` polar coordinates of the pixels, columns and rad.
        opening: the angles in rad.
        tolerance: how far ends may lie apart and still lie on one arc, in columns.
    """
    inside = (angle > opening[0]) & (angle < opening[1])
    ring = radius[inside].astype(int)
    if len(ring) == 0:
        return None
    pixels = np.bincount(ring)
    filled = np.bincount(ring, weights=image[inside], minlength=len(pixels))
    started = np.flatnonzero(filled > 0.25 * np.maximum(pixels, 1))
    if len(started) == 0:
        return None
    r_min = float(started[0])
    beam = ((angle[inside] - opening[0]) / (opening[1] - opening[0]) * BEAMS).astype(int)
    last, border = np.zeros(BEAMS), np.zeros(BEAMS)
    # half a pixel beyond the centre of the last one
    held = thick[inside]
    np.maximum.at(last, beam[held], radius[inside][held] + 0.5)
    np.maximum.at(border, beam, radius[inside])
    seen = last > 0
    if not seen.any():
        return None
    cut = seen & (last > border - 2)
    r_max = float(np.quantile(last[seen], 0.98))
    ends, arcs = last[seen], last[seen & ~cut]
    if len(arcs) > 0:
        # a beam that the frame cuts off just there agrees, but cannot propose: the frame's border is no arc
        near = np.abs(arcs[:, None] - ends) < tolerance
        beyond = (ends > arcs[:, None] + tolerance).sum(axis=1)
        best = int(np.argmax(near.sum(axis=1) - 2 * beyond))
        on_arc = arcs[np.abs(arcs - arcs[best]) < tolerance]
        if (
            near[best].sum() >= MIN_ARC_SHARE * BEAMS
            and len(on_arc) >= MIN_ARC_SHARE / 3 * BEAMS
            and beyond[best] <= 0.15 * BEAMS
        ):
            r_max = float(np.median(on_arc))
    r_max = max(r_max, r_min + 1)
    complete = cut | (np.abs(last - r_max) < tolerance + 0.01 * (r_max - r_min))
    return Radii(r_min, r_max, float(complete.mean()))
