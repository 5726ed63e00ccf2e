"""Seconds per frame and peak memory of a preset on this CPU: ``python -m validation.speed``.

Each row dehazes simulated cines of one size from native frames to native frames, file reading and writing left out.
"""

from __future__ import annotations

import argparse
import resource
import time

import torch

from usdehaze.cine import Cine
from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.simulate import simulate_cine

SIZES = ((128, 128), (256, 128), (256, 256))


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=8, help="frames a row")
    parser.add_argument("--threads", type=int, default=2, help="CPU cores to use")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--guidance", help="learned, or a rule over explicit priors (the preset's)")
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dehazer = Dehazer.from_pretrained(args.preset, guidance=args.guidance, steps=args.steps, device="cpu")
    settings = dehazer.settings
    print(
        f"preset {args.preset}, guidance {settings.guidance}, {settings.steps} steps, {settings.samples} samples, "
        f"{args.threads} threads, torch {torch.__version__}\n"
    )
    print("| frame (depth x angle) | s/frame, cine | s/frame, single frame | peak memory, MiB |")
    print("|---|---|---|---|")
    for n_depth, n_angle in SIZES:
        cine = simulate_cine(args.frames, seed=1, n_depth=n_depth, n_angle=n_angle).cine
        one = Cine(cine.frames[:1], cine.geometry)
        dehazer.dehaze(one)
        seconds = []
        for work in (cine, one):
            began = time.perf_counter()
            dehazer.dehaze(work)
            seconds.append((time.perf_counter() - began) / len(work.frames))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {n_depth} x {n_angle} | {seconds[0]:.2f} | {seconds[1]:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
