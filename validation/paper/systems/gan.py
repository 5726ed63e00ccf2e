"""GAN: a DCGAN of signals, and the signal it can make that fits the measurement best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from usdehaze.diffusion.streams import Streams
from usdehaze.training.data import noise_generator
from validation.paper.systems.base import Budget, Problem
from validation.paper.systems.dcgan import CHANNELS, LATENT, Discriminator, Generator
from validation.paper.systems.fitting import Fit, fingerprint, fit

LR, BETAS = 2e-4, (0.5, 0.999)  # the paper's, of training
STEP, STEPS, WEIGHT = 0.05, 600, 0.9  # the paper's, of the search; lambda


class Gan:
    """Minimises ``||y - A G(z)|| + weight ||z||**2`` over latents by Adam, from several starts.

    The noise counts as what a generator of signals cannot make: it has no model.

    Args:
        weight: lambda.
        step: of the search.
        squared: ``weight ||y - A G(z)||**2 + ||z||**2`` instead, which is what the public code minimises.
    """

    def __init__(self, weight: float = WEIGHT, step: float = STEP, squared: bool = False) -> None:
        self.name = "gan squared" if squared else "gan"
        self.weight, self.step, self.squared = weight, step, squared
        self.device = torch.device("cpu")

    def prepare(self, signal: Tensor, noise: Tensor, seed: int, budget: Budget, work: Path) -> str:
        """Trains the generator; see `System`."""
        self.steps = STEPS if budget.solve_steps is None else budget.solve_steps
        self.restarts, self.device = budget.restarts, budget.device
        self.generator, told = train_gan(signal, seed, budget, work)
        self.trained = [fingerprint(signal), seed, budget.train_steps, budget.batch]
        return told

    def key(self) -> dict[str, Any]:
        """What decides the estimates beside the measurement and the seed, for records."""
        searched = {"weight": self.weight, "step": self.step, "squared": self.squared, "steps": self.steps}
        return searched | {"restarts": self.restarts, "trained": self.trained}

    def solve(self, problem: Problem, seed: int) -> tuple[Tensor, Tensor | None]:
        """See `System`: of each measurement's searches the one that ends lowest."""
        problem = problem.to(self.device)
        best, least = torch.zeros(0), torch.zeros(0)
        for start in range(self.restarts):
            keys = [(seed, start, i) for i in range(len(problem.y))]
            z = self._search(problem, Streams(keys, self.device).normal((self.generator.latent,)))
            with torch.no_grad():
                x = self.generator(z)
                loss = self._loss(problem, x, z)
            if start == 0:
                best, least = x, loss
            better = loss < least
            best[better], least[better] = x[better], loss[better]
        return best.clamp(0, 1).cpu(), None

    def _search(self, problem: Problem, start: Tensor) -> Tensor:
        z = start.clone().requires_grad_(True)
        optimiser = torch.optim.Adam([z], self.step)
        with torch.enable_grad():
            for _ in range(self.steps):
                (z.grad,) = torch.autograd.grad(self._loss(problem, self.generator(z), z).sum(), z)
                optimiser.step()
        return z.detach()

    def _loss(self, problem: Problem, x: Tensor, z: Tensor) -> Tensor:
        """``(N,)``."""
        misfit = (problem.y - problem.forward(x)).flatten(1).square().sum(1)
        length = z.square().sum(1)
        if self.squared:
            return self.weight * misfit + length
        return (misfit + 1e-12).sqrt() + self.weight * length


def train_gan(images: Tensor, seed: int, budget: Budget, work: Path) -> tuple[Generator, str]:
    """A generator of images ``(N, C, H, H)``, trained against a discriminator, and a line on its training.

    A step moves the discriminator once, then the generator once (the loss that does not saturate).
    """
    torch.manual_seed(seed)
    shape = (int(images.shape[1]), int(images.shape[2]), int(images.shape[3]))
    stages = max(1, shape[1].bit_length() - 3)  # 4 for 64 pixels
    channels = tuple(c // 32 for c in CHANNELS[-stages:]) if budget.tiny else CHANNELS[-stages:]
    latent = 8 if budget.tiny else LATENT
    generator, discriminator = Generator(shape, channels, latent), Discriminator(shape, channels)
    generator.to(budget.device)
    discriminator.to(budget.device)
    of_g = torch.optim.Adam(generator.parameters(), LR, BETAS)
    of_d = torch.optim.Adam(discriminator.parameters(), LR, BETAS)
    batch = min(budget.batch, len(images))

    def take(step: int) -> dict[str, float]:
        draw = noise_generator(seed, 0, step, torch.device("cpu"))
        real = images[torch.randint(len(images), (batch,), generator=draw)].to(budget.device)
        made = generator(torch.randn(batch, latent, generator=draw).to(budget.device))
        on_real, on_made = discriminator(real), discriminator(made.detach())
        d_loss = F.softplus(-on_real).mean() + F.softplus(on_made).mean()
        of_d.zero_grad(set_to_none=True)
        d_loss.backward()
        of_d.step()
        discriminator.requires_grad_(False)
        g_loss = F.softplus(-discriminator(made)).mean()
        of_g.zero_grad(set_to_none=True)
        g_loss.backward()
        of_g.step()
        discriminator.requires_grad_(True)
        return {"loss of discriminator": float(d_loss.detach()), "of generator": float(g_loss.detach())}

    settings = {"seed": seed, "batch": batch, "lr": LR, "channels": channels, "latent": latent}
    networks = {"generator": generator, "discriminator": discriminator}
    run = Fit(networks, {"generator": of_g, "discriminator": of_d}, settings | {"images": fingerprint(images)})
    fit(run, "gan", work, budget.train_steps, take)
    return generator, f"{len(images)} images, {run.told()}"
