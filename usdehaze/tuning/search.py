"""The search for settings that do best on the examples, and the preset that it ends in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

import usdehaze
from usdehaze.errors import UsdehazeError
from usdehaze.quiet import quiet
from usdehaze.tuning.examples import Example, goal_of

if TYPE_CHECKING:
    from usdehaze.dehazing.dehazer import Dehazer
    from usdehaze.dehazing.settings import Settings

SCALE_RANGE = (1 / 20, 2.0)  # of lambda and kappa, in units of the guidance's own
LEAST_CAUTION = 0.5
FEWEST_STEPS = 4
SHARE_STEP = 0.05  # of caution and strength


@dataclass(frozen=True)
class Tried:
    """Settings, the figure they reached, and network passes a frame."""

    settings: Settings
    quality: float
    evaluations: float


@dataclass(frozen=True)
class Tuned:
    """What a search found: where it began, the best, and everything that was measured, in order."""

    start: Tried
    best: Tried
    tried: tuple[Tried, ...]


def tune(
    dehazer: Dehazer,
    examples: Sequence[Example],
    n_trials: int = 40,
    max_steps: int | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Tuned:
    """Searches around the settings of a dehazer.

    Args:
        dehazer: priors, and settings to begin with; their seed is also the search's.
        examples: frames, all with truth or all with regions.
        n_trials: settings to try, the first ones included.
        max_steps: never take more steps than this; those of the settings by default.
        progress: called with (trials done, best figure so far).

    Raises:
        UsdehazeError: Optuna is not installed; or the settings to begin with do not run.
    """

    def measure(settings: Settings) -> tuple[float, float]:
        other = dehazer.with_settings(settings)
        results = [other.dehaze(example.cine) for example in examples]
        figures = [example.quality(result.tissue[0]) for example, result in zip(examples, results, strict=True)]
        return float(np.mean(figures)), float(np.mean([result.settings["evaluations"] for result in results]))

    start = dehazer.settings
    max_steps = max_steps or start.steps
    start = replace(start, steps=min(start.steps, max_steps), scale=start.scale or start.own_scale)
    return search(measure, start, goal_of(examples).tie, n_trials, max_steps, progress)


def search(
    measure: Callable[[Settings], tuple[float, float]],
    start: Settings,
    tie: float,
    n_trials: int,
    max_steps: int,
    progress: Callable[[int, float], None] | None = None,
) -> Tuned:
    """Tree-structured Parzen estimator (Optuna); the start is tried first.

    Over steps and strength, of a rule with priors also lambda and kappa, of the learned posterior also caution.

    Args:
        measure: figure of settings (higher is better), and network passes a frame.
        start: settings, with a scale where they have a rule; their seed is the search's.
        tie: see `Goal`.
        n_trials, max_steps, progress: see `tune`.

    Returns:
        The best of what was tried: never worse than the start.
    """
    optuna = require_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=start.seed % 2**32)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    first = {"steps": start.steps, "strength": start.strength, "caution": start.caution}
    if start.scale is not None:
        first |= {"lambda": start.scale[0], "kappa": start.scale[1]}
    study.enqueue_trial(first)
    seen: dict[Settings, Tried | None] = {}
    for number in range(n_trials):
        trial = study.ask()
        with quiet():  # the start may lie between the steps of the others
            suggested = _suggest(trial, start, max_steps)
        settings = suggested if number else start
        if settings not in seen:
            try:
                seen[settings] = Tried(settings, *measure(settings))
            except UsdehazeError:
                if number == 0:
                    raise
                seen[settings] = None  # sampling broke down
        tried = seen[settings]
        if tried is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, tried.quality)
        if progress:
            progress(number + 1, max(t.quality for t in seen.values() if t))
    done = tuple(t for t in seen.values() if t)
    return Tuned(done[0], best_of(done, tie), done)


def best_of(tried: Sequence[Tried], tie: float) -> Tried:
    """The highest figure; of those that tie with it and are no worse than the first one, the fewest network passes."""
    enough = max(max(t.quality for t in tried) - tie, tried[0].quality)
    return min((t for t in tried if t.quality >= enough), key=lambda t: (t.evaluations, -t.quality))


def preset_text(tuned: Tuned, examples: Sequence[Example], n_trials: int, priors: dict[str, str]) -> str:
    """The preset as YAML that ``usdehaze process --config`` takes. It never names a scan.

    Args:
        tuned: what was found.
        examples: frames that it was tuned on.
        n_trials: settings that were tried.
        priors: ``posterior``, or ``tissue-prior`` and ``haze-prior``, as given, where they were.
    """
    import yaml

    goal, start, best = goal_of(examples), tuned.start, tuned.best
    own = ("observation",) if best.settings.by_rule else ("caution",)
    names = ("preset", "guidance", "sampler", *own, "steps", "strength", "seed")
    told = best.settings.told()
    options: dict[str, Any] = {name: told[name] for name in names}
    if best.settings.scale is not None:
        options |= {"lambda": best.settings.scale[0], "kappa": best.settings.scale[1]}
    options |= priors
    comments = (
        f"Tuned by usdehaze {usdehaze.__version__} on {len(examples)} frames.",
        f"Trials: {n_trials}, seed {start.settings.seed}.",
        f"{goal.name}: {start.quality:.4f} before, {best.quality:.4f} after.",
        f"Network passes a frame: {start.evaluations:g} before, {best.evaluations:g} after.",
        f"Objective: {goal.formula}. Within {goal.tie:g} of the best, the fewest network passes decide.",
        "A fit to these few frames, not a test: measure it on others before you trust it.",
        "  usdehaze process SCAN --config THIS_FILE",
    )
    return "".join(f"# {line}\n" for line in comments) + yaml.safe_dump(options, sort_keys=False)


def require_optuna() -> ModuleType:
    """Optuna.

    Raises:
        UsdehazeError: it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise UsdehazeError('tuning needs Optuna; get it with: pip install "usdehaze[tune]"') from error
    return optuna


def _suggest(trial: Any, start: Settings, max_steps: int) -> Settings:
    """Settings of a trial, with no more digits than a preset should have."""
    steps = trial.suggest_int("steps", min(FEWEST_STEPS, max_steps), max_steps, log=True)
    strength = round(trial.suggest_float("strength", 0.0, 1.0, step=SHARE_STEP), 2)
    settings = replace(start, steps=steps, strength=strength)
    if start.own_scale is None:
        least = min(LEAST_CAUTION, start.caution)
        return replace(settings, caution=round(trial.suggest_float("caution", least, 1.0, step=SHARE_STEP), 2))
    low, high = SCALE_RANGE
    pull = [
        float(f"{trial.suggest_float(name, low * own, high * own, log=True):.3g}")
        for name, own in zip(("lambda", "kappa"), start.own_scale, strict=True)
    ]
    return replace(settings, scale=(pull[0], pull[1]))
