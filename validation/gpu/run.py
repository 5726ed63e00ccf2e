"""What a GPU is needed for, in one go: numerical checks against the CPU, speed of the presets, training.

Started by ``run.sh``. Needs torch, numpy, scipy and safetensors. ``results.json`` is written anew after every stage,
and a stage that breaks down does not keep the others from their turn: a run cut short leaves what it had.

The learned posterior goes on from the shipped one, as the mean of two trainings on pairs simulated on the GPU ("hearts"
and "quiet-hearts" of ``usdehaze.simulate.SETUPS``), and is then held against it (``evaluation.py``); the paper's priors
(NCSNv2) start from nothing, in the time that is left. To take the results over:

1. Every row of ``checks`` is ``ok``, and ``evaluation`` speaks for the trained posterior: ``difference`` of PSNR gain
   and haze PSNR well above its standard error, errors of walls and cavities no farther from 0. ``held_out`` and
   ``loss`` are of the wide simulator, which neither half learned from here: no worse will do.
2. Real frames decide: ``python -m validation.bench --set posterior=DIR/posterior.safetensors``, on scans for tuning, is
   no worse than without this option.
3. Copy weights and card of the posterior into ``usdehaze/priors/weights/``.
4. ``python -m validation.bench --patients held-out --only b,c,d,e --card`` (puts scores on the card), ``python
   -m validation.real`` and ``python -m validation.trust``; what they and ``results.json`` say goes into
   ``validation/results/RESULTS.md`` and ``validation/priors.md``.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from usdehaze.choices import PRIOR_KINDS, Precision
from usdehaze.dehazing.decision import quantiles, spread
from usdehaze.dehazing.dehazer import INTERVAL, Dehazer
from usdehaze.dehazing.device import CUDA_CHUNK
from usdehaze.dehazing.registry import LEARNED
from usdehaze.dehazing.settings import POSTERIOR, Preset
from usdehaze.diffusion.denoiser import Problem
from usdehaze.diffusion.echo import LogPower
from usdehaze.diffusion.guidance import DPS, PiGDM, Proximal
from usdehaze.diffusion.observation import Additive, Observation
from usdehaze.priors.posterior import WEIGHTS, LearnedPosterior
from usdehaze.priors.prior import Prior
from usdehaze.simulate import simulate_cine, training_frames, training_pairs
from usdehaze.training.data import SimulatedFrames
from validation.gpu.evaluation import evaluate, sign
from validation.gpu.training import COMMAND, DRY, WHOLE, Size, Work, halves, papers, train_one
from validation.mean import mean_of

PRESETS_RUN: tuple[Preset, ...] = ("fast", "quality", "preview")
RULE = "proximal"
MARGIN_S = 25.0  # kept for writing and for leaving the machine in peace
SPEED_SHARE = 0.15  # of the time that is left after the checks
SAMPLES = 6  # of the checks: four in one pass and two in another


def checks(device: str, size: Size) -> list[dict[str, Any]]:
    """The numerical core on the device against the same on the CPU; each row: name, value, limit, ok."""
    rows: list[dict[str, Any]] = []

    def row(name: str, value: float, limit: float) -> None:
        rows.append({"check": name, "value": value, "limit": limit, "ok": bool(value <= limit)})

    n = min(4, size.frames)
    frames = torch.from_numpy(simulate_cine(n, seed=11, n_depth=size.grid, n_angle=size.grid).hazy)[:, None] / 60 + 1
    # TensorFloat-32 rounds by more than is to be seen here.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        expected, found = ({**learned(where, frames), **rules(where, frames)} for where in ("cpu", device))
    for name, value in expected.items():
        scale = max(1.0, float(value.abs().max()))
        row(f"{name}: largest difference", float((found[name] - value).abs().max()) / scale, 2e-3)
    of_cpu, of_device = (levels(where, size) for where in ("cpu", device))
    for name, level in of_cpu.items():
        standard_error = ((level.var() + of_device[name].var()) / size.frames) ** 0.5
        off = (of_device[name] - level).mean().abs() / standard_error.clamp_min(1e-9)
        row(f"simulated {name}: mean level, standard errors", float(off), 5)
    for guidance in (LEARNED, RULE):
        dehazer = Dehazer.from_pretrained(guidance=guidance, samples=SAMPLES, steps=4, device=device)
        once, again = (split(dehazer, frames[:, 0]) for _ in range(2))
        alone = torch.cat([split(dehazer, frames[[i], 0]) for i in range(n)])
        row(f"{guidance}, same run twice: largest difference", float((once - again).abs().max()), 0.0)
        row(f"{guidance}, all at once against each alone: largest difference", float((once - alone).abs().max()), 0.0)
        if device == "cuda" and torch.cuda.device_count() > 1:
            every = ",".join(f"cuda:{i}" for i in range(torch.cuda.device_count()))
            times = 8 * torch.cuda.device_count()  # passes for each
            dehazer = Dehazer.from_pretrained(guidance=guidance, samples=SAMPLES, steps=4, device=every)
            shared = split(dehazer, frames[:, 0].repeat(times, 1, 1))
            difference = (shared - once.repeat(times, 1, 1, 1)).abs().max()
            row(f"{guidance}, {every} against one: largest difference", float(difference), 0.0)
    return rows


def learned(device: str, frames: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a learned posterior tells, and what is decided from such, on a device; otherwise as `rules`."""
    generator = torch.Generator().manual_seed(1)
    clean = torch.cat([0.5 * frames, 0.3 * frames], dim=1)
    noise = torch.randn(clean.shape, generator=generator)
    posterior = LearnedPosterior.load(POSTERIOR).to(device)
    got = {}
    for sigma in (0.1, 0.5, 1.0, 4.0, 100.0):
        told = posterior((clean + sigma * noise).to(device), sigma, frames.to(device))
        for what, value in zip(("means", "quantiles"), told, strict=True):
            got[f"posterior, {what}, sigma {sigma:g}"] = value.cpu()
    # As gains are: many of them alike, at their limits.
    gains = (0.4 * torch.randn(4 * len(WEIGHTS), *frames.shape[1:], generator=generator)).clamp(-1, 0).to(device)
    weights = torch.tensor(WEIGHTS).repeat(4) / 4
    for name, of_each in (("equal weights", None), ("weights", weights)):
        got[f"decided quantiles, {name}"] = quantiles(gains, (0.5, *INTERVAL), of_each).cpu()
        got[f"deviation, {name}"] = spread(gains, of_each).cpu()
    return got


