"""Observation models: how tissue ``x`` and haze ``n`` make the frame ``y``.

Everything is in model units: 0 = floor, 1 = full scale (0 dB). A model gives ``h(x, n)``, its two pointwise
derivatives, the variance of ``y`` about ``h``, and what ``y`` tells of a pair known with Gaussian doubt; the guidance
rules need nothing else.
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

    def explain(self, y: Tensor, x: Tensor, r2: float, n: Tensor, q2: float) -> tuple[Tensor, Tensor]:
        """Posterior means of tissue and haze, in each pixel, given ``y`` and beforehand ``N(x, r2)``, ``N(n, q2)``."""


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

    def explain(self, y: Tensor, x: Tensor, r2: float, n: Tensor, q2: float) -> tuple[Tensor, Tensor]:
        """Exact: the posterior is Gaussian."""
        pull = (y - x - n) / (r2 + q2 + self.std**2)
        return x + r2 * pull, n + q2 * pull


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

    def explain(self, y: Tensor, x: Tensor, r2: float, n: Tensor, q2: float) -> tuple[Tensor, Tensor]:
        """Either tissue made ``y`` and haze lies below, or the other way round; both cases weighed by their evidence.

        Averaged over the phase between two echoes, their log power is that of the stronger one (Jensen's formula), so
        ``y`` is taken as ``max(x, n)`` plus noise: the mixture-maximum model of Nadas et al. (1989), whose posterior
        means are closed forms in the normal density and distribution. Linearising ``h`` instead would settle who
        made ``y`` at the first noise level, by the priors' mean images alone.
        """
        s2 = self.variance(x, n)
        tissue_log, tissue_on, tissue_below = _cases(y, x, r2, s2)
        haze_log, haze_on, haze_below = _cases(y, n, q2, s2)
        below_x = torch.special.log_ndtr((y - x) / (r2 + s2).sqrt())
        below_n = torch.special.log_ndtr((y - n) / (q2 + s2).sqrt())
        by_tissue = torch.sigmoid(tissue_log + below_n - haze_log - below_x)
        return (
            tissue_below + by_tissue * (tissue_on - tissue_below),
            haze_on + by_tissue * (haze_below - haze_on),
        )


def _cases(y: Tensor, x: Tensor, r2: float, s2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For ``x ~ N(x, r2)``: log density of making ``y``; mean of ``x`` having made it; mean of ``x`` lying below it."""
    total = r2 + s2
    z = (y - x) / total.sqrt()
    log_density = -0.5 * z * z - 0.5 * total.log()
    hazard = torch.exp(-0.5 * z * z - 0.5 * math.log(2 * math.pi) - torch.special.log_ndtr(z))
    return log_density, x + r2 / total * (y - x), x - r2 / total.sqrt() * hazard
