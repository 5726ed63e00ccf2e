"""A trained pair of priors against the shipped one, on simulated hearts that neither was trained on."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usdehaze.dehazer import Dehazer
from usdehaze.priors.data import SimulatedFrames
from usdehaze.priors.objective import held_out_loss
from usdehaze.priors.prior import Prior
from usdehaze.priors.train import HELD_OUT_SIGMAS
from usdehaze.settings import PRESETS
from usdehaze.simulate import SimulatedCine, simulate_cine
from usdehaze.simulate.tissue import CAVITY, WALL
from usdehaze.validation import metrics

Pair = tuple[Prior, Prior]
FIRST_SEED = 1_000_003_000  # training draws below 1,000,000,000; the benchmark and the presets have those between
MIN_REGION_PIXELS = 200  # as in the benchmark, which needs h5py
PRESET = "fast"
FIGURES = ("psnr_gain_db", "haze_psnr_db", "wall_error_db", "cavity_error_db")


def evaluate(shipped: Pair, trained: Pair, sources: Sequence[SimulatedFrames], device: str, n: int) -> dict[str, Any]:
    """Figures of both pairs on the model grid, and how sure their difference is.

    Args:
        shipped, trained: tissue and haze.
        sources: frames that tissue and haze were trained on, whose held-out ones count.
        device: "cpu", "cuda" or "cuda:N".
        n: hearts, of one frame each; at least 2.

    Returns:
        ``figures`` by pair (see `heart_figures`), means over the hearts; ``difference``, trained less shipped, mean and
        standard error; ``held_out`` by pair and kind, mean squared error over ``sigma^2`` by ``sigma``.
    """
    n_depth, n_angle = sources[0].shape
    hearts = [simulate_cine(1, FIRST_SEED + i, n_depth=n_depth, n_angle=n_angle) for i in range(n)]
    pairs = {"shipped": shipped, "trained": trained}
    by_pair = {name: pair_figures(Dehazer(*pair, PRESETS[PRESET], device), hearts) for name, pair in pairs.items()}
    difference = by_pair["trained"] - by_pair["shipped"]
    return {
        "preset": PRESET,
        "hearts": n,
        "seeds": [FIRST_SEED, FIRST_SEED + n - 1],
        "figures": {name: means(values) for name, values in by_pair.items()},
        "difference": {
            figure: {"mean": mean, "standard_error": standard_error(difference[:, i])}
            for i, (figure, mean) in enumerate(means(difference).items())
        },
        "held_out": {
            name: {prior.card["kind"]: losses(prior, source) for prior, source in zip(pair, sources, strict=True)}
            for name, pair in pairs.items()
        },
    }


def pair_figures(dehazer: Dehazer, hearts: Sequence[SimulatedCine]) -> np.ndarray:
    """`heart_figures` of every heart, ``(hearts, figures)``."""
    span = hearts[0].dynamic_range_db
    hazy = np.concatenate([heart.hazy for heart in hearts])
    y, seen = torch.from_numpy(hazy / span + 1), torch.ones(hazy.shape[1:])
    gain, level, _ = (t.numpy() for t in dehazer.split(y, seen, span))
    tissue, haze = np.maximum(hazy + span * gain, -span), span * (level - 1)
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
        enough = region.sum() >= MIN_REGION_PIXELS
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


def losses(prior: Prior, source: SimulatedFrames) -> dict[str, float]:
    """As on a card, but with the same noise for both pairs: a card's was drawn where the prior was trained."""
    device = next(prior.parameters()).device
    found = held_out_loss(prior, source.held_out.to(device), HELD_OUT_SIGMAS)
    return {f"{sigma:g}": round(loss, 5) for sigma, loss in zip(HELD_OUT_SIGMAS, found, strict=True)}


def sign(shipped: Pair, trained: Pair, found: dict[str, Any], folder: Path, command: str) -> None:
    """Makes the trained priors ready to take the shipped ones' place: their names, and an entry `bench` on each card.

    Args:
        shipped, trained: tissue and haze.
        found: what `evaluate` found.
        folder: where the trained ones lie.
        command: for the card.
    """
    scores = {name: value and round(value, 4) for name, value in found["figures"]["trained"].items()}
    for old, new in zip(shipped, trained, strict=True):
        new.card["name"] = old.card["name"]
    for new, other in (trained, trained[::-1]):
        new.card["bench"] = {
            "command": command,
            "beside": other.name,
            "preset": found["preset"],
            "date": time.strftime("%Y-%m-%d"),
            "simulated hearts": {"frames": found["hearts"], **scores},
        }
        new.save(folder / f"{new.card['kind']}.safetensors")
