"""Peak memory of ``usdehaze process`` on short and long cines: ``python -m validation.memory``.

Reading, writing and previews are what is measured, so that the priors are tiny, random ones and take a single step. The
frames are noise, which compresses badly and fills every buffer. Each row is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from tests._tiny_priors import write_tiny_priors

SIDE = 64  # pixels


def main() -> None:
    """Prints a Markdown table, and by how much the longest run's peak exceeds that of 1,000 frames."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--extra", default="--preview gif --format zea", help="more options of process")
    args = parser.parse_args()
    extra = args.extra.split()
    peaks: dict[int, float] = {}
    print(f"frames of {SIDE} x {SIDE}, process {args.extra}\n")
    print("| frames | frames in memory at once would be, MiB | peak memory, MiB | s |\n|---|---|---|---|")
    for n_frames in args.frames:
        peaks[n_frames], seconds = measure(n_frames, extra)
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
        began = time.perf_counter()
        process = subprocess.Popen([*command, "--device=cpu", *extra])
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            raise SystemExit(f"process ended with status {status}")
        return usage.ru_maxrss / 1024, time.perf_counter() - began


def write_scan(path: Path, n_frames: int) -> None:
    """8-bit noise, a chunk a frame."""
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        frames = file.create_dataset("cine", (n_frames, SIDE, SIDE), np.uint8, chunks=(1, SIDE, SIDE))
        for index in range(n_frames):
            frames[index] = rng.integers(1, 255, (SIDE, SIDE), np.uint8)


if __name__ == "__main__":
    main()
