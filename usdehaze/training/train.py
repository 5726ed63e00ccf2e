"""Training of a prior or a posterior: the loop, its settings, and the card that tells what was done."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from usdehaze.errors import InputError, UsdehazeError
from usdehaze.priors.files import NETWORKS
from usdehaze.priors.posterior import INPUTS, OUTPUTS, LearnedPosterior
from usdehaze.priors.prior import Prior
from usdehaze.training.checkpoint import State, load_checkpoint, save_checkpoint
from usdehaze.training.data import FrameSource, noise_generator
from usdehaze.training.objective import (
    SIGMA_RANGE,
    draw_batch,
    held_out_loss,
    objective_of,
    objective_on,
    posterior_errors,
)

BETAS = {"denoiser": (0.9, 0.99), "score": (0.9, 0.999), "posterior": (0.9, 0.99)}  # of Adam; the paper's for the score
WARM_UP, COOLDOWN = 200, 0.3  # steps over which the learning rate rises; share of the run over which it falls
HELD_OUT_SIGMAS = (0.03, 0.1, 0.3, 1.0, 3.0, 8.0)
POSTERIOR_SIGMAS = (0.1, 0.3, 1.0, 4.0, 100.0)
STATISTICS = {
    "prior": ("data_mean", "data_std"),
    "posterior": ("frame_mean", "frame_std", "tissue_std", "haze_std"),
}
Model = Prior | LearnedPosterior
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_SCOPE = "Not a medical device; not for diagnosis. Not for colour Doppler, M-mode or contrast."
NOT_FOR = {
    True: f"{_SCOPE} Learned from simulated echoes alone (hearts, layers, cysts, vessels, shapes of all kinds), never "
    "from patients: structures unlike these may be taken for haze.",
    False: f"{_SCOPE} Structures unlike those of the scans it learned from may be taken for haze.",
}


@dataclass(frozen=True)
class Recipe:
    """What makes a trained prior, apart from its data.

    Attributes:
        kind: "tissue", "haze" or "posterior".
        network: name in ``NETWORKS``.
        config: arguments of the network, its own defaults where left out.
        parametrisation: "denoiser" or "score", see `Prior`; "posterior" of a learned posterior.
        grid: depth and angle.
        steps: optimiser steps. The learning rate rises over the first 200 (of few, the first 10 %) and falls to zero
            over the last 30 %.
        batch: frames a step, of each process.
        lr: learning rate of Adam.
        seed: of weights, frames and noise.
        precision: "fp32", "bf16" or "fp16" (autocast).
        sync: steps between two meetings of processes that train together. At 1 they average gradients, as one process
            with all their frames would; from 2 on each goes its own way and they average weights (local SGD, Stich
            2019), which spares CPUs most of the waiting. Then only what rank 0 knows of the moments is kept.
    """

    kind: str
    network: str = "FastUNet"
    config: dict[str, Any] = field(default_factory=dict)
    parametrisation: str = "denoiser"
    grid: tuple[int, int] = (128, 128)
    steps: int = 8000
    batch: int = 16
    lr: float = 1e-3
    seed: int = 0
    precision: str = "fp32"
    sync: int = 1

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        rise, fall = min(WARM_UP, self.steps // 10), round(COOLDOWN * self.steps)
        return self.lr * min(1.0, (step + 1) / max(1, rise), (self.steps - step) / max(1, fall))


@dataclass(frozen=True)
class Told:
    """What `train` tells after a step: its number, its loss, the held-out loss where it was taken, and the time."""

    step: int
    loss: float
    seconds: float
    held_out: float | None = None


def train(
    recipe: Recipe,
    source: FrameSource,
    out: Path,
    checkpoint: Path,
    *,
    device: str | torch.device = "cpu",
    begin_with: Model | None = None,
    every: int = 250,
    tell: Callable[[Told], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    command: str = "",
) -> Model | None:
    """Trains a prior or a posterior and writes it, going on from its checkpoint where there is one.

    Where ``torch.distributed`` is initialised, the processes train together: each draws batches of its own, and the
    first one writes. A run goes on exactly as if it had never been interrupted (with ``sync`` of 1).

    Args:
        recipe, source: what to train on what.
        out: where the weights go (``.safetensors``); the card goes beside them.
        checkpoint: file to keep the run in, every ``every`` steps and when it is stopped.
        device: "cpu", "cuda" or "cuda:N".
        begin_with: what to fine-tune, of the recipe's network and parametrisation.
        tell: called after each step.
        stop: asked after each step whether to end early.
        command: for the card.

    Returns:
        The model with averaged weights, or None where the run was stopped before its last step.

    Raises:
        InputError: a checkpoint of other settings or of more steps, or a file that cannot be written.
        UsdehazeError: the loss is not finite, or the network cannot take frames of this grid.
    """
    device = torch.device(device)
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    prior = _new_model(recipe, source, begin_with).to(device)
    if device.type == "cpu":  # a fifth faster
        prior.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch leaves it out
    loss_of = _shared(objective_of(prior), device, world if recipe.sync == 1 else 1)
    state = _new_state(recipe, prior)
    settings = _settings(recipe, source, prior, begin_with) | {"processes": world}
    if checkpoint.exists():
        load_checkpoint(checkpoint, state, settings)
        if state.step > recipe.steps:
            found, advice = f"is of {state.step} steps already", "write elsewhere with -o, or remove it to start anew"
            raise InputError(checkpoint, found, f"at most the {recipe.steps} asked for", advice)
    held_out = source.held_out.to(device)
    stopped = _any(stop(), device)
    while state.step < recipe.steps and not stopped:
        began = time.monotonic()
        loss = _step(state, recipe, loss_of, _batch(recipe, prior, source, rank, state.step, device))
        saved = state.step % every == 0 or state.step == recipe.steps
        if recipe.sync == 1 or state.step % recipe.sync == 0 or saved:
            stopped = _any(stop(), device)
            _meet(state, world if recipe.sync > 1 else 1)
        told = Told(state.step, loss, time.monotonic() - began)
        state.spent_s += told.seconds
        if saved or stopped:
            with _averaged(state):
                told = replace(told, held_out=objective_on(prior, held_out))
            if rank == 0:
                save_checkpoint(checkpoint, state, settings)
        if tell:
            tell(told)
    if state.step < recipe.steps:
        return None
    prior.network.load_state_dict(state.average)
    if rank == 0:
        prior.card |= _account(recipe, state, prior, held_out, world, command)
        prior.save(out)
    return prior.eval().requires_grad_(False)


def _new_model(recipe: Recipe, source: FrameSource, begin_with: Model | None) -> Model:
    torch.manual_seed(recipe.seed)
    n_channels = source.sample.shape[1]
    channels = {"inputs": n_channels, "outputs": n_channels} if n_channels > 1 else {}
    if recipe.kind == "posterior":
        n_channels //= INPUTS
        channels = {"inputs": INPUTS * n_channels, "outputs": OUTPUTS if n_channels == 1 else 2 * n_channels}
    network = NETWORKS[recipe.network](**{**recipe.config, **channels})
    if any(n % int(network.multiple) for n in recipe.grid):  # type: ignore[arg-type]
        raise UsdehazeError(
            f"grid of {recipe.grid[0]} x {recipe.grid[1]}: {recipe.network} needs multiples of {network.multiple}"
        )
    low, high = SIGMA_RANGE[recipe.parametrisation]
    card: dict[str, Any] = {
        "name": f"{recipe.kind}-{'simulated' if source.simulated else 'scans'}-{recipe.network.lower()}",
        "kind": recipe.kind, "parametrisation": recipe.parametrisation,
        **_statistics(recipe, source, begin_with),
        "sigma_min": low, "sigma_max": high, "grid": list(recipe.grid),
        "training_data": source.description, "not_for": NOT_FOR[source.simulated],
    }  # fmt: skip
    if begin_with:
        network.load_state_dict(begin_with.network.state_dict())
        card["fine_tuned_from"] = begin_with.name
    if recipe.kind == "posterior":
        sides = {side: getattr(source, side, source).description for side in ("tissue", "haze")}
        card |= {f"{side}_data": told for side, told in sides.items()}
        card |= {"exposure": source.exposure} if hasattr(source, "exposure") else {}
        return LearnedPosterior(network, card | ({"channels": n_channels} if n_channels > 1 else {}))
    return Prior(network, card)


def _statistics(recipe: Recipe, source: FrameSource, begin_with: Model | None) -> dict[str, float]:
    """What the preconditioning takes from frames. Fine-tuning keeps what the network knows them by, and draws none."""
    names = STATISTICS["posterior" if recipe.kind == "posterior" else "prior"]
    if begin_with and recipe.parametrisation != "score":
        return {name: begin_with.card[name] for name in names}
    sample = source.sample
    if recipe.kind != "posterior":
        return {"data_mean": float(sample.mean()), "data_std": float(sample.std())}
    x, n, y = sample.chunk(3, dim=1)
    return {
        "frame_mean": float(y.mean()), "frame_std": float(y.std()),
        "tissue_std": float((x - y).square().mean().sqrt()), "haze_std": float((n - y).square().mean().sqrt()),
    }  # fmt: skip


def _new_state(recipe: Recipe, prior: Model) -> State:
    network = prior.network
    return State(
        network,
        {k: v.detach().clone() for k, v in network.state_dict().items()},
        torch.optim.Adam(network.parameters(), recipe.lr, BETAS[recipe.parametrisation]),
        torch.amp.GradScaler(next(network.parameters()).device.type, enabled=recipe.precision == "fp16"),
    )


def _settings(recipe: Recipe, source: FrameSource, prior: Model, begin_with: Model | None) -> dict[str, Any]:
    """What a checkpoint must agree with to be gone on from. Not the steps: a run may be made longer."""
    settings = {**asdict(recipe), "grid": list(recipe.grid), "config": prior.network.config}
    del settings["steps"]
    return settings | {"data": source.fingerprint, "from": begin_with.weights_sha256 if begin_with else None}


def _batch(
    recipe: Recipe, model: Model, source: FrameSource, stream: int, step: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Clean frames, noise levels and unit noise of a step."""
    x0 = source.draw(recipe.batch, recipe.seed, stream, step, device)
    return x0, *draw_batch(model, x0, noise_generator(recipe.seed, stream, step, device))


