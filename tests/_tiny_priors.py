"""Small random networks on a 32 x 32 grid, saved as files: enough to run everything, no good for images."""

from pathlib import Path
from typing import Any

import torch

from usdehaze.priors.posterior import INPUTS, OUTPUTS, LearnedPosterior
from usdehaze.priors.prior import Prior
from usdehaze.priors.unet import FastUNet


def write_tiny_priors(folder: Path) -> dict[str, Any]:
    """Options of ``Dehazer.from_pretrained``: paths of the two priors, two steps, CPU."""
    options: dict[str, Any] = {"steps": 2, "device": "cpu"}
    for seed, kind in enumerate(("tissue", "haze")):
        torch.manual_seed(seed)
        network: Any = FastUNet(channels=(8, 16))
        torch.nn.init.normal_(network.head[-1].weight, std=0.05)  # zero as made: the network would say nothing
        numbers = {"data_mean": 0.4, "data_std": 0.25, "sigma_min": 0.01, "sigma_max": 8.0, "grid": [32, 32]}
        path = folder / f"{kind}.safetensors"
        Prior(network, {"name": f"tiny-{kind}", "kind": kind, **numbers}).save(path)
        options[f"{kind}_prior"] = str(path)
    return options


def write_tiny_posterior(path: Path) -> None:
    """A posterior of this size."""
    torch.manual_seed(2)
    network: Any = FastUNet(channels=(8, 16), inputs=INPUTS, outputs=OUTPUTS)
    torch.nn.init.normal_(network.head[-1].weight, std=0.05)
    numbers = {"frame_mean": 0.3, "frame_std": 0.3, "tissue_std": 0.2, "haze_std": 0.3, "sigma_max": 100.0}
    card = {"name": "tiny-posterior", "kind": "posterior", "training_data": "none", "grid": [32, 32], **numbers}
    LearnedPosterior(network, card).save(path)
