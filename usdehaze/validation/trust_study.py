"""The parts of the trust study: what is dehazed, and which figures are taken of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from usdehaze.cine import Cine
from usdehaze.validation import metrics
from usdehaze.validation.baselines import Method, Split
from usdehaze.validation.benchmark import MIN_REGION_PIXELS, Decomposed
from usdehaze.validation.calibration import LEAST_STD_DB, coverage, fit_factor
from usdehaze.validation.evaluate import figure, frame_metrics, truth_metrics
from usdehaze.validation.realhaze import Scene
from usdehaze.validation.trust import flicker_ratio, harm_figures, leak_bits, leak_correlation


def dehaze_first(method: Method, cine: Cine, n_frames: int, **options: Any) -> Split:
    """The first frames of a cine by one method. A temporal one sees all of the cine, any other just these frames.

    Args:
        method: see `Method`.
        cine: the scan.
        n_frames: frames that count.
        options: for ``method.make``.
    """
    seen = cine if method.temporal else replace(cine, frames=cine.frames[:n_frames], frame_times_s=None)
    result: Decomposed = method.make(**options)(seen)
    std, settings = getattr(result, "std", None), dict(getattr(result, "settings", {}))
    std = None if std is None else std[:n_frames]
    return Split(result.tissue[:n_frames], result.haze[:n_frames], std, settings)


def hazy_figures(scene: Scene, split: Split, t: int = 0) -> dict[str, Any]:
    """Figures of one hazy frame against its truth.

    Returns:
        A record: errors of tissue and haze, region figures, leakage, and the largest rise of any pixel.
    """
    span, hazy, true = scene.hazy.dynamic_range_db, scene.hazy.frames[t], scene.clean.frames[t]
    tissue, haze, inside = split.tissue[t], split.haze[t], scene.inside
    walls = scene.walls[t]
    cavities = None if scene.cavities is None else scene.cavities[t]
    enough = cavities is not None and min(walls.sum(), cavities.sum()) >= MIN_REGION_PIXELS
    record: dict[str, Any] = {"cine": scene.name, "frame": t}
    record |= truth_metrics(hazy, tissue, true, span, walls if walls.any() else None, cavities if enough else None)
    record["psnr_db"] = figure(*(metrics.psnr_db(image[inside], true[inside], span) for image in (hazy, tissue)))
    record["haze_psnr_db"] = figure(
        *(metrics.psnr_db(image[inside], scene.haze[t][inside], span) for image in (hazy, haze))
    )
    if walls.any():
        record["wall_error_db"] = figure(*(metrics.mean_shift_db(true[walls], i[walls]) for i in (hazy, tissue)))
    truth = true[inside], scene.haze[t][inside]
    for name, leak in (("leak_correlation", leak_correlation), ("leak_bits", leak_bits)):
        record[name] = figure(leak(hazy[inside], *truth), leak(haze[inside], *truth))
    record["max_rise_db"] = figure(None, float((tissue - hazy).max()))
    if cavities is not None and enough:
        record |= frame_metrics(hazy, tissue, walls, cavities)
    return record


def chance_figures(scene: Scene) -> dict[str, float]:
    """Leakage of the haze of another scene, which cannot know the tissue: what chance makes of the figures."""
    inside = scene.inside
    images = scene.stranger[inside], scene.clean.frames[0][inside], scene.haze[0][inside]
    return {"leak_correlation": leak_correlation(*images), "leak_bits": leak_bits(*images)}


def clean_figures(scene: Scene, split: Split, t: int = 0) -> dict[str, Any]:
    """What became of one frame without haze: a record of `harm_figures`."""
    figures = harm_figures(scene.clean.frames[t], split.tissue[t], scene.walls[t])
    return {"cine": scene.name, "frame": t} | {name: figure(None, value) for name, value in figures.items()}


def flicker_figures(scene: Scene, split: Split) -> dict[str, float]:
    """Flicker over that of the input: of what was removed, and of what had to be removed."""
    n_frames = len(split.tissue)
    hazy, true = scene.hazy.frames[:n_frames], scene.clean.frames[:n_frames]
    return {
        "removed": flicker_ratio(hazy - split.tissue, hazy, scene.inside),
        "removed_by_truth": flicker_ratio(hazy - true, hazy, scene.inside),
    }


Pixels = tuple[np.ndarray, np.ndarray, np.ndarray]


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
