"""Smoothing and opening of frames."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def average(frames: Tensor, cells: float) -> Tensor:
    """Gaussian average along the last two axes of ``(B, 1, H, W)``; beyond the border lies what is on it.

    Args:
        frames: any unit.
        cells: standard deviation of the Gaussian, pixels.
    """
    reach = math.ceil(3 * cells)
    at = torch.arange(-reach, reach + 1, device=frames.device, dtype=frames.dtype)
    kernel = torch.exp(-0.5 * (at / cells) ** 2)
    kernel = kernel / kernel.sum()
    padded = F.pad(frames, (reach, reach, reach, reach), mode="replicate")
    return F.conv2d(F.conv2d(padded, kernel.reshape(1, 1, -1, 1)), kernel.reshape(1, 1, 1, -1))


def opening(frames: Tensor, window: int) -> Tensor:
    """Grey-level opening of ``(B, 1, H, W)``: takes off all that is brighter than its surroundings and fits no square.

    Args:
        frames: any unit.
        window: side of the square, an odd number of pixels; at the border, the part of it that lies inside.
    """
    return _highest(-_highest(-frames, window), window)


def _highest(frames: Tensor, window: int) -> Tensor:
    """Highest value in a square about each pixel: along one axis, then along the other."""
    half = window // 2
    along = F.max_pool2d(frames, (window, 1), stride=1, padding=(half, 0))
    return F.max_pool2d(along, (1, window), stride=1, padding=(0, half))
