"""Every method of the tables by name, and what it may cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from usdehaze.errors import UsdehazeError
from validation.paper.joint import Input, Joint, Learned
from validation.paper.priors import Priors
from validation.paper.systems.base import System

FEW, MANY = 100, 20  # images: of methods of seconds, and of minutes an image
PAPER_STEPS = 600
TUNED = ", tuned"  # ends the name of a method whose lambda and kappa are chosen on validation images


@dataclass(frozen=True)
class Method:
    """A row of the tables.

    Attributes:
        make: what makes it of priors and the steps of the paper's samplers.
        images: measured at least, in full tables.
        blends: defined for blends alone.
        images_only: not defined for compressed sensing.
        sensed: defined for compressed sensing alone.
        by_priors: it samples with the priors.
        learned: it is the learned posterior.
    """

    make: Callable[[Priors, int], System]
    images: int = FEW
    blends: bool = False
    images_only: bool = False
    sensed: bool = False
    by_priors: bool = True
    learned: bool = False


def _joint(rule: str, n_images: int = MANY, blends: bool = False, **options: Any) -> Callable[[str], Method]:
    def made(name: str) -> Method:
        return Method(lambda priors, steps: Joint(name, priors, rule, steps, **options), n_images, blends)

    return made


def _few(rule: str, steps: int, sampler: str, alone: bool = False) -> Callable[[str], Method]:
    def made(name: str) -> Method:
        return Method(lambda priors, most: Joint(name, priors, rule, min(steps, most), sampler, alone), FEW)

    return made


def _learned(steps: int) -> Callable[[str], Method]:
    def made(name: str) -> Method:
        return Method(lambda priors, most: Learned(name, priors, min(steps, most)), FEW, blends=True, learned=True)

    return made


def _other(module: str, of: str, n_images: int = FEW, **options: object) -> Callable[[str], Method]:
    flags = {k: bool(options.pop(k)) for k in ("images_only", "sensed") if k in options}

    def make(priors: Priors, steps: int) -> System:
        try:
            made: System = getattr(import_module(f"validation.paper.systems.{module}"), of)(**options)
        except ModuleNotFoundError as error:
            raise UsdehazeError(f"{error.name} is not installed") from error
        return made

    return lambda name: Method(make, n_images, by_priors=False, **flags)


_START_1: dict[str, Any] = {"start": 1.0}
METHODS: dict[str, Method] = {
    name: made(name)
    for name, made in {
        "pigdm": _joint("pigdm"),
        "dps": _joint("dps"),
        "projection": _joint("projection", FEW),
        "pigdm, tuned": _joint("pigdm"),
        "dps, tuned": _joint("dps"),
        "projection, tuned": _joint("projection", FEW),
        "pigdm alone": _joint("pigdm", alone=True),
        "dps alone": _joint("dps", alone=True),
        "projection alone": _joint("projection", FEW, alone=True),
        "pigdm alone, tuned": _joint("pigdm", alone=True),
        "dps alone, tuned": _joint("dps", alone=True),
        "exact alone, 20 steps": _few("exact pigdm", 20, "dpmpp-2m", alone=True),
        "proximal alone, 20 steps": _few("proximal", 20, "stochastic", alone=True),
        "exact, 20 steps": _few("exact pigdm", 20, "dpmpp-2m"),
        "exact, 40 steps": _few("exact pigdm", 40, "dpmpp-2m"),
        "exact, 100 steps": _few("exact pigdm", 100, "dpmpp-2m"),
        "proximal, 20 steps": _few("proximal", 20, "stochastic"),
        "proximal, 40 steps": _few("proximal", 40, "stochastic"),
        "proximal, 100 steps": _few("proximal", 100, "stochastic"),
        "learned posterior, mean": _learned(1),
        "learned posterior, 20 steps": _learned(20),
        "flow": _other("flow", "Flow", MANY, latent=False),
        "flow latent": _other("flow", "Flow", MANY, latent=True),
        "gan": _other("gan", "Gan", MANY),
        "gan squared": _other("gan", "Gan", MANY, squared=True),
        "bm3d": _other("bm3d", "Bm3d", images_only=True),
        "lasso": _other("lasso", "Lasso", sensed=True),
        "public pigdm": _joint("public pigdm", blends=True, scale=(0.93, 0.88), **_START_1),
        "public pigdm, started right": _joint("public pigdm", blends=True, scale=(0.93, 0.88)),
        "pigdm, started from 1": _joint("pigdm", blends=True, **_START_1),
        "public dps": _joint("public dps", blends=True, scale=(12.7, 16.7), **_START_1),
        "public dps, norm of each": _joint(
            "public dps", blends=True, scale=(12.7, 16.7), options={"whole_batch": False}, **_START_1
        ),
    }.items()
}
METHODS = {"input": Method(lambda priors, steps: Input(), images_only=True, by_priors=False)} | METHODS
DEPARTURES = ("alone", "public", "started from")  # in names of what is not joint sampling as it is meant
JOINT = [name for name, m in METHODS.items() if m.by_priors and not any(word in name for word in DEPARTURES)]
