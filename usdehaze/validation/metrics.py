"""Image-quality figures on plain arrays in dB.

Every function takes the pixels of one or two regions (any shape, flattened) or two whole frames ``(H, W)`` in dB, and
returns a Python float. Nothing is clipped or rescaled on the way, and no function keeps state.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage, stats

MIN_REGION_PIXELS = 200  # fewer of walls or cavities and a frame has no figures of both
SSIM_SIGMA = 1.5  # Wang et al. 2004: Gaussian window of standard deviation 1.5 pixels ...
SSIM_RADIUS = 5  # ... cut to 11 x 11


def _pixels(values: ArrayLike, name: str) -> np.ndarray:
    """Flat float64 copy of a region; ValueError when it is empty or holds NaN or infinities."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    if flat.size == 0:
        raise ValueError(f"region {name} holds no pixels")
    if not np.isfinite(flat).all():
        raise ValueError(f"region {name} holds values that are not finite")
    return flat


def equiprobable_bins(n_pixels: int) -> int:
    """Number of bins of the default gCNR estimator, ``ceil(2 N^(2/5))``, N = pixels of both regions together."""
    return math.ceil(round(2 * math.pow(n_pixels, 0.4), 9))  # 1024^0.4 comes out a hair above 16


def bin_pixels(a: ArrayLike, b: ArrayLike, bins: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which bin of gCNR's histograms every pixel of two regions falls into.

    Args:
        a, b: pixels of the two regions, any scale.
        bins: None for ``ceil(2 N^0.4)`` equiprobable bins, or the number of bins of equal width.

    Returns:
        Bin of every pixel of a and of b, flat, int; and the width of every bin (1 where bins are equiprobable).

    Raises:
        ValueError: an empty region, non-finite values, fewer than 2 bins.
    """
    flat_a, flat_b = _pixels(a, "a"), _pixels(b, "b")
    n_a = flat_a.size
    if bins is None:
        n = n_a + flat_b.size
        k = equiprobable_bins(n)
        twice_rank = np.rint(2 * stats.rankdata(np.concatenate([flat_a, flat_b]))).astype(np.int64)
        index = k * (twice_rank - 1) // (2 * n)
        return index[:n_a], index[n_a:], np.ones(k)
    if bins < 2:
        raise ValueError(f"gCNR needs at least 2 bins, found {bins}")
    # Edges are made in the pixels' own precision, as the common implementations do: the figure is theirs to the bit.
    pooled = np.concatenate([np.ravel(a), np.ravel(b)])
    if pooled.dtype.kind == "f" and np.ptp(pooled) < bins * np.spacing(np.abs(pooled).max()):  # too narrow for it
        pooled = pooled.astype(np.float64)
    edges = np.histogram_bin_edges(pooled, bins)
    index = np.searchsorted(edges[1:-1], pooled, side="right")
    return index[:n_a], index[n_a:], np.diff(edges).astype(np.float64)


def gcnr(a: ArrayLike, b: ArrayLike, bins: int | None = None) -> float:
    """Generalised contrast-to-noise ratio: ``1 - overlap`` of the value distributions of two regions.

    With ``bins=None`` the histograms have ``ceil(2 N^0.4)`` bins, each of which holds the same share of the pooled
    pixels (Schlunk and Byram 2023). Bins are cut on pooled mid-ranks in whole numbers: equal values always share a
    bin, however many ties 8-bit data bring, and a strictly increasing transform of both regions changes nothing at
    all. With ``bins=N`` it is the common estimator: densities in N bins of equal width from the joint minimum to the
    joint maximum, in the precision of the pixels given (``zea.metrics.gcnr`` and the DehazingEcho2025 challenge use
    N = 256). That one depends on grey-level transforms and on outliers.

    Both are biased upwards for small regions that resemble each other, the second one much more (two identical regions
    of 400 pixels of speckle in dB: about 0.15 and 0.33); `usdehaze.validation.uncertainty` measures by how much.
    Regions that do not overlap at all lose at most the one equiprobable bin that straddles the gap (0.03 at 1,200
    pixels).

    Args:
        a, b: pixels of the two regions, any monotone scale (dB here).
        bins: None, or the number of equal-width bins, at least 2.

    Returns:
        0 (same distribution) to 1 (no overlap).

    Raises:
        ValueError: an empty region, non-finite values, fewer than 2 bins.

    Source:
        Rodriguez-Molares et al., "The generalized contrast-to-noise ratio", IEEE TUFFC 67(4), 2020.
    """
    index_a, index_b, widths = bin_pixels(a, b, bins)
    density_a, density_b = (np.bincount(index, minlength=widths.size) / widths for index in (index_a, index_b))
    return float(1.0 - np.minimum(density_a / density_a.sum(), density_b / density_b.sum()).sum())


def speckle_gcnr(power_ratio: float) -> float:
    """gCNR of two regions of fully developed speckle whose mean powers have the ratio c.

    Power is exponentially distributed in both, and the densities cross once:
    ``gCNR = |c^(-c/(c-1)) - c^(-1/(c-1))|``, 0 at c = 1, the same for c and 1/c.
    """
    c = float(power_ratio)
    if c <= 0:
        raise ValueError(f"a power ratio is positive, found {power_ratio}")
    if c == 1:
        return 0.0
    return float(abs(c ** (-c / (c - 1)) - c ** (-1 / (c - 1))))


def cnr(a: ArrayLike, b: ArrayLike) -> float:
    """Contrast-to-noise ratio ``|mean a - mean b| / sqrt(var a + var b)``: a plain ratio, not in dB.

    Population variances, in the domain of the values given. On dB values, that is grey levels of a log-compressed
    image (an affine map of them gives the same figure), it is the form of the DehazingEcho2025 challenge up to its
    sign; on linear amplitudes (:func:`amplitude`) it is the CNR of the envelope. ``zea.metrics.cnr`` is
    ``20 log10(sqrt(2) * cnr)``. Infinite for two different constants, 0 for two equal ones.
    """
    a, b = _pixels(a, "a"), _pixels(b, "b")
    if np.ptp(a) == np.ptp(b) == 0:  # rounding gives equal values a mean of their own, and a deviation
        return 0.0 if a[0] == b[0] else math.inf
    return float(abs(a.mean() - b.mean()) / math.sqrt(a.var() + b.var()))


def amplitude(values_db: ArrayLike) -> np.ndarray:
    """Linear amplitude ``10^(v/20)`` of dB values, 1 at 0 dB."""
    return 10 ** (np.asarray(values_db, dtype=np.float64) / 20)


def speckle_snr(values_db: ArrayLike) -> float:
    """Speckle signal-to-noise ratio of a region: mean over standard deviation of its linear amplitude.

    ``sqrt(pi / (4 - pi)) = 1.91`` for fully developed speckle (Rayleigh amplitude); higher where speckle was smoothed
    away, lower where the region is not uniform. Infinite for a constant.
    """
    envelope = amplitude(_pixels(values_db, "a"))
    spread = float(envelope.std())
    return math.inf if np.ptp(envelope) == 0 else float(envelope.mean()) / spread


def mean_power_db(values: ArrayLike) -> float:
    """Mean power of a region in dB: ``10 log10 mean 10^(v/10)`` for values v in dB."""
    return float(10 * np.log10(np.mean(10 ** (_pixels(values, "a") / 10))))


def contrast_db(a: ArrayLike, b: ArrayLike) -> float:
    """Mean power of region a over mean power of region b, in dB; positive where a is the brighter one.

    Powers are averaged before the logarithm, so the figure is that of the echoes, not of grey levels. Pixels on the
    floor of the dynamic range count with the power of the floor.
    """
    return mean_power_db(a) - mean_power_db(b)


def ks(a: ArrayLike, b: ArrayLike) -> float:
    """Two-sample Kolmogorov-Smirnov statistic, the largest gap of the two empirical distribution functions, 0 to 1.

    Ties are exact. Used between input and output of one region: small where tissue was kept, large where haze went.
    """
    a, b = np.sort(_pixels(a, "a")), np.sort(_pixels(b, "b"))
    values = np.concatenate([a, b])
    gap = np.searchsorted(a, values, side="right") / a.size - np.searchsorted(b, values, side="right") / b.size
    return float(np.abs(gap).max())


def mean_db(values: ArrayLike) -> float:
    """Mean of the dB values of a region (its mean grey level), in dB."""
    return float(_pixels(values, "a").mean())


def mean_shift_db(before: ArrayLike, after: ArrayLike) -> float:
    """Change of a region's mean grey level, ``mean(after) - mean(before)`` of the dB values, in dB."""
    return float(_pixels(after, "after").mean() - _pixels(before, "before").mean())


def _pair(estimate: ArrayLike, truth: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Two float64 arrays of one shape; ValueError otherwise."""
    x, y = np.asarray(estimate, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if x.shape != y.shape:
        raise ValueError(f"estimate and truth differ in shape: {x.shape} and {y.shape}")
    return x, y


def psnr_db(estimate_db: ArrayLike, truth_db: ArrayLike, dynamic_range_db: float) -> float:
    """Peak signal-to-noise ratio of the dB image, ``10 log10(DR^2 / mean (estimate - truth)^2)``, in dB.

    The peak is the dynamic range, so the figure equals that of the same image on [0, 1]. Infinite for no error.
    """
    x, y = _pair(estimate_db, truth_db)
    error = float(np.mean((x - y) ** 2))
    return math.inf if error == 0 else 10 * math.log10(dynamic_range_db**2 / error)


def rmse_db(estimate_db: ArrayLike, truth_db: ArrayLike) -> float:
    """Root of the mean squared error of dB values, in dB."""
    x, y = _pair(estimate_db, truth_db)
    return float(np.sqrt(np.mean((x - y) ** 2)))


def ssim(
    estimate_db: ArrayLike, truth_db: ArrayLike, dynamic_range_db: float, image_mask: np.ndarray | None = None
) -> float:
    """Mean structural similarity of two frames on [0, 1] (0 = floor, 1 = 0 dB), -1 to 1.

    Gaussian window of 11 x 11 pixels, sigma 1.5; K1 = 0.01, K2 = 0.03; population (co)variances; averaged over the
    pixels whose window lies inside the frame.

    Args:
        estimate_db, truth_db: ``(H, W)`` in dB, at least 11 x 11.
        dynamic_range_db: dB between floor and full scale.
        image_mask: bool ``(H, W)``, the pixels to average over; None for all. The black around a fan is alike in any
            two frames, and makes them look more alike than they are.

    Raises:
        ValueError: frames that differ in shape, are not 2-D, or are smaller than the window; a mask without pixels.

    Source:
        Wang, Bovik, Sheikh, Simoncelli, "Image quality assessment", IEEE TIP 13(4), 2004.
    """
    x, y = _pair(estimate_db, truth_db)
    if x.ndim != 2 or min(x.shape) <= 2 * SSIM_RADIUS:
        raise ValueError(f"SSIM needs (H, W) frames of at least 11 x 11 pixels, found {x.shape}")
    x, y = 1 + x / dynamic_range_db, 1 + y / dynamic_range_db
    inside = (slice(SSIM_RADIUS, -SSIM_RADIUS),) * 2

    def local_mean(image: np.ndarray) -> np.ndarray:
        mean: np.ndarray = ndimage.gaussian_filter(image, SSIM_SIGMA, radius=SSIM_RADIUS)[inside]
        return mean

    mean_x, mean_y = local_mean(x), local_mean(y)
    var_x = local_mean(x * x) - mean_x**2
    var_y = local_mean(y * y) - mean_y**2
    cov = local_mean(x * y) - mean_x * mean_y
    c1, c2 = 0.01**2, 0.03**2
    similarity = (2 * mean_x * mean_y + c1) * (2 * cov + c2)
    similarity /= (mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2)
    if image_mask is None:
        return float(similarity.mean())
    if not image_mask[inside].any():
        raise ValueError("SSIM needs pixels whose window lies inside the frame, found none in the mask")
    return float(similarity[image_mask[inside]].mean())
