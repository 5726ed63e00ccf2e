"""What a GPU is needed for, in one go: numerical checks against the CPU, speed of the presets, training of the priors.

Started by ``run.sh``. Needs torch, numpy, scipy and safetensors. Each stage writes ``results.json`` anew, so that a run
cut short leaves what it had.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from usdehaze.dehazer import PRESETS, Dehazer
from usdehaze.diffusion.denoiser import Problem
from usdehaze.diffusion.echo import LogPower
from usdehaze.diffusion.guidance import DPS, PiGDM, Proximal
from usdehaze.diffusion.observation import Additive, Observation
from usdehaze.priors.data import SimulatedFrames
from usdehaze.priors.prior import Prior
from usdehaze.priors.train import Recipe, Told, train
from usdehaze.priors.unet import FastUNet
from usdehaze.simulate import simulate_cine

SIZES = ((128, 128), (256, 128), (256, 256))
MARGIN_S = 25.0  # kept for writing and for leaving the machine in peace


def priors() -> tuple[Prior, Prior]:
    """The shipped pair."""
    return Prior.load("tissue", "tissue"), Prior.load("haze", "haze")


def checks(device: str) -> list[dict[str, Any]]:
    """The numerical core on the device against the same on the CPU; each row: name, value, limit, ok."""
    rows: list[dict[str, Any]] = []

    def row(name: str, value: float, limit: float) -> None:
        rows.append({"check": name, "value": value, "limit": limit, "ok": bool(value <= limit)})

    frames = torch.from_numpy(simulate_cine(4, seed=11).hazy)[:, None] / 60 + 1
    noise = torch.randn(2, *frames.shape, generator=torch.Generator().manual_seed(0))
    tissue, haze = priors()
    answers: dict[str, dict[str, torch.Tensor]] = {}
    for where in ("cpu", device):
        tissue, haze = tissue.to(where), haze.to(where)
        got = answers[where] = {}
        for sigma in (0.02, 0.3, 4.0):
            x, n = (frames * k + sigma * z for k, z in zip((0.5, 0.3), noise, strict=True))
            got[f"denoiser, sigma {sigma:g}"] = tissue(x.to(where), sigma).cpu()
            models: tuple[Observation, ...] = (LogPower(), Additive())
            for observation in models:
                problem = Problem(frames.to(where), observation, tissue, haze)
                u = problem.join(x, n).to(where)
                for rule in (Proximal(), PiGDM(), DPS()):
                    name = f"{type(rule).__name__} with {type(observation).__name__}, sigma {sigma:g}"
                    got[name] = rule(problem, u, sigma, 0.5).detach().cpu()
    for name, expected in answers["cpu"].items():
        scale = max(1.0, float(expected.abs().max()))
        row(f"{name}: largest difference", float((answers[device][name] - expected).abs().max()) / scale, 2e-3)
    y, seen = frames[:, 0], torch.ones(128, 128)
    few = replace(PRESETS["fast"], steps=6)
    split = [Dehazer(*priors(), few, device, batch_size=size).split(y, seen, [0, 1, 2, 3])[0] for size in (4, 4, 1)]
    row("same run twice: largest difference", float((split[0] - split[1]).abs().max()), 0.0)
    row("batch of 4 against batch of 1: largest difference", float((split[0] - split[2]).abs().max()), 0.0)
    return rows


def synchronise(device: str) -> None:
    """Waits for work queued on a GPU."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def speed(device: str, until: float) -> list[dict[str, Any]]:
    """Frames per second and peak memory of the presets at each size; at least one row, more while there is time."""
    rows = []
    cuda = device.startswith("cuda")
    batches = (1, 16, 64) if cuda else (2,)
    runs = [("fast", precision, batch) for precision in (("fp32", "bf16") if cuda else ("fp32",)) for batch in batches]
    runs += [("paper", "fp32", 16)] if cuda else []
    for preset, precision, batch in runs:
        for n_depth, n_angle in SIZES:
            if rows and time.monotonic() > until:
                break
            dehazer = Dehazer(*priors(), PRESETS[preset], device, batch, precision)
            y, seen = torch.rand(batch, n_depth, n_angle), torch.ones(n_depth, n_angle)
            warm = Dehazer(*priors(), replace(PRESETS[preset], steps=2), device, batch, precision)
            warm.split(y, seen, list(range(batch)))
            if cuda:
                torch.cuda.reset_peak_memory_stats()
            synchronise(device)
            began = time.perf_counter()
            dehazer.split(y, seen, list(range(batch)))
            synchronise(device)
            seconds = time.perf_counter() - began
            peak = torch.cuda.max_memory_allocated() / 2**20 if cuda else None
            rows.append(
                {
                    "preset": preset, "precision": precision, "batch": batch, "depth": n_depth, "angle": n_angle,
                    "frames_per_s": round(batch / seconds, 3), "peak_mib": peak and round(peak),
                }
            )  # fmt: skip
            print(json.dumps(rows[-1]))
    return rows