def rules(device: str, frames: torch.Tensor) -> dict[str, torch.Tensor]:
    """Denoisers and guidance rules on a device, by name; frames ``(B, 1, depth, angle)``, answers on the CPU."""
    noise = torch.randn(2, *frames.shape, generator=torch.Generator().manual_seed(0))
    tissue, haze = (Prior.load(kind, kind).to(device) for kind in PRIOR_KINDS)
    got = {}
    for sigma in (0.02, 0.3, 4.0):
        x, n = (frames * k + sigma * z for k, z in zip((0.5, 0.3), noise, strict=True))
        got[f"denoiser, sigma {sigma:g}"] = tissue(x.to(device), sigma).cpu()
        models: tuple[Observation, ...] = (LogPower(60.0), Additive())
        for observation in models:
            problem = Problem(frames.to(device), observation, tissue, haze)
            u = problem.join(x, n).to(device)
            for rule in (Proximal(), PiGDM(), DPS()):
                name = f"{type(rule).__name__} with {type(observation).__name__}, sigma {sigma:g}"
                got[name] = rule(problem, u, sigma, 0.5).detach().cpu()
    return got


def levels(device: str, size: Size) -> dict[str, torch.Tensor]:
    """Mean levels of simulated frames, one a frame, by what they are; the simulator's random numbers are a device's."""

    def of(frames: torch.Tensor) -> torch.Tensor:
        return frames.mean((-2, -1)).cpu()

    generator = torch.Generator(device).manual_seed(3)
    pairs = of(training_pairs(size.frames, generator, size.grid, size.grid))
    found = {f"pair, {name}": each for name, each in zip(("tissue", "haze", "frame"), pairs.unbind(1), strict=True)}
    for kind in PRIOR_KINDS:
        found[kind] = of(training_frames(kind, size.frames, generator, size.grid, size.grid))[:, 0]
    return found


def split(dehazer: Dehazer, y: torch.Tensor) -> torch.Tensor:
    """All that a dehazer finds of frames ``(B, depth, angle)`` in one tensor, ``(B, quantities, depth, angle)``."""
    found = dehazer.split(y, torch.ones(y.shape[1:]), 60.0)
    ends = () if found.ends is None else found.ends
    return torch.stack([found.gain, found.level, found.deviation, *ends], dim=1)


