"""What an axis of unknown meaning is, by how the slices along it resemble each other."""

from __future__ import annotations

from collections.abc import Callable

import h5py
import numpy as np
from scipy import ndimage

from usdehaze.io.hdf5.layouts.blocks import plain

PICKS = 8  # slices looked at
FAR_MORE = 2  # times as alike: what tells frames from other slices
SIDE = 512  # of a slice at most; of longer ones every second value, or fewer
TOLERANCE = 0.01  # of the range of values: how well one colour tells the others
COLOUR_SHARE = 0.8  # of the pixels that are not background, where it does
COLOUR_LIKENESS = 0.95  # correlation of fine detail in two colours of one image; less in two frames
SLICES_SHARE, SLICES_LIKENESS = 0.2, 0.8  # of what is no one image in colours: less of both


def changes(dataset: h5py.Dataset, axes: list[int], fixed: dict[int, int] | None = None) -> list[float]:
    """How much slices along each of three axes of a dataset differ from each other, see `changes_in`.

    Args:
        dataset: of frames.
        axes: three axes of it.
        fixed: index along each axis that is neither of these nor of length 1.
    """
    first, slices, where = min(axes), [], list[int | slice]()
    for axis, side in enumerate(dataset.shape):
        where.append(_thin(side) if axis in axes else (fixed or {}).get(axis, 0))
    for index in np.unique(np.linspace(0, dataset.shape[first] - 1, PICKS).astype(int)):
        where[first] = int(index)
        slices.append(plain(dataset[tuple(where)]))
    found = dict(zip(sorted(axes), changes_in(np.stack(slices)), strict=True))
    return [found[axis] for axis in axes]


def lie_elsewhere(frames: Callable[[int], np.ndarray], count: int) -> bool:
    """Whether slices along another axis of ``count`` frames ``(H, W)``, by index, resemble each other far more."""
    picks = np.linspace(0, count - 1, min(count, PICKS)).astype(int)
    of_frames, *others = changes_in(np.stack([_thinned(frames(int(index))) for index in picks]))
    return min(others) < of_frames / FAR_MORE


def _thinned(values: np.ndarray) -> np.ndarray:
    """A slice ``(H, W)``, of one that is large every second value, or fewer."""
    height, width = values.shape
    return values[_thin(height), _thin(width)]


def _thin(side: int) -> slice:
    return slice(None, None, -(-side // SIDE))


def changes_in(block: np.ndarray) -> list[float]:
    """How much slices along each axis differ from each other; 1 for unrelated slices.

    Values count by their rank, which log compression does not change: the few brightest echoes of an envelope or of I/Q
    would outweigh all others. Frames of a cine resemble each other from beginning to end, rows and columns do not.
    Slices of one value are left out: frames that were never written would make all rows alike.

    Args:
        block: `PICKS` slices, spread over the first of three axes, all of the others.
    """
    block = (np.abs(block) if block.dtype.kind == "c" else block).astype(np.float64)
    block = np.where(np.isfinite(block), block, np.nanmin(np.where(np.isfinite(block), block, np.nan), initial=0.0))
    for axis in range(3):
        varied = np.flatnonzero(np.ptp(block, axis=tuple({0, 1, 2} - {axis})))
        block = block.take(varied, axis) if len(varied) else block
    block = np.searchsorted(np.sort(block, axis=None), block).astype(np.float32)
    found = []
    for axis, count in enumerate(block.shape):
        part = block.take(np.linspace(0, count - 1, min(count, PICKS)).astype(int), axis)
        variance = float(part.var())
        # the variance of what is left after the mean over the slices is taken off
        left = float((part - part.mean(axis=axis, keepdims=True)).var())
        found.append(left / variance if variance > 0 else 1.0)
    return found


def shared_levels(channels: np.ndarray, tolerance: float = TOLERANCE) -> float:
    """Share of the pixels, background left out, whose first channel tells the others: 1 for grey in three colours.

    Args:
        channels: ``(C, H, W)`` real.
        tolerance: how far off the others may be, of the range of values.
    """
    first, others = channels[0].astype(np.float64).ravel(), channels[1:3].astype(np.float64)
    low, high = float(channels.min()), float(channels.max())
    inside = (channels[:3] > low + TOLERANCE * (high - low)).any(axis=0).ravel()
    if not high > low or not inside.any():
        return 1.0
    level = np.rint((first - low) / (high - low) * 255).astype(int)[inside]
    told = np.ones(len(level), bool)
    for other in others:
        values = other.ravel()[inside]
        usual = ndimage.median(values, level, np.arange(256))
        told &= np.abs(values - np.asarray(usual)[level]) <= tolerance * (high - low)
    return float(told.mean())


def likeness(channels: np.ndarray) -> float:
    """Correlation of the fine detail of the first two channels ``(C, H, W)``; 1 where there is none."""
    fine = [c - ndimage.uniform_filter(c, 3) for c in channels[:2].astype(np.float64)]
    scale = float(np.sqrt((fine[0] ** 2).mean() * (fine[1] ** 2).mean()))
    return float((fine[0] * fine[1]).mean()) / scale if scale > 0 else 1.0
