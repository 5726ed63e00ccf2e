"""Which networks are trained on the GPU, how much of everything there is, and training until a given moment."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from usdehaze.choices import PRIOR_KINDS, Scenes
from usdehaze.dehazing.settings import POSTERIOR
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.training.data import SimulatedFrames
from usdehaze.training.train import Model, Recipe, Told, train

COMMAND = "validation/gpu/run.sh"


@dataclass(frozen=True)
class Size:
    """How much of everything.

    Attributes:
        grid: side of the frames of the posterior; those of the paper's priors have half of it.
        frames: in the checks, of every kind.
        hearts: in the evaluation.
        chunk: frames in a row of the speed table.
        pool, refresh: see `SimulatedFrames`.
        batch, precision: of the training.
        paper: arguments of the paper's network.
    """

    grid: int
    frames: int
    hearts: int
    chunk: int
    pool: int
    refresh: int
    batch: int
    precision: str
    paper: dict[str, Any]


WHOLE = Size(128, 64, 64, 16, 4096, 64, 256, "bf16", {})
DRY = Size(32, 2, 2, 1, 8, 2, 2, "fp32", {"channels": (8, 16)})  # on a CPU: that everything runs, no more


@dataclass(frozen=True)
class Work:
    """What to train: name of the file, share of the time that is left, and the arguments of `train`."""

    name: str
    share: float
    recipe: Recipe
    frames: SimulatedFrames
    begin_with: Model | None = None


def halves(size: Size) -> list[Work]:
    """The two whose mean the learned posterior is, both on from the shipped weights."""
    parent, grid = LearnedPosterior.load(POSTERIOR), (size.grid, size.grid)
    config: Any = parent.network.config
    recipe = Recipe(
        POSTERIOR, "FastUNet", config, "posterior", grid, batch=size.batch, lr=5e-4, precision=size.precision
    )
    work = []
    shares: dict[Scenes, float] = {"hearts": 0.4, "quiet-hearts": 0.65}
    for scenes, share in shares.items():
        frames = SimulatedFrames(POSTERIOR, grid, size.pool, size.refresh, scenes=scenes)
        work.append(Work(scenes, share, recipe, frames, parent))
    return work


def papers(size: Size) -> list[Work]:
    """The paper's pair of priors, from nothing."""
    work = []
    for kind, share in zip(PRIOR_KINDS, (0.5, 1.0), strict=True):
        grid = (size.grid // 2, size.grid // 2)
        recipe = Recipe(kind, "NCSNv2", size.paper, "score", grid, batch=size.batch, lr=1e-3, precision=size.precision)
        work.append(Work(f"{kind}-ncsnv2", share, recipe, SimulatedFrames(kind, grid, size.pool, size.refresh)))
    return work


def train_one(out: Path, work: Work, device: str, deadline: float) -> dict[str, Any]:
    """Trains a network for its share: a measured start tells how many steps fit, a late run writes what it has."""
    path, recipe = out / f"{work.name}.safetensors", work.recipe
    end = time.monotonic() + work.share * (deadline - time.monotonic())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        told: list[Told] = []
        common: dict[str, Any] = {
            "device": device, "begin_with": work.begin_with, "tell": told.append, "every": 500, "command": COMMAND
        }  # fmt: skip
        few = 30 if device.startswith("cuda") else 2
        train(recipe, work.frames, path, folder / "trial", stop=lambda: len(told) >= few, **common)
        per_step = sorted(t.seconds for t in told)[len(told) // 2]
        steps = max(1, int(0.85 * (end - time.monotonic()) / per_step))
        common["checkpoint"] = folder / "run"
        model = train(replace(recipe, steps=steps), work.frames, path, stop=lambda: time.monotonic() > end, **common)
        if model is None:
            model = train(replace(recipe, steps=told[-1].step), work.frames, path, **common)
    assert model is not None  # nothing stops the second call
    return {"steps": told[-1].step, "seconds_per_step": per_step, "held_out": model.card["held_out"]}
