"""How a cine is dehazed: settings and presets. Importing them is instant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

from usdehaze.dehazing.registry import (
    LEARNED,
    OBSERVATIONS,
    ObservationEntry,
    RuleEntry,
    SamplerEntry,
    name_of,
    observation_entry,
    rule_entry,
    sampler_entry,
)
from usdehaze.errors import UsdehazeError

if TYPE_CHECKING:
    from torch import Tensor

    from usdehaze.diffusion.denoiser import Rule
    from usdehaze.diffusion.guidance import LambdaKappa
    from usdehaze.diffusion.observation import Observation

Preset = Literal["fast", "quality", "preview", "paper"]  # the names of `PRESETS`


@dataclass(frozen=True)
class Settings:
    """How a cine is dehazed. The first fields are the presets' business, the last four the user's.

    Guidance, observation and sampler are names of `usdehaze.dehazing.registry`, or things of one's own: an entry such
    as the registry holds, or the rule, the observation model or the sampler itself. Results then quote its name.

    Attributes:
        preset: name it came from.
        guidance: "learned" for the learned joint posterior, or the rule that guides two explicit priors.
        observation: how tissue and haze make a frame; by name, without a haze prior it is always Gaussian noise added
            to the tissue. Of the rules only: the learned posterior has learned how tissue and haze make a frame.
        sampler: a function on falling noise levels; an entry says where one goes by time.
        steps: noise levels.
        scale: lambda and kappa, the shares of a rule's pull on tissue and haze; None for the rule's own.
        sigma_max, sigma_min: first and last noise level in model units ([0, 1] frames); of samplers that do not go by
            time only.
        from_guess: start from the frame's first guess under noise of sigma_max, not from noise alone. With the learned
            posterior the guess is that there is no haze, and holds the stronger the lower sigma_max is: a state at
            sigma 8 still shows its mean, since the noise of all pixels averages out.
        samples: posterior samples a frame; from 2 on the result comes with their deviation.
        caution: which quantile over the samples of the gain of tissue, at most 0 dB, is applied: 0.5 the median,
            towards 1 more of the haze stays and walls are safer.
        strength: share of the removal in dB that is applied: 0 nothing, 1 all.
        seed: of the samples' random streams.

    Raises:
        UsdehazeError: a name there is not, a number out of range, or things that do not go together.
    """

    preset: str = "fast"
    guidance: str | RuleEntry | Rule = LEARNED
    observation: str | ObservationEntry | Observation = "log-power"
    sampler: str | SamplerEntry | Callable[..., Tensor] = "stochastic"
    steps: int = 1
    scale: LambdaKappa | None = None
    sigma_max: float = 100.0
    sigma_min: float = 0.1
    from_guess: bool = False
    samples: int = 2
    caution: float = 0.85
    strength: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        rule, observation, sampler = self.rule, observation_entry(self.observation), sampler_entry(self.sampler)
        for number in ("steps", "samples", "seed"):
            if isinstance(value := getattr(self, number), bool) or not isinstance(value, Integral):
                raise UsdehazeError(f"{number} must be a whole number, found {value!r}")
            object.__setattr__(self, number, int(value))  # NumPy's own would overflow
        if self.steps < 1 or self.samples < 1 or not 0 <= self.seed < 2**63:
            raise UsdehazeError(
                "steps and samples must be at least 1 and seed at least 0 and below 2**63, "
                f"found {self.steps}, {self.samples} and {self.seed}"
            )
        for share in ("strength", "caution"):
            if not isinstance(value := getattr(self, share), Real) or not 0 <= float(value) <= 1:
                raise UsdehazeError(f"{share} must lie in [0, 1], found {value!r}")
        if not 0 < self.sigma_min <= self.sigma_max < math.inf:
            raise UsdehazeError(f"noise levels must fall above 0, found {self.sigma_max} to {self.sigma_min}")
        if rule is None:
            return
        name = name_of(self.guidance)
        if rule.linear and isinstance(self.observation, str) and not observation.linear:
            known = " or ".join(name for name, entry in OBSERVATIONS.items() if entry.linear)
            raise UsdehazeError(f"{name} needs the {known} observation model, found {self.observation}")
        if rule.fixed_step and sampler.adaptive:
            raise UsdehazeError(f"{name} corrects once a step, and this sampler's steps have no fixed length")
        if self.scale is not None and self.own_scale is None:
            raise UsdehazeError(f"guidance {name} has a scale of its own; leave lambda and kappa out")

    @property
    def by_rule(self) -> bool:
        """A rule guides two explicit priors."""
        return self.guidance != LEARNED

    @property
    def rule(self) -> RuleEntry | None:
        """What makes the rule, the one for its kind of sampler; None for the learned posterior."""
        if not self.by_rule:
            return None
        entry = rule_entry(self.guidance)
        return entry.by_time if entry.by_time and sampler_entry(self.sampler).by_time else entry

    @property
    def own_scale(self) -> LambdaKappa | None:
        """lambda and kappa of the rule where none are given; None for what has none."""
        return None if self.rule is None else getattr(self.rule.load(), "scale", None)

    def told(self) -> dict[str, Any]:
        """Every setting that has an effect, by name, as results keep it: things of one's own as their names."""
        left_out = () if self.by_rule else ("observation", "scale")
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in left_out}
        named = ("guidance", "observation", "sampler")
        return {name: name_of(value) if name in named else value for name, value in values.items()}

    def own(self) -> str:
        """The settings that are not the preset's, in words; "" where all of them are."""
        usual = (WITH_RULES if self.by_rule else PRESETS).get(self.preset)  # type: ignore[call-overload]
        known = {} if usual is None else usual.told()
        changed = {name: value for name, value in self.told().items() if value != known.get(name, value)}
        words = {n: f"{v:g}" if isinstance(v, float) else str(v) for n, v in changed.items()}
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in words.items())


