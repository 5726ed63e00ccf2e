"""The priors of an experiment: trained by the product's own loop where they are missing, and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from usdehaze.choices import PriorKind
from usdehaze.diffusion.denoiser import Denoiser
from usdehaze.errors import UsdehazeError
from usdehaze.priors.prior import Prior
from usdehaze.training.images import StoredImages
from usdehaze.training.train import Recipe, Told, train

RECIPES = {  # of each network, by its name in tables
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
    """

    signal: Prior
    noise: Denoiser
    told: str

    @property
    def key(self) -> dict[str, str]:
        """For records."""
        return {"signal": self.signal.sha256, "noise": getattr(self.noise, "sha256", "exact")}


def prior_of(kind: PriorKind, images: Tensor, path: Path, network: str, steps: int, batch: int, seed: int) -> Prior:
    """The prior in ``path``, trained there first if it is missing; a run that was stopped goes on.

    Args:
        kind: "tissue" of signals, "haze" of noise.
        images: ``(N, C, H, W)`` in [0, 1].
        network: of `RECIPES`.
        steps, batch, seed: see `Recipe`.
    """
    if not path.exists():
        recipe = Recipe(
            kind, **RECIPES[network], grid=(images.shape[2], images.shape[3]), steps=steps, batch=batch, seed=seed
        )  # type: ignore[arg-type]
        source = StoredImages(images, mirror=kind == "tissue")
        trained = train(
            recipe, source, path, path.with_suffix(".checkpoint.safetensors"), every=100, tell=_tell(kind, steps),
            command="validation.paper",
        )  # fmt: skip
        if trained is None:
            raise UsdehazeError(f"training of {path.name} was stopped; the same command goes on")
    return Prior.load(path, kind)


def account(prior: Prior) -> str:
    """What was trained how long, from the card."""
    done = prior.card["training"]
    network = type(prior.network).__name__
    return f"{network} {prior.sha256[:8]}, {done['steps']} steps, {done['frames']} images seen, {done['hours']} h"


def _tell(kind: str, steps: int) -> Callable[[Told], None]:
    def tell(told: Told) -> None:
        if told.held_out is not None:
            print(f"{kind} prior: step {told.step}/{steps}, held out {told.held_out:.4f}", flush=True)

    return tell
