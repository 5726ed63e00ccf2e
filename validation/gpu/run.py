"""What a GPU is needed for, in one go: numerical checks against the CPU, speed of the presets, training of both priors.

Started by ``run.sh``. Needs torch, numpy, scipy and safetensors. Each stage writes ``results.json`` anew, so that a run
cut short leaves what it had.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
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
from usdehaze.priors.prior import Prior
from usdehaze.priors.train import train
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


def train_both(out: Path, device: str, seconds: float) -> dict[str, Any]:
    """Trains haze for a quarter of the time, tissue for the rest; a measured start tells how many steps fit."""
    cuda = device.startswith("cuda")
    shared: dict[str, Any] = (
        {"batch": 128, "pool": 16384, "refresh": 32, "precision": "bf16", "lr": 1.5e-3}
        if cuda
        else {"batch": 2, "pool": 8, "refresh": 2, "precision": "fp32"}
    )
    done: dict[str, Any] = {}
    deadline = time.monotonic() + seconds
    for kind, share in (("haze", 0.25), ("tissue", 1.0)):
        left = share * (deadline - time.monotonic())
        trial = 30 if cuda else 1
        times = []
        train(kind, out / "trial" / kind, steps=trial, device=device, clock=times.append, log=lambda _: None, **shared)
        per_step = sorted(times)[len(times) // 2]
        steps = max(1, int(0.85 * (left - sum(times)) / per_step))
        path = train(
            kind,
            out / "runs" / kind,
            steps=steps,
            cooldown=steps // 3,
            device=device,
            minutes=max(left, 1.0) / 60,
            every=max(1, min(250, steps)),
            **shared,
        )
        for suffix in (".safetensors", ".json"):
            path.with_suffix(suffix).replace(out / f"{kind}{suffix}")
        card = json.loads((out / f"{kind}.json").read_text())
        done[kind] = {"steps": steps, "seconds_per_step": per_step, "held_out": card["held_out"]}
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
    keep("training", train_both(args.out, args.device, end - time.monotonic()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
