"""From frames to posterior samples of them: a sampler on a guided denoiser, run by a chain."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Protocol

import torch
from torch import Tensor

from usdehaze.dehazing.registry import name_of, observation_entry, sampler_entry
from usdehaze.dehazing.settings import Settings
from usdehaze.dehazing.told import of_posterior, of_priors
from usdehaze.diffusion import samplers
from usdehaze.diffusion.denoiser import Posterior, Problem
from usdehaze.diffusion.guidance import SharedNoise
from usdehaze.diffusion.learned import Learned
from usdehaze.diffusion.observation import GaussianNoise, Observation
from usdehaze.diffusion.sde import PaperVE, karras_sigmas, times
from usdehaze.diffusion.streams import Streams
from usdehaze.engines.registry import Engine, TorchEngine
from usdehaze.priors.posterior import WEIGHTS, LearnedPosterior, lift_of, raised
from usdehaze.priors.prior import Prior

Key = tuple[int, int]  # seed, and number of the sample: all frames share their draws, so that what changes is the heart


class Chain(Protocol):
    """What makes samples of frames.

    Attributes:
        at_once: samples of a frame in one pass, always: last bits depend on it.
    """

    @property
    def at_once(self) -> int: ...

    def on(self, device: torch.device) -> Chain:
        """The same with copies of the networks on another device."""

    def networks(self) -> dict[str, str]:
        """Names and hashes of the networks; of a learned posterior also what its two sides learned from."""

    def weights(self, samples: int) -> Tensor | None:
        """Of each gain of so many samples, summing to 1; None where a sample tells one gain alone."""

    def sample(
        self, settings: Settings, y: Tensor, seen: Tensor, keys: list[Key], dynamic_range_db: float
    ) -> tuple[Tensor, int]:
        """Posterior samples, one for each key.

        Args:
            settings: how.
            y: ``(B, 1, depth, angle)`` in [0, 1] (0 = floor, 1 = 0 dB), the frame of each.
            seen: ``(depth, angle)`` 1.0 where there is image data.
            keys: of the samples' random streams.
            dynamic_range_db: dB that [0, 1] spans.

        Returns:
            ``(B, 1 + Q, depth, angle)``, level of haze and Q gains of tissue; network passes of a sample.
        """


class LearnedChain:
    """Samples of the learned posterior, run by an engine; the gains of one are the quantiles that the network tells."""

    at_once = 4

    def __init__(self, posterior: LearnedPosterior, engine: Engine) -> None:
        self.posterior, self.engine = posterior, engine

    def on(self, device: torch.device) -> LearnedChain:
        posterior = deepcopy(self.posterior).to(device)
        return LearnedChain(posterior, TorchEngine(posterior))

    def networks(self) -> dict[str, str]:
        return of_posterior(self.posterior.name, self.posterior.card)

    def weights(self, samples: int) -> Tensor | None:
        return torch.tensor(WEIGHTS, dtype=torch.float32).repeat(samples) / samples

    def sample(
        self, settings: Settings, y: Tensor, seen: Tensor, keys: list[Key], dynamic_range_db: float
    ) -> tuple[Tensor, int]:
        # Left and right mean nothing to a posterior: every other sample sees the frame mirrored.
        mirrored = [k % 2 == 1 for _, k in keys]
        streams = Streams(keys, y.device)
        y = y * seen
        lift = lift_of(y, self.posterior.exposure)
        learned = Learned(_flipped(raised(y, lift), mirrored), self.engine)
        _, n = learned.parts(sample(settings, learned, lambda: streams.normal((learned.size,))))
        assert learned.gains is not None  # no sampler ends without asking once
        return _told(_flipped(n, mirrored) - lift, _flipped(learned.gains, mirrored), seen), learned.evaluations


class GuidedChain:
    """Samples of two priors, or of tissue alone, guided by a rule."""

    at_once = 1

    def __init__(self, tissue: Prior, haze: Prior | None) -> None:
        self.tissue, self.haze = tissue, haze

    def on(self, device: torch.device) -> GuidedChain:
        return GuidedChain(deepcopy(self.tissue).to(device), self.haze and deepcopy(self.haze).to(device))

    def networks(self) -> dict[str, str]:
        return of_priors(self.tissue.name, None if self.haze is None else self.haze.name)

    def weights(self, samples: int) -> Tensor | None:
        return None

    def sample(
        self, settings: Settings, y: Tensor, seen: Tensor, keys: list[Key], dynamic_range_db: float
    ) -> tuple[Tensor, int]:
        streams = Streams(keys, y.device)
        observation = make_observation(settings, self.haze is not None, dynamic_range_db)
        problem = Problem(y, observation, self.tissue, self.haze, seen)
        guided, noise = guide(settings, problem, lambda: streams.normal((problem.size,)))
        x, n = problem.parts(sample(settings, guided, noise))
        n = n if self.haze is not None else y - x  # without a haze prior haze is what is not tissue
        return _told(n, (x - y).clamp(-1, 0), seen), problem.evaluations


def make_observation(settings: Settings, with_haze: bool, dynamic_range_db: float) -> Observation:
    """The observation model of frames in [0, 1] that span ``dynamic_range_db``."""
    if not with_haze and isinstance(settings.observation, str):
        return GaussianNoise()
    entry = observation_entry(settings.observation)
    made: Observation = entry.load()(**{"dynamic_range_db": dynamic_range_db} if entry.in_db else {})
    return made


def guide(settings: Settings, problem: Problem, noise: samplers.Noise) -> tuple[Posterior, samplers.Noise]:
    """The priors guided by the settings' rule, and the noise that a sampler must draw from."""
    entry = settings.rule
    assert entry is not None
    scale = settings.scale or settings.own_scale
    options = {} if scale is None else {"scale": scale}
    if not entry.shared_noise:
        return Posterior(problem, entry.load()(**options), name_of(settings.guidance)), noise
    shared = SharedNoise(noise, problem)
    return Posterior(problem, entry.load()(noise=shared, **options), name_of(settings.guidance)), shared


def sample(
    settings: Settings,
    guided: Posterior | Learned,
    noise: samplers.Noise,
    callback: samplers.Callback | None = None,
) -> Tensor:
    """Runs the sampler.

    Args:
        settings: which, and how many steps.
        guided: see `Posterior` and `Learned`.
        noise: gives ``(B, size)`` standard normal rows.
        callback: sees every `Step`.

    Returns:
        ``(B, size)`` unknowns.
    """
    entry = sampler_entry(settings.sampler)
    run: Callable[..., Tensor] = entry.load()
    around = guided.first_guess() if settings.from_guess else 0.0
    options = {**entry.options, "noise": noise, "callback": callback}
    if entry.by_time:
        sde = PaperVE()
        return run(guided, samplers.start(noise, sde.beta(1.0), around), sde, times(settings.steps), **options)
    sigmas = karras_sigmas(settings.steps, settings.sigma_min, settings.sigma_max)
    return run(guided, samplers.start(noise, settings.sigma_max, around), sigmas, **options)


def _told(n: Tensor, gains: Tensor, seen: Tensor) -> Tensor:
    """Level of haze and gains on the CPU; no gain where there is no image, of which nothing is known."""
    return torch.cat([n.clamp(0, 1), gains * seen], dim=1).float().cpu()


def _flipped(frames: Tensor, which: list[bool]) -> Tensor:
    """Those of the frames ``(B, C, depth, angle)`` left to right that ``which`` names, one by one."""
    if not any(which):
        return frames
    return torch.where(torch.tensor(which, device=frames.device)[:, None, None, None], frames.flip(-1), frames)
