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
from usdehaze.diffusion.observation import Additive, GaussianNoise, Observation
from usdehaze.diffusion.sde import PaperVE, karras_sigmas, times
from usdehaze.errors import UsdehazeError
from usdehaze.haze_floor import DEVIATION, haze_floor

GUIDANCES = ("proximal", "pigdm", "dps", "projection")
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
        guidance: one of `GUIDANCES`.
        observation: one of `OBSERVATIONS`; without a haze prior it is always Gaussian noise added to the tissue.
        sampler: one of `SAMPLERS`.
        steps: noise levels.
        scale: lambda and kappa, the shares of the guidance's pull on tissue and haze; None for the guidance's own.
        sigma_max, sigma_min: first and last noise level in model units ([0, 1] frames); samplers of `BY_SIGMA` only.
        from_guess: start from the frame's first guess under noise of sigma_max, not from noise alone.
        window: side of the `haze_floor` that the first guess of haze is, cells of the model grid; 0 for what mean and
            variance of the haze prior's data say.
        tissue_doubt, haze_doubt: how many times the variance measured on held-out frames the estimates of a prior are
            taken to have, see `Doubted`; 0 for what follows from the variance of its data alone.
        cells: see `LogPower`.
        chains: independent runs that make up one sample.
        votes: last noise levels at which each chain says how much of every pixel is haze.
        deepen_db: how much lower tissue under haze is taken to lie than the votes say, dB at most: see
            `usdehaze.voting.deepen`. Of the log-power models with a haze prior only.
        warm_steps, warm_sigma: noise levels, and the first of them, of a frame that starts from the one before.
        warm_share: share of that start that the frame before makes up; the rest is the frame's own first guess.
        group: frames of a group, counted from the source's first frame; only within it does one start from another.
        warm_start: frames of a cine start from the result of the frame before; False: every frame for itself.
        seed: of the frames' random streams.
        strength: share of the removal in dB that is applied: 0 nothing, 1 all.
        samples: posterior samples a frame; the result is their mean, and from 2 on comes with their deviation.

    Raises:
        UsdehazeError: a name there is not, or a number out of range.
    """

    preset: str = "fast"
    guidance: str = "proximal"
    observation: str = "log-power"
    sampler: str = "stochastic"
    steps: int = 8
    scale: Scale | None = None
    sigma_max: float = 0.5
    sigma_min: float = 0.06
    from_guess: bool = True
    window: int = 31
    tissue_doubt: float = 6.0
    haze_doubt: float = 4.0
    cells: float = 1.5
    chains: int = 3
    votes: int = 5
    deepen_db: float = 8.0
    warm_steps: int = 5
    warm_sigma: float = 0.5
    warm_share: float = 0.5
    group: int = 8
    warm_start: bool = False
    seed: int = 0
    strength: float = 1.0
    samples: int = 1

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
        if not 0 <= self.strength <= 1:
            raise UsdehazeError(f"strength must lie in [0, 1], found {self.strength}")
        if self.window and (self.window < 3 or self.window % 2 == 0):
            raise UsdehazeError(f"window must be 0 or an odd number from 3 on, found {self.window}")
        for what in ("cells", "tissue_doubt", "haze_doubt", "deepen_db"):
            if getattr(self, what) < 0:
                raise UsdehazeError(f"{what} must be at least 0, found {getattr(self, what):g}")
        if self.warm_steps < 1 or self.group < 1 or self.warm_sigma <= 0 or not 0 <= self.warm_share <= 1:
            raise UsdehazeError(
                "warm_steps and group must be at least 1, warm_sigma above 0 and warm_share in [0, 1], "
                f"found {self.warm_steps}, {self.group}, {self.warm_sigma:g} and {self.warm_share:g}"
            )
        if self.warm_start and self.by_time:
            raise UsdehazeError(f"sampler {self.sampler} starts every frame from noise alone; leave out the warm start")
        if self.guidance == "projection" and self.observation != "additive":
            raise UsdehazeError(f"projection needs the additive observation model, found {self.observation}")

    @property
    def by_time(self) -> bool:
        """The sampler takes the paper's even times."""
        return self.sampler in BY_TIME

    @property
    def of_follower(self) -> Settings:
        """Those of a frame that starts from the one before: fewer noise levels, from a lower one on."""
        return replace(self, steps=self.warm_steps, sigma_max=self.warm_sigma)

    @property
    def own_scale(self) -> Scale:
        """lambda and kappa of the guidance where none are given.

        The paper's for `DPS`, `Projection`, and `PiGDM` on its even times; elsewhere `PiGDM` gives the posterior score,
        which needs none.
        """
        pigdm = (0.93, 0.88) if self.by_time else PiGDM.scale
        own = {"proximal": Proximal.scale, "pigdm": pigdm, "dps": DPS.scale, "projection": Projection.scale}
        return own[self.guidance]


PRESETS = {
    "fast": Settings(),
    "quality": Settings(preset="quality", steps=16, votes=8, warm_steps=8),
    "preview": Settings(preset="preview", steps=4, chains=1, votes=4, warm_steps=3),
    "paper": Settings(
        preset="paper",
        guidance="pigdm",
        observation="additive",
        sampler="euler-maruyama",
        steps=600,
        from_guess=False,
        window=0,
        tissue_doubt=0.0,
        haze_doubt=0.0,
        cells=0.0,
        chains=1,
        votes=1,
        deepen_db=0.0,
    ),
}
PRIORS = {name: ("tissue", "haze") for name in PRESETS} | {"paper": ("tissue-ncsnv2", "haze-ncsnv2")}  # shipped ones


def make_observation(settings: Settings, with_haze: bool, dynamic_range_db: float) -> Observation:
    """The observation model of frames in [0, 1] that span ``dynamic_range_db``."""
    if not with_haze:
        return GaussianNoise()
    if settings.observation == "additive":
        return Additive()
    linearised = settings.observation == "log-power-linearised"
    return LogPower(dynamic_range_db, linearised=linearised, cells=settings.cells)


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
    guided: Posterior,
    noise: Callable[[], Tensor],
    callback: samplers.Callback | None = None,
    before: Tensor | None = None,
) -> Tensor:
    """Runs the sampler.

    Args:
        settings: which, and how many steps.
        guided: see `Posterior`.
        noise: gives ``(B, size)`` standard normal rows.
        callback: sees every `Step`.
        before: ``(B, size)`` unknowns that were found for the frame before, to start from as the settings say.

    Returns:
        ``(B, size)`` unknowns.
    """
    around = _around(settings, guided.problem, before)
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


def _around(settings: Settings, problem: Problem, before: Tensor | None) -> Tensor | float:
    """Unknowns that a run starts around."""
    guess = _first_guess(settings, problem) if settings.from_guess else None
    if before is None:
        return 0.0 if guess is None else guess
    carried = problem.carried(before)
    return carried if guess is None else guess.lerp(carried, settings.warm_share)


def _first_guess(settings: Settings, problem: Problem) -> Tensor:
    if settings.window and problem.haze is not None:
        return problem.first_guess(haze_floor(problem.y, settings.window), DEVIATION)
    return problem.first_guess()
