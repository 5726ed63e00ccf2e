"""Whether the stated uncertainty of tissue holds: coverage of intervals against the truth, and recalibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from usdehaze.validation.scene import Scene, Split

LEVELS = (0.5, 0.8, 0.95)
LEAST_STD_DB = 0.1  # where samples differ by less they all say the same, and no factor turns that into an interval
Z_95 = 1.96  # deviations either side of a Gaussian's central 95 %
SLACK_DB = 0.5  # by which an interval is widened on either side: two steps of 8-bit grey
DOUBT_DB = 20.0  # haze that lies lower than this under the tissue leaves no doubt of it

Interval = tuple[np.ndarray, np.ndarray]
Pixels = tuple[np.ndarray, np.ndarray, np.ndarray]


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


def counted_pixels(scene: Scene, split: Split) -> Pixels:
    """Estimate, std and truth of the tissue, dB, at the pixels of frame 0 that lie in the image and above the floor.

    Raises:
        ValueError: a split without a std.
    """
    if split.std is None:
        raise ValueError("the tissue has no deviation; it takes at least 2 samples")
    counts = scene.inside & (scene.hazy.frames[0] > -scene.hazy.dynamic_range_db)
    return split.tissue[0][counts], split.std[0][counts], scene.clean.frames[0][counts]


def calibrate(fit: Sequence[Pixels], test: Sequence[Pixels]) -> dict[str, Any]:
    """Coverage of intervals of the tissue before and after recalibration.

    Args:
        fit, test: `counted_pixels` of scenes; the factor comes from the first, coverage is that of the second.

    Returns:
        ``factor``; ``doubtful``, share of the test pixels whose std is at least 0.1 dB; coverages ``before`` and
        ``after`` of these, and of ``all`` counted pixels, levels in per cent. What one factor cannot say: ``factors``
        that every scene would ask for by itself, fit and test; coverages of each test scene, ``scenes_before`` and
        ``scenes_after``, of the same pixels as ``before``; and ``rank_correlations`` of std and absolute error in each
        test scene (Spearman; near 0 where the std does not know where the errors are).
    """
    factor = fit_factor(*_pooled(fit))
    everything = _pooled(test)
    doubtful = _doubtful(everything)
    return {
        "factor": factor,
        "n_fit": len(fit),
        "n_test": len(test),
        "n_pixels": int(everything[0].size),
        "factors": [fit_factor(*pixels) for pixels in (*fit, *test)],
        "rank_correlations": [float(stats.spearmanr(std, np.abs(x - true)).statistic) for x, std, true in test],
        "doubtful": doubtful[0].size / everything[0].size,
        "before": _covered(doubtful, 1.0),
        "after": _covered(doubtful, factor),
        "all_before": _covered(everything, 1.0),
        "all_after": _covered(everything, factor),
        "scenes_before": [_covered(_doubtful(pixels), 1.0) for pixels in test],
        "scenes_after": [_covered(_doubtful(pixels), factor) for pixels in test],
    }


def _doubtful(pixels: Pixels) -> Pixels:
    """Those whose samples differ enough for a factor to matter."""
    estimate, std, truth = pixels
    counts = std >= LEAST_STD_DB
    return estimate[counts], std[counts], truth[counts]


def _covered(pixels: Pixels, factor: float) -> dict[str, float]:
    """Coverage with the std times a factor, by level in per cent."""
    estimate, std, truth = pixels
    return {f"{100 * p:g}": share for p, share in coverage(estimate, factor * std, truth).items()}


def _pooled(parts: Sequence[Pixels]) -> Pixels:
    estimate, std, truth = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return estimate, std, truth
