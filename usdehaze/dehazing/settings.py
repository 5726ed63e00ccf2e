"""How a cine is dehazed: settings, presets, and what each setting stands for in `usdehaze.diffusion`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from usdehaze.diffusion import samplers
from usdehaze.diffusion.denoiser import Posterior, Problem, Rule
from usdehaze.diffusion.echo import LogPower
from usdehaze.diffusion.guidance import DPS, PiGDM, Projection, Proximal, Scale, SharedNoise
from usdehaze.diffusion.learned import Learned
from usdehaze.diffusion.observation import Additive, GaussianNoise, Observation
from usdehaze.diffusion.sde import PaperVE, karras_sigmas, times
from usdehaze.errors import UsdehazeError

LEARNED = "learned"
RULES = ("proximal", "pigdm", "dps", "projection")
GUIDANCES = (LEARNED, *RULES)
OBSERVATIONS = ("log-power", "log-power-linearised", "additive")

# Samplers on falling noise levels from sigma_max to sigma_min, and those on the paper's diffusion and its even times.
BY_SIGMA: dict[str, Callable[..., Tensor]] = {
    "stochastic": samplers.stochastic,
    "euler": samplers.euler,
    "euler-churn": partial(samplers.euler, churn=8.0),
    "heun": samplers.heun,
    "heun-churn": partial(samplers.heun, churn=8.0),
    "dpmpp-2m": samplers.dpmpp_2m,
    "dpmpp-2m-sde": partial(samplers.dpmpp_2m, eta=1.0),
    "langevin": samplers.annealed_langevin,
    "adaptive-flow": samplers.adaptive_flow,
}
BY_TIME: dict[str, Callable[..., Tensor]] = {
    "euler-maruyama": samplers.euler_maruyama,
    "reverse-diffusion": partial(samplers.predictor_corrector, corrections=0),
    "predictor-corrector": samplers.predictor_corrector,
    "probability-flow": samplers.probability_flow,
}
SAMPLERS = (*BY_SIGMA, *BY_TIME)


@dataclass(frozen=True)
class Settings:
    """How a cine is dehazed. The first fields are the presets' business, the last four the user's.

    Attributes:
        preset: name it came from.
        guidance: "learned" for the learned joint posterior, or the rule of `RULES` that guides two explicit priors.
        observation: one of `OBSERVATIONS`; without a haze prior it is always Gaussian noise added to the tissue. Of the
            rules only: the learned posterior has learned how tissue and haze make a frame.
        sampler: one of `SAMPLERS`.
        steps: noise levels.
        scale: lambda and kappa, the shares of a rule's pull on tissue and haze; None for the rule's own.
        sigma_max, sigma_min: first and last noise level in model units ([0, 1] frames); samplers of `BY_SIGMA` only.
        from_guess: start from the frame's first guess under noise of sigma_max, not from noise alone. With the learned
            posterior the guess is that there is no haze, and holds the stronger the lower sigma_max is: a state at
            sigma 8 still shows its mean, since the noise of 16,384 pixels averages out.
        samples: posterior samples a frame; from 2 on the result comes with their deviation.
        caution: which quantile over the samples of the gain of tissue, at most 0 dB, is applied: 0.5 the median,
            towards 1 more of the haze stays and walls are safer.
        strength: share of the removal in dB that is applied: 0 nothing, 1 all.
        seed: of the samples' random streams.

    Raises:
        UsdehazeError: a name there is not, or a number out of range.
    """

    preset: str = "fast"
    guidance: str = LEARNED
    observation: str = "log-power"
    sampler: str = "stochastic"
    steps: int = 1
    scale: Scale | None = None
    sigma_max: float = 100.0
    sigma_min: float = 0.1
    from_guess: bool = False
    samples: int = 4
    caution: float = 0.7
    strength: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for what, value, known in (
            ("guidance", self.guidance, GUIDANCES),
            ("observation", self.observation, OBSERVATIONS),
            ("sampler", self.sampler, SAMPLERS),
        ):
            if value not in known:
                raise UsdehazeError(f"no {what} {value!r}; there are {', '.join(known)}")
        if self.steps < 1 or self.samples < 1 or self.seed < 0:
            raise UsdehazeError(
                "steps and samples must be at least 1 and seed at least 0, "
                f"found {self.steps}, {self.samples} and {self.seed}"
            )
        for share in ("strength", "caution"):
            if not 0 <= getattr(self, share) <= 1:
                raise UsdehazeError(f"{share} must lie in [0, 1], found {getattr(self, share)}")
        if self.guidance == "projection" and self.observation != "additive":
            raise UsdehazeError(f"projection needs the additive observation model, found {self.observation}")

    @property
    def by_rule(self) -> bool:
        """A rule guides two explicit priors."""
        return self.guidance != LEARNED

    @property
    def by_time(self) -> bool:
        """The sampler takes the paper's even times."""
        return self.sampler in BY_TIME

    @property
    def own_scale(self) -> Scale:
        """lambda and kappa of a rule where none are given.

        The paper's for `DPS`, `Projection`, and `PiGDM` on its even times; elsewhere `PiGDM` gives the posterior score,
        which needs none.
        """
        pigdm = (0.93, 0.88) if self.by_time else PiGDM.scale
        own = {"proximal": Proximal.scale, "pigdm": pigdm, "dps": DPS.scale, "projection": Projection.scale}
        return own[self.guidance]


