"""What a removal did to a whole image that nobody drew regions in, and to walls that somebody marked as faint."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from usdehaze.geometry.sector import block_mean
from usdehaze.validation import metrics
from usdehaze.validation.harm import DIM_DB, LOST_DB, VISIBLE_DB, lost_share, removal_flicker

BANDS = ("dark", "middle", "bright")  # thirds of the dynamic range of the input
DETAIL_PX = 1.5  # standard deviation of the smoothing that takes fine detail away
EDGE_HEIGHT = 256  # edges are looked for in frames of about that many rows
EDGE_SMOOTHING = 1 / 64  # standard deviation, in frame heights
EDGE_DB = 3.0  # over one such width: 99 % of fully developed speckle is less steep
EDGE_LOST = 0.5  # of its slope left and an edge is lost


def image_figures(
    input_db: np.ndarray,
    output_db: np.ndarray,
    inside: np.ndarray,
    dynamic_range_db: float,
    previous: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, float]:
    """Figures of one frame as a whole.

    Args:
        input_db, output_db: ``(H, W)`` in dB.
        inside: bool ``(H, W)``, the image.
        dynamic_range_db: dB between floor and full scale.
        previous: input and output of the frame before, for flicker.

    Returns:
        ``removed_dark_db``, ``removed_middle_db``, ``removed_bright_db``: mean input minus output, by the input's third
        of the dynamic range; ``dim_lost_share`` (:func:`usdehaze.validation.harm.lost_share`); ``softness``, 1 less the
        fine detail of the output over the input's (0 kept, 1 gone, below 0 more of it); ``edges_lost`` and
        ``edge_coherence`` (:func:`edge_figures`); ``removal_flicker``
        (:func:`usdehaze.validation.harm.removal_flicker`). A figure without pixels is left out.
    """
    floor_db = -dynamic_range_db
    removed, shown = input_db.astype(np.float64) - output_db, inside & (input_db > floor_db)
    third = np.clip((input_db - floor_db) * len(BANDS) // dynamic_range_db, 0, len(BANDS) - 1)
    figures: dict[str, float] = {}
    for index, band in enumerate(BANDS):
        if (counts := shown & (third == index)).any():
            figures[f"removed_{band}_db"] = float(removed[counts].mean())
    if (lost := lost_share(input_db, output_db, inside, floor_db)) is not None:
        figures["dim_lost_share"] = lost
    before, after = (_detail(image, inside & (input_db > VISIBLE_DB)) for image in (input_db, output_db))
    if before > 0:
        figures["softness"] = 1 - after / before
    figures |= edge_figures(input_db, output_db, inside)
    if previous is not None:
        before_db, after_db = previous
        inputs, outputs = np.stack([before_db, input_db]), np.stack([after_db, output_db])
        figures["removal_flicker"] = removal_flicker(inputs, outputs, inside, floor_db)
    return figures


def edge_figures(input_db: np.ndarray, output_db: np.ndarray, inside: np.ndarray) -> dict[str, float]:
    """What became of the edges of a frame, by the slopes (gradients) of the smoothed input g and output f.

    Edges are the pixels inside where ``|g|`` is at least 3 dB over 1/64 of the height; the rim is left out.

    Args:
        input_db, output_db: ``(H, W)`` in dB.
        inside: bool ``(H, W)``.

    Returns:
        ``edges_lost``, share of the edges where ``f . g < |g|^2 / 2``: less than half of the slope is left along its
        own direction, 0 to 1. ``edge_coherence``, ``sum f . g / sqrt(sum |f|^2 sum |g|^2)`` over the edges: 1 the same
        edges, even where all are weaker; 0 none in common. Nothing where the input has no edge.
    """
    factor = max(1, round(input_db.shape[0] / EDGE_HEIGHT))
    sigma = max(1.0, EDGE_SMOOTHING * input_db.shape[0] / factor)
    core = ndimage.binary_erosion(block_mean(inside, factor) == 1, iterations=round(2 * sigma))
    g, f = (_slopes(block_mean(image, factor), sigma)[:, core] for image in (input_db, output_db))
    edges = np.hypot(*g) * sigma >= EDGE_DB
    if not edges.any():
        return {}
    g, f = g[:, edges], f[:, edges]
    steepness = np.square(g).sum(axis=0)
    shared, left = (f * g).sum(axis=0), float(np.square(f).sum())
    coherence = float(shared.sum()) / (left * float(steepness.sum())) ** 0.5 if left > 0 else 0.0
    return {"edges_lost": float((shared < EDGE_LOST * steepness).mean()), "edge_coherence": coherence}


def faint_figures(
    input_db: np.ndarray, output_db: np.ndarray, faint: np.ndarray, chamber: np.ndarray | None, floor_db: float
) -> dict[str, tuple[float | None, float]]:
    """What became of walls at risk in one frame, each figure of input (None where it compares) and output.

    Args:
        input_db, output_db: ``(H, W)`` in dB.
        faint: bool ``(H, W)``, the walls, at least one pixel.
        chamber: bool ``(H, W)``, the haze region that they stand out against, or None.
        floor_db: of the input.

    Returns:
        ``faint_shift_db`` and ``ks_faint``, as of any region; ``faint_gone_share``, share of its pixels at least 6 dB
        above the floor that come out at most 3 dB above it (left out where none is); ``faint_contrast_db``, its mean
        power over the chamber's, dB (left out without one).
    """
    was, now = input_db[faint], output_db[faint]
    figures: dict[str, tuple[float | None, float]] = {
        "faint_shift_db": (None, metrics.mean_shift_db(was, now)),
        "ks_faint": (None, metrics.ks(was, now)),
    }
    if (seen := was - floor_db >= DIM_DB[0]).any():
        figures["faint_gone_share"] = None, float((now[seen] - floor_db <= LOST_DB).mean())
    if chamber is not None:
        before, after = (metrics.contrast_db(image[faint], image[chamber]) for image in (input_db, output_db))
        figures["faint_contrast_db"] = before, after
    return figures


def _detail(image_db: np.ndarray, counts: np.ndarray) -> float:
    """Root mean square, over the pixels that count, of an image less its smoothed self; 0 where none counts."""
    image = image_db.astype(np.float64)
    fine = (image - ndimage.gaussian_filter(image, DETAIL_PX))[counts]
    return float(np.sqrt(np.square(fine).mean())) if fine.size else 0.0


def _slopes(image_db: np.ndarray, sigma: float) -> np.ndarray:
    """``(2, H, W)``: derivatives of the smoothed image along rows and columns."""
    image = image_db.astype(np.float64)
    return np.stack([ndimage.gaussian_filter(image, sigma, order=order) for order in ((1, 0), (0, 1))])
