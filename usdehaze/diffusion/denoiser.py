"""What samplers call: the priors' denoisers, and the two of them guided by a frame.

A denoiser ``D(x, sigma)`` gives the expected clean frames of ``x = x_0 + sigma z`` (Tweedie's estimate). The score
of the noisy frames is the same network seen another way, ``(D - x) / sigma^2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from usdehaze.diffusion.observation import Observation, Spread, apply
from usdehaze.errors import UsdehazeError


class Denoiser(Protocol):
    """A prior. Frames are ``(B, 1, depth, angle)`` or ``(B, d)``, as the problem has them."""

    @property
    def data_mean(self) -> float:
        """Mean of a pixel of the prior's data."""

    def __call__(self, x: Tensor, sigma: float, /) -> Tensor:
        """Expected clean frames given noisy ones."""

    def spread(self, sigma: float, /) -> Spread:
        """Variance of that estimate's error, ``sigma^2 v / (sigma^2 + v)`` for data of variance ``v``."""


def score(denoiser: Callable[[Tensor, float], Tensor], x: Tensor, alpha: float, beta: float) -> Tensor:
    """Score of ``x_t ~ N(alpha x_0, beta^2)`` from a denoiser: ``(alpha D(x / alpha, beta / alpha) - x) / beta^2``."""
    return (alpha * denoiser(x / alpha, beta / alpha) - x) / beta**2


class Gaussian:
    """The exact denoiser of Gaussian data: what every closed form in the tests rests on.

    Args:
        mean: ``(d,)``, or one number for all pixels.
        covariance: ``(d, d)``, or of independent pixels one variance for all or one a pixel, see `Spread`.
    """

    def __init__(self, mean: float | Tensor, covariance: Spread) -> None:
        self.mean, self.covariance = mean, covariance

    @property
    def data_mean(self) -> float:
        return float(torch.as_tensor(self.mean).mean())

    def __call__(self, x: Tensor, sigma: float) -> Tensor:
        """``mean + C (C + sigma^2)^-1 (x - mean)``."""
        return self.mean + apply(self.spread(sigma), x - self.mean) / sigma**2

    def spread(self, sigma: float) -> Spread:
        """``sigma^2 C (C + sigma^2)^-1``, exact."""
        c = self.covariance
        if isinstance(c, Tensor) and c.ndim == 2:
            return sigma**2 * torch.linalg.solve(c + sigma**2 * torch.eye(len(c), dtype=c.dtype, device=c.device), c)
        return sigma**2 * c / (sigma**2 + c)


@dataclass
class Problem:
    """One batch of frames to split, and the count of what it cost.

    The unknowns of a frame travel as one row ``u = (tissue, haze)``, so that a sampler is the same for two priors, for
    one, and for tissue and haze of different size.

    Attributes:
        y: ``(B, ...)`` observed frames, model units.
        observation: how tissue and haze make ``y``.
        tissue: its prior.
        haze: its prior; None where all that is not tissue is the observation's own Gaussian noise.
        seen: 1 where ``y`` is image data and 0 where it says nothing; broadcastable to ``y``. Pointwise models only.
        shape: of one tissue frame; by default that of one frame of ``y``.
        evaluations: network passes so far, each prior's counted, per frame.
    """

    y: Tensor
    observation: Observation
    tissue: Denoiser
    haze: Denoiser | None = None
    seen: Tensor | float = 1.0
    shape: tuple[int, ...] = ()
    evaluations: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.shape = tuple(self.shape or self.y.shape[1:])
        if self.haze is None and self.observation.needs_haze:
            raise UsdehazeError(f"{type(self.observation).__name__} needs a haze prior; without one use GaussianNoise")

    @property
    def size(self) -> int:
        """Unknowns of a frame."""
        return math.prod(self.shape) + (math.prod(self.y.shape[1:]) if self.haze is not None else 0)

    def parts(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Tissue and haze of ``(B, size)`` unknowns; without a haze prior, haze is zero."""
        d = math.prod(self.shape)
        x = u[:, :d].reshape(len(u), *self.shape)
        return x, u[:, d:].reshape(self.y.shape) if self.haze is not None else torch.zeros_like(self.y)

    def join(self, x: Tensor, n: Tensor) -> Tensor:
        """The unknowns as rows."""
        return torch.cat([x.flatten(1), n.flatten(1)], dim=1) if self.haze is not None else x.flatten(1)

    def denoise(self, x: Tensor, n: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        """Each prior asked once."""
        self.evaluations += 1 if self.haze is None else 2
        return self.tissue(x, sigma), n if self.haze is None else self.haze(n, sigma)

    def spread(self, sigma: float) -> tuple[Spread, Spread]:
        """Variances ``r2``, ``q2`` of the denoised estimates' errors."""
        return self.tissue.spread(sigma), 0.0 if self.haze is None else self.haze.spread(sigma)

    def pull(self, x0: Tensor, n0: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        """Gradient of ``log p(y | x0, n0)`` with respect to both estimates."""
        r2, q2 = self.spread(sigma)
        a, b = self.observation.pull(self.y, x0, r2, n0, q2)
        return self.seen * a, self.seen * b

    def first_guess(self) -> Tensor:
        """What ``y`` tells of tissue and haze when of each prior only mean and variance of a pixel are known."""
        x = self.y.new_full((len(self.y), *self.shape), self.tissue.data_mean)
        n = torch.full_like(self.y, self.haze.data_mean) if self.haze is not None else torch.zeros_like(self.y)
        r2, q2 = self.spread(1e6)  # so noisy that the data's own variance is all there is
        a, b = self.observation.explain(self.y, x, r2, n, q2)
        return self.join(x + self.seen * (a - x), n + self.seen * (b - n))


Rule = Callable[[Problem, Tensor, float, float | None], Tensor]


class Posterior:
    """The pair of priors guided by the frame, as one denoiser over ``(B, size)`` rows: what a sampler calls.

    Args:
        problem: the frames and the priors.
        rule: see `usdehaze.diffusion.guidance`.
        name: of the rule; its class's by default.

    Raises:
        UsdehazeError: when called, as soon as a value is not finite: a partial result is worse than none.
    """

    def __init__(self, problem: Problem, rule: Rule, name: str | None = None) -> None:
        self.problem, self.rule, self.calls = problem, rule, 0
        self.name = name or getattr(rule, "__name__", type(rule).__name__).lower()

    def first_guess(self) -> Tensor:
        """See `Problem.first_guess`."""
        return self.problem.first_guess()

    def __call__(self, u: Tensor, sigma: float, step: float | None = None) -> Tensor:
        """Guided estimate of the clean unknowns.

        Args:
            u: ``(B, size)`` noisy unknowns.
            sigma: their noise level.
            step: fraction of the way from ``u`` to the estimate that the sampler is about to go; None if it cannot say.
        """
        self.calls += 1
        estimate = self.rule(self.problem, u, sigma, step)
        if not bool(torch.isfinite(estimate).all()):
            raise UsdehazeError(
                f"sampling broke down at step {self.calls} (guidance {self.name}, noise level {sigma:.3g}): values are "
                "not finite; try another guidance, more steps or --device cpu"
            )
        return estimate
