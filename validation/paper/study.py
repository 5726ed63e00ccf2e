"""Measures methods on an experiment, image by image, and keeps what it measured."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usdehaze.choices import PriorKind
from usdehaze.errors import UsdehazeError
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.priors.prior import Prior
from usdehaze.training.images import BlendedImages
from validation.lpips import Lpips
from validation.paper import metrics
from validation.paper.data import GRID
from validation.paper.experiments import Experiment, Measured, exact_prior, measured, noise_of, training_signal
from validation.paper.joint import Joint
from validation.paper.methods import METHODS, PAPER_STEPS, TUNED, Method
from validation.paper.priors import Priors, account, posterior_of, prior_of
from validation.paper.systems.base import Budget, System
from validation.paper.tune import tuned
from validation.records import Records, code_hash

SHOWN = 6  # images of each method whose estimates are kept, for the sheet


@dataclass(frozen=True)
class Options:
    """How a study runs.

    Attributes:
        work: folder of records, weights and estimates.
        images: of each method at most; None is each method's own number.
        of_method: the same of single methods, by name.
        network: of the priors, see `priors.RECIPES`.
        prior_steps: optimiser steps of a prior that is missing.
        steps: of the paper's samplers.
        batch: measurements that are solved together.
        seed: of training and sampling.
        signal_prior, noise_prior, posterior: weights to take in place of those in ``work``.
        budget: of the other systems.
        trained_on: training images at most; None for all.
        lpips: whether it is measured.
        device: where networks run.
    """

    work: Path
    images: int | None = None
    of_method: dict[str, int] = field(default_factory=dict)
    network: str = "fast-unet"
    prior_steps: int = 8000
    steps: int = PAPER_STEPS
    batch: int = 20
    seed: int = 0
    signal_prior: Path | None = None
    noise_prior: Path | None = None
    posterior: Path | None = None
    budget: Budget = field(default_factory=Budget)
    trained_on: int | None = None
    lpips: bool = True
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (immutable)

    @property
    def beside(self) -> str:
        """Ends names of tables by the paper's network, which stand beside those of the fast one."""
        return "-ncsnv2" if self.network == "ncsnv2" else ""


def wanted(experiment: Experiment, names: list[str] | None) -> list[str]:
    """Methods that are defined for an experiment, of those named or of all.

    Raises:
        UsdehazeError: a name there is not.
    """
    if unknown := [name for name in names or () if name not in METHODS]:
        raise UsdehazeError(f"no method {unknown[0]!r}; there are: {'; '.join(METHODS)}")
    return [name for name in names or METHODS if _fits(METHODS[name], experiment)]


def _fits(method: Method, experiment: Experiment) -> bool:
    sensed = experiment.noise == "sequence"
    if (method.blends and not experiment.is_blend) or (method.images_only and sensed):
        return False
    return sensed or not method.sensed


def priors_for(experiment: Experiment, methods: list[str], options: Options) -> Priors | None:
    """What these methods need: priors of faces and of the noise that the experiment knows, a posterior of both.

    Trained where they are missing; None where no method samples with them.
    """
    if not any(METHODS[m].by_priors for m in methods):
        return None
    device = options.device
    exact = exact_prior(experiment.known, device)
    path = options.work / "priors"
    name = f"{options.network}-{options.prior_steps}-{options.seed}.safetensors"

    def of_noise() -> Tensor:
        return noise_of(experiment.known, "train", options.trained_on)

    def prior(kind: PriorKind, of: str, given: Path | None, images: Callable[[], Tensor]) -> Prior:
        if given is None:
            recipe = options.network, options.prior_steps, 16, options.seed, device
            return prior_of(kind, images, path / f"{of}-{name}", *recipe)
        return Prior.load(given, kind).to(device)

    signal = prior("tissue", "faces", options.signal_prior, lambda: training_signal(options.trained_on))
    noise = exact or prior("haze", experiment.known, options.noise_prior, of_noise)
    told = f"faces: {account(signal)}; noise: {account(noise) if isinstance(noise, Prior) else 'its own score, exact'}"
    posterior = None
    if any(METHODS[m].learned for m in methods):
        posterior = LearnedPosterior.load(options.posterior).to(device) if options.posterior else posterior_of(
            lambda: BlendedImages.of(training_signal(options.trained_on), of_noise(), 0.5, (True, False)),
            path / f"blend-{experiment.known}-{name}", options.network == "tiny", options.prior_steps, GRID,
            options.seed, device,
        )  # fmt: skip
    return Priors(signal, noise, told, posterior)


