"""Observation models: how tissue ``x`` and haze ``n`` make the frame ``y``.

Everything is in model units: 0 = floor, 1 = full scale (0 dB). A model gives ``h(x, n)``, its two pointwise
derivatives, and the variance of ``y`` about ``h``; the guidance rules need nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Observation(Protocol):
    """A pointwise observation model; all tensors have the shape of the frames."""

    def predict(self, x: Tensor, n: Tensor) -> Tensor:
        """``h(x, n)``."""

    def derivatives(self, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        """``dh/dx`` and ``dh/dn``."""

    def variance(self, x: Tensor, n: Tensor) -> Tensor:
        """Variance of ``y`` about ``h(x, n)``."""


@dataclass(frozen=True)
class Additive:
    """``y = x + n + noise``, the paper's model (METHOD, ``A`` = identity).

    Args:
        std: deviation of the noise, model units.
    """

    std: float = 0.01

    def predict(self, x: Tensor, n: Tensor) -> Tensor:
        return x + n

    def derivatives(self, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ones_like(x), torch.ones_like(n)

    def variance(self, x: Tensor, n: Tensor) -> Tensor:
        return torch.full_like(x, self.std**2)


@dataclass(frozen=True)
class LogPower:
    """Two echoes whose powers add before log compression: ``y = 10 log10(10^(x/10) + 10^(n/10))`` in dB.

    The echoes themselves add with a random phase. About the level that the stronger one sets, with power ratio
    ``p <= 1``, the log power then has the variance ``(10 / ln 10)^2 * 2 Li2(p)`` dB^2 (the Fourier series of
    ``ln |1 + sqrt(p) exp(i phi)|^2``): large where tissue and haze are equally strong, none where one dominates.

    Args:
        dynamic_range_db: dB between floor and full scale.
        std_db: deviation of everything else (resampling, the scanner's grey curve), dB.
        interference: share of that phase variance left in a pixel, which averages over speckle, in [0, 1].
    """

    dynamic_range_db: float = 60.0
    std_db: float = 1.0
    interference: float = 0.3

    @property
    def _nepers(self) -> float:
        """Natural-log power per model unit."""
        return self.dynamic_range_db * math.log(10) / 10

    def predict(self, x: Tensor, n: Tensor) -> Tensor:
        return torch.logaddexp(self._nepers * x, self._nepers * n) / self._nepers

    def derivatives(self, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        share = torch.sigmoid(self._nepers * (x - n))  # of the power that is tissue
        return share, 1 - share

    def variance(self, x: Tensor, n: Tensor) -> Tensor:
        p = torch.exp(-self._nepers * (x - n).abs())
        dilogarithm = p * (1 + 0.645 * p * p)  # Li2(p) within 6 %
        return (self.std_db / self.dynamic_range_db) ** 2 + self.interference * 2 * dilogarithm / self._nepers**2