PRESETS = {
    "fast": Settings(),
    "quality": Settings(preset="quality", samples=16),
    "preview": Settings(preset="preview", samples=1),
    "paper": Settings(
        preset="paper",
        guidance="pigdm",
        observation="additive",
        sampler="euler-maruyama",
        steps=600,
        samples=1,
        caution=0.5,
    ),
}
_RULE = Settings(guidance="proximal", steps=16, sigma_max=0.5, sigma_min=0.06, from_guess=True, samples=2, caution=0.5)
WITH_RULES = {  # the same presets, where a rule guides two explicit priors
    "fast": _RULE,
    "quality": replace(_RULE, preset="quality", samples=4),
    "preview": replace(_RULE, preset="preview", steps=4, samples=1),
    "paper": PRESETS["paper"],
}
PRIORS = {name: ("tissue", "haze") for name in PRESETS}  # shipped ones
POSTERIOR = "posterior"  # the shipped one


def preset_with(preset: str, guidance: str | None = None, explicit: bool = False) -> Settings:
    """The preset as it is for a guidance; for None its own, or where explicit priors are given a rule's.

    Raises:
        UsdehazeError: a preset that there is not.
    """
    if preset not in PRESETS:
        raise UsdehazeError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
    if guidance is None:
        return (WITH_RULES if explicit else PRESETS)[preset]
    base = (WITH_RULES if guidance in RULES else PRESETS)[preset]
    observation = "additive" if guidance == "projection" else base.observation  # the only one that it is defined for
    return replace(base, guidance=guidance, observation=observation)


def make_observation(settings: Settings, with_haze: bool, dynamic_range_db: float) -> Observation:
    """The observation model of frames in [0, 1] that span ``dynamic_range_db``."""
    if not with_haze:
        return GaussianNoise()
    if settings.observation == "additive":
        return Additive()
    return LogPower(dynamic_range_db, linearised=settings.observation == "log-power-linearised")


def make_rule(settings: Settings, noise: Callable[[], Tensor], problem: Problem) -> tuple[Rule, Callable[[], Tensor]]:
    """The guidance rule, and the noise that its sampler must draw from."""
    scale = settings.scale or settings.own_scale
    if settings.guidance == "projection":
        shared = SharedNoise(noise, problem)
        return Projection(shared, scale), shared
    if settings.guidance == "dps":
        return DPS(scale), noise
    if settings.guidance == "pigdm":
        return PiGDM(scale, per_step=settings.by_time), noise
    return Proximal(scale), noise


def sample(
    settings: Settings,
    guided: Posterior | Learned,
    noise: Callable[[], Tensor],
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
    around = guided.first_guess() if settings.from_guess else 0.0
    if settings.by_time:
        sde = PaperVE()
        u = samplers.start(noise, sde.beta(1.0), around)
        return BY_TIME[settings.sampler](guided, u, sde, times(settings.steps), noise=noise, callback=callback)
    sigmas = karras_sigmas(settings.steps, settings.sigma_min, settings.sigma_max)
    u = samplers.start(noise, settings.sigma_max, around)
    run = BY_SIGMA[settings.sampler]
    if settings.sampler == "adaptive-flow":
        return run(guided, u, sigmas, callback=callback)
    return run(guided, u, sigmas, noise=noise, callback=callback)
