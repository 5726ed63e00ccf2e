"""Samplers: from noise to a pair (tissue, haze) that explains the frame.

Each takes the problem, a guidance rule, falling noise levels and the frames' random streams, and returns the last
guided estimates ``(x0, n0)``, both ``(B, 1, depth, angle)`` in model units. ``callback(level, x0, n0)`` sees every one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from usdehaze.diffusion.guidance import Problem, Rule
from usdehaze.diffusion.streams import Streams
from usdehaze.errors import UsdehazeError

Callback = Callable[[int, Tensor, Tensor], None]


def karras_sigmas(steps: int, sigma_min: float, sigma_max: float, rho: float = 5.0) -> list[float]:
    """Noise levels evenly spaced in ``sigma^(1/rho)``, from sigma_max down to sigma_min (Karras et al. 2022, eq. 5)."""
    if steps == 1:
        return [sigma_max]
    low, high = sigma_min ** (1 / rho), sigma_max ** (1 / rho)
    return [(high + i / (steps - 1) * (low - high)) ** rho for i in range(steps)]


def paper_sigmas(steps: int, sigma: float = 25.0) -> list[float]:
    """``beta_t = sqrt((sigma^(2t) - 1) / (2 ln sigma))`` at ``t = 1, (steps-1)/steps, .. 1/steps`` (the paper)."""
    times = [(i + 1) / steps for i in reversed(range(steps))]
    return [math.sqrt(math.expm1(2 * t * math.log(sigma)) / (2 * math.log(sigma))) for t in times]


def stochastic(
    problem: Problem,
    rule: Rule,
    sigmas: Sequence[float],
    streams: Streams,
    callback: Callback | None = None,
    renewal: float = 0.95,
) -> tuple[Tensor, Tensor]:
    """Few-step stochastic sampler: denoise all the way, then add back noise of the next level, most of it new.

    Of the noise power at each level the share ``renewal`` is fresh and the rest is what the estimate left of the old
    (``renewal`` = 1: predict and re-noise; 0: the deterministic DDIM step of Song et al. 2021). New noise lets the
    split between tissue and haze be reconsidered at every level.

    It starts from the frame's first guess under noise, not from noise alone: over a whole frame, noise averages out
    even at the highest level, and the priors would take its mean of zero for a black frame.
    """
    shape = tuple(problem.y.shape[1:])
    x, n = (a + b for a, b in zip(problem.first_guess(), _start(shape, sigmas[0], streams), strict=True))
    for i, sigma in enumerate(sigmas):
        x0, n0 = _checked(rule(problem, x, n, sigma, 1.0), i, sigma)
        if callback:
            callback(i, x0, n0)
        if i + 1 == len(sigmas):
            break
        keep, fresh = math.sqrt(1 - renewal) * sigmas[i + 1] / sigma, math.sqrt(renewal) * sigmas[i + 1]
        z = streams.normal((2, *shape))
        x = x0 + keep * (x - x0) + fresh * z[:, 0]
        n = n0 + keep * (n - n0) + fresh * z[:, 1]
    return x0, n0


def euler_maruyama(
    problem: Problem, rule: Rule, sigmas: Sequence[float], streams: Streams, callback: Callback | None = None
) -> tuple[Tensor, Tensor]:
    """Reverse VE diffusion, one noise level at a time (the paper's sampler).

    ``x <- x + g^2 dt s + g sqrt(dt) z`` with the score ``s = (x0 - x) / sigma^2`` and ``g^2 dt`` the drop in
    variance from one level to the next, which is the step's integral of ``g^2`` exactly.
    """
    shape = tuple(problem.y.shape[1:])
    x, n = _start(shape, sigmas[0], streams)
    for i, sigma in enumerate(sigmas):
        below = sigmas[i + 1] if i + 1 < len(sigmas) else 0.0
        drop = sigma**2 - below**2
        step = drop / sigma**2
        x0, n0 = _checked(rule(problem, x, n, sigma, step), i, sigma)
        if callback:
            callback(i, x0, n0)
        if below == 0.0:
            break
        z = streams.normal((2, *shape))
        x = x + step * (x0 - x) + math.sqrt(drop) * z[:, 0]
        n = n + step * (n0 - n) + math.sqrt(drop) * z[:, 1]
    return x0, n0


def _start(shape: tuple[int, ...], sigma: float, streams: Streams) -> tuple[Tensor, Tensor]:
    z = sigma * streams.normal((2, *shape))
    return z[:, 0], z[:, 1]


def _checked(pair: tuple[Tensor, Tensor], step: int, sigma: float) -> tuple[Tensor, Tensor]:
    """Stops on the first value that is not finite: a partial result is worse than none."""
    if not all(bool(torch.isfinite(t).all()) for t in pair):
        raise UsdehazeError(
            f"sampling broke down at step {step + 1} (noise level {sigma:.3g}): values are not finite; "
            "try another guidance, more steps or --device cpu"
        )
    return pair
