"""Gaussian priors with full covariances, and what is known of them in closed form, written out with plain matrices."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from usdehaze.diffusion.denoiser import Gaussian, Problem
from usdehaze.diffusion.observation import Additive, Blend, GaussianNoise, LinearOperator, Observation
from usdehaze.diffusion.sde import SDE, times

D, M = 5, 3  # unknowns of tissue, and of a frame seen through a 3 x 5 matrix
STD = 0.3


def covariance(size: int, seed: int) -> Tensor:
    """A full covariance with eigenvalues from 0.1 to 0.5."""
    g = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(size, size, generator=g, dtype=torch.float64))
    return q @ torch.diag(torch.linspace(0.1, 0.5, size, dtype=torch.float64)) @ q.T


def matrix() -> Tensor:
    """A, 3 x 5, of norm about 1."""
    return torch.randn(M, D, generator=torch.Generator().manual_seed(5), dtype=torch.float64) / 3


@dataclass(frozen=True)
class Case:
    """An observation model with its matrices written out: ``y = H (x, n) + N(0, STD^2)``."""

    observation: Observation
    h: Tensor
    joint: bool

    @property
    def m(self) -> int:
        return len(self.h)

    @property
    def mean(self) -> Tensor:
        """Prior mean of all unknowns."""
        x, n = torch.linspace(0.2, 0.8, D).double(), torch.linspace(-0.3, 0.1, self.m).double()
        return torch.cat([x, n]) if self.joint else x

    @property
    def prior(self) -> Tensor:
        """Prior covariance of all unknowns."""
        blocks = [covariance(D, 1), covariance(self.m, 2)]
        return torch.block_diag(*blocks) if self.joint else blocks[0]

    @property
    def y(self) -> Tensor:
        """The frame, some way from what the priors expect."""
        return self.h @ self.mean + torch.linspace(1.0, -0.6, self.m).double()

    def problem(self, copies: int) -> Problem:
        """The same frame ``copies`` times."""
        haze = Gaussian(self.mean[D:], self.prior[D:, D:]) if self.joint else None
        frames = self.y.expand(copies, self.m)
        return Problem(frames, self.observation, Gaussian(self.mean[:D], self.prior[:D, :D]), haze, shape=(D,))

    def posterior(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance of the unknowns given ``y``."""
        gain = self.prior @ self.h.T @ torch.linalg.inv(self.h @ self.prior @ self.h.T + STD**2 * torch.eye(self.m))
        return self.mean + gain @ (self.y - self.h @ self.mean), self.prior - gain @ self.h @ self.prior

    def denoiser(self, sigma: float) -> tuple[Tensor, Tensor]:
        """J and c of the priors' ``D(u, sigma) = J u + c``."""
        j = self.prior @ torch.linalg.inv(self.prior + sigma**2 * torch.eye(len(self.prior)))
        return j, self.mean - j @ self.mean


def cases() -> dict[str, Case]:
    """Every linear observation model, with a haze prior and without."""
    one, a = torch.eye(D, dtype=torch.float64), matrix()
    return {
        "additive": Case(Additive(STD), torch.cat([one, one], 1), True),
        "blend": Case(Blend(0.3, STD), torch.cat([0.7 * one, 0.3 * one], 1), True),
        "matrix": Case(LinearOperator(a, std=STD), torch.cat([a, torch.eye(M)], 1), True),
        "gaussian noise alone": Case(GaussianNoise(STD), one, False),
        "matrix alone": Case(LinearOperator(a, std=STD), a, False),
    }


def check_moments(samples: Tensor, mean: Tensor, cov: Tensor, sigmas: float = 5.0) -> None:
    """Mean and covariance of ``(N, size)`` samples, in units where the expected ones are 0 and 1.

    For N samples the whitened mean's entries have deviation ``1 / sqrt(N)``, the covariance's at most ``sqrt(2 / N)``.
    """
    n = len(samples)
    white = torch.linalg.inv(torch.linalg.cholesky(cov))
    got = (samples - mean) @ white.T
    assert got.mean(0).abs().max() < sigmas / n**0.5
    assert (torch.cov(got.T) - torch.eye(len(cov))).abs().max() < sigmas * (2 / n) ** 0.5


def normal(seed: int, copies: int, size: int):
    """A source of noise."""
    g = torch.Generator().manual_seed(seed)
    return lambda: torch.randn(copies, size, generator=g, dtype=torch.float64)


def log_sigmas(steps: int, sigma_min: float, sigma_max: float) -> list[float]:
    """Noise levels evenly spaced in ``log sigma``, from sigma_max to sigma_min, then 0."""
    ratio = sigma_min / sigma_max
    return [sigma_max * ratio ** (i / (steps - 1)) for i in range(steps)] + [0.0]


def sde_sigmas(sde: SDE, steps: int) -> list[float]:
    """Noise levels ``beta_t / alpha_t`` of a diffusion on the even grid of `times`; the last one is 0."""
    return [sde.beta(t) / sde.alpha(t) for t in times(steps)]
