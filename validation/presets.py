"""Quality and time of each preset: ``python -m validation.presets``.

On frames for tuning: simulated hearts that no prior was trained on, clean real frames under simulated haze (every level
and extent, tuning share of ``patients.json``), and frame 0 of the real hazy clips. Every frame leaves a record in
--work, named after all that it depends on, priors, settings and code: a second run, or one that was stopped, measures
only what is new. Real scans are in USDEHAZE_DATA; without them only the simulated hearts are measured.

With --tissue-prior or --haze-prior a rule guides these, and the presets are the rule's.

Clips are few and one of them hardly has a septum: give several --seeds before you choose by them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usdehaze.cine import Cine
from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.dehazing.settings import PRESETS, Settings, preset_with
from usdehaze.io import open_cine
from usdehaze.validation.benchmark import FIRST_SEED
from usdehaze.validation.regions import find_regions
from usdehaze.validation.scene import Decomposed, Scene, hazy_figures, wall_error
from validation.bench.parts import Bench
from validation.figures import clip_figures
from validation.hazes import FLOOR_DB
from validation.markdown import head, mean, row
from validation.paths import RESULTS, RUNS, real_scans
from validation.patients import SHARES
from validation.records import Records, digest_of, made_by, priors_of, truth_of
from validation.scenes import simulated_scene

SIMULATED_FIRST = FIRST_SEED + 1000  # the bench has the seeds below
QUICK = tuple(name for name in PRESETS if name != "paper")  # the paper's takes a minute a frame and more
SIMULATED, REAL, CLIPS = "simulated", "real", "clips"
# Column heading, set of frames, figure, part of it, digits.
COLUMNS = (
    ("simulated: PSNR gain, dB", SIMULATED, "psnr_db", "delta", 2),
    ("haze PSNR, dB", SIMULATED, "haze_psnr_db", "tissue", 1),
    ("gCNR gain", SIMULATED, "gcnr", "delta", 3),
    ("real tissue: PSNR gain, dB", REAL, "psnr_db", "delta", 2),
    ("haze PSNR, dB", REAL, "haze_psnr_db", "tissue", 1),
    ("gCNR gain", REAL, "gcnr", "delta", 3),
    ("walls, dB", REAL, "wall_error_db", "tissue", 1),
    ("clips: gCNR", CLIPS, "gcnr", "tissue", 3),
    ("KS septum", CLIPS, "ks_tissue", "tissue", 3),
    ("KS ventricle", CLIPS, "ks_haze", "tissue", 3),
)


@dataclass(frozen=True)
class Frame:
    """A frame to dehaze, the set it belongs to, what its figures depend on, and how they are taken."""

    part: str
    cine: Cine
    depends: dict[str, Any]
    figures: Callable[[Decomposed], dict[str, Any]]


def main() -> None:
    """Measures what is missing, then writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--simulated", type=int, default=2, help="simulated hearts (2)")
    parser.add_argument("--real", type=int, default=9, help="real frames under haze (9: one of each level and extent)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the random streams (0)")
    parser.add_argument("--presets", nargs="+", default=QUICK, choices=QUICK, help="all but the paper's by default")
    parser.add_argument("--posterior", help="file, or name of a shipped one (the default)")
    parser.add_argument("--tissue-prior", help="file, or name of a shipped prior, instead of the posterior")
    parser.add_argument("--haze-prior", help="that goes with it")
    parser.add_argument("--work", type=Path, default=RUNS / "presets", help="where records are kept")
    parser.add_argument("--out", type=Path, default=RESULTS / "PRESETS.md", help="the table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = real_scans()
    records = Records(args.work, "validation.presets")
    frames = list(simulated(args.simulated))
    if data.is_dir():
        frames += [*under_haze(data, args.real, records), *clips(data)]
    networks = {name: getattr(args, name) for name in ("posterior", "tissue_prior", "haze_prior")}
    trained = Dehazer.from_pretrained(**networks, device="cpu")
    presets = {name: preset_with(name, explicit=trained.settings.by_rule) for name in args.presets}
    table = {name: measure(settings, frames, args.seeds, trained, records) for name, settings in presets.items()}
    text = "\n".join(
        page(table, presets, frames, args.seeds, trained, " ".join(["python -m validation.presets", *sys.argv[1:]]))
    )
    args.out.write_text(text + "\n", encoding="utf-8")
    print(text)


def simulated(n: int) -> Iterator[Frame]:
    """Simulated hearts, one frame each."""
    for seed in range(SIMULATED_FIRST, SIMULATED_FIRST + n):
        yield of_scene(SIMULATED, simulated_scene(seed, 1))


def under_haze(data: Path, n: int, records: Records) -> Iterator[Frame]:
    """Clean real frames for tuning, each under another haze: level and extent in turn."""
    bench = Bench({}, data, records, SHARES[0])
    for i, scan in enumerate(bench.clean_scans(n)):
        native = scan.mapper.from_model(bench.hazes[i % len(bench.hazes)].frame_db[None], FLOOR_DB)
        yield of_scene(REAL, scan.under(native))


def of_scene(part: str, scene: Scene) -> Frame:
    def figures(result: Decomposed) -> dict[str, Any]:
        return hazy_figures(scene, result) | wall_error(scene, result.tissue[0])

    return Frame(part, scene.hazy, truth_of(scene), figures)


def clips(data: Path) -> Iterator[Frame]:
    """Frame 0 of the real hazy clips."""
    for path in sorted((data / "echo-haze").glob("*.h5")):
        cine = open_cine(path, frames=slice(0, 1))
        regions = find_regions(path.with_suffix(".rois.json"), cine)
        masks = [regions.mask(role, 0) for role in ("tissue", "haze")]

        def figures(result: Decomposed, cine: Cine = cine, masks: list[np.ndarray] = masks) -> dict[str, Any]:
            return clip_figures(cine.frames[0], result.tissue[0], result.haze[0], *masks)

        yield Frame(CLIPS, cine, {"regions": digest_of(*masks)}, figures)


def measure(
    settings: Settings, frames: list[Frame], seeds: list[int], trained: Dehazer, records: Records
) -> list[dict[str, Any]]:
    """A record of every frame and seed: figures, network passes, CPU seconds."""
    found = []
    for seed in seeds:
        dehazer = trained.with_settings(replace(settings, seed=seed))
        for frame in frames:

            def work(frame: Frame = frame, dehazer: Dehazer = dehazer) -> dict[str, Any]:
                began = time.process_time()
                result = dehazer.dehaze(frame.cine)
                cost = {"dehaze_cpu_s": time.process_time() - began, "evaluations": result.settings["evaluations"]}
                return frame.figures(result) | cost

            by = made_by(frame.cine, dehazer) | frame.depends
            record = records.kept(frame.part, frame.cine.source.name, by, work)
            found.append(record | {"set": frame.part})
    return found


def page(
    table: dict[str, list[dict[str, Any]]],
    presets: dict[str, Settings],
    frames: list[Frame],
    seeds: list[int],
    trained: Dehazer,
    command: str,
) -> list[str]:
    """The table as Markdown, one row of means for each preset."""
    n_of = {part: sum(frame.part == part for frame in frames) for part in (SIMULATED, REAL, CLIPS)}
    heads = ["steps", "samples", "network passes", *(c[0] for c in COLUMNS), "largest KS septum", "CPU s"]
    lines = [
        "# Presets: quality and time",
        "",
        f"    {command}",
        "",
        f"Means over {n_of[SIMULATED]} simulated hearts, {n_of[REAL]} clean real frames (for tuning) under simulated",
        f"haze, and frame 0 of {n_of[CLIPS]} real hazy clips; seeds {', '.join(map(str, seeds))}. Gains: output less",
        "input; walls: mean of the output less that of the truth. CPU seconds are those of a frame on one core; other",
        "work on the machine adds to them.",
        "",
        f"Networks: {', '.join(priors_of(trained).values())}.",
        "",
        *head("", heads),
    ]
    for name, records in table.items():
        cells = [str(presets[name].steps), str(presets[name].samples)]
        cells.append(mean([r["evaluations"] for r in records], 0))
        for _, part, figure, which, digits in COLUMNS:
            cells.append(mean([r[figure][which] for r in records if r["set"] == part and figure in r], digits))
        septa = [r["ks_tissue"]["tissue"] for r in records if r["set"] == CLIPS]
        cells += [f"{max(septa):.2f}" if septa else "", mean([r["dehaze_cpu_s"] for r in records], 2)]
        lines.append(row(name, cells))
    return lines


if __name__ == "__main__":
    main()
