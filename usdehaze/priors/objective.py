"""What a network learns from: frames with noise of a drawn level, and the loss on what it predicts for them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from usdehaze.diffusion.sde import PaperVE
from usdehaze.priors.prior import Prior

T_MIN = 1e-5  # the paper's first time
SIGMA_RANGE = {"denoiser": (0.01, 10.0), "score": (PaperVE().beta(T_MIN), PaperVE().beta(1.0))}


def draw_sigmas(parametrisation: str, batch: int, generator: torch.Generator) -> Tensor:
    """Noise levels ``(batch, 1, 1, 1)`` to train a network of this parametrisation at.

    "denoiser": log-normal where structure is decided, one in four log-uniform over all. "score": ``beta_t`` at times
    drawn evenly from ``[1e-5, 1]``, as the paper has it.
    """
    device = generator.device
    even = torch.rand(batch, generator=generator, device=device)
    if parametrisation == "score":
        sde = PaperVE()
        sigmas = torch.tensor([sde.beta(T_MIN + (1 - T_MIN) * u) for u in even.tolist()], device=device)
        return sigmas.reshape(-1, 1, 1, 1)
    low, high = (math.log(limit) for limit in SIGMA_RANGE["denoiser"])
    bulk = math.log(0.35) + 1.3 * torch.randn(batch, generator=generator, device=device)
    pick = torch.rand(batch, generator=generator, device=device) < 0.25
    return torch.where(pick, low + (high - low) * even, bulk.clamp(low, high)).exp().reshape(-1, 1, 1, 1)


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


def held_out_loss(prior: Prior, frames: Tensor, sigmas: tuple[float, ...], seed: int = 7) -> list[float]:
    """Mean squared error of the denoiser over ``sigma`` squared-error of doing nothing, one value per noise level."""
    generator = torch.Generator(device=frames.device).manual_seed(seed)
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


def objective_on(prior: Prior, frames: Tensor, seed: int = 7) -> float:
    """The training loss on frames that are not trained on: each once, always with the same noise."""
    generator = torch.Generator(device=frames.device).manual_seed(seed)
    sigma = draw_sigmas(prior.parametrisation, len(frames), generator)
    noise = torch.randn(frames.shape, generator=generator, device=frames.device)
    objective = Objective(prior)
    with torch.inference_mode():
        parts = zip(frames.split(8), sigma.split(8), noise.split(8), strict=True)
        return float(sum(objective(*part) * len(part[0]) for part in parts)) / len(frames)
