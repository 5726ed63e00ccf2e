"""What a GPU is needed for, in one go: numerical checks against the CPU, speed of the presets, training of the priors.

Started by ``run.sh``. Needs torch, numpy, scipy and safetensors. ``results.json`` is written anew after every stage,
and a stage that breaks down does not keep the others from their turn: a run cut short leaves what it had.

The default's priors (FastUNet) go on from the shipped ones, on frames simulated on the GPU, and are then held against
them (``evaluation.py``); the paper's (NCSNv2) start from nothing. To take the results over:

1. Every row of ``checks`` is ``ok``, and ``evaluation`` speaks for the trained pair: ``difference`` of PSNR gain and
   haze PSNR well above its standard error, errors of walls and cavities no farther from 0, ``held_out`` lower.
2. Real frames decide: ``python validation/bench.py --tissue-prior DIR/tissue.safetensors --haze-prior
   DIR/haze.safetensors``, on scans for tuning, is no worse than ``bench.py --methods proximal``.
3. Copy weights and cards into ``usdehaze/priors/weights/``; the paper's pair likewise where its ``held_out`` is lower.
4. ``python validation/bench.py --patients held-out --only b,c,d,e --methods proximal --card`` (puts scores on the
   cards), ``python validation/real.py`` and ``python validation/trust.py``; what they and ``results.json`` say goes
   into ``validation/RESULTS.md`` and ``validation/priors.md``.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from evaluation import Pair, evaluate, sign
from training import COMMAND, DRY, KINDS, WHOLE, Size, Work, papers, shipped_again, train_one

from usdehaze.dehazer import Dehazer
from usdehaze.diffusion.denoiser import Problem
from usdehaze.diffusion.echo import LogPower
from usdehaze.diffusion.guidance import DPS, PiGDM, Proximal
from usdehaze.diffusion.observation import Additive, Observation
from usdehaze.priors.prior import Prior
from usdehaze.priors.unet import FastUNet
from usdehaze.settings import PRESETS
from usdehaze.simulate import simulate_cine, training_frames

PRESETS_RUN = ("fast", "quality", "preview")
MARGIN_S = 25.0  # kept for writing and for leaving the machine in peace
SPEED_SHARE = 0.15  # of the time that is left after the checks


def load(folder: Path | None = None) -> Pair:
    """Tissue and haze prior of a folder, or the shipped pair."""
    tissue, haze = (Prior.load(folder / f"{kind}.safetensors" if folder else kind, kind) for kind in KINDS)
    return tissue, haze


def checks(device: str, size: Size) -> list[dict[str, Any]]:
    """The numerical core on the device against the same on the CPU; each row: name, value, limit, ok."""
    rows: list[dict[str, Any]] = []

    def row(name: str, value: float, limit: float) -> None:
        rows.append({"check": name, "value": value, "limit": limit, "ok": bool(value <= limit)})

    n = min(4, size.frames)
    frames = torch.from_numpy(simulate_cine(n, seed=11, n_depth=size.grid, n_angle=size.grid).hazy)[:, None] / 60 + 1
    # TensorFloat-32 rounds by more than is to be seen here.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        expected, found = (core(where, frames) for where in ("cpu", device))
    for name, value in expected.items():
        scale = max(1.0, float(value.abs().max()))
        row(f"{name}: largest difference", float((found[name] - value).abs().max()) / scale, 2e-3)
    for kind in KINDS:
        levels = []
        for where in ("cpu", device):
            generator = torch.Generator(where).manual_seed(3)
            levels.append(training_frames(kind, size.frames, generator, size.grid, size.grid).mean((1, 2, 3)).cpu())
        standard_error = (sum(level.var() for level in levels) / size.frames) ** 0.5
        row(
            f"simulated {kind}: mean level, standard errors",
            float((levels[1] - levels[0]).mean().abs() / standard_error),
            5,
        )
    y, seen = frames[:, 0], torch.ones(frames.shape[2:])
    dehazer = Dehazer(*load(), replace(PRESETS["fast"], steps=6), device)
    once, again = (dehazer.split(y, seen)[0] for _ in range(2))
    alone = torch.cat([dehazer.split(y[[i]], seen)[0] for i in range(n)])
    row("same run twice: largest difference", float((once - again).abs().max()), 0.0)
    row("all frames at once against each alone: largest difference", float((once - alone).abs().max()), 0.0)
    return rows


def core(device: str, frames: torch.Tensor) -> dict[str, torch.Tensor]:
    """Denoisers and guidance rules on a device, by name; frames ``(B, 1, depth, angle)``, answers on the CPU."""
    noise = torch.randn(2, *frames.shape, generator=torch.Generator().manual_seed(0))
    tissue, haze = (prior.to(device) for prior in load())
    got = {}
    for sigma in (0.02, 0.3, 4.0):
        x, n = (frames * k + sigma * z for k, z in zip((0.5, 0.3), noise, strict=True))
        got[f"denoiser, sigma {sigma:g}"] = tissue(x.to(device), sigma).cpu()
        models: tuple[Observation, ...] = (LogPower(), Additive())
        for observation in models:
            problem = Problem(frames.to(device), observation, tissue, haze)
            u = problem.join(x, n).to(device)
            for rule in (Proximal(), PiGDM(), DPS()):
                name = f"{type(rule).__name__} with {type(observation).__name__}, sigma {sigma:g}"
                got[name] = rule(problem, u, sigma, 0.5).detach().cpu()
    return got


def synchronise(device: str) -> None:
    """Waits for work queued on a GPU."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def speed_plan(cuda: bool, size: Size) -> list[tuple[str, str, int, int, int]]:
    """Preset, precision, frames, depth and angle of every row."""
    plan = [(preset, "fp32", size.chunk, size.grid, size.grid) for preset in PRESETS_RUN]
    if cuda:
        plan += [("fast", "fp32", 1, 128, 128)]
        plan += [(preset, "bf16", size.chunk, 128, 128) for preset in PRESETS_RUN]
        plan += [("fast", "fp32", size.chunk, *shape) for shape in ((256, 128), (256, 256))]
        plan += [("paper", "fp32", size.chunk, 64, 64)]
    return plan


