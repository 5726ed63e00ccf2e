"""Haze: reverberation, side lobes and clutter that lie over the tissue without following it."""

from __future__ import annotations

import torch
from torch import Tensor

from usdehaze.simulate.draw import Draw
from usdehaze.simulate.speckle import point_spread


class HazeScene:
    """A batch of random hazes on the polar grid: a smooth power profile times coarse complex speckle.

    Args:
        draw: batch size and randomness.
        n_depth, n_angle: polar grid.
        clear: probability that a frame has next to no haze.
        level_db: range of the haze level near the probe, dB re full scale.
    """

    def __init__(
        self,
        draw: Draw,
        n_depth: int = 128,
        n_angle: int = 128,
        clear: float = 0.15,
        level_db: tuple[float, float] = (-42.0, -8.0),
    ) -> None:
        shape = (n_depth, n_angle)
        r = torch.linspace(0, 1, n_depth, device=draw.device)[None, :, None]
        beam = torch.linspace(-1, 1, n_angle, device=draw.device)[None, None, :]
        level = draw.uniform(*level_db) - 60 * draw.chance(clear)
        # Strongest near the probe, fading out at some depth that differs a little from beam to beam.
        half_way = draw.chance(0.5)  # as in most real clips: gone at a third to a half of the depth
        edge = half_way * draw.uniform(0.2, 0.55) + (1 - half_way) * draw.uniform(0.15, 1.1)
        edge = edge + draw.uniform(0, 0.12) * draw.smooth(*shape, 1, 6)
        fade = torch.sigmoid((r - edge) / draw.uniform(0.02, 0.15))
        profile = level - draw.uniform(0, 35) * r - draw.uniform(20, 60) * fade
        profile = (
            profile + draw.uniform(0, 6) * draw.smooth(*shape, 1, 4) + draw.uniform(0, 3) * draw.smooth(*shape, 3, 3)
        )
        profile = profile + draw.uniform(0, 5) * draw.smooth(*shape, 36, 2)  # layers of reverberation
        side = draw.uniform(-0.9, 0.9)
        sharp = torch.sigmoid((beam - side) * (1 - 2 * draw.chance(0.5)) / draw.uniform(0.01, 0.1))
        profile = profile - draw.chance(0.25) * draw.uniform(10, 40) * sharp
        power = 10 ** (profile / 10)
        for _ in range(3):  # side lobes and clouds away from the probe
            at_r, at_beam = draw.uniform(0.05, 0.9), draw.uniform(-1, 1)
            blob = ((r - at_r) / draw.uniform(0.12, 0.3)) ** 2 + ((beam - at_beam) / draw.uniform(0.35, 1.0)) ** 2
            power = power + draw.chance(0.25) * 10 ** ((level + draw.uniform(-14, 2)) / 10) * torch.exp(-0.5 * blob)
        period, width = draw.uniform(0.05, 0.25), draw.uniform(0.008, 0.03)
        window = torch.exp(-0.5 * ((beam - draw.uniform(-0.8, 0.8)) / draw.uniform(0.5, 1.2)) ** 2)
        strength, decay = draw.chance(0.2) * 10 ** ((level + draw.uniform(-8, 6)) / 10), draw.uniform(2, 10)
        for k in range(1, 6):  # echoes between probe and a reflector at one depth
            band = torch.exp(-0.5 * ((r - k * period) / width) ** 2) * window
            power = power + strength * 10 ** (-decay * k / 10) * band
        close = torch.sigmoid((draw.uniform(0.02, 0.1) - r) / 0.01)
        power = power * 10 ** (draw.chance(0.5) * draw.uniform(0, 12) * close / 10)
        self.amplitude = power.sqrt()
        self.axial_px, self.lateral_px = draw.log_uniform(0.35, 1.6), draw.log_uniform(0.5, 4.0)
        self.draw, self.shape = draw, shape

    def speckle(self) -> Tensor:
        """A fresh realisation ``(batch, depth, angle)`` of unit-power complex speckle."""
        return point_spread(self.draw.white(*self.shape), self.axial_px, self.lateral_px)

    def still(self) -> Tensor:
        """One frame of haze: I/Q ``(batch, depth, angle)`` complex, 0 dB = amplitude 1."""
        return self.amplitude * self.speckle()
