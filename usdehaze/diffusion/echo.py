"""Observation models of echoes: powers add, before whatever curve compresses the envelope."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from usdehaze.diffusion.observation import Observation, Spread, is_full
from usdehaze.errors import UsdehazeError


class EchoPower(Observation):
    """Echo powers add before a compression curve ``c`` of the envelope: ``y = c(sqrt(c^-1(x)^2 + c^-1(n)^2))``.

    The echoes themselves add with a random phase, which spreads the summed power ``P`` by ``2 P_x P_n`` in variance;
    carried through the curve to first order.

    Attributes:
        std: deviation of everything else, model units.
        interference: share of the phase variance left in a pixel, which averages over speckle, in [0, 1].
    """

    std: float
    interference: float

    @abstractmethod
    def expand(self, y: Tensor) -> Tensor:
        """``c^-1``: envelope of a value."""

    @abstractmethod
    def compress(self, envelope: Tensor) -> Tensor:
        """``c``."""

    @abstractmethod
    def slope(self, envelope: Tensor) -> Tensor:
        """``c'``."""

    def _envelopes(self, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b = self.expand(x), self.expand(n)
        return a, b, torch.hypot(a, b).clamp(min=1e-6)

    def predict(self, x: Tensor, n: Tensor) -> Tensor:
        return self.compress(self._envelopes(x, n)[2])

    def derivatives(self, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        a, b, both = self._envelopes(x, n)
        slope = self.slope(both) / both
        return slope * a / self.slope(a), slope * b / self.slope(b)

    def variance(self, x: Tensor, n: Tensor) -> Tensor:
        a, b, both = self._envelopes(x, n)
        envelope = a * a * b * b / (2 * both * both)  # of sqrt(P): (2 P_x P_n) / (4 P)
        return self.std**2 + self.interference * self.slope(both) ** 2 * envelope


@dataclass(frozen=True)
class LinearPower(EchoPower):
    """Frames of linear envelope, not compressed at all: ``y = sqrt(x^2 + n^2)``."""

    std: float = 0.01
    interference: float = 0.3

    def expand(self, y: Tensor) -> Tensor:
        return y

    def compress(self, envelope: Tensor) -> Tensor:
        return envelope

    def slope(self, envelope: Tensor) -> Tensor:
        return torch.ones_like(envelope)


@dataclass(frozen=True)
class Companded(EchoPower):
    """Frames of mu-law companded envelope, ``c(e) = ln(1 + mu |e|) / ln(1 + mu)`` with the sign of ``e``.

    Args:
        mu: of the companding; 255 in ITU-T G.711.
    """

    mu: float = 255.0
    std: float = 0.01
    interference: float = 0.3

    def expand(self, y: Tensor) -> Tensor:
        return y.sign() * torch.expm1(y.abs() * math.log1p(self.mu)) / self.mu

    def compress(self, envelope: Tensor) -> Tensor:
        return envelope.sign() * torch.log1p(self.mu * envelope.abs()) / math.log1p(self.mu)

    def slope(self, envelope: Tensor) -> Tensor:
        return self.mu / math.log1p(self.mu) / (1 + self.mu * envelope.abs())


@dataclass(frozen=True)
class LinearisedLogPower(Observation):
    """Two echoes whose powers add before log compression: ``y = 10 log10(10^(x/10) + 10^(n/10))`` in dB.

    The echoes themselves add with a random phase. About the level that the stronger one sets, with power ratio
    ``p <= 1``, the log power then has the variance ``(10 / ln 10)^2 * 2 Li2(p)`` dB^2 (the Fourier series of
    ``ln |1 + sqrt(p) exp(i phi)|^2``): large where tissue and haze are equally strong, none where one dominates.
    ``h`` is taken as linear about the estimates, as in other models; `LogPower` is not.

    Args:
        dynamic_range_db: dB between floor and full scale.
        std_db: deviation of everything else (resampling, the scanner's grey curve), dB.
        interference: share of that phase variance left in a pixel, which averages over speckle, in [0, 1].
    """

    dynamic_range_db: float
    std_db: float = 1.0
    interference: float = 0.3

    needs_haze = True  # no echo at all is minus infinity dB

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


class LogPower(LinearisedLogPower):
    """`LinearisedLogPower` without its approximation: whether tissue or haze made ``y`` is weighed."""

    def pull(self, y: Tensor, x: Tensor, r2: Spread, n: Tensor, q2: Spread) -> tuple[Tensor, Tensor]:
        a, b = self.explain(y, x, r2, n, q2)
        return (a - x) / r2, (b - n) / q2

    def explain(self, y: Tensor, x: Tensor, r2: Spread, n: Tensor, q2: Spread) -> tuple[Tensor, Tensor]:
        """Either tissue made ``y`` and haze lies below, or the other way round; both cases weighed by their evidence.

        Averaged over the phase between two echoes, their log power is that of the stronger one (Jensen's formula), so
        ``y`` is taken as the larger of the two, each under noise: the mixture-maximum model of Nadas et al. (1989),
        whose posterior means are closed forms in the normal density and distribution. Linearising ``h`` instead would
        settle who made ``y`` at the first noise level, by the priors' mean images alone.
        """
        if is_full(r2) or is_full(q2):
            raise UsdehazeError("LogPower takes variances of pixels, found a full covariance")
        s2 = self.variance(x, n)
        tissue_log, below_x, tissue_on, tissue_below = _cases(y, x, r2, s2)
        haze_log, below_n, haze_on, haze_below = _cases(y, n, q2, s2)
        by_tissue = torch.sigmoid(tissue_log + below_n - haze_log - below_x)
        return (
            tissue_below + by_tissue * (tissue_on - tissue_below),
            haze_on + by_tissue * (haze_below - haze_on),
        )


def _cases(y: Tensor, x: Tensor, r2: Spread, s2: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For ``x ~ N(x, r2)``: log density of making ``y``; log probability of lying below; the mean of ``x`` in each."""
    total = r2 + s2
    deviation = total.sqrt()
    z = (y - x) / deviation
    exponent, log_below = -0.5 * z * z, torch.special.log_ndtr(z)  # the latter costs more than all the rest
    hazard = torch.exp(exponent - 0.5 * math.log(2 * math.pi) - log_below)
    return exponent - 0.5 * total.log(), log_below, x + r2 / total * (y - x), x - r2 / deviation * hazard
