"""Frames drawn from a prior alone, or from a posterior given frames: what they believe."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from usdehaze.diffusion.learned import Learned
from usdehaze.diffusion.samplers import dpmpp_2m, start
from usdehaze.diffusion.sde import karras_sigmas
from usdehaze.diffusion.streams import Streams
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.priors.prior import Prior

STEPS, SIGMA_MIN = 24, 0.02


def draw_samples(prior: Prior, n: int, seed: int = 0, device: str | torch.device = "cpu") -> Tensor:
    """``(n, C, depth, angle)`` in [0, 1], by 24 steps of DPM-Solver++ 2M from pure noise."""
    shape = (n, *prior.shape)
    streams = Streams([(seed, i) for i in range(n)], device)

    def denoise(u: Tensor, sigma: float, _: float | None) -> Tensor:
        return prior(u.reshape(shape), sigma).flatten(1)

    sigma_max = float(prior.card.get("sigma_max", 10.0))
    with torch.inference_mode():
        u = start(lambda: streams.normal((math.prod(prior.shape),)), sigma_max)
        return dpmpp_2m(denoise, u, karras_sigmas(STEPS, SIGMA_MIN, sigma_max)).reshape(shape).clamp(0, 1)


def split_samples(posterior: LearnedPosterior, y: Tensor, seed: int = 0) -> Tensor:
    """One sample of tissue and haze of each frame, ``(B, 2 C, depth, angle)`` in [0, 1], from noise alone."""
    streams = Streams([(seed, i) for i in range(len(y))], y.device)
    learned = Learned(y, posterior)
    sigma_max = float(posterior.card["sigma_max"])
    with torch.inference_mode():
        u = start(lambda: streams.normal((learned.size,)), sigma_max)
        end = dpmpp_2m(learned, u, karras_sigmas(STEPS, SIGMA_MIN, sigma_max))
        return torch.cat(learned.parts(end), dim=1).clamp(0, 1)
