"""How sure a figure is: bias and interval of gCNR in one frame, intervals and tests over frames and patients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from usdehaze.cine import blocks
from usdehaze.validation.metrics import bin_pixels, gcnr
from usdehaze.validation.speckle import bounding_box, correlation_lags, design_effect, share_variances

N_DEALS = 200  # random deals of the pixels for the bias of gCNR
N_RESAMPLES = 1000  # of the block bootstrap
N_CLUSTER_RESAMPLES, SEED = 2000, 0  # of that of whole clusters
MAX_BLOCKS = 400  # a region; larger blocks rather than more of them
MIN_BLOCKS_A_SIDE = 3
INTERVAL = (2.5, 97.5)  # percentiles of a 95 % interval
DRAWN_AT_ONCE = 2**16  # clusters of a bootstrap, in memory


def gcnr_figures(
    before_db: np.ndarray, after_db: np.ndarray, in_tissue: np.ndarray, in_haze: np.ndarray, bins: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """gCNR of one frame before and after, with its bias, and the same freed of it; each with a 95 % interval.

    **Bias.** Two regions with one distribution do not score 0, because their histograms differ by chance. How much they
    score is measured: the pooled pixels are dealt out to the two regions at random, 200 times, and the mean gCNR of
    the deals, times the square root of the design effect, is the bias. The design effect says by how much correlated
    speckle makes the shares of the bins vary more than independent pixels would: 1 where pixels are independent.

    **Corrected gCNR.** ``g^2`` less ``bias^2``, over ``1 - bias^2``, and the square root of that with its sign: chance
    adds to a difference of densities as noise adds to a signal, in quadrature. Regions that do not differ have 0 in the
    mean, regions that do not overlap 1; below 0 means no more than chance, and is kept so that means are not biased.

    **Interval.** Block bootstrap: each region is cut into blocks twice as long, along rows and along columns, as the
    lag at which the autocorrelation of its speckle (ranks less their local mean) falls below 1/e, so that blocks are
    nearly independent. Blocks are drawn with replacement, 1000 times, the same for input and output. A resample is
    biased once more than the figure it was drawn from, so its gCNR is corrected once for the interval of gCNR (and
    is at least 0) and twice for that of corrected gCNR. A region of a single block tells no spread: no interval.

    Args:
        before_db, after_db: ``(H, W)``, any monotone scale.
        in_tissue, in_haze: bool ``(H, W)``, at least one pixel each.
        bins: of gCNR; None for equiprobable ones.

    Returns:
        Entries "gcnr" and "gcnr_corrected" of a record: ``input``, ``tissue``, ``delta``; ``ci95`` of the delta,
        ``input_ci95``, ``tissue_ci95``; and for gcnr ``bins``, ``bias`` and ``design_effect`` of input and output,
        ``block_px`` (rows, columns) and ``n_blocks`` of both regions.
    """
    masks = in_tissue, in_haze
    ranks = tuple(_ranks(image, in_tissue | in_haze) for image in (before_db, after_db))
    lags = [correlation_lags(mask, ranks) for mask in masks]
    (block_a, size_a), (block_b, size_b) = (_blocks(mask, lag) for mask, lag in zip(masks, lags, strict=True))
    n_blocks = int(block_a.max()) + 1, int(block_b.max()) + 1
    rng = np.random.default_rng(0)
    draws = [_draws(n, rng) for n in n_blocks]
    before, after = (_estimate(image, masks, lags, (block_a, block_b), draws, bins) for image in (before_db, after_db))
    plain = _entry(before.gcnr, after.gcnr, before.resamples.clip(min=0), after.resamples.clip(min=0)) | {
        "bins": before.bins,
        "bias": {"input": before.bias, "tissue": after.bias},
        "design_effect": {"input": before.design_effect, "tissue": after.design_effect},
        "block_px": {"tissue": list(size_a), "haze": list(size_b)},
        "n_blocks": {"tissue": n_blocks[0], "haze": n_blocks[1]},
    }
    corrected = _entry(
        float(correct(before.gcnr, before.bias)),
        float(correct(after.gcnr, after.bias)),
        correct(before.resamples, before.bias),
        correct(after.resamples, after.bias),
    )
    if min(n_blocks) < 2:
        for entry in (plain, corrected):
            entry |= dict.fromkeys(("ci95", "input_ci95", "tissue_ci95"))
    return plain, corrected


@dataclass(frozen=True)
class _Estimate:
    """gCNR of one image: the figure, its bias, and its resamples ``(N_RESAMPLES,)``, corrected once."""

    gcnr: float
    bias: float
    design_effect: float
    bins: int
    resamples: np.ndarray


def _estimate(
    image: np.ndarray,
    masks: tuple[np.ndarray, np.ndarray],
    lags: Sequence[tuple[int, int]],
    blocks: tuple[np.ndarray, np.ndarray],
    draws: list[np.ndarray],
    bins: int | None,
) -> _Estimate:
    pixels = image[masks[0]], image[masks[1]]
    *indices, widths = bin_pixels(*pixels, bins)
    counts = [_block_counts(block, index, widths.size) for block, index in zip(blocks, indices, strict=True)]
    effect = design_effect(*(share_variances(*part, widths.size) for part in zip(masks, indices, lags, strict=True)))
    dealt = permutation_bias(counts[0].sum(axis=0), counts[1].sum(axis=0), np.random.default_rng(1))
    bias = min(1.0, dealt * math.sqrt(effect))
    shares = [draw @ c for draw, c in zip(draws, counts, strict=True)]
    overlap = np.minimum(*(share / share.sum(axis=1, keepdims=True) for share in shares)).sum(axis=1)
    return _Estimate(gcnr(*pixels, bins), bias, effect, int(widths.size), correct(1 - overlap, bias))


def _entry(before: float, after: float, resamples_before: np.ndarray, resamples_after: np.ndarray) -> dict[str, Any]:
    """A metric before and after with the 95 % intervals of both and of the change."""
    return {
        "input": before,
        "tissue": after,
        "delta": after - before,
        "ci95": _interval(resamples_after - resamples_before),
        "input_ci95": _interval(resamples_before),
        "tissue_ci95": _interval(resamples_after),
    }


def permutation_bias(count_a: np.ndarray, count_b: np.ndarray, rng: np.random.Generator) -> float:
    """Mean gCNR of the pooled pixels dealt out at random to two regions of the same sizes.

    Args:
        count_a, count_b: ``(k,)`` pixels of each region in each bin.
        rng: of the deals. A deal of pixels fills the bins by the multivariate hypergeometric distribution.
    """
    n_a, n_b = int(count_a.sum()), int(count_b.sum())
    pooled = np.rint(count_a + count_b).astype(np.int64)
    dealt = rng.multivariate_hypergeometric(pooled, n_a, size=N_DEALS, method="marginals")
    return float((1 - np.minimum(dealt / n_a, (pooled - dealt) / n_b).sum(axis=1)).mean())


def correct(value: float | np.ndarray, bias: float) -> np.ndarray:
    """gCNR without its bias: the square root, with its sign, of ``(g^2 - bias^2) / (1 - bias^2)``.

    Args:
        value: gCNR, or gCNR corrected before, whose square keeps its sign as well.
        bias: 0 to 1; at 1 nothing can be said, and the answer is 0.
    """
    value = np.asarray(value, dtype=np.float64)
    if bias >= 1:
        return np.zeros_like(value)
    square = (value * np.abs(value) - bias**2) / (1 - bias**2)
    return np.sign(square) * np.sqrt(np.abs(square))


def _ranks(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Mid-ranks of the pixels in a mask, 0 outside: what an increasing change of grey levels leaves as it is."""
    ranks = np.zeros(image.shape)
    ranks[mask] = stats.rankdata(image[mask])
    return ranks