def speed(device: str, size: Size, until: float) -> list[dict[str, Any]]:
    """Frames per second and peak memory on the model grid; a row for each preset, more while there is time."""
    rows: list[dict[str, Any]] = []
    cuda = device.startswith("cuda")
    for preset, precision, n, n_depth, n_angle in speed_plan(cuda, size):
        if len(rows) >= len(PRESETS_RUN) and time.monotonic() > until:
            break
        options: dict[str, Any] = {"device": device, "precision": precision}
        y = torch.from_numpy(simulate_cine(1, seed=11, n_depth=n_depth, n_angle=n_angle).hazy / 60 + 1)
        y, seen = y.expand(n, -1, -1), torch.ones(n_depth, n_angle)
        Dehazer.from_pretrained(preset, steps=2, **options).split(y[:2], seen)
        dehazer = Dehazer.from_pretrained(preset, **options)
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        synchronise(device)
        began = time.perf_counter()
        dehazer.split(y, seen)
        synchronise(device)
        seconds = time.perf_counter() - began
        peak = torch.cuda.max_memory_allocated() / 2**20 if cuda else None
        rows.append(
            {
                "preset": preset, "precision": precision, "frames": n, "depth": n_depth, "angle": n_angle,
                "frames_per_s": round(n / seconds, 3), "peak_mib": peak and round(peak),
            }
        )  # fmt: skip
        print(json.dumps(rows[-1]))
    return rows


def compare(out: Path, work: list[Work], device: str, size: Size) -> dict[str, Any]:
    """The trained pair against the shipped one; the trained cards then say how it did."""
    shipped, trained = load(), load(out)
    found = evaluate(shipped, trained, [each.frames for each in work], device, size.hearts)
    sign(shipped, trained, found, out, COMMAND)
    return found


def main() -> int:
    """Runs the stages in order within the minutes given; exit 1 where a check failed or a stage broke down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for results and weights")
    parser.add_argument("--minutes", type=float, default=9.0, help="time for everything together")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (a dry run)")
    args = parser.parse_args()
    began = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    device, cuda = args.device, args.device.startswith("cuda")
    size = WHOLE if cuda else DRY
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if cuda else f"CPU ({platform.machine()})",
        "torch": torch.__version__,
        "network": FastUNet().config,
        "minutes": args.minutes,
        "training": {},
        "broken": {},
    }

    def stage(name: str, work: Callable[[], Any], into: dict[str, Any] = results) -> None:
        try:
            into[name] = work()
        except Exception as error:  # whatever it is, the stages after it are worth their time
            traceback.print_exc()
            results["broken"][name] = f"{type(error).__name__}: {error}"
        (args.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        print(f"{name}: done after {time.monotonic() - began:.0f} s")

    end = began + 60 * args.minutes - (MARGIN_S if cuda else 5.0)
    stage("checks", lambda: checks(device, size))
    stage("speed", lambda: speed(device, size, until=time.monotonic() + SPEED_SHARE * (end - time.monotonic())))
    ours = shipped_again(size)
    for work in ours:
        stage(work.name, partial(train_one, args.out, work, device, end), results["training"])
    stage("evaluation", lambda: compare(args.out, ours, device, size))
    for work in papers(size):
        stage(work.name, partial(train_one, args.out, work, device, end), results["training"])
    failed = [row for row in results.get("checks", []) if not row["ok"]]
    for row in failed:
        print("FAILED", json.dumps(row))
    return 1 if failed or results["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
