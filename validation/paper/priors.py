"""The priors of an experiment: trained by the product's own loop where they are missing, and kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from usdehaze.choices import PriorKind
from usdehaze.diffusion.denoiser import Denoiser
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.priors.prior import Prior
from usdehaze.training.data import FrameSource
from usdehaze.training.images import BlendedImages, StoredImages
from usdehaze.training.train import Recipe, Told, train

RECIPES: dict[str, dict[str, Any]] = {  # of each network, by its name in tables
    "fast-unet": {"network": "FastUNet", "parametrisation": "denoiser", "lr": 1e-3},
    "ncsnv2": {"network": "NCSNv2", "parametrisation": "score", "lr": 5e-4},
    "tiny": {"network": "FastUNet", "parametrisation": "denoiser", "lr": 1e-3, "config": {"channels": [8, 16]}},
}


@dataclass(frozen=True)
class Priors:
    """What samplers know of signal and noise.

    Attributes:
        signal: of images.
        noise: of images, or a closed form; of the shape of a measurement.
        told: what was trained how long, one line.
        posterior: of blends of the two, where it is wanted.
    """

    signal: Prior
    noise: Denoiser
    told: str
    posterior: LearnedPosterior | None = None

    @property
    def device(self) -> torch.device:
        """Where they are, and problems are solved."""
        return next(self.signal.network.parameters()).device

    @property
    def key(self) -> dict[str, str]:
        """For records."""
        return {"signal": self.signal.sha256, "noise": getattr(self.noise, "sha256", "exact")}


def prior_of(
    kind: PriorKind,
    images: Callable[[], Tensor],
    path: Path,
    network: str,
    steps: int,
    batch: int,
    seed: int,
    device: torch.device,
) -> Prior:
    """The prior in ``path``, trained there first if it is missing; a run that was stopped goes on.

    Args:
        kind: "tissue" of signals, "haze" of noise.
        images: gives ``(N, C, H, W)`` in [0, 1].
        network: of `RECIPES`.
        steps, batch, seed: see `Recipe`.
        device: where it is trained, and put.
    """
    if not path.exists():
        seen = images()
        recipe = Recipe(
            kind, **RECIPES[network], grid=(seen.shape[2], seen.shape[3]), steps=steps, batch=batch, seed=seed
        )
        _trained(recipe, StoredImages(seen, mirror=kind == "tissue"), path, device)
    return Prior.load(path, kind).to(device)


def posterior_of(
    pairs: Callable[[], BlendedImages],
    path: Path,
    tiny: bool,
    steps: int,
    grid: tuple[int, int],
    seed: int,
    device: torch.device,
) -> LearnedPosterior:
    """The learned posterior in ``path``, trained there first if it is missing, as `prior_of`."""
    if not path.exists():
        config = {"channels": [8, 16]} if tiny else {"channels": [32, 48, 96, 192]}
        recipe = Recipe("posterior", "FastUNet", config, "posterior", grid, steps, 16, seed=seed)
        _trained(recipe, pairs(), path, device)
    return LearnedPosterior.load(path).to(device)


def account(prior: Prior | LearnedPosterior) -> str:
    """What was trained how long, from the card."""
    done = prior.card["training"]
    network = type(prior.network).__name__
    return f"{network} {prior.sha256[:8]}, {done['steps']} steps, {done['frames']} images seen, {done['hours']} h"


def _trained(recipe: Recipe, source: FrameSource, path: Path, device: torch.device) -> None:
    def tell(told: Told) -> None:
        if told.held_out is not None:
            print(f"{path.stem}: step {told.step}/{recipe.steps}, held out {told.held_out:.4f}", file=sys.stderr)

    train(
        recipe, source, path, path.with_suffix(".checkpoint.safetensors"), device=device, every=100,
        tell=tell, command="python -m validation.paper",
    )  # fmt: skip
