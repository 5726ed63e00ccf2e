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
    """A prior: expected clean frames given noisy ones, and the variance of its data."""

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


Rule = Callable[[Problem, Tensor, Tensor, float, float], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Proximal:
    """Moves ``(x0, n0)`` to the most probable pair given ``y``, by Gauss-Newton; no back-propagation.

    With the estimates Gaussian about ``x0`` and ``n0``, a linear ``h`` makes one iteration exact: the mean of the
    posterior. ``LogPower`` is close to linear after two.
    """

    iterations: int = 2

    def __call__(self, problem: Problem, x: Tensor, n: Tensor, sigma: float, step: float) -> tuple[Tensor, Tensor]:
        x0, n0 = problem.tissue(x, sigma), problem.haze(n, sigma)
        r2, q2 = problem.spread(sigma)
        a, b = x0, n0
        for _ in range(self.iterations):
            hx, hn = problem.observation.derivatives(a, b)
            residual = problem.y - problem.observation.predict(a, b) + hx * (a - x0) + hn * (b - n0)
            total = r2 * hx**2 + q2 * hn**2 + problem.observation.variance(a, b)
            pull = problem.seen * residual / total
            a, b = x0 + r2 * hx * pull, n0 + q2 * hn * pull
        return a, b


@dataclass(frozen=True)
class PiGDM:
    """Pseudo-inverse guidance: the gradient of ``log p(y | x0, n0)`` through both denoisers (true ``J^T v``).

    Args:
        scale: lambda and kappa of the paper, which adds ``lambda r2 J^T A^T S^-1 e`` to ``x`` at every step whatever
            its length; None for the posterior score itself, ``x0 + sigma^2 J^T A^T S^-1 e``, right for any step.
    """

    scale: tuple[float, float] | None = None

    def __call__(self, problem: Problem, x: Tensor, n: Tensor, sigma: float, step: float) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x, n = x.detach().requires_grad_(), n.detach().requires_grad_()
            x0, n0 = problem.tissue(x, sigma), problem.haze(n, sigma)
        a, b = x0.detach(), n0.detach()
        r2, q2 = problem.spread(sigma)
        hx, hn = problem.observation.derivatives(a, b)
        total = r2 * hx**2 + q2 * hn**2 + problem.observation.variance(a, b)
        pull = problem.seen * (problem.y - problem.observation.predict(a, b)) / total
        gx, gn = torch.autograd.grad((x0, n0), (x, n), (hx * pull, hn * pull))
        if self.scale is None:
            return a + sigma**2 * gx, b + sigma**2 * gn
        return a + self.scale[0] * r2 / step * gx, b + self.scale[1] * q2 / step * gn


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
