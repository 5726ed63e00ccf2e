"""Regions of a simulated cine, from what the simulator knows of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage

from usdehaze.simulate import SimulatedCine
from usdehaze.simulate.tissue import CAVITY
from usdehaze.validation.regions.model import FAINT

MARGIN_PX = 1  # off the borders of chambers
ABOVE_FLOOR_DB = 6.0  # weaker tissue is hardly there
SMALLEST_PX = 30  # smaller parts are no regions
Run = tuple[int, int, int]  # column, first and last row
SMOOTHING_PX = 3.0  # standard deviation over which powers are averaged before haze and tissue are compared


def simulated_regions(cine: SimulatedCine) -> dict[str, Any]:
    """The regions of every frame, as the contract's JSON.

    Of each frame one part of a chamber (haze), of the tissue that is stronger than the haze there (tissue), and of that
    which is weaker, but 6 dB above the floor (faint), by the mean powers of the truth; as far as there is one of at
    least 30 pixels. Each is the largest part with one run of pixels a column, so that one outline, along the borders
    of pixels, holds it and nothing else.
    """
    regions = []
    for t, labels in enumerate(cine.labels):
        chamber, solid = (
            ndimage.binary_erosion(mask, iterations=MARGIN_PX) for mask in (labels == CAVITY, labels != CAVITY)
        )
        tissue, haze = (
            ndimage.gaussian_filter(10 ** (frames[t].astype(np.float64) / 10), SMOOTHING_PX)
            for frames in (cine.tissue, cine.haze)
        )
        there = 10 * np.log10(tissue) > ABOVE_FLOOR_DB - cine.dynamic_range_db
        for name, role, mask in (
            ("chamber", "haze", chamber),
            ("tissue above the haze", "tissue", solid & there & (tissue >= haze)),
            ("tissue under the haze", FAINT, solid & there & (tissue < haze)),
        ):
            runs = largest_part(mask)
            if sum(last - first + 1 for _, first, last in runs) >= SMALLEST_PX:
                regions.append({"name": name, "role": role, "frames": [t], "polygon": outline(runs)})
    return {"regions": regions}


def largest_part(mask: np.ndarray) -> list[Run]:
    """The chain of runs, one a column and each beside the one before, that holds most pixels; empty without any.

    Args:
        mask: bool ``(H, W)``.
    """
    best: list[tuple[int, list[Run]]] = []  # pixels and chain that end in a run of the column before
    largest: tuple[int, list[Run]] = (0, [])
    for x in range(mask.shape[1]):
        steps = np.flatnonzero(np.diff(mask[:, x], prepend=False, append=False)).reshape(-1, 2)
        ending = []
        for first, last in ((int(a), int(b) - 1) for a, b in steps):
            beside = [chain for chain in best if chain[1][-1][1] <= last and chain[1][-1][2] >= first]
            pixels, runs = max(beside, key=lambda chain: chain[0], default=(0, []))
            ending.append((pixels + last - first + 1, [*runs, (x, first, last)]))
        best, largest = ending, max([largest, *ending], key=lambda chain: chain[0])
    return largest[1]


def outline(runs: list[Run]) -> list[list[float]]:
    """Corners ``[x, y]`` of the polygon round the pixels of neighbouring runs, along their borders."""
    upper = [[x + side, first - 0.5] for x, first, _ in runs for side in (-0.5, 0.5)]
    lower = [[x + side, last + 0.5] for x, _, last in reversed(runs) for side in (0.5, -0.5)]
    return upper + lower