def _blocks(mask: np.ndarray, lags: tuple[int, int]) -> tuple[np.ndarray, tuple[int, int]]:
    """Index of the block of every pixel of a region, and the size of a block in rows and columns."""
    rows, columns = np.nonzero(mask)
    extents = mask[bounding_box(mask)].shape
    size = [min(2 * lag, max(1, extent // MIN_BLOCKS_A_SIDE)) for lag, extent in zip(lags, extents, strict=True)]
    while True:
        key = (rows - rows.min()) // size[0] * mask.shape[1] + (columns - columns.min()) // size[1]
        names, index = np.unique(key, return_inverse=True)
        if names.size <= MAX_BLOCKS:
            return index, (size[0], size[1])
        size = [s + 1 + s // 4 for s in size]


def _draws(n_blocks: int, rng: np.random.Generator) -> np.ndarray:
    """How often each block is drawn in each resample, ``(N_RESAMPLES, n_blocks)``."""
    drawn = rng.integers(n_blocks, size=(N_RESAMPLES, n_blocks))
    cell = drawn + n_blocks * np.arange(N_RESAMPLES)[:, None]
    counts = np.bincount(cell.ravel(), minlength=N_RESAMPLES * n_blocks)
    return counts.reshape(N_RESAMPLES, n_blocks).astype(np.float64)


def _block_counts(block: np.ndarray, index: np.ndarray, k: int) -> np.ndarray:
    """Pixels of each block in each bin, ``(n_blocks, k)``."""
    n_blocks = int(block.max()) + 1
    return np.bincount(block * k + index, minlength=n_blocks * k).reshape(n_blocks, k).astype(np.float64)


def _interval(values: np.ndarray) -> list[float]:
    low, high = np.percentile(values, INTERVAL)
    return [float(low), float(high)]


def bootstrap_ci95(values: ArrayLike, clusters: ArrayLike, seed: int = SEED) -> tuple[float, float] | None:
    """95 % percentile interval of a mean, by resampling whole clusters with replacement.

    Frames of one cine resemble each other, so they are drawn together: a resample takes as many clusters as there
    are, each with all its frames, and averages over the frames. With fewer than two clusters nothing can be said
    about the spread, and the answer is None (not an interval of width 0).

    Args:
        values: ``(N,)`` one figure a frame; non-finite ones are left out.
        clusters: ``(N,)`` label of the cluster each value belongs to.
        seed: of the resampling; the same seed gives the same interval.
    """
    values, clusters = np.asarray(values, dtype=np.float64), np.asarray(clusters)
    keep = np.isfinite(values)
    names, index = np.unique(clusters[keep], return_inverse=True)
    if names.size < 2:
        return None
    total = np.bincount(index, weights=values[keep])
    count = np.bincount(index)
    rng, means = np.random.default_rng(seed), np.empty(N_CLUSTER_RESAMPLES)
    for part in blocks(N_CLUSTER_RESAMPLES, max(1, DRAWN_AT_ONCE // names.size)):  # drawn as if all at once
        drawn = rng.integers(names.size, size=(part.stop - part.start, names.size))
        means[part] = total[drawn].sum(axis=1) / count[drawn].sum(axis=1)
    low, high = _interval(means)
    return low, high


def paired_statistics(before: ArrayLike, after: ArrayLike, clusters: ArrayLike) -> dict[str, Any]:
    """Paired comparison over patients: mean difference, its 95 % interval, Wilcoxon signed-rank test.

    The frames of one cine are not independent, so the differences of a cluster are averaged first: a cluster counts
    once, however many frames it has, both in the mean and in the test.

    Args:
        before, after: ``(N,)`` one figure a frame; pairs that are not finite are left out.
        clusters: ``(N,)`` label of the cluster (cine, patient) each frame belongs to.

    Returns:
        ``n_clusters``; ``mean_difference`` (after minus before, mean of the clusters' means; None without any);
        ``ci95`` by bootstrap of clusters, ``wilcoxon_statistic`` and two-sided ``wilcoxon_p``: None with fewer than
        two clusters, and the test where no cluster differs.
    """
    difference = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    keep = np.isfinite(difference)
    names, index = np.unique(np.asarray(clusters)[keep], return_inverse=True)
    means = np.bincount(index, weights=difference[keep]) / np.bincount(index)
    interval = bootstrap_ci95(means, names)
    test = stats.wilcoxon(means) if names.size > 1 and means.any() else None
    return {
        "n_clusters": int(names.size),
        "mean_difference": float(means.mean()) if names.size else None,
        "ci95": None if interval is None else list(interval),
        "wilcoxon_statistic": None if test is None else float(test.statistic),
        "wilcoxon_p": None if test is None else float(test.pvalue),
    }
