"""Guidance rules: how the frame pulls the two priors' estimates towards an explanation of itself.

A rule sees noisy tissue ``x`` and noisy haze ``n`` at noise level sigma, asks each prior once for its denoised
estimate ``x0 = D(x, sigma)``, ``n0`` (Tweedie), and returns both moved by the likelihood of the frame ``y``.

``step`` is the fraction of the way from ``x`` to ``x0`` that the sampler is about to go. The paper adds its
correction to ``x`` itself; added to ``x0`` and divided by ``step``, it has the same effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from usdehaze.diffusion.observation import Observation


class Denoiser(Protocol):
    """A prior: expected clean frames given noisy ones, and mean and variance of a pixel of its data."""

    @property
    def data_mean(self) -> float: ...

    @property
    def data_variance(self) -> float: ...

    def __call__(self, x: Tensor, sigma: float, /) -> Tensor: ...


@dataclass(frozen=True)
class Problem:
    """One batch of frames to split.

    Attributes:
        y: ``(B, 1, depth, angle)`` observed frames, model units.
        seen: same shape or broadcastable, 1 where ``y`` is image data and 0 where it says nothing.
        tissue, haze: the two priors.
        observation: how tissue and haze make ``y``.
    """

    y: Tensor
    seen: Tensor
    tissue: Denoiser
    haze: Denoiser
    observation: Observation

    def spread(self, sigma: float) -> tuple[float, float]:
        """Variances ``r2``, ``q2`` of the denoised estimates, ``sigma^2 v / (sigma^2 + v)`` with the prior's own ``v``.

        The paper prints ``beta^2 / (beta^2 - 1)``; it is ``+``, and it stands for data of unit variance.
        """
        v, w = self.tissue.data_variance, self.haze.data_variance
        return sigma**2 * v / (sigma**2 + v), sigma**2 * w / (sigma**2 + w)

    def first_guess(self) -> tuple[Tensor, Tensor]:
        """What ``y`` tells of tissue and haze when of each prior only mean and variance of a pixel are known."""
        x, n = (torch.full_like(self.y, prior.data_mean) for prior in (self.tissue, self.haze))
        a, b = self.observation.explain(self.y, x, self.tissue.data_variance, n, self.haze.data_variance)
        return x + self.seen * (a - x), n + self.seen * (b - n)


Rule = Callable[[Problem, Tensor, Tensor, float, float], tuple[Tensor, Tensor]]


def proximal(problem: Problem, x: Tensor, n: Tensor, sigma: float, step: float) -> tuple[Tensor, Tensor]:
    """Moves ``(x0, n0)`` to its posterior mean given ``y``, the estimates' own errors taken as Gaussian.

    No back-propagation. For linear models and Gaussian priors this is the exact posterior mean at this noise level.
    """
    x0, n0 = problem.tissue(x, sigma), problem.haze(n, sigma)
    r2, q2 = problem.spread(sigma)
    a, b = problem.observation.explain(problem.y, x0, r2, n0, q2)
    return x0 + problem.seen * (a - x0), n0 + problem.seen * (b - n0)


@dataclass(frozen=True)
class PiGDM:
    """Pseudo-inverse guidance: the gradient of ``log p(y | x0, n0)`` through both denoisers (true ``J^T v``).

    For ``x ~ N(x0, r2)`` that gradient is ``(E[x | y] - x0) / r2``, whatever the observation model; for a linear one
    it is the paper's ``A^T S^-1 e``.

    Args:
        scale: lambda and kappa of the paper, which adds ``lambda r2 J^T A^T S^-1 e`` to ``x`` at every step whatever
            its length; None for the posterior score itself, ``x0 + sigma^2 J^T A^T S^-1 e``, right for any step.
    """

    scale: tuple[float, float] | None = None

    def __call__(self, problem: Problem, x: Tensor, n: Tensor, sigma: float, step: float) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x, n = x.detach().requires_grad_(), n.detach().requires_grad_()
            x0, n0 = problem.tissue(x, sigma), problem.haze(n, sigma)
        r2, q2 = problem.spread(sigma)
        a, b = problem.observation.explain(problem.y, x0.detach(), r2, n0.detach(), q2)
        pulls = problem.seen * (a - x0.detach()) / r2, problem.seen * (b - n0.detach()) / q2
        gx, gn = torch.autograd.grad((x0, n0), (x, n), pulls)
        x0, n0 = x0.detach(), n0.detach()
        if self.scale is None:
            return x0 + sigma**2 * gx, n0 + sigma**2 * gn
        return x0 + self.scale[0] * r2 / step * gx, n0 + self.scale[1] * q2 / step * gn


@dataclass(frozen=True)
class DPS:
    """Diffusion posterior sampling: down the gradient of each frame's own ``||y - h(x0, n0)||_2``."""

    scale: tuple[float, float] = (12.7, 16.7)

    def __call__(self, problem: Problem, x: Tensor, n: Tensor, sigma: float, step: float) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x, n = x.detach().requires_grad_(), n.detach().requires_grad_()
            x0, n0 = problem.tissue(x, sigma), problem.haze(n, sigma)
            residual = problem.seen * (problem.y - problem.observation.predict(x0, n0))
            norms = torch.linalg.vector_norm(residual, dim=(1, 2, 3))
            gx, gn = torch.autograd.grad(norms.sum(), (x, n))
        return x0.detach() - self.scale[0] / step * gx, n0.detach() - self.scale[1] / step * gn
