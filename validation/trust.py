"""Can the result be trusted? Do no harm, leakage, calibration, stability, and who is better; truth known.

    python validation/trust.py                     # everything that is not measured yet, then validation/TRUST.md
    python validation/trust.py --only ours --only camus
    python validation/trust.py --tables            # the tables of what there is, nothing is dehazed

Scenes are simulated hearts that no prior was trained on, and clean real frames (``USDEHAZE_DATA``) under simulated
haze.
Each piece of work (one scene, one method) leaves a JSON file in --work; a rerun takes on what is missing there, or was
made with other networks, presets, method settings or code. Two runs with different --only may go on side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_records import CODE, FIGURES
from code_hash import code_hash
from trust_tables import write_tables

from usdehaze.dehazing.settings import POSTERIOR, PRESETS, PRIORS
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.priors.prior import Prior
from usdehaze.validation.baselines import GAUSSIAN_STEPS, Method, methods
from usdehaze.validation.benchmark import FIRST_SEED, OURS
from usdehaze.validation.evaluate import write_json
from usdehaze.validation.realhaze import Scene, real_scene, simulated_scene
from usdehaze.validation.trust import seed_spread
from usdehaze.validation.trust_study import (
    Pixels,
    calibrate,
    chance_figures,
    clean_figures,
    counted_pixels,
    dehaze_first,
    flicker_figures,
    hazy_figures,
)

FIT_SEED = FIRST_SEED + 100  # scenes that the calibration is fitted on
CINE_FRAMES = 8  # of a simulated cine; temporal methods see them all
FLICKER_FRAMES = 3
REAL_FRAMES = 4
SEEDS = (1, 2)  # beside seed 0
SAMPLES = 4
MADE_BY_CODE = (*CODE, *(f"validation/{name}.py" for name in FIGURES), "simulate/*.py")
CAMUS_LABELS = ("label", {"tissue": ["170"], "haze": ["85"]})


@dataclass(frozen=True)
class Job:
    """One piece of work: a part of the study, a scene (set and index in it), and a method."""

    part: str
    scenes: str
    index: int
    method: str

    @property
    def key(self) -> str:
        parts = (self.part, self.scenes, str(self.index), self.method)
        return "_".join(part.replace(" ", "-").replace(",", "") for part in parts)


@dataclass(eq=False)
class Study:
    """What is measured, how much of it, and where it is kept."""

    table: dict[str, Method]
    sizes: dict[str, int]
    data: Path
    work: Path

    def jobs(self) -> Iterator[Job]:
        """All of it, what matters most first."""
        truth_known = [(name, i) for name in ("simulated", "camus", "clean-cines") for i in range(self.sizes[name])]
        cheap = [name for name, method in self.table.items() if not method.learned]
        costly = [name for name, method in self.table.items() if method.learned and name != OURS]
        yield from (Job(part, *scene, OURS) for part in ("hazy", "clean") for scene in truth_known)
        yield from (Job(part, *scene, name) for name in cheap for part in ("hazy", "clean") for scene in truth_known)
        yield from (Job("flicker", "simulated", i, name) for name in (OURS, *cheap) for i in range(self.sizes["cines"]))
        pairs = [(name, i) for i in range(self.sizes["calibration"]) for name in ("simulated", "fit")]
        yield from (Job("samples", *scene, OURS) for scene in pairs)
        yield from (Job(f"seed {s}", "simulated", i, OURS) for i in range(self.sizes["seeds"]) for s in SEEDS)
        yield from (Job("hazy", *scene, name) for scene in truth_known for name in costly)
        yield from (Job("clean", *scene, name) for scene in truth_known for name in costly)

    @lru_cache  # noqa: B019 (one study a run)
    def scene(self, scenes: str, index: int) -> Scene:
        if scenes == "fit":
            return simulated_scene(FIT_SEED + index, 1)
        if scenes == "simulated":
            return simulated_scene(FIRST_SEED + index, CINE_FRAMES)
        found = sorted((self.data / scenes).glob("*.h5"))
        share = int(f"{index:b}"[::-1], 2) / 2 ** index.bit_length()  # 0, 1/2, 1/4, ...: more scenes move none
        path = found[int(share * len(found))]
        if scenes == "camus":
            return real_scene(path, FIRST_SEED + index, n_frames=1, dataset="image", labels=CAMUS_LABELS)
        return real_scene(path, FIRST_SEED + 1000 + index, n_frames=REAL_FRAMES)

    def made_by(self, job: Job) -> dict[str, Any]:
        """What a record depends on, as JSON gives it back."""
        method = self.table[job.method]
        by: dict[str, Any] = {"what": method.what, "code": code_hash(*MADE_BY_CODE)}
        if method.learned:
            by |= {"priors": network_names(), "preset": asdict(PRESETS["fast" if job.method == OURS else "paper"])}
        return json.loads(json.dumps(by))

    def record(self, job: Job) -> dict[str, Any] | None:
        """The stored record of a job, None where there is none or it was made with other settings."""
        path = self.work / f"{job.key}.json"
        if not path.exists():
            return None
        record = json.loads(path.read_text(encoding="utf-8"))
        return record if record["made_by"] == self.made_by(job) else None

    def measure(self, job: Job) -> None:
        """Does the work, and keeps the record."""
        method, scene = self.table[job.method], self.scene(job.scenes, job.index)
        n_frames = FLICKER_FRAMES if job.part == "flicker" else 1
        began = time.process_time()
        cine = scene.clean if job.part == "clean" else scene.hazy
        options: dict[str, Any] = {}
        if job.part == "samples":
            options = {"samples": SAMPLES}
        elif job.part.startswith("seed"):
            options = {"seed": int(job.part.split()[1])}
        split = dehaze_first(method, cine, n_frames, **options)
        record = {**asdict(job), "scene": scene.name, "made_by": self.made_by(job), "settings": split.settings}
        record["cpu_s_per_frame"] = (time.process_time() - began) / (len(cine.frames) if method.temporal else n_frames)
        if job.part == "clean":
            record["figures"] = clean_figures(scene, split)
        elif job.part == "flicker":
            record["figures"] = flicker_figures(scene, split)
        elif job.part == "hazy":
            record["figures"] = hazy_figures(scene, split)
            record["chance"] = chance_figures(scene)
        if job.part == "samples":
            estimate, std, truth = counted_pixels(scene, split)
            np.savez_compressed(self.work / f"{job.key}.npz", estimate=estimate, std=std, truth=truth)
        elif job.scenes == "simulated" and job.method == OURS and job.part != "clean":
            np.savez_compressed(self.work / f"{job.key}.npz", tissue=split.tissue[0], walls=scene.walls[0])
        write_json(self.work / f"{job.key}.json", record)


@lru_cache
def network_names() -> list[str]:
    """The learned posterior of our method, and the tissue prior of those without a haze prior."""
    return [LearnedPosterior.load(POSTERIOR).name, Prior.load(PRIORS["fast"][0], "tissue").name]


def collect(study: Study) -> dict[str, Any]:
    """All records there are, with what needs several of them: calibration and spread over seeds."""
    document: dict[str, Any] = {
        "settings": {
            "sizes": study.sizes,
            "priors": network_names(),
            "methods": {name: method.what for name, method in study.table.items()},
            "samples": SAMPLES,
            "flicker_frames": FLICKER_FRAMES,
        },
        "records": [],
        "missing": [],
        "left_out": {},
    }
    for job in study.jobs():
        record = study.record(job)
        if record is None:
            document["missing"].append(asdict(job))
            reason = unable(study, job)
            if reason:
                document["left_out"][f"{job.method}/{job.scenes}"] = reason
        else:
            document["records"].append(record)
    document["calibration"] = calibration(study)
    document["seeds"] = seeds(study)
    return document


def calibration(study: Study) -> dict[str, Any] | None:
    """`calibrate` on the scenes that are there, None without any."""
    parts: dict[str, list[Pixels]] = {"fit": [], "simulated": []}
    for job in study.jobs():
        if job.part == "samples" and study.record(job) is not None:
            with np.load(study.work / f"{job.key}.npz") as arrays:
                parts[job.scenes].append((arrays["estimate"], arrays["std"], arrays["truth"]))
    return calibrate(parts["fit"], parts["simulated"]) if all(parts.values()) else None


def seeds(study: Study) -> list[dict[str, Any]]:
    """Scenes done with every seed: spread of the tissue, and its wall mean under each seed."""
    found = []
    for index in range(study.sizes["seeds"]):
        jobs = [Job(part, "simulated", index, OURS) for part in ("hazy", *(f"seed {s}" for s in SEEDS))]
        if any(study.record(job) is None for job in jobs):
            continue
        stored = [np.load(study.work / f"{job.key}.npz") for job in jobs]
        outputs, walls = np.stack([arrays["tissue"] for arrays in stored]), stored[0]["walls"]
        means = [float(output[walls].mean()) for output in outputs] if walls.any() else []
        spread = seed_spread(outputs, np.ones(walls.shape, bool))
        found.append({"index": index, "n_seeds": len(outputs), "spread_db": spread, "wall_means_db": means})
    return found


def main(arguments: list[str] | None = None, table: Callable[[int], dict[str, Method]] = methods) -> None:
    """Measures what is missing and writes trust.json and TRUST.md after each piece."""
    here = Path(__file__).resolve().parent
    data = Path(os.environ.get("USDEHAZE_DATA", here.parents[1] / "shared" / "data"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--simulated", type=int, default=3, help="simulated scenes")
    parser.add_argument("--camus", type=int, default=2, help="labelled clean stills")
    parser.add_argument("--clean-cines", type=int, default=2, help="clean cines")
    parser.add_argument("--cines", type=int, default=2, help="simulated cines whose flicker is measured")
    parser.add_argument("--seeds", type=int, default=2, help="simulated scenes done with three seeds")
    parser.add_argument("--calibration", type=int, default=6, help="scenes to fit the std's factor on, and to test it")
    parser.add_argument("--gaussian-steps", type=int, default=GAUSSIAN_STEPS, help="of the priors without haze prior")
    parser.add_argument("--only", action="append", default=[], help="part, scenes or method; all must hold")
    parser.add_argument("--tables", action="store_true", help="write the tables only")
    parser.add_argument("--threads", type=int, default=1, help="CPU cores to use")
    parser.add_argument("--work", type=Path, default=here.parent / "runs" / "trust", help="where records are kept")
    parser.add_argument("--out", type=Path, default=here, help="where TRUST.md and trust.json go")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    sizes = {name: getattr(args, name) for name in ("simulated", "camus", "cines", "seeds", "calibration")}
    study = Study(table(args.gaussian_steps), {**sizes, "clean-cines": args.clean_cines}, data, args.work)
    for job in study.jobs():
        wanted = all(word in (job.part, job.scenes, job.method) for word in args.only)
        if args.tables or not wanted or study.record(job) is not None:
            continue
        reason = unable(study, job)
        if reason:
            print(f"left out, {reason}: {job.key}", flush=True)
            continue
        study.measure(job)
        print(job.key, flush=True)
        write(study, args.out)
    write(study, args.out)


def unable(study: Study, job: Job) -> str:
    """Why a job cannot be done here, "" where it can."""
    method = study.table[job.method]
    if not method.available:
        return f"it needs {method.needs}"
    if job.scenes == "camus" and method.temporal and job.method.startswith("SVD"):
        return "stills, no cine"
    if job.scenes in ("camus", "clean-cines") and not (study.data / job.scenes).is_dir():
        return "no real data here (USDEHAZE_DATA)"
    return ""


def write(study: Study, out: Path) -> None:
    document = collect(study)
    write_json(out / "trust.json", document)
    write_tables(out / "TRUST.md", document)


if __name__ == "__main__":
    main()
