"""Seconds per frame and peak memory of a preset on this CPU: ``python -m validation.speed``.

Each row dehazes simulated cines of one size from native frames to native frames, file reading and writing left out.
With ``--peers`` a second table has other methods on the same frames (256 x 128), in the same run: those of
`validation.baselines`, on the model grid, and zea's nuclear diffusion where zea is installed, on native frames, with a
network of random weights, for its time alone; in CPU seconds, of all cores together, which other work on the machine
changes little.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import torch

from usdehaze.choices import ENGINES, PRECISIONS
from usdehaze.cine import Cine
from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.simulate import simulate_cine
from validation.baselines import methods
from validation.markdown import head, row

SIZES = ((128, 128), (256, 128), (256, 256))
ZEA_STEPS, ZEA_FIRST, ZEA_WINDOW = 5000, 4500, 7  # its own: steps, the first that is done, frames at once
ZEA_TIMED = 2  # steps


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=8, help="frames a row")
    parser.add_argument("--threads", type=int, default=2, help="CPU cores to use")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--guidance", help="learned, or a rule over explicit priors (the preset's)")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--engine", choices=ENGINES, default="torch")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--peers", action="store_true", help="also other methods on the same frames")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dehazer = Dehazer.from_pretrained(
        args.preset,
        guidance=args.guidance,
        steps=args.steps,
        device="cpu",
        engine=args.engine,
        precision=args.precision,
    )
    settings = dehazer.settings
    print(
        f"preset {args.preset}, guidance {settings.guidance}, {settings.steps} steps, {settings.samples} samples, "
        f"{args.threads} threads, torch {torch.__version__}, {args.engine} {args.precision}\n"
    )
    print("\n".join(head("frame (depth x angle)", ("s/frame, cine", "s/frame, single frame", "peak memory, MiB"))))
    for n_depth, n_angle in SIZES:
        cine = simulate_cine(args.frames, seed=1, n_depth=n_depth, n_angle=n_angle).cine
        one = Cine(cine.frames[:1], cine.geometry)
        dehazer.dehaze(one)
        seconds = [_seconds(dehazer.dehaze, work) for work in (cine, one)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(row(f"{n_depth} x {n_angle}", [f"{seconds[0]:.4f}", f"{seconds[1]:.4f}", f"{peak:.0f}"]), flush=True)
    if args.peers:
        _peers(simulate_cine(args.frames, 1, n_depth=256, n_angle=128).cine, dehazer)


def _seconds(dehaze: Callable[[Cine], object], cine: Cine, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds a frame."""
    began = clock()
    dehaze(cine)
    return (clock() - began) / len(cine.frames)


def _peers(cine: Cine, dehazer: Dehazer) -> None:
    """Prints a table of methods, ours first."""
    print("\n" + "\n".join(head("method", ("CPU s/frame", "what it is"))))
    preset = dehazer.settings.preset
    print(
        row(f"usdehaze, `{preset}`", [f"{_seconds(dehazer.dehaze, cine, time.process_time):.3f}", "as above"]),
        flush=True,
    )
    for name, method in methods().items():
        if method.learned:
            continue
        cell = "not installed"
        if method.available:
            dehaze = method.make()
            dehaze(Cine(cine.frames[:2], cine.geometry))  # loads what it needs
            cell = f"{_seconds(dehaze, cine, time.process_time):.3f}"
        print(row(name, [cell, method.what]), flush=True)
    try:
        what = f"zea {version('zea')}, {ZEA_STEPS - ZEA_FIRST} steps by the time of {ZEA_TIMED}, not compiled"
        print(row("nuclear diffusion", [f"{_nuclear_diffusion(cine):.0f}", what]))
    except PackageNotFoundError:
        print(row("nuclear diffusion", ["not installed", "of zea"]))


def _nuclear_diffusion(cine: Cine) -> float:
    """CPU seconds a frame of zea's nuclear diffusion, by some of its steps."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    guidance = {"name": "nuclear-dps", "params": {"disable_jit": True}}
    network = import_module("zea.models.diffusion").DiffusionModel
    model = network((*cine.frames.shape[1:], 1), (-1, 1), guidance=guidance, operator="linear_interp")
    dehaze = import_module("zea.func").dehaze_nuclear_diffusion
    frames = np.resize(2 * cine.frames / cine.dynamic_range_db + 1, (ZEA_WINDOW, *cine.frames.shape[1:]))[..., None]

    def spent(steps: int) -> float:
        began = time.process_time()
        dehaze(frames, model, n_steps=ZEA_STEPS, initial_step=ZEA_STEPS - steps, verbose=False)
        return time.process_time() - began

    spent(1)  # warm
    a_step = (spent(1 + ZEA_TIMED) - spent(1)) / ZEA_TIMED
    return a_step * (ZEA_STEPS - ZEA_FIRST) / ZEA_WINDOW


if __name__ == "__main__":
    main()
