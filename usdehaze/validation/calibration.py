"""Whether the stated uncertainty of tissue holds: coverage of intervals against the truth, and recalibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

LEVELS = (0.5, 0.8, 0.95)
LEAST_STD_DB = 0.1  # where samples differ by less they all say the same, and no factor turns that into an interval
Z_95 = 1.96  # deviations either side of a Gaussian's central 95 %
SLACK_DB = 0.5  # by which an interval is widened on either side: two steps of 8-bit grey
DOUBT_DB = 20.0  # haze that lies lower than this under the tissue leaves no doubt of it

Interval = tuple[np.ndarray, np.ndarray]


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


def interval_of(result: Any) -> Interval | None:
    """Lower and upper end of the tissue's 95 % interval, ``(T, H, W)`` in dB.

    Args:
        result: of a dehazer: its ``interval``, else ``tissue`` and 1.96 ``std`` either side of it.

    Returns:
        None for a result that has neither.
    """
    interval = getattr(result, "interval", None)
    if interval is not None:
        return interval[0], interval[1]
    std = getattr(result, "std", None)
    return None if std is None else (result.tissue - Z_95 * std, result.tissue + Z_95 * std)


def interval_coverage(
    interval: Interval,
    input_db: np.ndarray,
    truth_db: np.ndarray,
    haze_db: np.ndarray,
    inside: np.ndarray,
    floor_db: float = -60.0,
) -> dict[str, float]:
    """Share of pixels whose true gain lies in its interval, on one frame; every image ``(H, W)``, dB.

    The true gain is ``min(0, truth - input)``, for haze is only ever taken off; its interval is that of the tissue less
    the input, 0.5 dB wider on either side.

    Args:
        interval: lower and upper end, of the tissue.
        input_db: the hazy frame.
        truth_db, haze_db: the true tissue and the true haze.
        inside: bool, the image.
        floor_db: of the frame; haze that lies there leaves no doubt either.

    Returns:
        ``coverage``, of the pixels in doubt: inside, where the true haze is above the floor and at most 20 dB below the
        true tissue; and ``coverage_all``, of all pixels inside. One without pixels is left out.
    """
    gain = np.minimum(0, truth_db.astype(np.float64) - input_db)
    low, high = (end.astype(np.float64) - input_db for end in interval)
    held = (gain >= low - SLACK_DB) & (gain <= high + SLACK_DB)
    doubt = inside & (haze_db > floor_db) & (haze_db >= truth_db - DOUBT_DB)
    pixels = {"coverage": doubt, "coverage_all": inside}
    return {name: float(held[counts].mean()) for name, counts in pixels.items() if counts.any()}
