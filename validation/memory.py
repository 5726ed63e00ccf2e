"""Peak memory of ``usdehaze process`` and ``review`` on short and long cines: ``python -m validation.memory``.

Reading, writing and previews are what is measured, so that the priors are tiny, random ones and take a single step. The
frames are noise, which compresses badly and fills every buffer. Each row is a process of its own. ``--review`` measures
the review page of results as such instead, with two regions in every frame.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from tests._tiny_priors import write_tiny_priors
from usdehaze.cine import Cartesian, Cine, Source
from usdehaze.io import ResultWriter
from usdehaze.io.scan import CineScan
from usdehaze.result import Result

SIDE = 64  # pixels


def main() -> None:
    """Prints a Markdown table, and by how much the longest run's peak exceeds that of 1,000 frames."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--extra", default="--preview gif --format zea", help="more options of process")
    parser.add_argument("--review", action="store_true", help="of the review page instead")
    args = parser.parse_args()
    extra = args.extra.split()
    peaks: dict[int, float] = {}
    print(f"frames of {SIDE} x {SIDE}, {'review' if args.review else 'process ' + args.extra}\n")
    print("| frames | frames in memory at once would be, MiB | peak memory, MiB | s |\n|---|---|---|---|")
    for n_frames in args.frames:
        peaks[n_frames], seconds = measure_review(n_frames) if args.review else measure(n_frames, extra)
        held = 4 * n_frames * SIDE**2 / 2**20
        print(f"| {n_frames} | {held:.0f} | {peaks[n_frames]:.0f} | {seconds:.0f} |", flush=True)
    if 1000 in peaks:
        print(f"\n{max(peaks)} against 1000 frames: {100 * (peaks[max(peaks)] / peaks[1000] - 1):+.1f} %")


def measure(n_frames: int, extra: list[str]) -> tuple[float, float]:
    """Peak resident memory in MiB and duration in s of a process that dehazes ``n_frames``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = write_tiny_priors(folder)
        write_scan(folder / "scan.h5", n_frames)
        command = [
            sys.executable,
            "-m",
            "usdehaze",
            "process",
            str(folder / "scan.h5"),
            "--steps=1",
            "--quiet",
        ]
        command += [f"--{kind}-prior={options[f'{kind}_prior']}" for kind in ("tissue", "haze")]
        return _peak([*command, "--device=cpu", *extra])


def measure_review(n_frames: int) -> tuple[float, float]:
    """Peak resident memory in MiB and duration in s of a process that makes the page of ``n_frames``."""
    with tempfile.TemporaryDirectory() as name:
        result, regions = Path(name) / "scan.dehazed.h5", Path(name) / "rois.json"
        write_noise(result, n_frames)
        boxes = {role: [[x, 4], [x + 20, 4], [x + 20, 60], [x, 60]] for role, x in (("tissue", 4), ("haze", 36))}
        found = [{"name": role, "role": role, "polygon": polygon} for role, polygon in boxes.items()]
        regions.write_text(json.dumps({"regions": found}))
        return _peak([sys.executable, "-m", "usdehaze", "review", str(result), f"--roi={regions}", "--no-open"])


def _peak(command: list[str]) -> tuple[float, float]:
    """Peak resident memory in MiB and duration in s of a command."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{command[3]} ended with status {status}")
    return usage.ru_maxrss / 1024, time.perf_counter() - began


def write_noise(path: Path, n_frames: int) -> None:
    """A result of noise, 3 dB off it, written a frame at a time."""
    rng, geometry = np.random.default_rng(0), Cartesian()
    scan = CineScan(Cine(np.zeros((n_frames, SIDE, SIDE), np.float32), geometry, 60.0, None, Source("noise", "0" * 64)))
    with ResultWriter(path, scan) as writer:
        for _ in range(n_frames):
            frame = rng.uniform(-55, -5, (1, SIDE, SIDE)).astype(np.float32)
            cine = Cine(frame, geometry, 60.0, None, scan.source)
            writer.append(Result(cine, frame - 3, frame - 5, None, {"preset": "fast", "seed": 0}))


def write_scan(path: Path, n_frames: int) -> None:
    """8-bit noise, a chunk a frame."""
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        frames = file.create_dataset("cine", (n_frames, SIDE, SIDE), np.uint8, chunks=(1, SIDE, SIDE))
        for index in range(n_frames):
            frames[index] = rng.integers(1, 255, (SIDE, SIDE), np.uint8)


if __name__ == "__main__":
    main()