def _shared(objective: nn.Module, device: torch.device, world: int) -> nn.Module:
    """The objective, its gradients averaged over processes where there are several."""
    if world == 1:
        return objective
    ids = [device.index] if device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(objective, device_ids=ids)


def _any(flag: bool, device: torch.device) -> bool:
    """Whether the flag is up in any process: all must leave the loop at the same step."""
    if not dist.is_initialized():
        return flag
    flags = torch.tensor(float(flag), device=device)
    dist.all_reduce(flags)
    return bool(flags > 0)


def _meet(state: State, world: int) -> None:
    """Averages weights, and their running averages, over processes."""
    if world == 1:
        return
    with torch.no_grad():
        for value in (*state.network.state_dict().values(), *state.average.values()):
            dist.all_reduce(value)
            value /= world


def _step(state: State, recipe: Recipe, loss_of: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> float:
    """One step of the optimiser and of the average; returns the loss."""
    rate = recipe.rate(state.step)
    for group in state.optimiser.param_groups:
        group["lr"] = rate
    dtype = DTYPES.get(recipe.precision)
    with torch.autocast(batch[0].device.type, dtype) if dtype else nullcontext():
        loss = loss_of(*batch)
    state.optimiser.zero_grad(set_to_none=True)
    state.scaler.scale(loss).backward()
    state.scaler.unscale_(state.optimiser)
    nn.utils.clip_grad_norm_(state.network.parameters(), 1.0)
    state.scaler.step(state.optimiser)
    state.scaler.update()
    state.step += 1
    keep = min(0.999, (1 + state.step) / (10 + state.step))  # a window of 1000 steps, less in the beginning
    with torch.no_grad():
        for name, value in state.network.state_dict().items():
            state.average[name].lerp_(value, 1 - keep)
    if not math.isfinite(value := float(loss.detach())):
        advice = "a smaller --lr" if recipe.precision == "fp32" else "a smaller --lr or --precision fp32"
        raise UsdehazeError(f"training broke down: the loss is {value} at step {state.step}; try {advice}")
    return value


@contextmanager
def _averaged(state: State) -> Iterator[None]:
    """Inside, the network has the averaged weights."""
    weights = {k: v.detach().clone() for k, v in state.network.state_dict().items()}
    state.network.load_state_dict(state.average)
    try:
        yield
    finally:
        state.network.load_state_dict(weights)


def _account(recipe: Recipe, state: State, prior: Model, held_out: Tensor, world: int, command: str) -> dict[str, Any]:
    """What the card says of the training and its result."""
    device = held_out.device
    return {
        "held_out": errors_on(prior, held_out),
        "training": {
            "command": command, "steps": state.step, "frames": state.step * recipe.batch * world,
            "hours": round(state.spent_s / 3600, 3), "hardware": _hardware(device, world),
            "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"),
        },
    }  # fmt: skip


def errors_on(model: Model, frames: Tensor) -> dict[str, Any]:
    """What a card says of frames that were not trained on: errors by noise level, see `objective`."""
    if isinstance(model, Prior):
        losses = held_out_loss(model, frames, HELD_OUT_SIGMAS)
        return {f"{s:g}": round(v, 5) for s, v in zip(HELD_OUT_SIGMAS, losses, strict=True)}
    errors = posterior_errors(model, frames, POSTERIOR_SIGMAS)
    return {
        f"{s:g}": {name: round(values[i], 5) for name, values in errors.items()} for i, s in enumerate(POSTERIOR_SIGMAS)
    }


def _hardware(device: torch.device, world: int) -> str:
    if device.type == "cuda":
        return f"{world} x {torch.cuda.get_device_name(device)}"
    return f"{world * torch.get_num_threads()} of {os.cpu_count()} CPU cores ({platform.machine()})"
