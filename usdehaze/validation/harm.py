"""Whether a dehazer can be trusted, on frames whose truth is known: do no harm, leakage, stability.

Plain functions on frames in dB. Every figure is a Python float; what each one means at 0 is part of its definition.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

BRIGHT_DB = -30.0  # change of clean frames is measured on pixels brighter than this
HARM_SHIFT_DB = 1.0  # a clean frame's tissue mean may move by this much
RISE_TOLERANCE_DB = 1e-3  # rounding of float32 dB
LEAK_BINS = 16  # of the mutual information, along either axis
VISIBLE_DB = -40.0  # darker pixels hardly show on a screen
DIM_DB = (6.0, 15.0)  # above the floor: pixels that are easily lost
LOST_DB = 3.0  # above the floor, and no more: what a dim pixel is lost at


def harm_figures(clean_db: np.ndarray, output_db: np.ndarray, tissue: np.ndarray) -> dict[str, float]:
    """What became of a frame that had no haze.

    Args:
        clean_db, output_db: ``(H, W)`` in dB, what went in and what came out.
        tissue: bool ``(H, W)``, where there is tissue.

    Returns:
        ``clean_shift_db``, mean output minus mean input of the tissue (0 = kept); ``clean_change_db``, median of
        ``|output - input|`` over pixels brighter than -30 dB, which changes up and down cannot cancel in;
        ``clean_rise_db``, largest output minus input of any pixel (at most 0 where haze is only ever removed). A figure
        without pixels is left out.
    """
    change = output_db.astype(np.float64) - clean_db
    figures = {"clean_rise_db": float(change.max())}
    bright = clean_db > BRIGHT_DB
    if tissue.any():
        figures["clean_shift_db"] = float(change[tissue].mean())
    if bright.any():
        figures["clean_change_db"] = float(np.median(np.abs(change[bright])))
    return figures


def harmless(figures: dict[str, float]) -> bool:
    """The rule: tissue mean within 1 dB, and no pixel brighter than it was."""
    shift, rise = figures.get("clean_shift_db", 0.0), figures["clean_rise_db"]
    return abs(shift) <= HARM_SHIFT_DB and rise <= RISE_TOLERANCE_DB


def leak_correlation(haze_db: ArrayLike, true_tissue_db: ArrayLike, true_haze_db: ArrayLike) -> float:
    """How much anatomy stands in a haze estimate: its part correlation with the true tissue, given the true haze.

    ``corr(e, x - E[x | h])``: of the true tissue x only what the true haze h does not say already (the residual of a
    linear regression of x on h, dB values) is correlated with the estimate e. So whatever tissue and haze share by
    chance, for instance that both fade with depth, is no leak, and the true haze itself scores 0 exactly. Its square is
    the share of the estimate's variance that the true tissue explains beyond the true haze. For ``e = h + a x`` with x
    and h uncorrelated and of equal spread it is ``a / sqrt(1 + a^2)``.

    Args:
        haze_db: the estimate; any shape, the same for all three.
        true_tissue_db, true_haze_db: the truth.

    Returns:
        -1 to 1. Positive: anatomy shows in the haze. Negative: the haze is cut out where anatomy is. 0 for an estimate,
        or a tissue, without any variation of its own.
    """
    e, x, h = _centred(haze_db, true_tissue_db, true_haze_db)
    spread_h, spread_x = float(h @ h), float(x @ x)
    own = x - (float(x @ h) / spread_h) * h if spread_h > 0 else x
    spread_e, spread_own = float(e @ e), float(own @ own)
    if spread_e == 0 or spread_own <= 1e-12 * spread_x or spread_x == 0:
        return 0.0
    return float(e @ own) / (spread_e * spread_own) ** 0.5


def leak_bits(haze_db: ArrayLike, true_tissue_db: ArrayLike, true_haze_db: ArrayLike) -> float:
    """Mutual information of haze estimate and true tissue beyond what the true haze has by chance, bits a pixel.

    ``I(e; x) - I(h; x)``, each from a table of 16 x 16 equiprobable bins of pixels (:func:`mutual_information`). The
    bias of the two estimates, about ``15^2 / (2 N ln 2)`` bits, cancels where neither has many ties. It also sees what
    is not linear, and cannot tell anatomy printed from anatomy cut out.

    Returns:
        0 for the true haze itself; negative for an estimate that knows less of the tissue than the true haze does.
    """
    return mutual_information(haze_db, true_tissue_db) - mutual_information(true_haze_db, true_tissue_db)


def mutual_information(a: ArrayLike, b: ArrayLike) -> float:
    """Mutual information of two images pixel by pixel, in bits.

    Both are cut into bins that hold equal shares of the pixels, on mid-ranks, so that no increasing change of grey
    levels matters and equal values share a bin. Two Gaussians of correlation r have ``-log2(1 - r^2) / 2`` bits before
    binning, which loses a few per cent.
    """
    index_a, index_b = _rank_bins(a), _rank_bins(b)
    if index_a.size != index_b.size:
        raise ValueError(f"images differ in size: {index_a.size} and {index_b.size} pixels")
    counts = np.bincount(index_a * LEAK_BINS + index_b, minlength=LEAK_BINS**2)
    joint = counts.reshape(LEAK_BINS, LEAK_BINS) / index_a.size
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log2(joint[there] / independent[there])).sum())


def flicker_db(frames_db: np.ndarray, inside: np.ndarray) -> float:
    """Mean ``|f_(t+1) - f_t|`` over the pixels inside and over consecutive frames, in dB.

    Args:
        frames_db: ``(T, H, W)``, at least two frames.
        inside: bool ``(H, W)``.

    Raises:
        ValueError: a single frame, or no pixel inside.
    """
    if len(frames_db) < 2 or not inside.any():
        raise ValueError(f"flicker needs two frames and a pixel, found {len(frames_db)} and {int(inside.sum())}")
    return float(np.abs(np.diff(frames_db[:, inside].astype(np.float64), axis=0)).mean())


def flicker_ratio(removed_db: np.ndarray, input_db: np.ndarray, inside: np.ndarray) -> float:
    """Flicker of what was removed (input minus output, dB) over that of the input.

    0: the same is taken off every frame. 1: what is removed jumps about as much as the speckle of the input. NaN where
    the input does not change at all.
    """
    reference = flicker_db(input_db, inside)
    return flicker_db(removed_db, inside) / reference if reference > 0 else float("nan")


def removal_flicker(input_db: np.ndarray, output_db: np.ndarray, inside: np.ndarray, floor_db: float) -> float:
    """How unsteady a removal is: mean ``|r_(t+1) - r_t|`` over mean ``|r_t|``, ``r`` = input minus output in dB.

    Pixels count where they lie inside and the input above the floor, for a change in both frames. 0: the same is taken
    off every frame, or nothing at all; 1: what is removed changes by as much as it is.

    Args:
        input_db, output_db: ``(T, H, W)``, at least two frames.
        inside: bool ``(H, W)``.
        floor_db: of the input.

    Raises:
        ValueError: a single frame.
    """
    if len(input_db) < 2:
        raise ValueError(f"flicker needs two frames, found {len(input_db)}")
    removed = input_db.astype(np.float64) - output_db
    counts = inside & (input_db > floor_db)
    amount = np.abs(removed[counts])
    if not amount.any():
        return 0.0
    change = np.abs(np.diff(removed, axis=0))[counts[1:] & counts[:-1]]
    return float(change.mean() / amount.mean()) if change.size else 0.0


def lost_share(input_db: np.ndarray, output_db: np.ndarray, counts: np.ndarray, floor_db: float) -> float | None:
    """Share of dim pixels, 6 to 15 dB above the floor, that come out at most 3 dB above it.

    Args:
        input_db, output_db, counts: of one shape, the last bool.
        floor_db: of the input.

    Returns:
        0 to 1, or None where no pixel that counts is dim.
    """
    above = input_db - floor_db
    dim = counts & (above >= DIM_DB[0]) & (above <= DIM_DB[1])
    return float((output_db[dim] - floor_db <= LOST_DB).mean()) if dim.any() else None


def _centred(*images: ArrayLike) -> list[np.ndarray]:
    """Flat float64 copies without their means; ValueError where sizes differ or nothing is there."""
    flat = [np.asarray(image, dtype=np.float64).ravel() for image in images]
    if len({values.size for values in flat}) != 1 or flat[0].size == 0:
        raise ValueError(f"images differ in size, or are empty: {[values.size for values in flat]} pixels")
    return [values - values.mean() if np.ptp(values) > 0 else np.zeros_like(values) for values in flat]


def _rank_bins(values: ArrayLike) -> np.ndarray:
    """Bin of every pixel, flat: its mid-rank in equal shares."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    twice_rank = np.rint(2 * stats.rankdata(flat)).astype(np.int64)
    return LEAK_BINS * (twice_rank - 1) // (2 * flat.size)
