"""Seeded random draws shaped for a batch of frames."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


class Draw:
    """Draws one value (or field) per frame of a batch from one generator.

    Args:
        batch: number of frames.
        generator: source of randomness; everything lands on its device.
    """

    def __init__(self, batch: int, generator: torch.Generator) -> None:
        self.batch = batch
        self.generator = generator
        self.device = generator.device

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """``(batch, *shape, 1, 1)`` uniform in [low, high)."""
        u = torch.rand(self.batch, *shape, 1, 1, generator=self.generator, device=self.device)
        return low + (high - low) * u

    def log_uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """``(batch, *shape, 1, 1)``, its logarithm uniform between those of low and high."""
        return torch.exp(self.uniform(math.log(low), math.log(high), *shape))

    def normal(self, std: float, *shape: int) -> Tensor:
        """``(batch, *shape, 1, 1)`` normal with mean 0."""
        return std * torch.randn(self.batch, *shape, 1, 1, generator=self.generator, device=self.device)

    def chance(self, probability: float, *shape: int) -> Tensor:
        """``(batch, *shape, 1, 1)`` 1.0 with the given probability, else 0.0."""
        return (self.uniform(0.0, 1.0, *shape) < probability).float()

    def integer(self, high: int) -> Tensor:
        """``(batch,)`` whole numbers in [0, high)."""
        return torch.randint(high, (self.batch,), generator=self.generator, device=self.device)

    def white(self, n_depth: int, n_angle: int) -> Tensor:
        """``(batch, n_depth, n_angle)`` circular complex white noise of unit power: point scatterers or electronics."""
        pair = torch.randn(self.batch, n_depth, n_angle, 2, generator=self.generator, device=self.device)
        return torch.view_as_complex(pair) * 0.5**0.5

    def smooth(self, n_depth: int, n_angle: int, cells_depth: int, cells_angle: int) -> Tensor:
        """``(batch, n_depth, n_angle)`` smooth field of so many cells a side, of unit variance at their corners."""
        coarse = torch.randn(
            self.batch, 1, cells_depth + 1, cells_angle + 1, generator=self.generator, device=self.device
        )
        return F.interpolate(coarse, size=(n_depth, n_angle), mode="bicubic", align_corners=True)[:, 0]
