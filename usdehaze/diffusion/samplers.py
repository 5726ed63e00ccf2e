"""Samplers: one function per algorithm, from noisy unknowns to a sample.

Each takes a guided denoiser (`Posterior`), the ``(B, size)`` unknowns to start from, falling noise levels that end in 0
(or a diffusion and falling times), and ``noise()``, which gives standard normal rows. They return the last estimate.
``callback(Step)`` sees every one on the way, for progress and trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from usdehaze.diffusion.denoiser import score
from usdehaze.diffusion.sde import SDE

Guided = Callable[[Tensor, float, float | None], Tensor]  # u, sigma, fraction of the way that the step goes
Noise = Callable[[], Tensor]


@dataclass(frozen=True)
class Step:
    """Where a sampler is: step ``index`` of ``count``, noise level, noisy unknowns, and their guided estimate."""

    index: int
    count: int
    sigma: float
    u: Tensor
    estimate: Tensor


Callback = Callable[[Step], None]


def start(noise: Noise, sigma: float, around: Tensor | float = 0.0) -> Tensor:
    """Unknowns to start from at noise level sigma: pure noise, or noise around a first guess or an earlier result."""
    return around + sigma * noise()


def euler(
    guided: Guided,
    u: Tensor,
    sigmas: Sequence[float],
    noise: Noise | None = None,
    callback: Callback | None = None,
    churn: float = 0.0,
) -> Tensor:
    """Euler steps of the probability-flow ODE, with ``churn`` also fresh noise (Karras et al. 2022, algorithm 2)."""
    for i, (sigma, below) in enumerate(pairwise(sigmas)):
        u, sigma = _churned(u, sigma, sigmas, noise, churn)
        estimate = guided(u, sigma, 1 - below / sigma)
        _tell(callback, i, sigmas, sigma, u, estimate)
        u = estimate + below / sigma * (u - estimate)
    return u


def heun(
    guided: Guided,
    u: Tensor,
    sigmas: Sequence[float],
    noise: Noise | None = None,
    callback: Callback | None = None,
    churn: float = 0.0,
) -> Tensor:
    """Heun steps of the probability-flow ODE, with churn as in `euler` (Karras et al. 2022, algorithm 2)."""
    for i, (sigma, below) in enumerate(pairwise(sigmas)):
        u, sigma = _churned(u, sigma, sigmas, noise, churn)
        step = 1 - below / sigma
        estimate = guided(u, sigma, step)
        _tell(callback, i, sigmas, sigma, u, estimate)
        slope = (u - estimate) / sigma
        ahead = u + (below - sigma) * slope
        if below > 0:
            slope = 0.5 * (slope + (ahead - guided(ahead, below, step)) / below)
            ahead = u + (below - sigma) * slope
        u = ahead
    return u


def dpmpp_2m(
    guided: Guided,
    u: Tensor,
    sigmas: Sequence[float],
    noise: Noise | None = None,
    callback: Callback | None = None,
    eta: float = 0.0,
) -> Tensor:
    """DPM-Solver++ 2M of the ODE (``eta`` = 0, Lu et al. 2022) or of the SDE (``eta`` = 1), in ``lambda = -log sigma``.

    Multistep: the estimate is extended along the line through this one and the last, for one evaluation a step.
    """
    before, h_before = None, 0.0
    for i, (sigma, below) in enumerate(pairwise(sigmas)):
        h = math.log(sigma / below) if below > 0 else math.inf
        gone = -math.expm1(-(1 + eta) * h)  # fraction of the way to the estimate
        estimate = guided(u, sigma, gone)
        _tell(callback, i, sigmas, sigma, u, estimate)
        target = estimate
        if before is not None and below > 0:
            target = estimate + 0.5 * h / h_before * (estimate - before)
        u = target + (1 - gone) * (u - target) if below > 0 else estimate
        if eta > 0 and below > 0:
            u = u + below * math.sqrt(-math.expm1(-2 * eta * h)) * _draw(noise)
        before, h_before = estimate, h
    return u


def stochastic(
    guided: Guided,
    u: Tensor,
    sigmas: Sequence[float],
    noise: Noise,
    callback: Callback | None = None,
    renewal: float = 0.95,
) -> Tensor:
    """Denoise all the way, then add back noise of the next level, the share ``renewal`` of its power new.

    ``renewal`` = 0 is the DDIM step of Song et al. (2021), 1 predicts and noises anew. New noise lets the split between
    tissue and haze be reconsidered at every level. It samples a density narrower than the posterior unless the renewal
    is that of the reverse diffusion, ``1 - (below / sigma)^2``, which it exceeds where steps are short.
    """
    for i, (sigma, below) in enumerate(pairwise(sigmas)):
        estimate = guided(u, sigma, 1.0)
        _tell(callback, i, sigmas, sigma, u, estimate)
        if below > 0:
            keep, fresh = math.sqrt(1 - renewal) * below / sigma, math.sqrt(renewal) * below
            u = estimate + keep * (u - estimate) + fresh * noise()
    return estimate


def annealed_langevin(
    guided: Guided,
    u: Tensor,
    sigmas: Sequence[float],
    noise: Noise,
    callback: Callback | None = None,
    moves: int = 5,
    step: float = 0.1,
) -> Tensor:
    """Langevin moves at each noise level, ``u + a s + sqrt(2 a) z`` with ``a = step sigma^2`` (Song and Ermon 2019)."""
    for i, sigma in enumerate(sigmas[:-1]):
        for move in range(moves):
            estimate = guided(u, sigma, step)
            _tell(callback, i * moves + move, sigmas, sigma, u, estimate, moves)
            u = u + step * (estimate - u) + math.sqrt(2 * step) * sigma * noise()
    return guided(u, sigmas[-2], 1.0)


def euler_maruyama(
    guided: Guided, u: Tensor, sde: SDE, times: Sequence[float], noise: Noise, callback: Callback | None = None
) -> Tensor:
    """Reverse diffusion by Euler-Maruyama (the paper): ``x <- x - f x dt + g^2 s dt + g sqrt(dt) z``.

    ``u`` starts at ``x_1 ~ N(0, beta_1^2)``. The last step adds no noise.
    """
    for i, (t, below) in enumerate(pairwise(times)):
        dt, beta = t - below, sde.beta(t)
        s, estimate = _score(guided, u, sde, t, sde.g(t) ** 2 * dt / beta**2)
        _tell(callback, i, times, beta / sde.alpha(t), u, estimate)
        u = u + (sde.g(t) ** 2 * s - sde.f(t) * u) * dt
        if below > 0:
            u = u + sde.g(t) * math.sqrt(dt) * noise()
    return u


def predictor_corrector(
    guided: Guided,
    u: Tensor,
    sde: SDE,
    times: Sequence[float],
    noise: Noise,
    callback: Callback | None = None,
    corrections: int = 1,
    snr: float = 0.16,
) -> Tensor:
    """Reverse-diffusion predictor, then Langevin corrections at the new level (Song et al. 2021, algorithms 2 and 3).

    The predictor undoes the forward step between two times by its mean factor and its added variance, both exact;
    ``corrections`` = 0 leaves it alone. A correction is ``u + a s + sqrt(2 a) z`` with ``a = 2 (snr beta)^2``. The
    source has ``|z| / |s|``, averaged over a batch, for the noise level ``beta``, to which it comes close; but a step
    that depends on where a frame is pushes its samples outwards.
    """
    for i, (t, below) in enumerate(pairwise(times)):
        factor = sde.alpha(t) / sde.alpha(below)
        added = sde.beta(t) ** 2 - (factor * sde.beta(below)) ** 2
        s, estimate = _score(guided, u, sde, t, added / sde.beta(t) ** 2)
        _tell(callback, i, times, sde.beta(t) / sde.alpha(t), u, estimate)
        u = (u + added * s) / factor
        if below <= 0:
            return u
        u = u + math.sqrt(added) * noise()
        for _ in range(corrections):
            length = 2 * (snr * sde.beta(below)) ** 2
            s, _ = _score(guided, u, sde, below, 2 * snr**2)
            u = u + length * s + math.sqrt(2 * length) * noise()
    return u


def probability_flow(
    guided: Guided,
    u: Tensor,
    sde: SDE,
    times: Sequence[float],
    noise: Noise | None = None,
    callback: Callback | None = None,
) -> Tensor:
    """Euler steps in time of the probability-flow ODE ``dx = (f x - g^2 s / 2) dt`` (Song et al. 2021, equation 13).

    The last step goes straight to the estimate.
    """
    for i, (t, below) in enumerate(pairwise(times)):
        dt, beta = t - below, sde.beta(t)
        s, estimate = _score(guided, u, sde, t, 0.5 * sde.g(t) ** 2 * dt / beta**2 if below > 0 else 1.0)
        _tell(callback, i, times, beta / sde.alpha(t), u, estimate)
        u = u + (0.5 * sde.g(t) ** 2 * s - sde.f(t) * u) * dt if below > 0 else estimate
    return u


def adaptive_flow(
    guided: Guided,
    u: Tensor,
    sigmas: Sequence[float],
    noise: Noise | None = None,
    callback: Callback | None = None,
    tolerance: float = 1e-4,
) -> Tensor:
    """The probability-flow ODE ``du / d log sigma = u - D`` by scipy's adaptive Runge-Kutta 5(4).

    From the first to the last noise level above 0, then to the estimate. Steps are chosen for the whole batch: give it
    frames one at a time where a result must not depend on its neighbours.
    """
    from scipy.integrate import solve_ivp

    calls = 0

    def slope(log_sigma: float, flat: object) -> object:
        nonlocal calls
        at = torch.as_tensor(flat, dtype=u.dtype).to(u.device).reshape(u.shape)
        estimate = guided(at, math.exp(log_sigma), None)
        if callback:
            callback(Step(calls, 0, math.exp(log_sigma), at, estimate))
        calls += 1
        return (at - estimate).flatten().double().cpu().numpy()

    first, last = sigmas[0], sigmas[-2]
    solved = solve_ivp(
        slope, (math.log(first), math.log(last)), u.flatten().double().cpu().numpy(), rtol=tolerance, atol=tolerance
    )
    end = torch.as_tensor(solved.y[:, -1], dtype=u.dtype).to(u.device).reshape(u.shape)
    return guided(end, last, None)


def _score(guided: Guided, u: Tensor, sde: SDE, t: float, step: float) -> tuple[Tensor, Tensor]:
    """Guided score of ``x_t``, and the estimate that it comes from."""
    alpha, beta = sde.alpha(t), sde.beta(t)
    estimate = guided(u / alpha, beta / alpha, step)
    return score(lambda x, sigma: estimate, u, alpha, beta), estimate


def _churned(
    u: Tensor, sigma: float, sigmas: Sequence[float], noise: Noise | None, churn: float
) -> tuple[Tensor, float]:
    """A little more noise, all of it new, before a step: by ``min(churn / steps, sqrt(2) - 1)`` of its level."""
    if churn <= 0:
        return u, sigma
    raised = sigma * (1 + min(churn / (len(sigmas) - 1), math.sqrt(2) - 1))
    return u + math.sqrt(raised**2 - sigma**2) * _draw(noise), raised


def _draw(noise: Noise | None) -> Tensor:
    if noise is None:
        raise ValueError("this sampler needs noise")
    return noise()


def _tell(
    callback: Callback | None, i: int, levels: Sequence[float], sigma: float, u: Tensor, estimate: Tensor, per: int = 1
) -> None:
    if callback:
        callback(Step(i, per * (len(levels) - 1), sigma, u, estimate))
