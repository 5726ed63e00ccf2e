"""Everything that a setting can name: guidance rules, observation models, samplers.

An entry says what makes a thing and what that thing needs. To add one, write it, and give it a line in its table here:
settings, command line and results then know its name. Nothing is imported before it is made, so that the command line
lists the names in an instant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from usdehaze.errors import UsdehazeError

if TYPE_CHECKING:
    from torch import Tensor

    from usdehaze.diffusion.denoiser import Rule
    from usdehaze.diffusion.observation import Observation

LEARNED = "learned"  # the guidance that is no rule: the learned joint posterior


@dataclass(frozen=True)
class Entry:
    """How a thing is made.

    Attributes:
        make: what makes it, or where that is: "module:name".
    """

    make: str | Callable[..., Any]

    def load(self) -> Callable[..., Any]:
        """What makes it, imported if need be."""
        if not isinstance(self.make, str):
            return self.make
        module, _, name = self.make.partition(":")
        made: Callable[..., Any] = getattr(import_module(module), name)
        return made

    def __str__(self) -> str:
        return self.make.partition(":")[2] if isinstance(self.make, str) else name_of(self.make)


_Entry = TypeVar("_Entry", bound=Entry)


@dataclass(frozen=True)
class RuleEntry(Entry):
    """A guidance rule: a class with an attribute ``scale``, its own lambda and kappa, made with ``scale=``.

    What has no such attribute is made without.

    Attributes:
        linear: it is defined for linear observation models only.
        fixed_step: it corrects once a step, and needs a sampler whose steps have a fixed length.
        shared_noise: made with ``noise=`` too, the `SharedNoise` that the sampler draws from.
        by_time: what takes its place where the sampler goes by time.
    """

    linear: bool = False
    fixed_step: bool = False
    shared_noise: bool = False
    by_time: RuleEntry | None = None


@dataclass(frozen=True)
class ObservationEntry(Entry):
    """An observation model.

    Attributes:
        in_db: made with ``dynamic_range_db=``, the dB that the frames' [0, 1] spans.
        linear: ``h`` is linear.
    """

    in_db: bool = False
    linear: bool = False


@dataclass(frozen=True)
class SamplerEntry(Entry):
    """A sampler: a function as in `usdehaze.diffusion.samplers`.

    Attributes:
        by_time: it takes the paper's diffusion and its even times in place of falling noise levels.
        adaptive: its steps have no fixed length.
        options: that the function is called with.
    """

    by_time: bool = False
    adaptive: bool = False
    options: Mapping[str, float] = field(default_factory=dict, hash=False)


_GUIDANCE = "usdehaze.diffusion.guidance:"
RULES = {
    "proximal": RuleEntry(_GUIDANCE + "Proximal"),
    "pigdm": RuleEntry(_GUIDANCE + "PiGDM", by_time=RuleEntry(_GUIDANCE + "PaperPiGDM", fixed_step=True)),
    "dps": RuleEntry(_GUIDANCE + "DPS", fixed_step=True),
    "projection": RuleEntry(_GUIDANCE + "Projection", linear=True, fixed_step=True, shared_noise=True),
}

OBSERVATIONS = {
    "log-power": ObservationEntry("usdehaze.diffusion.echo:LogPower", in_db=True),
    "log-power-linearised": ObservationEntry("usdehaze.diffusion.echo:LinearisedLogPower", in_db=True),
    "additive": ObservationEntry("usdehaze.diffusion.observation:Additive", linear=True),
}

_SAMPLERS = "usdehaze.diffusion.samplers:"
SAMPLERS = {
    "stochastic": SamplerEntry(_SAMPLERS + "stochastic"),
    "euler": SamplerEntry(_SAMPLERS + "euler"),
    "euler-churn": SamplerEntry(_SAMPLERS + "euler", options={"churn": 8.0}),
    "heun": SamplerEntry(_SAMPLERS + "heun"),
    "heun-churn": SamplerEntry(_SAMPLERS + "heun", options={"churn": 8.0}),
    "dpmpp-2m": SamplerEntry(_SAMPLERS + "dpmpp_2m"),
    "dpmpp-2m-sde": SamplerEntry(_SAMPLERS + "dpmpp_2m", options={"eta": 1.0}),
    "langevin": SamplerEntry(_SAMPLERS + "annealed_langevin"),
    "adaptive-flow": SamplerEntry(_SAMPLERS + "adaptive_flow", adaptive=True),
    "euler-maruyama": SamplerEntry(_SAMPLERS + "euler_maruyama", by_time=True),
    "reverse-diffusion": SamplerEntry(_SAMPLERS + "predictor_corrector", by_time=True, options={"corrections": 0}),
    "predictor-corrector": SamplerEntry(_SAMPLERS + "predictor_corrector", by_time=True),
    "probability-flow": SamplerEntry(_SAMPLERS + "probability_flow", by_time=True),
}


def rule_entry(guidance: str | RuleEntry | Rule) -> RuleEntry:
    """The entry of a name, an entry itself, or one that gives a rule that is made already.

    Raises:
        UsdehazeError: a name there is not.
    """
    if isinstance(guidance, str):
        return _named("guidance", guidance, RULES, LEARNED)
    return guidance if isinstance(guidance, RuleEntry) else RuleEntry(lambda: guidance)


def observation_entry(observation: str | ObservationEntry | Observation) -> ObservationEntry:
    """The same for observation models."""
    if isinstance(observation, str):
        return _named("observation", observation, OBSERVATIONS)
    return observation if isinstance(observation, ObservationEntry) else ObservationEntry(lambda: observation)


def sampler_entry(sampler: str | SamplerEntry | Callable[..., Tensor]) -> SamplerEntry:
    """The same for samplers, where a function takes falling noise levels."""
    if isinstance(sampler, str):
        return _named("sampler", sampler, SAMPLERS)
    return sampler if isinstance(sampler, SamplerEntry) else SamplerEntry(sampler)


def _named(what: str, name: str, table: Mapping[str, _Entry], *others: str) -> _Entry:
    if name not in table:
        raise UsdehazeError(f"no {what} {name!r}; there are {', '.join((*others, *table))}")
    return table[name]


def name_of(thing: object) -> str:
    """A name for what a setting holds, as results quote it; of a thing of one's own its class and fields, if any."""
    if isinstance(thing, str | Entry) or (is_dataclass(thing) and not isinstance(thing, type)):
        return str(thing)
    return str(getattr(thing, "__name__", type(thing).__name__))
