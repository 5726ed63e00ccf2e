"""Joint sampling of signal and noise, its single-prior runs, and the learned joint posterior, as systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from usdehaze.diffusion import samplers
from usdehaze.diffusion.denoiser import Posterior
from usdehaze.diffusion.denoiser import Problem as Sampled
from usdehaze.diffusion.guidance import DPS, PaperPiGDM, PiGDM, Projection, Proximal, SharedNoise
from usdehaze.diffusion.learned import Learned as JointDenoiser
from usdehaze.diffusion.sde import PaperVE, karras_sigmas, times
from usdehaze.diffusion.streams import Streams
from usdehaze.errors import UsdehazeError
from usdehaze.priors.posterior import LearnedPosterior
from validation.paper.priors import Priors, account
from validation.paper.public_code import PublicRule
from validation.paper.systems.base import Budget, Problem

SIGMA_MIN, SIGMA_MAX = 0.02, 10.0
RULES: dict[str, Callable[..., Any]] = {
    "pigdm": PaperPiGDM, "dps": DPS, "projection": Projection, "exact pigdm": PiGDM, "proximal": Proximal,
    "public pigdm": PublicRule, "public dps": lambda **options: PublicRule(dps=True, **options),
}  # fmt: skip
PRINTED = {"pigdm": (0.93, 0.88), "dps": (12.7, 16.7), "projection": (0.5, 0.5)}  # lambda, kappa


@dataclass
class Joint:
    """A guidance rule under a sampler.

    Attributes:
        priors: what it knows.
        rule: of `RULES`.
        steps: network passes of each prior.
        sampler: "euler-maruyama" (the paper), or "dpmpp-2m" or "stochastic" for few steps.
        alone: without the noise prior: noise as white and Gaussian.
        scale: lambda and kappa; None is the rule's own, as printed.
        start: deviation to start from; None is that of the diffusion's last time.
    """

    name: str
    priors: Priors
    rule: str
    steps: int = 600
    sampler: str = "euler-maruyama"
    alone: bool = False
    scale: tuple[float, float] | None = None
    start: float | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def prepare(self, signal: Tensor, noise: Tensor, seed: int, budget: Budget, work: Path) -> str:
        """Its priors are there already."""
        return self.priors.told

    def key(self) -> dict[str, Any]:
        """All that decides its figures, but for seed and measurement."""
        return self.priors.key | {
            "rule": self.rule, "steps": self.steps, "sampler": self.sampler, "alone": self.alone, "scale": self.scale,
            "start": self.start, "options": self.options,
        }  # fmt: skip

    def solve(self, problem: Problem, seed: int) -> tuple[Tensor, Tensor | None]:
        """One sample of each measurement; measurement i draws from the stream ``seed + i`` alone."""
        problem = problem.to(self.priors.device)
        sampled = self._sampled(problem)
        streams = Streams([(seed + i,) for i in range(len(problem.y))], self.priors.device)
        noise: samplers.Noise = lambda: streams.normal((sampled.size,))  # noqa: E731
        made: dict[str, Any] = {} if self.scale is None else {"scale": self.scale}
        if self.rule == "projection":
            noise = SharedNoise(noise, sampled)
            made["noise"] = noise
        guided = Posterior(sampled, RULES[self.rule](**made, **self.options), self.name)
        with torch.no_grad():
            end = self._run(guided, noise)
        x, n = sampled.parts(end)
        return x.clamp(0, 1).cpu(), None if self.alone else n.cpu()

    def _sampled(self, problem: Problem) -> Sampled:
        if self.alone:
            y = problem.y / problem.signal_factor
            return Sampled(y, problem.gaussian(), self.priors.signal, None, shape=problem.shape)
        return Sampled(problem.y, problem.observation, self.priors.signal, self.priors.noise, shape=problem.shape)

    def _run(self, guided: Posterior, noise: samplers.Noise) -> Tensor:
        if self.sampler == "euler-maruyama":
            sde = PaperVE()
            u = samplers.start(noise, self.start or sde.beta(1.0))
            return samplers.euler_maruyama(guided, u, sde, times(self.steps), noise)
        sigmas = karras_sigmas(self.steps, SIGMA_MIN, SIGMA_MAX)
        u = samplers.start(noise, SIGMA_MAX, guided.first_guess())
        if self.sampler == "dpmpp-2m":
            return samplers.dpmpp_2m(guided, u, sigmas, noise)
        return samplers.stochastic(guided, u, sigmas, noise)


@dataclass
class Learned:
    """The learned joint posterior of a blend: no priors, no rule, no observation model.

    Attributes:
        priors: with a posterior among them.
        steps: network passes; one gives the posterior's mean, more a sample.
    """

    name: str
    priors: Priors
    steps: int

    def prepare(self, signal: Tensor, noise: Tensor, seed: int, budget: Budget, work: Path) -> str:
        """The posterior is there already."""
        return account(self._posterior)

    def key(self) -> dict[str, Any]:
        """All that decides its figures, but for seed and measurement."""
        return {"posterior": self._posterior.sha256, "steps": self.steps}

    @property
    def _posterior(self) -> LearnedPosterior:
        if self.priors.posterior is None:
            raise UsdehazeError("no posterior was trained")
        return self.priors.posterior

    def solve(self, problem: Problem, seed: int) -> tuple[Tensor, Tensor | None]:
        """Of each measurement the mean or a sample; measurement i draws from the stream ``seed + i`` alone."""
        guided = JointDenoiser(problem.y.to(self.priors.device), self._posterior)
        streams = Streams([(seed + i,) for i in range(len(problem.y))], self.priors.device)
        noise: samplers.Noise = lambda: streams.normal((guided.size,))  # noqa: E731
        with torch.no_grad():
            if self.steps == 1:
                sigma_max = float(self._posterior.card["sigma_max"])
                end = guided(samplers.start(noise, sigma_max), sigma_max)
            else:
                sigmas = karras_sigmas(self.steps, SIGMA_MIN, SIGMA_MAX)
                end = samplers.stochastic(guided, samplers.start(noise, SIGMA_MAX), sigmas, noise)
        x, n = guided.parts(end)
        return x.clamp(0, 1).cpu(), n.cpu()


@dataclass
class Input:
    """The measurement as it is, to compare with."""

    name: str = "input"

    def prepare(self, signal: Tensor, noise: Tensor, seed: int, budget: Budget, work: Path) -> str:
        return ""

    def solve(self, problem: Problem, seed: int) -> tuple[Tensor, Tensor | None]:
        if problem.is_matrix:
            raise UsdehazeError("a measurement of compressed sensing is no image")
        return problem.y.clamp(0, 1), None
