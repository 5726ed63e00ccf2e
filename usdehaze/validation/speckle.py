"""How far the speckle of a region reaches, and what that makes of the spread of its histogram."""

from __future__ import annotations

import math

import numpy as np
from scipy import ndimage

TREND_PX = 10.0  # standard deviation of the local mean; what is smoother than that is anatomy, not speckle
NEAR_LAGS, FAR_LAGS = 1.5, 3.0  # pairs of pixels that correlated speckle couples, and pairs that nothing couples
LEAST_VARIANCE = 0.2  # of a bin's share over that of independent pixels; what lies below is noise of its estimate


def correlation_lag(values: np.ndarray, mask: np.ndarray, axis: int) -> int:
    """First lag along an axis at which the autocorrelation of a region falls below 1/e, in pixels, at least 1.

    Args:
        values: ``(H, W)``.
        mask: bool ``(H, W)``, the region; pairs of pixels count where both lie in it.
        axis: 0 along a column (from row to row), 1 along a row.
    """
    centred = np.where(mask, values - values[mask].mean(), 0.0)
    variance = np.square(centred[mask]).mean()
    if variance == 0:
        return 1
    centred, mask = np.moveaxis(centred, axis, 0), np.moveaxis(mask, axis, 0)
    for lag in range(1, len(mask)):
        pairs = mask[lag:] & mask[:-lag]
        if not pairs.any() or (centred[lag:] * centred[:-lag])[pairs].mean() < variance / math.e:
            return lag
    return max(1, len(mask) - 1)


def _without_trend(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A region less its local mean: speckle without the anatomy that modulates it."""
    inside = mask.astype(np.float64)
    weight = ndimage.gaussian_filter(inside, TREND_PX, mode="constant")
    local_mean = ndimage.gaussian_filter(inside * values, TREND_PX, mode="constant") / np.maximum(weight, 1e-12)
    return np.where(mask, values - local_mean, 0.0)


def correlation_lags(mask: np.ndarray, images: tuple[np.ndarray, ...]) -> tuple[int, int]:
    """Correlation lag of a region's speckle along columns and along rows, pixels; the larger one of the images.

    Args:
        mask: bool ``(H, W)``, the region.
        images: ``(H, W)`` each; what is smooth over 10 pixels is taken off first.
    """
    box = bounding_box(mask)
    speckle = [_without_trend(image[box], mask[box]) for image in images]
    down, across = (max(correlation_lag(values, mask[box], axis) for values in speckle) for axis in (0, 1))
    return down, across


def bounding_box(mask: np.ndarray) -> tuple[slice, slice]:
    """The smallest rectangle that holds a region."""
    rows, columns = np.nonzero(mask)
    return slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1)


def share_variances(
    mask: np.ndarray, index: np.ndarray, lags: tuple[int, int], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Variance of the share of a region's pixels in each bin: as it is, and of independent pixels.

    ``var p_k = (p_k (1 - p_k) + 2 sum_d (S_k(d) - n(d) R_k) / N) / N`` over the lags d up to 1.5 correlation lags, in
    half of all directions: n(d) pairs of pixels lie d apart, in S_k(d) of them both are in bin k; R_k is that share
    among pairs 1.5 to 3 lags apart, which speckle no longer couples. Differences between distant parts of the region,
    which are anatomy and no chance, hardly count, because both kinds of pairs have them.

    Args:
        mask: bool ``(H, W)``, the region, N pixels.
        index: ``(N,)`` bin of every pixel.
        lags: correlation lags along columns and along rows, pixels.
        k: number of bins.

    Returns:
        Two arrays ``(k,)``. The two are equal where the region is too small for pairs that far apart.
    """
    box: np.ndarray = np.full(mask.shape, -1)
    box[mask] = index
    box = box[bounding_box(mask)]
    height, width = box.shape
    near, far = np.zeros((2, k))
    n_near = n_far = 0
    reach = [min(int(FAR_LAGS * lag), extent - 1) for lag, extent in zip(lags, box.shape, strict=True)]
    for down in range(reach[0] + 1):
        for across in range(-reach[1] if down else 1, reach[1] + 1):
            distance = math.hypot(down / lags[0], across / lags[1])
            if distance > FAR_LAGS:
                continue
            one = box[down:, max(across, 0) : width + min(across, 0)]
            other = box[: height - down, max(-across, 0) : width - max(across, 0)]
            n_pairs = np.count_nonzero((one >= 0) & (other >= 0))
            same = np.bincount(one[(one == other) & (one >= 0)], minlength=k)
            if distance <= NEAR_LAGS:
                near, n_near = near + same, n_near + n_pairs
            else:
                far, n_far = far + same, n_far + n_pairs
    share = np.bincount(index, minlength=k) / index.size
    independent = share * (1 - share) / index.size
    coupled = 2 * (near - far * n_near / n_far) / index.size**2 if n_far else np.zeros(k)
    return independent + coupled, independent


def design_effect(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> float:
    """Square of the factor by which correlated pixels make the histograms of two regions differ more by chance.

    gCNR of two histograms of one distribution is half the sum over the bins of ``|p_k - q_k|``. Each term goes as the
    standard deviation of its ``p_k - q_k``, so the factor is the sum of these deviations over that of independent
    pixels.

    Args:
        a, b: `share_variances` of the two regions.
    """
    found, independent = (of_a + of_b for of_a, of_b in zip(a, b, strict=True))
    deviations = np.sqrt(np.maximum(found, LEAST_VARIANCE * independent))
    return float(np.square(deviations.sum() / np.sqrt(independent).sum())) if independent.any() else 1.0
