"""A trained posterior against the shipped one, on simulated hearts that neither was trained on."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.dehazing.settings import PRESETS, Preset
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.simulate import SimulatedCine, simulate_cine
from usdehaze.simulate.tissue import CAVITY, WALL
from usdehaze.training.data import SimulatedFrames
from usdehaze.training.objective import objective_on
from usdehaze.training.train import errors_on
from usdehaze.validation import metrics

FIRST_SEED = 1_000_003_000  # training draws below 1,000,000,000; the benchmark and the presets have those between
PRESET: Preset = "fast"
FIGURES = ("psnr_gain_db", "haze_psnr_db", "wall_error_db", "cavity_error_db")


def evaluate(
    shipped: LearnedPosterior, trained: LearnedPosterior, source: SimulatedFrames, device: str, n: int
) -> dict[str, Any]:
    """Figures of both on the model grid, and how sure their difference is.

    Args:
        shipped, trained: what is compared.
        source: pairs whose held-out ones count.
        device: "cpu", "cuda" or "cuda:N".
        n: hearts, of one frame each; at least 2.

    Returns:
        ``figures`` of each (see `heart_figures`), means over the hearts; ``difference``, trained less shipped, mean and
        standard error of the hearts' own differences; of held-out pairs ``held_out``, see `posterior_errors`, and
        ``loss``, that of the training: both as on a card, but with the same noise for both networks, as a card's was
        drawn where its network was trained.
    """
    n_depth, n_angle = source.shape
    hearts = [simulate_cine(1, FIRST_SEED + i, n_depth=n_depth, n_angle=n_angle) for i in range(n)]
    both = {"shipped": shipped, "trained": trained}
    values = {name: all_figures(Dehazer(each, None, PRESETS[PRESET], device), hearts) for name, each in both.items()}
    difference = values["trained"] - values["shipped"]
    held_out = source.held_out.to(device)
    return {
        "preset": PRESET,
        "hearts": n,
        "seeds": [FIRST_SEED, FIRST_SEED + n - 1],
        "figures": {name: means(of_all) for name, of_all in values.items()},
        "difference": {
            figure: {"mean": mean, "standard_error": standard_error(difference[:, i])}
            for i, (figure, mean) in enumerate(means(difference).items())
        },
        "held_out": {name: errors_on(each, held_out) for name, each in both.items()},
        "loss": {name: objective_on(each, held_out) for name, each in both.items()},
    }


def all_figures(dehazer: Dehazer, hearts: Sequence[SimulatedCine]) -> np.ndarray:
    """`heart_figures` of every heart, ``(hearts, figures)``."""
    span = hearts[0].dynamic_range_db
    hazy = np.concatenate([heart.hazy for heart in hearts])
    split = dehazer.split(torch.from_numpy(hazy / span + 1), torch.ones(hazy.shape[1:]), span)
    tissue, haze = np.maximum(hazy + span * split.gain.numpy(), -span), span * (split.level.numpy() - 1)
    return np.array([heart_figures(*each) for each in zip(hearts, tissue, haze, strict=True)])


def heart_figures(heart: SimulatedCine, tissue_db: np.ndarray, haze_db: np.ndarray) -> list[float]:
    """Figures of one frame in the order of `FIGURES`; estimates are ``(depth, angle)`` dB.

    PSNR of the tissue less that of the hazy frame, PSNR of the haze, and in walls and in cavities the mean of the
    tissue less that of the truth: negative, too much was taken. NaN where there is next to no wall or cavity.
    """
    hazy, true, span = heart.hazy[0], heart.tissue[0], heart.dynamic_range_db
    figures = [
        metrics.psnr_db(tissue_db, true, span) - metrics.psnr_db(hazy, true, span),
        metrics.psnr_db(haze_db, heart.haze[0], span),
    ]
    for label in (WALL, CAVITY):
        region = heart.labels[0] == label
        enough = region.sum() >= metrics.MIN_REGION_PIXELS
        figures.append(metrics.mean_shift_db(true[region], tissue_db[region]) if enough else math.nan)
    return figures


def means(values: np.ndarray) -> dict[str, float | None]:
    """Mean of each figure over the hearts that have it."""
    counted = np.isfinite(values)
    return {
        name: float(column[counts].mean()) if counts.any() else None
        for name, column, counts in zip(FIGURES, values.T, counted.T, strict=True)
    }


def standard_error(values: np.ndarray) -> float | None:
    """Of the mean of what is finite."""
    values = values[np.isfinite(values)]
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def sign(shipped: LearnedPosterior, trained: LearnedPosterior, found: dict[str, Any], path: Path, command: str) -> None:
    """Makes the trained one ready to take the shipped one's place: its name, and an entry `bench` on its card.

    Args:
        shipped, trained: what was compared.
        found: what `evaluate` found.
        path: where the trained one lies.
        command: for the card.
    """
    trained.card |= {
        "name": shipped.card["name"],
        "bench": {
            "command": command,
            "against": shipped.name,
            "preset": found["preset"],
            "date": time.strftime("%Y-%m-%d"),
            "simulated hearts": {"frames": found["hearts"], **rounded(found["figures"]["trained"])},
            "difference": {name: rounded(figure) for name, figure in found["difference"].items()},
        },
    }
    trained.save(path)


def rounded(figures: dict[str, float | None]) -> dict[str, float | None]:
    return {name: value if value is None else round(value, 4) for name, value in figures.items()}
