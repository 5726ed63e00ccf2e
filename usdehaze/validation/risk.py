"""Structure at risk: wall-like echoes of the input that a result takes away, or is not sure of. No truth is needed.

A mark says "look here", no more: an echo of haze that runs like a wall is marked as one, and a wall that haze hides
from the eye cannot be marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import fft, ndimage

from usdehaze.geometry.sector import block_mean

REASONS = ("removed", "samples", "frames")  # bits 1, 2 and 4 of a mark
SIDE_PX = 128  # frames are reduced to about that many rows and columns; lengths below are in these pixels
DIRECTIONS = 8
SCALES_PX = ((2.0, 8.0, 6), (4.0, 12.0, 12))  # deviations across and along a line, distance of its two sides
PAD_PX = 26
WALL_DB = 4.0  # a wall-like echo is brighter than either side by so much
SEEN_DB = 10.0  # and above the floor by so much
REMOVED_DB = 6.0  # lowered by so much,
KEPT = 0.5  # with no more than this share of its contrast left: taken away
SPREAD_DB = 5.0  # of the samples,
DOUBTED = 0.8  # with no more than this share of the contrast left: in doubt
UNSTEADY_DB = 6.0  # by which the removal differs from that in the frame before
PART_PX = 12  # smaller connected parts do not count,
WALL_LENGTH_PX = 10  # nor shorter echoes,
MARK_LENGTH_PX = 6  # nor shorter marks


@dataclass(frozen=True)
class _Lines:
    """One frame at one scale, ``(h, w)`` each: where wall-like echoes run, and what became of them in dB."""

    wall: np.ndarray
    contrast: np.ndarray
    contrast_left: np.ndarray
    removed: np.ndarray


class StructureRisk:
    """Marks the frames of a cine, one after the other.

    Echoes are looked for as lines: the frame in dB, averaged along each of 8 directions at two widths (about 1/64 and
    1/32 of the frame), against the brighter of its two sides. A **wall-like echo** is 4 dB above both, 10 dB above the
    floor and connected over 10 of 128 rows or columns. It is marked

    * ``removed``, where it is lowered by 6 dB or more and half its contrast or less is left;
    * ``samples``, where the posterior samples spread by 5 dB or more and 80 % of its contrast or less is left;
    * ``frames``, where what is removed differs by 6 dB or more from the frame before, in which it is one as well.

    Args:
        dynamic_range_db: dB between full scale and floor.
    """

    def __init__(self, dynamic_range_db: float) -> None:
        self.floor_db = -dynamic_range_db
        self.before: list[_Lines] | None = None

    def add(self, input_db: np.ndarray, tissue_db: np.ndarray, std_db: np.ndarray | None) -> np.ndarray:
        """Marks of the next frame.

        Args:
            input_db, tissue_db: ``(H, W)`` dB, before and after.
            std_db: ``(H, W)`` dB, deviation over the samples, or None.

        Returns:
            ``(H, W)`` uint8, bit k for ``REASONS[k]``; 0 where nothing is at risk.
        """
        factors = tuple(max(1, round(size / SIDE_PX)) for size in input_db.shape)
        before, after = (block_mean(image, factors) for image in (input_db, tissue_db))
        spread = None if std_db is None else ndimage.gaussian_filter(block_mean(std_db, factors), SCALES_PX[0][1] / 2)
        lines = [_lines(before, after, scale, self.floor_db) for scale in SCALES_PX]
        found = {reason: np.zeros(before.shape, bool) for reason in REASONS}
        for k, line in enumerate(lines):
            share = line.contrast_left / np.maximum(line.contrast, WALL_DB)
            found["removed"] |= line.wall & (line.removed >= REMOVED_DB) & (share <= KEPT)
            if spread is not None:
                found["samples"] |= line.wall & (spread >= SPREAD_DB) & (share <= DOUBTED)
            if self.before is not None and self.before[k].wall.shape == line.wall.shape:
                change = np.abs(line.removed - self.before[k].removed)
                found["frames"] |= line.wall & self.before[k].wall & (change >= UNSTEADY_DB)
        self.before = lines
        marks = np.zeros(before.shape, np.uint8)
        for bit, mask in enumerate(found.values()):
            marks |= connected(mask, MARK_LENGTH_PX).astype(np.uint8) << bit
        height, width = input_db.shape
        return marks.repeat(factors[0], axis=0).repeat(factors[1], axis=1)[:height, :width]


def connected(mask: np.ndarray, length_px: int) -> np.ndarray:
    """The connected parts of a mask (diagonals connect) of 12 pixels or more that are so long in rows or columns."""
    labels, _ = ndimage.label(mask, np.ones((3, 3)))
    kept = np.zeros_like(mask)
    for index, place in enumerate(ndimage.find_objects(labels), 1):
        part = labels[place] == index
        if part.sum() >= PART_PX and max(part.shape) >= length_px:
            kept[place] |= part
    return kept


def along_lines(images: Sequence[np.ndarray], scale: tuple[float, float, int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """What images are along the line through every pixel that stands out most in the first of them.

    Args:
        images: ``(h, w)`` dB each, as `StructureRisk` reduces them.
        scale: one of ``SCALES_PX``.

    Returns:
        Of every image the mean along the line, and how far that lies above the brighter of the line's two sides,
        ``(h, w)`` dB both.
    """
    levels = [_along(image, scale) for image in images]
    contrasts = [_over_sides(level, scale[2]) for level in levels]
    best = contrasts[0].argmax(axis=0)[None]
    inner = 0, slice(PAD_PX, -PAD_PX), slice(PAD_PX, -PAD_PX)
    return [
        (np.take_along_axis(level, best, 0)[inner], np.take_along_axis(contrast, best, 0)[inner])
        for level, contrast in zip(levels, contrasts, strict=True)
    ]


def _lines(before: np.ndarray, after: np.ndarray, scale: tuple[float, float, int], floor_db: float) -> _Lines:
    """Input and output ``(h, w)`` in dB, where walls run in the input."""
    (level, contrast), (level_left, contrast_left) = along_lines((before, after), scale)
    wall = connected((contrast >= WALL_DB) & (level >= floor_db + SEEN_DB), WALL_LENGTH_PX)
    return _Lines(wall, contrast, contrast_left, level - level_left)


def _along(image: np.ndarray, scale: tuple[float, float, int]) -> np.ndarray:
    """Mean along and a little across every direction, ``(8, h + 52, w + 52)``: the border goes on as it is."""
    padded = np.pad(image.astype(np.float32), PAD_PX, mode="edge")
    averaged: np.ndarray = fft.irfft2(fft.rfft2(padded) * _filters(padded.shape, scale), s=padded.shape)
    return averaged


@lru_cache(maxsize=4)
def _filters(shape: tuple[int, int], scale: tuple[float, float, int]) -> np.ndarray:
    """Gaussians of either direction as factors of frequencies."""
    across_px, along_px, _ = scale
    y, x = fft.fftfreq(shape[0])[:, None], fft.rfftfreq(shape[1])[None]
    along, across = zip(*((x * c + y * s, y * c - x * s) for c, s in map(_unit, range(DIRECTIONS))), strict=True)
    squares = (along_px * np.array(along)) ** 2 + (across_px * np.array(across)) ** 2
    return np.exp(-2 * np.pi**2 * squares).astype(np.float32)


def _over_sides(levels: np.ndarray, distance_px: int) -> np.ndarray:
    """How far every line lies above the brighter of the two beside it, dB."""
    contrasts = np.empty_like(levels)
    for k, level in enumerate(levels):
        c, s = _unit(k)
        step = round(distance_px * c), round(-distance_px * s)
        sides = (np.roll(level, (sign * step[0], sign * step[1]), (0, 1)) for sign in (1, -1))
        contrasts[k] = level - np.maximum(*sides)
    return contrasts


def _unit(direction: int) -> tuple[float, float]:
    angle = np.pi * direction / DIRECTIONS
    return float(np.cos(angle)), float(np.sin(angle))
