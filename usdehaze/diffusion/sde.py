"""Forward diffusions ``dx = f(t) x dt + g(t) dw``, t in [0, 1], and lists of noise levels.

Each is told by four functions of time: ``f``, ``g``, and the mean's factor and the deviation of what they make of a
frame, ``x_t | x_0 ~ N(alpha_t x_0, beta_t^2 I)``. A prior knows nothing of them: it is the denoiser ``D(x, sigma)`` of
``x_0 + sigma z``, and serves any of them at ``x_t / alpha_t`` and ``sigma = beta_t / alpha_t``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


class SDE(Protocol):
    """A forward diffusion; times in [0, 1], values in units of the frames."""

    def f(self, t: float, /) -> float:
        """Drift: ``dx = f x dt + ...``."""

    def g(self, t: float, /) -> float:
        """Diffusion: ``dx = ... + g dw``."""

    def alpha(self, t: float, /) -> float:
        """Factor on the mean of ``x_t`` given ``x_0``."""

    def beta(self, t: float, /) -> float:
        """Deviation of ``x_t`` given ``x_0``; at t = 1 the deviation to start from."""


@dataclass(frozen=True)
class PaperVE:
    """The paper's variance-exploding diffusion: ``f = 0``, ``g = sigma^t``.

    ``beta_t^2 = (sigma^(2t) - 1) / (2 ln sigma)``; the paper's table prints it as ``beta_t``. ``beta_1`` is 9.85.
    """

    sigma: float = 25.0

    def f(self, t: float) -> float:
        return 0.0

    def g(self, t: float) -> float:
        return self.sigma**t

    def alpha(self, t: float) -> float:
        return 1.0

    def beta(self, t: float) -> float:
        return math.sqrt(math.expm1(2 * t * math.log(self.sigma)) / (2 * math.log(self.sigma)))


@dataclass(frozen=True)
class VE:
    """Variance-exploding diffusion whose level rises geometrically (Song et al. 2021, equation 30).

    ``g = s(t) sqrt(2 ln(sigma_max / sigma_min))`` with ``s(t) = sigma_min (sigma_max / sigma_min)^t``, hence
    ``beta_t^2 = s(t)^2 - sigma_min^2``, exactly: nothing is added at t = 0.
    """

    sigma_min: float = 0.01
    sigma_max: float = 10.0

    def f(self, t: float) -> float:
        return 0.0

    def g(self, t: float) -> float:
        return self._level(t) * math.sqrt(2 * math.log(self.sigma_max / self.sigma_min))

    def alpha(self, t: float) -> float:
        return 1.0

    def beta(self, t: float) -> float:
        return self.sigma_min * math.sqrt(math.expm1(2 * t * math.log(self.sigma_max / self.sigma_min)))

    def _level(self, t: float) -> float:
        return self.sigma_min * (self.sigma_max / self.sigma_min) ** t


@dataclass(frozen=True)
class VP:
    """Variance-preserving diffusion with a rate rising from ``low`` to ``high`` (Song et al. 2021, equation 32).

    ``f = -rate / 2``, ``g = sqrt(rate)``, ``alpha_t = exp(-integral of rate / 2)``, ``beta_t^2 = 1 - alpha_t^2``.
    """

    low: float = 0.1
    high: float = 20.0

    def rate(self, t: float) -> float:
        return self.low + t * (self.high - self.low)

    def f(self, t: float) -> float:
        return -0.5 * self.rate(t)

    def g(self, t: float) -> float:
        return math.sqrt(self.rate(t))

    def alpha(self, t: float) -> float:
        return math.exp(-0.5 * self._integral(t))

    def beta(self, t: float) -> float:
        return math.sqrt(-math.expm1(-self._integral(t)))

    def _integral(self, t: float) -> float:
        return t * self.low + 0.5 * t * t * (self.high - self.low)


@dataclass(frozen=True)
class SubVP(VP):
    """Sub-variance-preserving diffusion (Song et al. 2021, equation 34): drift of `VP`, ``beta_t = 1 - alpha_t^2``.

    ``g = sqrt(rate (1 - alpha_t^4))``.
    """

    def g(self, t: float) -> float:
        return math.sqrt(-self.rate(t) * math.expm1(-2 * self._integral(t)))

    def beta(self, t: float) -> float:
        return -math.expm1(-self._integral(t))


def times(steps: int) -> list[float]:
    """``1, (steps - 1) / steps, ..., 1 / steps, 0``: the paper's even grid."""
    return [i / steps for i in range(steps, -1, -1)]


def karras_sigmas(steps: int, sigma_min: float, sigma_max: float, rho: float = 5.0) -> list[float]:
    """Noise levels evenly spaced in ``sigma^(1/rho)``, down to sigma_min, then 0 (Karras et al. 2022, eq. 5)."""
    if steps == 1:
        return [sigma_max, 0.0]
    low, high = sigma_min ** (1 / rho), sigma_max ** (1 / rho)
    return [(high + i / (steps - 1) * (low - high)) ** rho for i in range(steps)] + [0.0]