def recipes(cuda: bool) -> list[tuple[str, float, Recipe, SimulatedFrames]]:
    """Name of the prior, share of the time that is left, and what to train: the shipped network, then the paper's."""
    out = []
    for name, kind, network, share in (
        ("haze", "haze", "FastUNet", 0.15),
        ("tissue", "tissue", "FastUNet", 0.5),
        ("haze-ncsnv2", "haze", "NCSNv2", 0.4),
        ("tissue-ncsnv2", "tissue", "NCSNv2", 1.0),
    ):
        paper = network == "NCSNv2"
        grid = (64, 64) if paper else (128, 128)
        recipe = Recipe(kind, network, parametrisation="score" if paper else "denoiser", grid=grid)
        if cuda:
            frames = SimulatedFrames(kind, grid, pool=4096, refresh=32)
            recipe = replace(recipe, batch=128, lr=1e-3 if paper else 1.5e-3, precision="bf16")
        else:  # a dry run: the paper's network in small
            frames = SimulatedFrames(kind, grid, pool=8, refresh=2)
            recipe = replace(recipe, batch=2, config={"channels": (8, 16)} if paper else {})
        out.append((name, share, recipe, frames))
    return out


def train_one(path: Path, recipe: Recipe, frames: SimulatedFrames, device: str, end: float) -> dict[str, Any]:
    """Trains a prior until about ``end``: a measured start tells how many steps fit, a late run writes what it has."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        told: list[Told] = []
        common: dict[str, Any] = {"device": device, "tell": told.append, "every": 500}
        few = 30 if device.startswith("cuda") else 2
        train(recipe, frames, path, folder / "trial", stop=lambda: len(told) >= few, **common)
        per_step = sorted(t.seconds for t in told)[len(told) // 2]
        steps = max(1, int(0.85 * (end - time.monotonic()) / per_step))
        common |= {"checkpoint": folder / "run", "command": "validation/gpu/run.sh"}
        whole = replace(recipe, steps=steps)
        prior = train(whole, frames, path, stop=lambda: time.monotonic() > end, **common)
        if prior is None:
            prior = train(replace(recipe, steps=told[-1].step), frames, path, **common)
    assert prior is not None  # nothing stops the second call
    return {"steps": told[-1].step, "seconds_per_step": per_step, "held_out": prior.card["held_out"]}


def train_all(out: Path, device: str, seconds: float) -> dict[str, Any]:
    """Trains the priors one after the other, each within its share of the time."""
    done: dict[str, Any] = {}
    deadline = time.monotonic() + seconds
    for name, share, recipe, frames in recipes(device.startswith("cuda")):
        end = time.monotonic() + share * (deadline - time.monotonic())
        done[name] = train_one(out / f"{name}.safetensors", recipe, frames, device, end)
        print(json.dumps({name: done[name]}))
    return done


def main() -> int:
    """Runs the stages in order within the minutes given; exit 1 where a check failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for results and weights")
    parser.add_argument("--minutes", type=float, default=9.0, help="time for everything together")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (a dry run)")
    args = parser.parse_args()
    began = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    cuda = args.device.startswith("cuda")
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if cuda else f"CPU ({platform.machine()})",
        "torch": torch.__version__,
        "network": FastUNet().config,
        "minutes": args.minutes,
    }

    def keep(stage: str, value: Any) -> None:
        results[stage] = value
        (args.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        print(f"{stage}: done after {time.monotonic() - began:.0f} s")

    end = began + 60 * args.minutes - (MARGIN_S if cuda else 5.0)
    keep("checks", checks(args.device))
    failed = [row for row in results["checks"] if not row["ok"]]
    for row in failed:
        print("FAILED", json.dumps(row))
    keep("speed", speed(args.device, until=time.monotonic() + 0.3 * (end - time.monotonic())))
    keep("training", train_all(args.out, args.device, end - time.monotonic()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