def study(name: str, experiment: Experiment, methods: list[str], options: Options) -> Iterator[dict[str, Any]]:
    """One record a method: figures by image, seconds, what was trained; or "missing", why there are none."""
    lpips = metrics.load_lpips() if options.lpips else None
    priors: Any = priors_for(experiment, methods, options)
    for method in methods:
        n = options.of_method.get(method) or min(METHODS[method].images, options.images or METHODS[method].images)
        try:
            system = METHODS[method].make(priors, options.steps)
            if method.endswith(TUNED) and isinstance(system, Joint):
                system = tuned(system, experiment, options.seed, _records(options))
            told = prepared(system, method, experiment, options)
            yield _measure(name, method, system, told, measured(experiment, "test", n), lpips, options)
        except UsdehazeError as error:
            yield {"method": method, "missing": str(error)}


def prepared(system: System, method: str, experiment: Experiment, options: Options) -> str:
    """Trains or loads what a system needs; returns what was trained how long."""
    if METHODS[method].by_priors or method == "input":
        nothing = torch.zeros(0)
        return system.prepare(nothing, nothing, options.seed, options.budget, options.work)
    signal = training_signal(options.trained_on)
    noise = noise_of(experiment.known, "train", options.trained_on)
    work = options.work / "systems" / method.split()[0]
    work.mkdir(parents=True, exist_ok=True)
    return system.prepare(signal, noise, options.seed, options.budget, work)


def _measure(
    name: str, method: str, system: System, told: str, every: Measured, lpips: Lpips | None, options: Options
) -> dict[str, Any]:
    records = _records(options)
    of_system = getattr(system, "key", lambda: {"budget": repr(options.budget)})()
    code = code_hash(type(system).__module__)
    by = {
        "method": method,
        "system": code,
        "seed": options.seed,
        "lpips": lpips.sha256[:16] if lpips else None,
        **of_system,
        **({} if options.device.type == "cpu" else {"device": options.device.type}),
    }
    kept: dict[int, dict[str, Any]] = {}
    for i in range(len(every.signal)):
        if (found := records.found(name, f"image-{i}", by)) is not None:
            kept[i] = found
    missing = [i for i in range(len(every.signal)) if i not in kept]
    for start in range(0, len(missing), options.batch):
        rows = missing[start : start + options.batch]
        for i, figures in zip(rows, _solved(name, method, system, every, rows, lpips, options, by), strict=True):
            records.keep(name, f"image-{i}", by, figures)
            kept[i] = figures
        seconds = sum(kept[i]["wall_s"] for i in rows) / len(rows)
        print(f"{name}, {method}: {rows[-1] + 1} of {len(every.signal)} images, {seconds:.2f} s each", file=sys.stderr)
    return {"method": method, "trained": told, "figures": {i: kept[i] for i in sorted(kept)}}


def _records(options: Options) -> Records:
    return Records(options.work / "records", "validation.paper.study")


def _solved(
    name: str, method: str, system: System, every: Measured, rows: list[int], lpips: Lpips | None, options: Options,
    by: dict[str, Any],
) -> list[dict[str, Any]]:  # fmt: skip
    """Figures of a batch; rows that follow one another are solved together."""
    found: list[dict[str, Any]] = []
    for run in _runs(rows):
        problem = every.problem.split(slice(run[0], run[-1] + 1))
        wall, cpu = time.monotonic(), time.process_time()
        signal, noise = system.solve(problem, options.seed + run[0])
        wall, cpu = (time.monotonic() - wall) / len(run), (time.process_time() - cpu) / len(run)
        truth = every.signal[run[0] : run[-1] + 1]
        for i, of_image in enumerate(metrics.figures(signal, truth, lpips)):
            figures: dict[str, Any] = {**of_image}
            if noise is not None:
                figures["noise_psnr_db"] = metrics.psnr_db(noise[i], every.noise[run[i]])
            found.append(figures | {"wall_s": round(wall, 3), "solve_cpu_s": round(cpu, 3), "together": len(run)})
            if run[i] < SHOWN:
                path = options.work / "estimates" / name / f"{method.replace(' ', '-')}-{_digest(by)}-{run[i]}.npz"
                _keep(path, signal[i], None if noise is None else noise[i])
                found[-1]["estimate"] = str(path)
    return found


def _runs(rows: list[int]) -> Iterator[list[int]]:
    """Rows in runs of neighbours."""
    run: list[int] = []
    for i in rows:
        if run and i != run[-1] + 1:
            yield run
            run = []
        run.append(i)
    yield run


def _digest(by: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(by, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _keep(path: Path, signal: Tensor, noise: Tensor | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {"signal": signal.numpy()} | ({} if noise is None else {"noise": noise.numpy()})
    np.savez_compressed(path, **parts)  # type: ignore[arg-type]