def synchronise(device: str) -> None:
    """Waits for work queued on a GPU."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Row:
    """A row of the speed table: preset, its guidance, precision, frames, and their depth and angle."""

    preset: Preset
    guidance: str
    precision: Precision
    frames: int
    depth: int
    angle: int


def speed_plan(cuda: bool, size: Size) -> list[Row]:
    """What is measured; the first rows in any case."""
    plan = [Row(preset, LEARNED, "fp32", size.chunk, size.grid, size.grid) for preset in PRESETS_RUN]
    plan.append(Row("fast", RULE, "fp32", size.chunk, size.grid, size.grid))
    if cuda:
        plan += [Row(preset, LEARNED, "bf16", size.chunk, 128, 128) for preset in PRESETS_RUN]
        plan += [Row("fast", LEARNED, "fp32", 1, 128, 128)]
        plan += [Row("fast", LEARNED, "fp32", size.chunk, *shape) for shape in ((256, 128), (256, 256))]
        plan += [Row("paper", "pigdm", "fp32", size.chunk, 64, 64)]
    return plan


def speed(device: str, size: Size, until: float) -> list[dict[str, Any]]:
    """Frames per second and peak memory on the model grid; the first rows, and more while there is time."""
    rows: list[dict[str, Any]] = []
    cuda = device.startswith("cuda")
    for row in speed_plan(cuda, size):
        if len(rows) > len(PRESETS_RUN) and time.monotonic() > until:
            break
        options: dict[str, Any] = {"guidance": row.guidance, "device": device, "precision": row.precision}
        y = torch.from_numpy(simulate_cine(1, seed=11, n_depth=row.depth, n_angle=row.angle).hazy / 60 + 1)
        y, seen = y.expand(row.frames, -1, -1), torch.ones(row.depth, row.angle)
        Dehazer.from_pretrained(row.preset, steps=2, **options).split(y[:2], seen, 60.0)
        dehazer = Dehazer.from_pretrained(row.preset, **options)
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        synchronise(device)
        began = time.perf_counter()
        dehazer.split(y, seen, 60.0)
        synchronise(device)
        seconds = time.perf_counter() - began
        peak = torch.cuda.max_memory_allocated() / 2**20 if cuda else None
        found = {"frames_per_s": round(row.frames / seconds, 3), "peak_mib": peak and round(peak)}
        rows.append({**asdict(row), **found})
        print(json.dumps(rows[-1]))
    return rows


def compiled(device: str, size: Size, until: float) -> list[dict[str, Any]]:
    """ms of a pass of the posterior as it is, and by PyTorch's compiler with CUDA graphs, and how far they are apart.

    No engine compiles: these rows say whether one would be worth it, for the frames of a pass and for one frame; the
    first row, and more while there is time.
    """
    cuda = device.startswith("cuda")
    posterior = LearnedPosterior.load(POSTERIOR).to(device).eval()
    how: dict[str, Any] = {"mode": "reduce-overhead"} if cuda else {"backend": "eager"}  # on a CPU: that it runs
    rows: list[dict[str, Any]] = []
    times = 20 if cuda else 1
    for frames in (4 * CUDA_CHUNK, 4) if cuda else (2,):
        for precision in ("fp32", "bf16") if cuda else ("fp32",):
            if rows and time.monotonic() > until:
                return rows
            y = torch.rand(frames, 1, size.grid, size.grid, generator=torch.Generator().manual_seed(0)).to(device)
            u = torch.cat([y, y], dim=1) * 0.5
            row: dict[str, Any] = {"frames": frames, "precision": precision}
            told = {}
            for name, network in (("eager", posterior), ("compiled", torch.compile(posterior, **how))):
                with torch.no_grad(), torch.autocast(device.split(":")[0], torch.bfloat16, precision == "bf16"):
                    for _ in range(3):  # graphs are recorded at the second
                        told[name] = network(u, 100.0, y)[1].float().clone()
                    synchronise(device)
                    began = time.perf_counter()
                    for _ in range(times):
                        network(u, 100.0, y)
                    synchronise(device)
                row[f"{name}_ms"] = round(1000 * (time.perf_counter() - began) / times, 3)
            row["difference"] = float((told["eager"] - told["compiled"]).abs().max())
            rows.append(row)
            print(json.dumps(row))
    return rows


def compare(out: Path, ours: list[Work], device: str, size: Size) -> dict[str, Any]:
    """The mean of the trained halves, ``ours``, against the shipped posterior; its card then says how it did."""
    source = SimulatedFrames(POSTERIOR, (size.grid, size.grid), size.pool, size.refresh)
    trained = mean_of([LearnedPosterior.load(out / f"{work.name}.safetensors") for work in ours], source)
    shipped = LearnedPosterior.load(POSTERIOR)
    found = evaluate(shipped, trained, source, device, size.hearts)
    sign(shipped, trained, found, out / f"{POSTERIOR}.safetensors", COMMAND)
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
    until = time.monotonic() + SPEED_SHARE * (end - time.monotonic())
    stage("speed", lambda: speed(device, size, until))
    stage("compiled", lambda: compiled(device, size, until))
    ours = halves(size)
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
