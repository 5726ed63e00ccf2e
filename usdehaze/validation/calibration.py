"""Whether the stated uncertainty of tissue holds: coverage of intervals against the truth, and recalibration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

LEVELS = (0.5, 0.8, 0.95)
LEAST_STD_DB = 0.1  # where samples differ by less they all say the same, and no factor turns that into an interval


def coverage(
    estimate_db: np.ndarray, std_db: np.ndarray, truth_db: np.ndarray, levels: Sequence[float] = LEVELS
) -> dict[float, float]:
    """Share of pixels whose truth lies in the central Gaussian interval about the estimate.

    An interval of level p is ``estimate +- z_p std`` with ``z_p = Phi^-1((1 + p) / 2)``: 0.67, 1.28 and 1.96 deviations
    for 50, 80 and 95 %. A std of 0 is an interval of width 0.

    Args:
        estimate_db, std_db, truth_db: of the pixels that count, any shape, the same for all three; std >= 0.

    Raises:
        ValueError: shapes that differ, no pixels, or a negative std.
    """
    if not (estimate_db.shape == std_db.shape == truth_db.shape) or estimate_db.size == 0:
        raise ValueError(f"shapes differ or are empty: {estimate_db.shape}, {std_db.shape}, {truth_db.shape}")
    if (std_db < 0).any():
        raise ValueError("a standard deviation is negative")
    error = np.abs(estimate_db.astype(np.float64) - truth_db)
    return {p: float((error <= stats.norm.ppf((1 + p) / 2) * std_db).mean()) for p in levels}


def fit_factor(
    estimate_db: np.ndarray, std_db: np.ndarray, truth_db: np.ndarray, levels: Sequence[float] = LEVELS
) -> float:
    """The one factor on the std that brings the coverages closest to their levels.

    The rule: over pixels whose std is at least 0.1 dB, the factor with the smallest sum over the levels of
    ``(coverage - level)^2``, of 601 factors from 0.1 to 100 at even ratios. Fit it on other scenes than it is judged
    on.

    Args:
        estimate_db, std_db, truth_db, levels: as :func:`coverage`.

    Raises:
        ValueError: no pixel has a std of 0.1 dB.
    """
    doubtful = std_db >= LEAST_STD_DB
    if not doubtful.any():
        raise ValueError(f"no pixel has a standard deviation of at least {LEAST_STD_DB} dB; are there several samples?")
    # Coverage at factor a is the share of pixels with |error| / std <= a z: one sort serves all factors.
    ratio = np.sort(np.abs(estimate_db[doubtful].astype(np.float64) - truth_db[doubtful]) / std_db[doubtful])
    factors = np.geomspace(0.1, 100, 601)
    loss = np.zeros_like(factors)
    for p in levels:
        covered = np.searchsorted(ratio, factors * stats.norm.ppf((1 + p) / 2), side="right") / ratio.size
        loss += (covered - p) ** 2
    return float(factors[loss.argmin()])
