"""Dead leaves: overlapping soft shapes of all sizes, the widest tissue there is.

Scenes that look like nothing in particular have what all images share: occlusion, edges of every length and contrast,
detail at every scale (Lee, Mumford and Huang 2001). They keep a network from knowing hearts alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from usdehaze.simulate.draw import Draw

LEAVES = 28


@dataclass
class Leaves:
    """Ellipses from back to front, in units of the imaging depth. All fields ``(batch, K, 1, 1)``.

    Attributes:
        x, z: centres.
        long, short: half axes.
        angle: of the long axis, rad.
        level_db: of their tissue, dB re full scale.
        edge: width of their border.
        rim_db: how much brighter the border is than the leaf.
    """

    x: Tensor
    z: Tensor
    long: Tensor
    short: Tensor
    angle: Tensor
    level_db: Tensor
    edge: Tensor
    rim_db: Tensor

    @staticmethod
    def random(draw: Draw, floor_db: float, k: int = LEAVES) -> Leaves:
        """Sizes fall off as a power law, large leaves lie at the back; a third hold fluid, some are lines."""
        z = draw.uniform(0.0, 1.1, k)
        size = draw.log_uniform(0.02, 0.5, k).sort(dim=1, descending=True).values
        slender = torch.where(draw.chance(0.3, k) > 0, draw.uniform(0.03, 0.2, k), draw.uniform(0.3, 1.0, k))
        base = draw.uniform(-44, -10, 1)
        level = base + draw.normal(11.0, k)
        level = torch.where(draw.chance(0.35, k) > 0, floor_db + draw.uniform(-20, 8, k), level)
        return Leaves(
            x=z.clamp_min(0.2) * draw.uniform(-0.8, 0.8, k),
            z=z,
            long=size,
            short=(size * slender).clamp_min(0.004),
            angle=draw.uniform(0, math.pi, k),
            level_db=level,
            edge=draw.log_uniform(0.002, 0.06, k),
            rim_db=draw.chance(0.25, k) * draw.uniform(0, 14, k),
        )

    def paint(self, x: Tensor, z: Tensor, level_db: Tensor) -> Tensor:
        """Levels in dB at the points ``(batch, H, W)``, the leaves laid over ``level_db``."""
        c, s = self.angle.cos(), self.angle.sin()
        for k in range(self.x.shape[1]):
            px, pz = x - self.x[:, k], z - self.z[:, k]
            along, across = c[:, k] * px + s[:, k] * pz, c[:, k] * pz - s[:, k] * px
            rho = torch.hypot(along / self.long[:, k], across / self.short[:, k])
            depth = (1 - rho) * self.short[:, k] / self.edge[:, k]  # inside, in widths of the border
            rim = self.rim_db[:, k] * torch.exp(-(depth**2))
            level_db = torch.lerp(level_db, self.level_db[:, k] + rim, torch.sigmoid(2 * depth))
        return level_db
