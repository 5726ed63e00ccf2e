"""What a screen draws over the image: ECG traces, text and marks, which are neither tissue nor haze."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from usdehaze.simulate.draw import Draw

LETTERS, FONT = 6, (7, 5)  # letters of a word; rows and columns of a letter
# Waves of an ECG: place in the beat, width (shares of a beat), height (of the R wave).
WAVES = ((0.18, 0.030, 0.15), (0.27, 0.008, -0.15), (0.30, 0.010, 1.0), (0.33, 0.010, -0.3), (0.55, 0.050, 0.3))


def overlay(draw: Draw, x: Tensor, z: Tensor) -> Tensor:
    """Grey levels of the graphics, 0 where there are none.

    Args:
        draw: batch size and randomness.
        x, z: ``(batch, depth, angle)`` where each grid point lies, in units of the imaging depth.

    Returns:
        ``(batch, depth, angle)`` in [0, 1].
    """
    level = draw.uniform(0.3, 1.0)
    parts = [draw.chance(0.15) * _trace(draw, x, z), draw.chance(0.1) * _word(draw, x, z)]
    parts.append(draw.chance(0.1) * _ticks(draw, x, z))
    return level * torch.stack(parts).amax(0)


def _line(distance: Tensor, half_width: Tensor) -> Tensor:
    """1 on a line of this half width, 0 beyond, with the border of a drawn line."""
    return ((half_width - distance.abs()) / (0.5 * half_width) + 0.5).clamp(0, 1)


def _trace(draw: Draw, x: Tensor, z: Tensor) -> Tensor:
    """An ECG across the lower part, in places missing."""
    beat, start = draw.uniform(0.12, 0.6), draw.uniform(0, 1)
    height, base = draw.uniform(0.02, 0.12) * (1 - 2 * draw.chance(0.15)), draw.uniform(0.7, 1.0)
    phase = torch.remainder(x / beat + start, 1.0)
    curve, slope = torch.zeros_like(x), torch.zeros_like(x)
    for at, width, share in WAVES:
        bump = share * torch.exp(-0.5 * ((phase - at) / width) ** 2)
        curve, slope = curve + bump, slope - bump * (phase - at) / width**2
    distance = (z - base + height * curve) / torch.sqrt(1 + (height / beat * slope) ** 2)
    shown = torch.sigmoid((x - draw.uniform(-1.2, 0.3)) / 0.005) * torch.sigmoid((draw.uniform(-0.1, 1.2) - x) / 0.005)
    return _line(distance, draw.uniform(0.002, 0.006)) * shown


def _word(draw: Draw, x: Tensor, z: Tensor) -> Tensor:
    """Random letters in a row."""
    rows, columns = FONT
    ink = (
        torch.rand(draw.batch, 1, rows, LETTERS * columns, generator=draw.generator, device=draw.device) < 0.5
    ).float()
    ink[..., columns - 1 :: columns] = 0  # between letters
    height = draw.uniform(0.015, 0.05)
    at_z = draw.uniform(0.02, 1.0)
    at_x = at_z.clamp_min(0.1) * draw.uniform(-0.9, 0.6)
    across = (x - at_x) / (height * LETTERS * columns / rows) * 2 - 1
    down = (z - at_z) / height * 2 - 1
    grid = torch.stack([across, down], dim=-1)
    return F.grid_sample(ink, grid, mode="nearest", padding_mode="zeros", align_corners=False)[:, 0]


def _ticks(draw: Draw, x: Tensor, z: Tensor) -> Tensor:
    """Depth marks along a ray."""
    angle, step = draw.uniform(-0.8, 0.8), draw.uniform(0.05, 0.2)
    along = x * angle.sin() + z * angle.cos()
    across = x * angle.cos() - z * angle.sin()
    off = torch.remainder(along, step)
    near = torch.minimum(off, step - off)
    size = draw.uniform(0.003, 0.01)
    return _line(torch.hypot(near, across), size) * (along > 0.5 * math.sqrt(2) * size)
