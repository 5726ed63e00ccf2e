"""Guidance rules: how a frame pulls its unknowns towards an explanation of itself.

A rule takes the noisy unknowns ``u`` (rows of tissue and haze, see `Problem`) at noise level sigma, asks each prior
once, and returns the guided estimate of the clean unknowns. ``J`` is the Jacobian of the denoisers; its product with a
vector is taken by back-propagation, never as a matrix.

`Proximal` and `PiGDM` give the expected unknowns given the frame, wherever the priors' errors are Gaussian. `DPS`,
`Projection` and `PaperPiGDM` are the paper's steps: corrections added to ``u`` once a step, however far the step goes.
Such a correction is here divided by ``step``, the fraction of the way to the estimate that the sampler is about to go,
and added to the estimate, which comes to the same. All rules work with two priors and with tissue alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from usdehaze.diffusion.denoiser import Problem
from usdehaze.diffusion.observation import Linear, LinearOperator, apply
from usdehaze.errors import UsdehazeError

LambdaKappa = tuple[float, float]  # shares of the pull on tissue and on haze, as the paper calls them


@dataclass(frozen=True)
class Proximal:
    """Moves the estimates to their posterior means given ``y``, their own errors taken as Gaussian.

    No back-propagation. For linear models and Gaussian priors this is the exact posterior mean at this noise level.

    Args:
        scale: share of that move that is made.
    """

    scale: LambdaKappa = (1.0, 1.0)

    def __call__(self, problem: Problem, u: Tensor, sigma: float, step: float | None = None) -> Tensor:
        x0, n0 = problem.denoise(*problem.parts(u), sigma)
        r2, q2 = problem.spread(sigma)
        a, b = problem.observation.explain(problem.y, x0, r2, n0, q2)
        x0 = x0 + self.scale[0] * problem.seen * (a - x0)
        return problem.join(x0, n0 + self.scale[1] * problem.seen * (b - n0))


@dataclass(frozen=True)
class PiGDM:
    """Pseudo-inverse guidance: the gradient of ``log p(y | x0, n0)``, brought back through both denoisers.

    Added to the score, ``x0 + sigma^2 J^T A^T S^-1 e``, it is the posterior's own score, right for steps of any length.
    """

    scale: LambdaKappa = (1.0, 1.0)

    def __call__(self, problem: Problem, u: Tensor, sigma: float, step: float | None = None) -> Tensor:
        estimates, at = _denoised(problem, u, sigma)
        pull = problem.pull(estimates[0].detach(), estimates[1].detach(), sigma)
        return _moved(problem, estimates, at, pull, self.scale[0] * sigma**2, self.scale[1] * sigma**2)


@dataclass(frozen=True)
class PaperPiGDM:
    """Pseudo-inverse guidance as the paper's step: ``lambda r2 J^T A^T S^-1 e`` added to ``x`` at every step."""

    scale: LambdaKappa = (0.93, 0.88)

    def __call__(self, problem: Problem, u: Tensor, sigma: float, step: float | None = None) -> Tensor:
        length = 1 / _fixed(step, "pigdm with the paper's step")
        estimates, at = _denoised(problem, u, sigma)
        a, b = problem.pull(estimates[0].detach(), estimates[1].detach(), sigma)
        r2, q2 = problem.spread(sigma)
        pull = apply(r2, a), apply(q2, b)
        return _moved(problem, estimates, at, pull, self.scale[0] * length, self.scale[1] * length)


@dataclass(frozen=True)
class DPS:
    """Diffusion posterior sampling: at every step down the gradient of each frame's own ``||y - h(x0, n0)||_2``."""

    scale: LambdaKappa = (12.7, 16.7)

    def __call__(self, problem: Problem, u: Tensor, sigma: float, step: float | None = None) -> Tensor:
        step = _fixed(step, "dps")
        estimates, at = _denoised(problem, u, sigma)
        x0, n0 = (t.detach() for t in estimates)
        e = problem.seen * (problem.y - problem.observation.predict(x0, n0))
        norm = torch.linalg.vector_norm(e.flatten(1), dim=1).clamp(min=1e-12).reshape(-1, *[1] * (e.ndim - 1))
        pull = problem.observation.adjoint(x0, n0, e / norm)
        return _moved(problem, estimates, at, pull, self.scale[0] / step, self.scale[1] / step)


class SharedNoise:
    """Noise for `Projection`: one draw serves tissue, haze and frame, as the paper has it.

    Args:
        noise: gives ``(B, size)`` standard normal rows.
        problem: what they are noise for. Haze of another size than tissue keeps its own draw.
    """

    def __init__(self, noise: Callable[[], Tensor], problem: Problem) -> None:
        self.noise, self.problem = noise, problem
        self.tissue: Tensor | None = None

    def __call__(self) -> Tensor:
        x, n = self.problem.parts(self.noise())
        self.tissue = x
        return self.problem.join(x, x if x.shape == n.shape else n)


@dataclass(frozen=True)
class Projection:
    """At every step towards the set that explains the noised frame ``y + sigma A z``, before the priors are asked.

    Raises:
        UsdehazeError: when called with an observation model that is not linear: a noised frame is then not defined.
    """

    noise: SharedNoise
    scale: LambdaKappa = (0.5, 0.5)

    def __call__(self, problem: Problem, u: Tensor, sigma: float, step: float | None = None) -> Tensor:
        step = _fixed(step, "projection")
        if not isinstance(problem.observation, Linear | LinearOperator):
            name = type(problem.observation).__name__
            raise UsdehazeError(f"projection needs a linear observation model such as Additive, found {name}")
        if self.noise.tissue is None:
            raise UsdehazeError("projection shares its noise with the sampler, which has drawn none of it")
        x, n = problem.parts(u)
        noised = problem.y + sigma * problem.observation.predict(self.noise.tissue, torch.zeros_like(problem.y))
        e = problem.seen * (noised - problem.observation.predict(x, n))
        a, b = problem.observation.adjoint(x, n, e)
        moved = problem.join(x + self.scale[0] * a, n + self.scale[1] * b)
        estimate = problem.join(*problem.denoise(*problem.parts(moved), sigma))
        return estimate + (1 / step - 1) * (moved - u)  # the step goes on from ``moved``


def _denoised(problem: Problem, u: Tensor, sigma: float) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Estimates of `Problem.denoise`, and the unknowns that they can be taken back to."""
    with torch.enable_grad():
        at = u.detach().requires_grad_()
        return problem.denoise(*problem.parts(at), sigma), at


def _moved(
    problem: Problem,
    estimates: tuple[Tensor, Tensor],
    at: Tensor,
    pull: tuple[Tensor, Tensor],
    tissue_length: float,
    haze_length: float,
) -> Tensor:
    """The estimates moved by so many times ``J^T pull``, as rows of unknowns."""
    k = 1 if problem.haze is None else 2
    gx, gn = problem.parts(torch.autograd.grad(estimates[:k], at, pull[:k])[0])
    x0, n0 = (t.detach() for t in estimates)
    return problem.join(x0 + tissue_length * gx, n0 + haze_length * gn)


def _fixed(step: float | None, rule: str) -> float:
    if step is None:
        raise UsdehazeError(f"{rule} corrects once a step, and this sampler's steps have no fixed length")
    return step
