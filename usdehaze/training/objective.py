"""What a network learns from: frames with noise of a drawn level, and the loss on what it predicts for them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from usdehaze.diffusion.sde import PaperVE
from usdehaze.priors.posterior import LearnedPosterior, pinball
from usdehaze.priors.prior import Prior

T_MIN = 1e-5  # the paper's first time
HELD_OUT_NOISE = 7  # seed of the noise on frames that are not trained on
PINBALL = 1.0  # weight of the quantiles' loss
ALONE = 20.0  # noise level from which on the frame alone decides
SIGMA_RANGE = {
    "denoiser": (0.01, 10.0),
    "score": (PaperVE().beta(T_MIN), PaperVE().beta(1.0)),
    "posterior": (0.01, 100.0),  # at the last, unknowns tell nothing: not even their mean
}


def draw_sigmas(parametrisation: str, batch: int, generator: torch.Generator) -> Tensor:
    """Noise levels ``(batch, 1, 1, 1)`` to train a network of this parametrisation at.

    "denoiser": log-normal where structure is decided, one in four log-uniform over all. "score": ``beta_t`` at times
    drawn evenly from ``[1e-5, 1]``, as the paper has it. "posterior": as the denoiser, and three in five at the highest
    levels, where the frame alone decides: the presets ask for these.
    """
    device = generator.device
    even = torch.rand(batch, generator=generator, device=device)
    if parametrisation == "score":
        sde = PaperVE()
        sigmas = torch.tensor([sde.beta(T_MIN + (1 - T_MIN) * u) for u in even.tolist()], device=device)
        return sigmas.reshape(-1, 1, 1, 1)
    low, high = (math.log(limit) for limit in SIGMA_RANGE[parametrisation])
    bulk = math.log(0.35) + 1.3 * torch.randn(batch, generator=generator, device=device)
    pick = torch.rand(batch, generator=generator, device=device) < 0.25
    levels = torch.where(pick, low + (high - low) * even, bulk.clamp(low, high))
    if parametrisation == "posterior":
        top = torch.rand(batch, generator=generator, device=device) < 0.6
        levels = torch.where(top, math.log(ALONE) + (high - math.log(ALONE)) * even, levels)
    return levels.exp().reshape(-1, 1, 1, 1)


class Objective(nn.Module):
    """Mean square of what the network got wrong; a module of its own, so that processes can share its gradients.

    For a denoiser this is the loss of Karras et al. (2022, equation 8), whose weight over noise levels makes the
    network's target one of unit variance. For a score it is the paper's ``|| beta_t s(x_t, t) + z ||^2``.
    """

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        self.prior = prior

    def forward(self, x0: Tensor, sigma: Tensor, z: Tensor) -> Tensor:
        """Args: clean frames ``(B, 1, depth, angle)``, noise levels ``(B, 1, 1, 1)``, unit noise like the frames."""
        x = x0 + sigma * z
        return (self.prior.predict(x, sigma).float() - self.prior.network_target(x0, x, sigma)).square().mean()


class PosteriorObjective(nn.Module):
    """What a learned posterior got wrong: squares of its means (EDM, equation 8), pinballs of its quantiles."""

    def __init__(self, posterior: LearnedPosterior) -> None:
        super().__init__()
        self.posterior = posterior

    def forward(self, pairs: Tensor, sigma: Tensor, z: Tensor) -> Tensor:
        """Args: tissue, haze and frame ``(B, 3 C, depth, angle)``; ``(B, 1, 1, 1)``; unit noise ``(B, 2 C, ...)``."""
        n = 2 * self.posterior.channels
        clean, y = pairs[:, :n], pairs[:, n:]
        u = clean + sigma * z
        told = self.posterior.predict(u, sigma, y).float()
        squares = (told[:, :n] - self.posterior.target(clean, u, sigma, y)).square().mean()
        if told.shape[1] == n:
            return squares
        gain = (clean[:, :1] - y).clamp(max=0) / self.posterior.spreads[0]
        return squares + PINBALL * pinball(told[:, n:], gain)


def posterior_errors(posterior: LearnedPosterior, pairs: Tensor, sigmas: tuple[float, ...]) -> dict[str, list[float]]:
    """Errors on pairs that were not trained on, one value a noise level.

    Returns:
        ``tissue`` and ``haze``, root mean square errors in model units; ``inside``, the share of gains within the
        quantiles from 2.5 to 97.5 %, where there are quantiles.
    """
    c = posterior.channels
    generator = torch.Generator(device=pairs.device).manual_seed(HELD_OUT_NOISE)
    found: dict[str, list[float]] = {"tissue": [], "haze": [], "inside": []}
    with torch.inference_mode():
        for sigma in sigmas:
            noise = torch.randn(pairs[:, : 2 * c].shape, generator=generator, device=pairs.device)
            parts = zip(pairs.split(8), noise.split(8), strict=True)
            told = [posterior(p[:, : 2 * c] + sigma * z, sigma, p[:, 2 * c :]) for p, z in parts]
            means, gains = (torch.cat(each) for each in zip(*told, strict=True))
            squares = (means - pairs[:, : 2 * c]).square().mean((0, 2, 3))
            found["tissue"].append(float(squares[:c].mean().sqrt()))
            found["haze"].append(float(squares[c:].mean().sqrt()))
            if gains.shape[1] == 0:
                continue
            gain = (pairs[:, :1] - pairs[:, 2:]).clamp(max=0)
            within = (gain >= gains[:, :1] - 1e-3) & (gain <= gains[:, -1:] + 1e-3)
            found["inside"].append(float(within.float().mean()))
    return {name: values for name, values in found.items() if values}


def held_out_loss(prior: Prior, frames: Tensor, sigmas: tuple[float, ...]) -> list[float]:
    """Mean squared error of the denoiser over ``sigma`` squared-error of doing nothing, one value per noise level."""
    generator = torch.Generator(device=frames.device).manual_seed(HELD_OUT_NOISE)
    out = []
    with torch.inference_mode():
        for sigma in sigmas:
            noise = torch.randn(frames.shape, generator=generator, device=frames.device)
            error = [
                (prior(x + sigma * z, sigma) - x).square().mean() * len(x)
                for x, z in zip(frames.split(8), noise.split(8), strict=True)
            ]
            out.append(float(torch.stack(error).sum()) / len(frames) / sigma**2)
    return out


def objective_of(model: Prior | LearnedPosterior) -> Objective | PosteriorObjective:
    """The training loss of a model."""
    return PosteriorObjective(model) if isinstance(model, LearnedPosterior) else Objective(model)


def draw_batch(model: Prior | LearnedPosterior, frames: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise levels ``(B, 1, 1, 1)`` and unit noise to put onto frames ``(B, C, depth, angle)``."""
    sigma = draw_sigmas(getattr(model, "parametrisation", "posterior"), len(frames), generator)
    noisy = frames[:, : 2 * model.channels] if isinstance(model, LearnedPosterior) else frames
    return sigma, torch.randn(noisy.shape, generator=generator, device=frames.device)


def objective_on(model: Prior | LearnedPosterior, frames: Tensor) -> float:
    """The training loss on frames that are not trained on: each once, always with the same noise."""
    generator = torch.Generator(device=frames.device).manual_seed(HELD_OUT_NOISE)
    sigma, noise = draw_batch(model, frames, generator)
    objective = objective_of(model)
    with torch.inference_mode():
        parts = zip(frames.split(8), sigma.split(8), noise.split(8), strict=True)
        return float(sum(objective(*part) * len(part[0]) for part in parts)) / len(frames)
