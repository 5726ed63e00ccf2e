"""FLOW: two Glows, of signal and of noise, and the signal that maximises their joint posterior."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from usdehaze.diffusion.streams import Streams
from usdehaze.training.data import noise_generator
from validation.paper.systems.base import Budget, Problem
from validation.paper.systems.fitting import Fit, fingerprint, fit
from validation.paper.systems.glow import DEPTH, LEVELS, WIDTH, Glow, normal_log_prob

LR, STEP, STEPS, WEIGHT = 1e-4, 0.005, 600, 0.03  # the paper's: of training; of the search; lambda
SHORT, SHORT_LR = 50_000, 1e-3  # shorter trainings (the paper's has 187,500 steps of 16) take Glow's own rate
BITS = 5  # images are taken to have 32 grey levels (as in Glow, and in the public code)
HELD_OUT = 64  # images, at most a tenth, that tell how good a flow is
CHUNK = 16  # measurements searched for at once, for the sake of memory
START_STD = 0.1  # of latents, where a search cannot start from the measurement


class Density(Protocol):
    """A density with a latent space, see `Glow`."""

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]: ...

    def generate(self, z: Tensor) -> tuple[Tensor, Tensor]: ...

    def log_prob(self, x: Tensor) -> Tensor: ...


class Flow:
    """Maximum a posteriori under flows of signal and of noise, by Adam.

    Args:
        latent: whether to search the latents of the signal's flow, ``log p_N(n) + weight log p_X(G(z))``, or its
            pixels, ``log p_N(n) + log p_X(x)``; ``n = (y - A x) / b``.
        weight: lambda.
        step: of the search.
        lr: of training; None is the paper's, or of short trainings Glow's own.
        width: see `Glow`.
    """

    def __init__(
        self,
        latent: bool = False,
        weight: float = WEIGHT,
        step: float = STEP,
        lr: float | None = None,
        width: int = WIDTH,
    ) -> None:
        self.name = "flow latent" if latent else "flow"
        self.latent, self.weight, self.step, self.lr, self.width = latent, weight, step, lr, width
        self.device = torch.device("cpu")

    def prepare(self, signal: Tensor, noise: Tensor, seed: int, budget: Budget, work: Path) -> str:
        """Trains both flows; see `System`. "flow" and "flow latent" share them where ``work`` is the same."""
        self.steps = STEPS if budget.solve_steps is None else budget.solve_steps
        self.device = budget.device
        self.signal, of_signal = train_flow("signal", signal, seed, budget, work, self.lr, self.width)
        self.noise, of_noise = train_flow("noise", noise, seed + 1, budget, work, self.lr, self.width)
        self.trained = [fingerprint(signal), fingerprint(noise), seed, budget.train_steps, budget.batch]
        return f"{of_signal}; {of_noise}"

    def key(self) -> dict[str, Any]:
        """What decides the estimates beside the measurement and the seed, for records."""
        searched = {"latent": self.latent, "weight": self.weight, "step": self.step, "steps": self.steps}
        return searched | {"width": self.width, "lr": self.lr, "trained": self.trained}

    def solve(self, problem: Problem, seed: int) -> tuple[Tensor, Tensor | None]:
        """See `System`; an estimate does not depend on the other measurements."""
        problem, count = problem.to(self.device), len(problem.y)
        noise = Streams([(seed, i) for i in range(count)], self.device).normal((math.prod(problem.shape),))
        found = []
        for first in range(0, count, CHUNK):
            rows = slice(first, first + CHUNK)
            found.append(self._search(problem.split(rows), START_STD * noise[rows]))
        x = torch.cat(found).clamp(0, 1)
        return x.cpu(), problem.noise_of(x).cpu()

    def _search(self, problem: Problem, noise: Tensor) -> Tensor:
        """As the public code starts: from the measurement, or from latents near 0 where it is no image."""
        with torch.no_grad():
            z = noise if problem.is_matrix else self.signal.encode(problem.y)[0]
            if not self.latent:
                x = self.signal.generate(z)[0] if problem.is_matrix else problem.y
                return map_in_data(problem, self.signal, self.noise, x, self.steps, self.step)
        return map_in_latent(problem, self.signal, self.noise, z, self.weight, self.steps, self.step)


def map_in_data(
    problem: Problem, signal: Density, noise: Density, x: Tensor, steps: int = STEPS, step: float = STEP
) -> Tensor:
    """Maximises ``log p_N((y - A x) / b) + log p_X(x)`` over ``x``, from ``x`` on."""
    return _ascend(lambda x: noise.log_prob(problem.noise_of(x)) + signal.log_prob(x), x, steps, step)


def map_in_latent(
    problem: Problem,
    signal: Density,
    noise: Density,
    z: Tensor,
    weight: float = WEIGHT,
    steps: int = STEPS,
    step: float = STEP,
) -> Tensor:
    """Maximises ``log p_N((y - A G(z)) / b) + weight log p_X(G(z))`` over ``z``, from ``z`` on; returns ``G(z)``."""

    def objective(z: Tensor) -> Tensor:
        x, log_det = signal.generate(z)
        return noise.log_prob(problem.noise_of(x)) + weight * (normal_log_prob(z) - log_det)

    with torch.no_grad():
        return signal.generate(_ascend(objective, z, steps, step))[0]


def _ascend(objective: Callable[[Tensor], Tensor], start: Tensor, steps: int, step: float) -> Tensor:
    """Adam on each row by itself; returns of each the best that it met, for the last need not be.

    Far from what a flow learned from, its density may not be finite: no such value is best, its gradient counts as 0.
    """
    u = start.clone().requires_grad_(True)
    optimiser = torch.optim.Adam([u], step)
    best, height = start.clone(), torch.full((len(start),), -math.inf).to(start)
    with torch.enable_grad():
        for i in range(steps + 1):
            value = objective(u)
            better = (value > height) & value.isfinite()
            best[better], height[better] = u.detach()[better], value.detach()[better]
            if i < steps:
                (gradient,) = torch.autograd.grad(-value.sum(), u)
                u.grad = gradient.nan_to_num(0.0, 0.0, 0.0)
                optimiser.step()
    return best


def train_flow(
    what: str, images: Tensor, seed: int, budget: Budget, work: Path, lr: float | None = None, width: int = WIDTH
) -> tuple[Glow, str]:
    """A flow of images ``(N, C, H, W)`` by maximum likelihood, and a line on its training with its held-out bits.

    Images in [0, 1] get uniform noise of one of 32 grey levels' width, so that their density is finite; sequences that
    leave [0, 1] get none. The learning rate rises over the first tenth and falls to 0 over the last three.
    """
    lr = lr or (SHORT_LR if budget.train_steps < SHORT else LR)
    torch.manual_seed(seed)
    depth, levels = (2, 2) if budget.tiny else (DEPTH, LEVELS)
    flow = Glow(tuple(images.shape[1:]), depth, levels, 8 if budget.tiny else width)  # type: ignore[arg-type]
    flow.to(budget.device)
    grain = 0.0 if images.min() < 0 or images.max() > 1 else 2.0**-BITS
    apart = min(HELD_OUT, len(images) // 10)
    held_out, images, d = images[:apart], images[apart:], images[0].numel()
    optimiser = torch.optim.Adam(flow.parameters(), lr)
    steps, batch = budget.train_steps, min(budget.batch, len(images))

    def bits(x: Tensor, generator: torch.Generator) -> Tensor:
        x = x + grain * (torch.rand(x.shape, generator=generator) - 0.5)
        return -flow.log_prob(x.to(budget.device)).mean() / (d * math.log(2)) + (BITS if grain else 0)

    def take(step: int) -> dict[str, float]:
        generator = noise_generator(seed, 0, step, torch.device("cpu"))
        rise, fall = min(1, 10 * (step + 1) / steps), min(1, (steps - step) / (0.3 * steps))
        for group in optimiser.param_groups:
            group["lr"] = lr * min(rise, fall)
        loss = bits(images[torch.randint(len(images), (batch,), generator=generator)], generator)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 100)
        optimiser.step()
        return {"bits": float(loss.detach())}

    settings = {"seed": seed, "batch": batch, "lr": lr, "depth": depth, "levels": levels, "width": width, "bits": BITS}
    run = Fit({"flow": flow}, {"flow": optimiser}, settings | {"images": fingerprint(images)})
    fit(run, f"flow {what}", work, steps, take)
    with torch.no_grad():
        told = float(bits(held_out, noise_generator(seed, 1, 0, torch.device("cpu")))) if len(held_out) else math.nan
    return flow, f"{what}: {len(images)} images, {run.told()}, rate {lr:g}, held out {told:.2f} bits a value"
