"""Checkpoints: all that a training run needs to go on exactly, in one safetensors file."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from usdehaze.errors import InputError


@dataclass
class State:
    """A training run: what its steps change.

    Attributes:
        network: being trained.
        average: running average of its weights, by name.
        optimiser: Adam.
        scaler: of the loss, for half precision.
        step: steps done.
        spent_s: seconds that they took, over all runs.
    """

    network: nn.Module
    average: dict[str, Tensor]
    optimiser: torch.optim.Adam
    scaler: torch.amp.GradScaler
    step: int = 0
    spent_s: float = 0.0


def save_checkpoint(path: Path, state: State, settings: dict[str, Any]) -> None:
    """Writes a checkpoint beside the old one and moves it into place, so that a kill leaves one or the other."""
    tensors = {f"net.{k}": v for k, v in state.network.state_dict().items()}
    tensors |= {f"ema.{k}": v for k, v in state.average.items()}
    for i, moments in state.optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{i}.{k}": v for k, v in moments.items()}
    progress = {"step": state.step, "spent_s": state.spent_s, "scaler": state.scaler.state_dict()}
    fresh = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(
            {k: v.detach().cpu().contiguous() for k, v in tensors.items()},
            str(fresh),
            {"progress": json.dumps(progress), "settings": json.dumps(settings)},
        )
        with open(fresh, "rb") as file:
            os.fsync(file.fileno())
        fresh.replace(path)
    except (OSError, SafetensorError) as error:
        raise InputError(path, f"cannot be written ({error})") from None


def load_checkpoint(path: Path, state: State, settings: dict[str, Any]) -> None:
    """Puts the run back where the checkpoint was written.

    Raises:
        InputError: no checkpoint of a run with these settings.
    """
    try:
        with safe_open(str(path), "pt") as file:
            meta = {key: json.loads(value) for key, value in file.metadata().items()}
            before, progress = meta["settings"], meta["progress"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (OSError, SafetensorError, AttributeError, KeyError, ValueError) as error:
        advice = "remove it to start anew"
        raise InputError(path, f"not a usable checkpoint ({type(error).__name__})", advice=advice) from None
    if other := [k for k in {**before, **settings} if before.get(k) != settings.get(k)]:
        found = ", ".join(f"{k} {before.get(k)}, now {settings.get(k)}" for k in other)
        advice = "write elsewhere with -o, or remove it to start anew"
        raise InputError(path, f"is of a run with other settings ({found})", "the same settings to go on", advice)
    state.network.load_state_dict({k[4:]: v for k, v in tensors.items() if k.startswith("net.")})
    for name, average in state.average.items():
        average.copy_(tensors[f"ema.{name}"])
    moments: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("adam."):
            _, i, name = key.split(".")
            moments.setdefault(int(i), {})[name] = value
    state.optimiser.load_state_dict({**state.optimiser.state_dict(), "state": moments})
    if progress["scaler"]:
        state.scaler.load_state_dict(progress["scaler"])
    state.step, state.spent_s = progress["step"], progress["spent_s"]
