"""Frames that start from the one before, against frames each for itself: ``python validation/warm_start.py``.

Simulated cines that no prior was trained on are dehazed both ways. Asked is whether a warm start drifts (error by place
in the group), freezes (does the tissue move with the truth's?) or flickers, and what it costs. Every cine leaves a
record in --work, named after all that it depends on: a second run, or one that was stopped, measures only what is new.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_records import Records, digest_of, made_by
from scipy import ndimage

from usdehaze.dehazer import Dehazer
from usdehaze.settings import PRESETS, Settings
from usdehaze.validation import metrics
from usdehaze.validation.benchmark import FIRST_SEED
from usdehaze.validation.realhaze import Scene, simulated_scene
from usdehaze.validation.trust import flicker_ratio

HERE = Path(__file__).resolve().parent
CINES_FIRST = FIRST_SEED + 2000
LAG = 4  # frames over which motion is looked at: 80 ms
CELLS = 7  # side of the square that speckle is averaged over before that


def main() -> None:
    """Measures what is missing, then writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--presets", nargs="+", default=["fast"], choices=[n for n in PRESETS if n != "paper"])
    parser.add_argument("--cines", type=int, default=2, help="simulated cines (2)")
    parser.add_argument("--frames", type=int, default=60, help="frames of each (60)")
    parser.add_argument("--threads", type=int, default=1, help="CPU cores to use")
    parser.add_argument("--work", type=Path, default=HERE.parent / "runs" / "presets", help="where records are kept")
    parser.add_argument("--out", type=Path, default=HERE / "WARM.md", help="the tables")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    records = Records(args.work)
    scenes = [simulated_scene(CINES_FIRST + i, args.frames) for i in range(args.cines)]
    rows = []
    for preset in args.presets:
        for warm in (False, True):
            settings = replace(PRESETS[preset], warm_start=warm)
            rows.append((preset, settings, [record_of(scene, settings, preset, records) for scene in scenes]))
    text = "\n".join(page(rows, " ".join(["python validation/warm_start.py", *sys.argv[1:]])))
    args.out.write_text(text + "\n", encoding="utf-8")
    print(text)


def record_of(scene: Scene, settings: Settings, preset: str, records: Records) -> dict[str, Any]:
    """Figures of one cine."""
    dehazer = Dehazer.from_pretrained(preset, device="cpu")
    dehazer = Dehazer(dehazer.tissue, dehazer.haze, settings, "cpu")

    def work() -> dict[str, Any]:
        began = time.process_time()
        result = dehazer.dehaze(scene.hazy)
        cost = {"dehaze_cpu_s": (time.process_time() - began) / len(scene.hazy.frames)}
        return figures(scene, result.tissue, result.haze) | cost

    by = made_by(scene.hazy, dehazer) | {"truth": digest_of(scene.clean.frames)}
    return records.kept("cine", scene.name, by, work)


def figures(scene: Scene, tissue_db: np.ndarray, haze_db: np.ndarray) -> dict[str, Any]:
    """Errors of each frame, flicker and motion; estimates are ``(T, H, W)`` dB.

    ``psnr_gain_db`` and ``haze_psnr_db`` by frame. ``flicker``: change of what was removed from frame to frame over
    that of the input; ``true_flicker`` of what had to be removed. ``motion``: of the change of the tissue over 4
    frames, speckle averaged, its correlation with that of the truth, and its slope on it (0: frozen, 1: moves as much).
    """
    hazy, true, span = scene.hazy.frames, scene.clean.frames, scene.hazy.dynamic_range_db
    before, after = ([metrics.psnr_db(a, b, span) for a, b in zip(x, true, strict=True)] for x in (hazy, tissue_db))
    moved, truly = (change(x) for x in (tissue_db, true))
    return {
        "psnr_gain_db": [b - a for a, b in zip(before, after, strict=True)],
        "haze_psnr_db": [metrics.psnr_db(a, b, span) for a, b in zip(haze_db, scene.haze, strict=True)],
        "flicker": flicker_ratio(hazy - tissue_db, hazy, scene.inside),
        "true_flicker": flicker_ratio(hazy - true, hazy, scene.inside),
        "motion": {
            "correlation": float(np.corrcoef(moved, truly)[0, 1]),
            "slope": float(moved @ truly / (truly @ truly)),
            "input": float(np.corrcoef(change(hazy), truly)[0, 1]),
        },
    }


def change(frames_db: np.ndarray) -> np.ndarray:
    """Change over `LAG` frames of frames ``(T, H, W)`` whose speckle is averaged, flat, dB."""
    smooth = ndimage.uniform_filter(frames_db.astype(np.float64), (0, CELLS, CELLS))
    return (smooth[LAG:] - smooth[:-LAG]).ravel()


def page(rows: list[tuple[str, Settings, list[dict[str, Any]]]], command: str) -> list[str]:
    """Both tables as Markdown: means over the cines, and PSNR gain by place in the group."""
    heads = ("", "PSNR gain, dB", "haze PSNR, dB", "flicker", "motion: correlation", "slope", "CPU s a frame")
    lines = ["# Warm start", "", f"    {command}", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name, settings, records in rows:
        cells = [label(name, settings)]
        for figure, digits in (("psnr_gain_db", 2), ("haze_psnr_db", 2), ("flicker", 3)):
            cells.append(f"{np.mean([r[figure] for r in records]):.{digits}f}")
        cells += [f"{np.mean([r['motion'][what] for r in records]):.3f}" for what in ("correlation", "slope")]
        lines.append("| " + " | ".join([*cells, f"{np.mean([r['dehaze_cpu_s'] for r in records]):.2f}"]) + " |")
    truth = np.mean([r["true_flicker"] for r in rows[0][2]]), np.mean([r["motion"]["input"] for r in rows[0][2]])
    lines += [
        "",
        f"The truth's own flicker is {truth[0]:.3f}; the input's motion correlates with the truth's by {truth[1]:.3f}.",
    ]
    group = max(settings.group for _, settings, _ in rows)
    heads = ("PSNR gain, dB, by place in the group", *map(str, range(group)))
    lines += ["", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name, settings, records in rows:
        gains = np.array([r["psnr_gain_db"] for r in records])
        by_place = [gains[:, place :: settings.group].mean() for place in range(settings.group)]
        lines.append("| " + " | ".join([label(name, settings), *(f"{gain:.2f}" for gain in by_place)]) + " |")
    return lines


def label(name: str, settings: Settings) -> str:
    return f"{name}, {'warm start' if settings.warm_start else 'each for itself'}"


if __name__ == "__main__":
    main()
