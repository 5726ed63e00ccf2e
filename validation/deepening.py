"""How far under the frame tissue truly lies where the votes say so much: ``python validation/deepening.py``.

What `usdehaze.voting.deepen` rests on. Frames of known truth are dehazed without it: simulated hearts that no prior
was trained on, and clean real scans of the tuning share under the bench's hazes (USDEHAZE_DATA). For each vote and each
brightness of the frame the table says where tissue was, in the mean over pixels, and in how many of them it was within
2 dB of the frame: those are what a deepening harms.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from bench_parts import CAMUS, CLEAN_CINES, FLOOR_DB, Bench
from bench_records import Records

from usdehaze.cine import Cine
from usdehaze.dehazer import Dehazer
from usdehaze.diffusion.smooth import average
from usdehaze.geometry import make_mapper
from usdehaze.settings import PRESETS
from usdehaze.validation.benchmark import FIRST_SEED
from usdehaze.validation.patients import SHARES
from usdehaze.validation.realhaze import simulated_scene
from usdehaze.voting import LEVEL_CELLS

HERE = Path(__file__).resolve().parent
SIMULATED_FIRST = FIRST_SEED + 3000
VOTES_DB = (-60.0, -10.0, -7.0, -5.0, -3.0, -1.5, -0.5, 0.01)
LEVELS_DB = (0.0, 10.0, 18.0, 26.0, 34.0, 42.0, 90.0)  # above the floor, averaged as `deepen` does
KEPT_DB = -2.0

Pair = tuple[str, Cine, Cine]  # which set, hazy, clean


def main() -> None:
    """Prints a Markdown table for each set of frames."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--simulated", type=int, default=24, help="simulated hearts (24)")
    parser.add_argument("--real", type=int, default=36, help="clean real scans under haze (36)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    trained = Dehazer.from_pretrained("fast", device="cpu")
    plain = replace(PRESETS["fast"], deepen_db=0.0, warm_start=False)
    dehazer = Dehazer(trained.tissue, trained.haze, plain, "cpu")
    pixels: dict[str, list[np.ndarray]] = {}
    for name, hazy, clean in frames(args.simulated, args.real):
        pixels.setdefault(name, []).append(votes_and_truth(dehazer, hazy, clean))
    for name, parts in pixels.items():
        print("\n".join(table(name, np.concatenate(parts, 1))) + "\n")


def frames(simulated: int, real: int) -> Iterator[Pair]:
    """Frames whose truth is known."""
    for seed in range(SIMULATED_FIRST, SIMULATED_FIRST + simulated):
        scene = simulated_scene(seed, 1)
        yield "simulated hearts", scene.hazy, scene.clean
    data = Path(os.environ.get("USDEHAZE_DATA", HERE.parents[1] / "shared" / "data"))
    if not data.is_dir():
        return
    bench = Bench({}, data, Records(Path()), SHARES[0])
    for i, scan in enumerate(bench.clean_scans(real)):
        native = scan.mapper.from_model(bench.hazes[i % len(bench.hazes)].frame_db[None], FLOOR_DB)
        scene = scan.under(native, native[0])
        yield (CLEAN_CINES if scan.cavities is None else CAMUS), scene.hazy, scene.clean


def votes_and_truth(dehazer: Dehazer, hazy: Cine, clean: Cine) -> np.ndarray:
    """Vote, true gain and level above the floor of every pixel of the model grid that holds image: ``(3, N)`` dB."""
    mapper, span = make_mapper(hazy.geometry, hazy.frames.shape[1:], dehazer.grid), hazy.dynamic_range_db
    y, true = (torch.from_numpy(mapper.to_model(c.frames[:1]) / span + 1).clamp(0, 1) for c in (hazy, clean))
    seen = torch.from_numpy(mapper.valid.astype(np.float32))
    vote = dehazer.split(y, seen, [0], span)[0]
    level = average(y[:, None], LEVEL_CELLS)[:, 0]
    return np.stack([span * x[0].numpy()[mapper.valid] for x in (vote, true - y, level)])


def table(name: str, pixels: np.ndarray) -> list[str]:
    """Mean true gain, share of pixels that kept, by vote and level."""
    vote, true, level = pixels
    heads = [f"{name}: vote, dB", *(f"{a:g} to {b:g} dB" for a, b in pairwise(LEVELS_DB))]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for low, high in pairwise(VOTES_DB):
        cells = [f"{low:g} to {high:g}"]
        for dim, bright in pairwise(LEVELS_DB):
            of = (vote > low) & (vote <= high) & (level > dim) & (level <= bright)
            few = of.mean() < 5e-4
            cells.append("" if few else f"{true[of].mean():.1f} ({100 * (true[of] > KEPT_DB).mean():.0f} %)")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    main()
