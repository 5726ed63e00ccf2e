"""Training that goes on where it was stopped, for the networks of the compared systems."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from usdehaze.errors import InputError
from usdehaze.io.atomic import atomic

EVERY_S = 60.0  # seconds between two checkpoints, and between two lines of progress


@dataclass
class Fit:
    """Networks in training.

    Attributes:
        networks, optimisers: by name; each optimiser (Adam) has the parameters of the network of its name.
        settings: all that decides the result; a checkpoint of others is never gone on from.
        step: steps done.
        spent_s: seconds that they took, over all runs.
        figures: what the last step told: losses by name.
    """

    networks: Mapping[str, nn.Module]
    optimisers: Mapping[str, torch.optim.Optimizer]
    settings: dict[str, Any]
    step: int = 0
    spent_s: float = 0.0
    figures: dict[str, float] | None = None

    def told(self) -> str:
        """Steps, minutes and last losses, in words."""
        figures = ", ".join(f"{name} {value:.3g}" for name, value in (self.figures or {}).items())
        return f"{self.step} steps, {self.spent_s / 60:.1f} min{', ' if figures else ''}{figures}"


def fit(run: Fit, label: str, work: Path, steps: int, take: Callable[[int], dict[str, float]]) -> None:
    """Trains ``run`` for ``steps``, from its checkpoint in ``work`` where there is one, and leaves one there.

    Args:
        label: of the file and of progress.
        take: does one step, given its number from 0, and returns its losses. What it draws must follow from that
            number alone, so that a run that was stopped ends like one that was not.

    Raises:
        InputError: a checkpoint that cannot be read or written.
    """
    digest = hashlib.sha256(json.dumps([run.settings, steps], sort_keys=True).encode()).hexdigest()[:12]
    path = work / f"{label.replace(' ', '-')}-{digest}.safetensors"
    if path.exists():
        _load(path, run)
    for network in run.networks.values():
        network.train()
    saved = time.monotonic()
    while run.step < steps:
        began = time.monotonic()
        run.figures = take(run.step)
        run.step += 1
        now = time.monotonic()
        run.spent_s += now - began
        if run.step == steps or now - saved > EVERY_S:
            _save(path, run)
            left = run.spent_s / run.step * (steps - run.step) / 60
            print(f"{label}: {run.told()}; {left:.0f} min left", file=sys.stderr, flush=True)
            saved = now
    for network in run.networks.values():
        network.eval().requires_grad_(False)


def fingerprint(images: Tensor) -> str:
    """Hash of training images, for ``Fit.settings``."""
    data = images.detach().contiguous().float().numpy()
    return f"{list(images.shape)} {hashlib.sha256(data.data).hexdigest()[:16]}"


def _save(path: Path, run: Fit) -> None:
    tensors = {f"net.{n}.{k}": v for n, network in run.networks.items() for k, v in network.state_dict().items()}
    for name, optimiser in run.optimisers.items():
        for i, moments in optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{name}.{i}.{k}": v for k, v in moments.items()}
    progress = {"step": run.step, "spent_s": run.spent_s, "figures": run.figures}
    with atomic(path, overwrite=True) as part:
        save_file(
            {k: v.detach().contiguous() for k, v in tensors.items()},
            str(part),
            {"progress": json.dumps(progress), "settings": json.dumps(run.settings)},
        )


def _load(path: Path, run: Fit) -> None:
    try:
        with safe_open(str(path), "pt") as file:
            progress = json.loads(file.metadata()["progress"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        for name, network in run.networks.items():
            start = f"net.{name}."
            network.load_state_dict({k[len(start) :]: v for k, v in tensors.items() if k.startswith(start)})
        for name, optimiser in run.optimisers.items():
            moments: dict[int, dict[str, Tensor]] = {}
            for key, value in tensors.items():
                if key.startswith(f"adam.{name}."):
                    i, part = key.removeprefix(f"adam.{name}.").split(".")
                    moments.setdefault(int(i), {})[part] = value
            optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})
        run.step, run.spent_s, run.figures = progress["step"], progress["spent_s"], progress["figures"]
    except (OSError, SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            path.name, f"not a usable checkpoint ({type(error).__name__})", advice="remove it to start anew"
        ) from error
