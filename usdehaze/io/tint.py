"""B-mode shown under a colour map: every grey level has its one colour."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

TINT_SPREAD = 16  # of 255, that a pixel's red, green and blue may lie beside the map
DARKEST, BRIGHT = 24, 48  # luma from which a colour can be told, and from which it must be one
GREY_RATIO = 0.08  # of the largest of red, green and blue, that they differ by at least in a tint
MOST_GREY = 0.15  # of the pixels: in Doppler, the tissue around it is grey
MOST_OFF = 0.4  # of the pixels, that are of another colour (Doppler over a tint)
FEWEST = 16  # pixels that a level is judged by
SMOOTHED = 9  # levels
FEWEST_LEVELS = 16  # judged levels; a drawing in colour has fewer


@dataclass(frozen=True)
class Tint:
    """A colour map.

    Attributes:
        curve: ``(256, 3)`` float32, red, green and blue of every luma.
    """

    curve: np.ndarray

    def matches(self, rgb: np.ndarray, luma: np.ndarray) -> np.ndarray:
        """``(H, W)`` bool: pixels of ``(H, W, 3)`` that have the colour of their luma."""
        return np.abs(rgb - self.curve[luma]).max(axis=-1) <= TINT_SPREAD

    def recoloured(self, rgb: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """``(..., 3)`` uint8: pixels whose luma went from ``before`` to ``after``; the very pixels where it did not."""
        moved = rgb + np.rint(self.curve[after] - self.curve[before])
        return np.clip(moved, 0, 255).astype(np.uint8)


def find_tint(rgb: np.ndarray, luma: np.ndarray) -> Tint | None:
    """The colour map of an image, or None where it is grey, or of several colours of one luma.

    Args:
        rgb: ``(N, 3)`` uint8, its pixels.
        luma: ``(N,)`` uint8 of these.
    """
    lit = luma >= DARKEST
    rgb, luma = rgb[lit], luma[lit]
    if len(luma) < FEWEST or np.mean(_spread(rgb) < GREY_RATIO) > MOST_GREY:
        return None
    counts = np.bincount(luma, minlength=256)
    known = np.flatnonzero(counts >= FEWEST)
    if len(known) < FEWEST_LEVELS:
        return None
    order = np.argsort(luma, kind="stable")
    ends = np.cumsum(counts)
    medians = np.array([np.median(rgb[order[ends[i] - counts[i] : ends[i]]], axis=0) for i in known])
    medians = ndimage.median_filter(medians, (SMOOTHED, 1), mode="nearest")  # a box of one colour has one luma
    bright = known >= BRIGHT
    if np.mean(_spread(medians[bright]) >= GREY_RATIO if bright.any() else [0]) < 1 - MOST_GREY:
        return None
    levels, colours = np.concatenate([[0], known]), np.concatenate([np.zeros((1, 3)), medians])
    curve = np.stack([np.interp(np.arange(256), levels, colours[:, c]) for c in range(3)], axis=1)
    above = np.arange(256) > known[-1]
    curve[above] = np.minimum(medians[-1] * (np.arange(256)[above, None] / known[-1]), 255)
    tint = Tint(curve.astype(np.float32))
    return tint if np.mean(~tint.matches(rgb, luma)) <= MOST_OFF else None


def _spread(rgb: np.ndarray) -> np.ndarray:
    """Largest minus smallest of red, green and blue, over the largest."""
    high = rgb.max(axis=-1).astype(np.float64)
    return np.asarray((high - rgb.min(axis=-1)) / np.maximum(high, 1))