PRESETS: dict[Preset, Settings] = {
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
WITH_RULES: dict[Preset, Settings] = {  # the same presets, where a rule guides two explicit priors
    "fast": _RULE,
    "quality": replace(_RULE, preset="quality", samples=4),
    "preview": replace(_RULE, preset="preview", steps=4, samples=1),
    "paper": PRESETS["paper"],
}
PRIORS = ("tissue", "haze")  # the shipped ones
POSTERIOR = "posterior"  # the shipped one


def preset_with(
    preset: Preset | Settings,
    guidance: str | RuleEntry | Rule | None = None,
    explicit: bool = False,
    **chosen: Any,
) -> Settings:
    """The preset as it is for a guidance; for None its own, or where explicit priors are given a rule's.

    A rule that is defined for linear observation models only brings the additive one along.

    Args:
        preset: its name, or settings to begin with.
        guidance: see `Settings`.
        explicit: explicit priors are given.
        chosen: settings that take the place of the preset's, but for those that are None.

    Raises:
        UsdehazeError: a preset that there is not, or see `Settings`.
    """
    own = {name: value for name, value in {"guidance": guidance, **chosen}.items() if value is not None}
    if isinstance(preset, Settings):
        return replace(preset, **own)
    if preset not in PRESETS:
        raise UsdehazeError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
    if guidance is None or guidance == LEARNED:
        return replace((WITH_RULES if explicit and guidance is None else PRESETS)[preset], **own)
    linear = {"observation": "additive"} if rule_entry(guidance).linear else {}
    return replace(WITH_RULES[preset], **{**linear, **own})


def settings_of(
    preset: Preset | Settings = "fast",
    tissue_prior: object = None,
    haze_prior: object = None,
    posterior: object = None,
    use_haze_prior: bool = True,
    **options: Any,
) -> Settings:
    """Settings that options of `Dehazer.from_pretrained` come to; what is no setting is left aside.

    Raises:
        UsdehazeError: options that do not go together, or see `preset_with`.
    """
    explicit = bool(tissue_prior or haze_prior or not use_haze_prior)
    names = {field.name for field in fields(Settings)}
    settings = preset_with(preset, explicit=explicit, **{k: v for k, v in options.items() if k in names})
    if settings.by_rule and posterior:
        name = name_of(settings.guidance)
        raise UsdehazeError(f"guidance {name} takes no posterior; leave it out, or choose learned")
    if not settings.by_rule and (explicit or options.get("observation") or options.get("scale")):
        what = "priors" if explicit else "observation model" if options.get("observation") else "lambda and kappa"
        raise UsdehazeError(f"the learned posterior takes no {what}; leave out, or choose another guidance")
    return settings
