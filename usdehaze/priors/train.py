"""Training of a prior on simulated frames: ``python -m usdehaze.priors.train tissue --out runs/tissue``."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from usdehaze.priors.prior import Prior
from usdehaze.priors.unet import FastUNet
from usdehaze.simulate import training_frames

NOT_FOR = (
    "Not a medical device; not for diagnosis. Learned from simulated echoes alone (hearts, layers, cysts, vessels), "
    "never from patients: structures unlike these may be taken for haze. Not for colour Doppler, M-mode or contrast."
)
SIGMA_MIN, SIGMA_MAX = 0.01, 10.0


def draw_sigmas(batch: int, generator: torch.Generator) -> Tensor:
    """Noise levels ``(batch, 1, 1, 1)``: log-normal where structure is decided, one in four log-uniform over all."""
    device = generator.device
    bulk = math.log(0.35) + 1.3 * torch.randn(batch, generator=generator, device=device)
    low, high = math.log(SIGMA_MIN), math.log(SIGMA_MAX)
    even = low + (high - low) * torch.rand(batch, generator=generator, device=device)
    pick = torch.rand(batch, generator=generator, device=device) < 0.25
    return torch.where(pick, even, bulk.clamp(low, high)).exp().reshape(-1, 1, 1, 1)


class FramePool:
    """Simulated frames to draw batches from; a few are replaced by fresh ones at every draw.

    Simulating costs about as much as a training step, so each frame is used about ``batch / refresh`` times, each
    time with other noise and mirrored or not.
    """

    def __init__(self, kind: str, size: int, refresh: int, generator: torch.Generator, shape: tuple[int, int]) -> None:
        self.kind, self.refresh, self.generator, self.shape = kind, refresh, generator, shape
        chunk = 32
        self.frames = torch.cat([self._fresh(min(chunk, size - i)) for i in range(0, size, chunk)])
        self.next = 0

    def _fresh(self, n: int) -> Tensor:
        return training_frames(self.kind, n, self.generator, *self.shape)

    def draw(self, batch: int) -> Tensor:
        """``(batch, 1, depth, angle)`` in [0, 1]."""
        if self.refresh:
            at = [(self.next + i) % len(self.frames) for i in range(self.refresh)]
            self.frames[at] = self._fresh(self.refresh)
            self.next = (self.next + self.refresh) % len(self.frames)
        device = self.generator.device
        out = self.frames[torch.randint(len(self.frames), (batch,), generator=self.generator, device=device)]
        flip = torch.rand(batch, 1, 1, 1, generator=self.generator, device=device) < 0.5
        return torch.where(flip, out.flip(-1), out)


def held_out_loss(prior: Prior, frames: Tensor, sigmas: tuple[float, ...], seed: int = 7) -> list[float]:
    """Mean squared error of the denoiser over ``sigma`` squared-error of doing nothing, one value per noise level."""
    generator = torch.Generator(device=frames.device).manual_seed(seed)
    out = []
    with torch.inference_mode():
        for sigma in sigmas:
            noise = torch.randn(frames.shape, generator=generator, device=frames.device)
            error = [
                (prior(x + sigma * z, sigma) - x).square().mean()
                for x, z in zip(frames.split(8), noise.split(8), strict=True)
            ]
            out.append(float(torch.stack(error).mean()) / sigma**2)
    return out


def train(
    kind: str,
    out: Path,
    *,
    steps: int = 8000,
    cooldown: int = 2500,
    batch: int = 16,
    lr: float = 1e-3,
    pool: int = 1024,
    refresh: int = 4,
    seed: int = 0,
    device: str = "cpu",
    precision: str = "fp32",
    minutes: float = math.inf,
    shape: tuple[int, int] = (128, 128),
    every: int = 250,
    log: Callable[[str], None] = print,
    clock: Callable[[float], None] | None = None,
) -> Path:
    """Trains a prior by denoising score matching and writes it, with checkpoints to go on from.

    The learning rate rises over 200 steps, stays, and falls to zero over the last ``cooldown`` steps; a run whose
    time is up (``minutes``) writes what it has.

    Args:
        kind: "tissue" or "haze".
        out: folder for ``checkpoint.safetensors`` and the finished ``<kind>.safetensors`` + ``<kind>.json``.
        steps, cooldown, batch, lr: optimisation (Adam, weights averaged with a window of about 1000 steps).
        pool, refresh: see :class:`FramePool`.
        seed: of simulator and noise.
        precision: "fp32" or "bf16" (autocast).
        shape: depth and angle of the polar grid.
        every: steps between checkpoints.
        clock: called with the seconds that each step took.

    Returns:
        Path of the finished weights.
    """
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    generator = torch.Generator(device=device).manual_seed(seed)
    test = training_frames(kind, 32, torch.Generator(device=device).manual_seed(2_000_000_000), *shape)
    sample = training_frames(kind, 128, torch.Generator(device=device).manual_seed(1_999_999_999), *shape)
    card = {
        "name": f"{kind}-simulated", "kind": kind, "data_mean": float(sample.mean()), "data_std": float(sample.std()),
        "sigma_min": SIGMA_MIN, "sigma_max": SIGMA_MAX, "grid": list(shape),
        "training_data": "usdehaze.simulate (no patient data)", "not_for": NOT_FOR,
    }  # fmt: skip
    prior = Prior(FastUNet(), card).to(device)
    network = prior.network
    average = {k: v.detach().clone() for k, v in network.state_dict().items()}
    optimiser = torch.optim.Adam(network.parameters(), lr=lr, betas=(0.9, 0.99))
    checkpoint, step, spent = out / "checkpoint.safetensors", 0, 0.0
    if checkpoint.exists():
        step, spent = _restore(checkpoint, network, average, optimiser)
        generator.manual_seed(seed + step)  # frames and noise that this run has not seen
        log(f"going on from step {step}")
    frames = FramePool(kind, pool, refresh, generator, shape)
    began, logged, losses = time.monotonic(), time.monotonic(), []
    first = step
    while step < steps and time.monotonic() - began < 60 * minutes:
        rate = lr * min(1.0, (step + 1) / 200, max(0.0, (steps - step) / max(cooldown, 1)))
        for group in optimiser.param_groups:
            group["lr"] = rate
        started = time.monotonic()
        x0 = frames.draw(batch)
        sigma = draw_sigmas(batch, generator)
        x = x0 + sigma * torch.randn(x0.shape, generator=generator, device=device)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "bf16"):
            prediction = prior.predict(x, sigma)
        loss = (prediction.float() - prior.network_target(x0, x, sigma)).square().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        step += 1
        keep = min(0.999, (1 + step) / (10 + step))
        with torch.no_grad():
            for k, v in network.state_dict().items():
                average[k].lerp_(v, 1 - keep)
        losses.append(float(loss.detach()))
        if clock:
            clock(time.monotonic() - started)
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"training loss is {losses[-1]} at step {step}")
        if step % every == 0:
            _keep(checkpoint, network, average, optimiser, step, spent + time.monotonic() - began)
            speed = (time.monotonic() - logged) / every
            logged = time.monotonic()
            log(
                f"{kind} step {step}/{steps} loss {sum(losses) / len(losses):.4f} "
                f"{speed:.2f} s/step, {(steps - step) * speed / 60:.0f} min left"
            )
            losses.clear()
    _keep(checkpoint, network, average, optimiser, step, spent + time.monotonic() - began)
    final = Prior(FastUNet(), card).to(device)
    final.network.load_state_dict(average)
    sigmas = (0.03, 0.1, 0.3, 1.0, 3.0, 8.0)
    card["held_out"] = dict(
        zip(map(str, sigmas), (round(v, 5) for v in held_out_loss(final, test, sigmas)), strict=True)
    )
    card["training"] = {
        "command": f"python -m usdehaze.priors.train {kind} --steps {steps} --cooldown {cooldown} --batch {batch} "
        f"--lr {lr:g} --pool {pool} --refresh {refresh} --seed {seed} --device {device} --precision {precision}",
        "steps": step, "frames": step * batch, "hours": round((spent + time.monotonic() - began) / 3600, 3),
        "hardware": _hardware(device), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip
    path = out / f"{kind}.safetensors"
    final.save(path)
    log(f"{kind}: {step - first} steps, held out {json.dumps(card['held_out'])}")
    return path


def _hardware(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name()
    return f"{torch.get_num_threads()} of {os.cpu_count()} CPU cores ({platform.machine()})"


def _keep(
    path: Path,
    network: torch.nn.Module,
    average: dict[str, Tensor],
    optimiser: torch.optim.Adam,
    step: int,
    spent: float,
) -> None:
    """Writes a checkpoint beside the old one and moves it into place, so that a kill leaves one or the other."""
    tensors = {f"net.{k}": v for k, v in network.state_dict().items()} | {f"ema.{k}": v for k, v in average.items()}
    for i, state in optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{i}.{k}": v for k, v in state.items()}
    fresh = path.with_suffix(".tmp")
    save_file(
        {k: v.detach().cpu().contiguous() for k, v in tensors.items()},
        str(fresh),
        {"step": str(step), "spent": str(spent)},
    )
    fresh.replace(path)


def _restore(
    path: Path, network: torch.nn.Module, average: dict[str, Tensor], optimiser: torch.optim.Adam
) -> tuple[int, float]:
    from safetensors import safe_open

    tensors = load_file(str(path))
    with safe_open(str(path), "pt") as f:
        meta = f.metadata()
    network.load_state_dict({k[4:]: v for k, v in tensors.items() if k.startswith("net.")})
    for k, v in average.items():
        v.copy_(tensors[f"ema.{k}"])
    state: dict[int, dict[str, Tensor]] = {}
    for k, v in tensors.items():
        if k.startswith("adam."):
            _, i, name = k.split(".")
            state.setdefault(int(i), {})[name] = v
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    return int(meta["step"]), float(meta["spent"])


def main() -> None:
    """Command line of the training loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("tissue", "haze"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--cooldown", type=int, default=2500)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--pool", type=int, default=1024)
    parser.add_argument("--refresh", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--threads", type=int)
    args = vars(parser.parse_args())
    if threads := args.pop("threads"):
        torch.set_num_threads(threads)
    train(args.pop("kind"), args.pop("out"), **args, log=lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
