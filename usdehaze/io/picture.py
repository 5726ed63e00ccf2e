"""Frames in colour: their grey levels, and which of their pixels are grey-scale B-mode, grey or under a colour map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from usdehaze.io.tint import DARKEST, Tint, find_tint

# Of 255: the largest and smallest of R, G and B of a grey pixel differ by at most this. Lossy compression leaves that
# much colour in grey speckle, and Doppler has more, save where it is nearly black.
GREY_SPREAD = 16
_WEIGHTS = np.array([0.299, 0.587, 0.114])  # of luma, ITU-R BT.601
LEAST_GREY = 0.05  # of what is lit in the image: with less there is nothing to dehaze


@np.errstate(over="ignore", invalid="ignore")  # what is no number stays none, and is told by those who ask
def luma(frame: np.ndarray) -> np.ndarray:
    """Luma of ``(H, W, 3 or 4)`` red, green, blue: ``(H, W)`` of the same type; a fourth channel is left out.

    Grey stays what it is, exactly.
    """
    red, green, blue = (frame[..., channel] for channel in range(3))
    if np.array_equal(red, green) and np.array_equal(red, blue):
        return red
    mixed = frame[..., :3].astype(np.float64) @ _WEIGHTS
    return np.rint(mixed).astype(frame.dtype) if frame.dtype.kind in "ui" else mixed.astype(frame.dtype)


@dataclass(frozen=True)
class Picture:
    """A decoded frame.

    Attributes:
        levels: ``(H, W)`` stored values, of a colour frame its luma.
        rgb: ``(H, W, 3)`` uint8, or None for a grey frame.
    """

    levels: np.ndarray
    rgb: np.ndarray | None = None

    def grey(self) -> np.ndarray | None:
        """``(H, W)`` bool, pixels without colour; None where that is all of them."""
        if self.rgb is None:
            return None
        red, green, blue = (self.rgb[..., i] for i in range(3))
        highest = np.maximum(np.maximum(red, green), blue)
        grey = highest - np.minimum(np.minimum(red, green), blue) <= GREY_SPREAD
        return None if grey.all() else grey


@dataclass(frozen=True)
class Colours:
    """What the colours of a screen mean.

    Attributes:
        tints: colour maps of B-mode, each with the ``(H, W)`` bool mask of the image that it tints.
    """

    tints: tuple[tuple[np.ndarray, Tint], ...] = ()

    def b_mode(self, picture: Picture) -> np.ndarray | None:
        """``(H, W)`` bool, pixels that are grey, or in a tinted image of its tint; None where that is all of them."""
        grey = picture.grey()
        if grey is None or picture.rgb is None:
            return None
        for mask, tint in self.tints:
            grey = np.where(mask, tint.matches(picture.rgb, picture.levels), grey)
        return None if grey.all() else grey

    def share_left(self, pictures: Sequence[Picture], image: np.ndarray) -> float:
        """Share of the pixels of the image, ``(H, W)`` bool, that have another colour."""
        found = [mask for picture in pictures if (mask := self.b_mode(picture)) is not None]
        return sum(float((~mask[image]).mean()) for mask in found) / len(pictures)

    def all_over(self, pictures: Sequence[Picture], image: np.ndarray) -> bool:
        """Whether hardly anything that is lit in the image is B-mode."""
        coloured = [picture for picture in pictures if picture.rgb is not None]
        lit = [image & (picture.levels >= DARKEST) for picture in coloured]
        masks = [self.b_mode(picture) for picture in coloured]
        n_lit = sum(int(np.count_nonzero(some)) for some in lit)
        kept = sum(int(np.count_nonzero(some if m is None else some & m)) for some, m in zip(lit, masks, strict=True))
        return n_lit > 0 and kept < LEAST_GREY * n_lit


def find_colours(pictures: Sequence[Picture], images: Sequence[np.ndarray]) -> Colours:
    """The colour maps of the images on a screen, each by itself.

    Args:
        pictures: some frames; luma of those in colour is uint8.
        images: ``(H, W)`` bool, the pixels of each image.
    """
    coloured = [picture for picture in pictures if picture.grey() is not None]
    tints = []
    for mask in images if coloured else ():
        rgb = np.concatenate([picture.rgb[mask] for picture in coloured if picture.rgb is not None])
        tint = find_tint(rgb, np.concatenate([picture.levels[mask] for picture in coloured]))
        if tint is not None:
            tints.append((mask, tint))
    return Colours(tuple(tints))
