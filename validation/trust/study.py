"""The study of trust: what is dehazed, which figures are taken of it, and what several of them say together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.cine import Cine
from usdehaze.dehazing.device import find_device
from usdehaze.dehazing.settings import POSTERIOR, PRESETS, PRIORS
from usdehaze.errors import InputError
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.priors.prior import Prior
from usdehaze.validation.benchmark import FIRST_SEED, OURS
from usdehaze.validation.harm import leak_bits, leak_correlation
from usdehaze.validation.scene import Decomposed, Scene, Split, clean_figures, hazy_figures, removed_flicker, wall_error
from validation.baselines import Method
from validation.calibration import Pixels, calibrate, counted_pixels
from validation.records import Records, file_digest
from validation.scenes import CAMUS_LABELS, real_scene, simulated_scene

FIT_SEED = FIRST_SEED + 100  # scenes that the calibration is fitted on
CINE_FRAMES = 8  # of a simulated cine; temporal methods see them all
FLICKER_FRAMES = 3
REAL_FRAMES = 4
SEEDS = (1, 2)  # beside seed 0
SAMPLES = 4


@dataclass(frozen=True)
class Job:
    """One piece of work: a part of the study, a scene (set and index in it), and a method."""

    part: str
    scenes: str
    index: int
    method: str


@dataclass(eq=False)
class Study:
    """What is measured, how much of it, and where it is kept."""

    table: dict[str, Method]
    sizes: dict[str, int]
    data: Path
    records: Records

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

    def scan(self, scenes: str, index: int) -> Path | None:
        """File of a real scene; None for a simulated one, and without real data."""
        found = sorted((self.data / scenes).glob("*.h5"))
        share = int(f"{index:b}"[::-1], 2) / 2 ** index.bit_length()  # 0, 1/2, 1/4, ...: more scenes move none
        return found[int(share * len(found))] if found else None

    @lru_cache  # noqa: B019 (one study a run)
    def scene(self, scenes: str, index: int) -> Scene:
        if scenes == "fit":
            return simulated_scene(FIT_SEED + index, 1)
        if scenes == "simulated":
            return simulated_scene(FIRST_SEED + index, CINE_FRAMES)
        path = self.scan(scenes, index)
        if path is None:
            raise InputError(self.data / scenes, "holds no scans", "real data; set USDEHAZE_DATA to their folder")
        if scenes == "camus":
            return real_scene(path, FIRST_SEED + index, n_frames=1, dataset="image", labels=CAMUS_LABELS)
        return real_scene(path, FIRST_SEED + 1000 + index, n_frames=REAL_FRAMES)

    def key(self, job: Job) -> tuple[str, str, dict[str, Any]]:
        """Part, name and all that the record of a job depends on, as `Records.kept` takes them."""
        method, scan = self.table[job.method], self.scan(job.scenes, job.index)
        by: dict[str, Any] = {"method": job.method, "what": method.what, "scan": scan and file_digest(scan)}
        if method.learned:
            by |= {"priors": network_names(), "preset": asdict(PRESETS["fast" if job.method == OURS else "paper"])}
            by["device"] = find_device("auto").type
        return job.part, f"{job.scenes} {job.index}", by

    def record(self, job: Job) -> dict[str, Any] | None:
        """The stored record of a job, None where there is none or it was made with other settings."""
        return self.records.found(*self.key(job))

    def arrays(self, job: Job) -> Path:
        """Where the pixels of a job are that its record is not enough for."""
        return self.records.path(*self.key(job)).with_suffix(".npz")

    def measure(self, job: Job) -> None:
        """Does the work, and keeps the record."""
        self.records.kept(*self.key(job), partial(self._measured, job))

    def _measured(self, job: Job) -> dict[str, Any]:
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
        record = {**asdict(job), "scene": scene.name, "settings": split.settings}
        record["cpu_s_per_frame"] = (time.process_time() - began) / (len(cine.frames) if method.temporal else n_frames)
        if job.part == "clean":
            record["figures"] = {"cine": scene.name, "frame": 0} | clean_figures(
                cine.frames[0], split.tissue[0], scene.walls[0]
            )
        elif job.part == "flicker":
            of_truth = removed_flicker(scene, scene.clean.frames[:n_frames])
            record["figures"] = {"removed": removed_flicker(scene, split.tissue), "removed_by_truth": of_truth}
        elif job.part == "hazy":
            record["figures"] = hazy_figures(scene, split) | wall_error(scene, split.tissue[0])
            record["chance"] = chance_figures(scene)
        if job.part == "samples":
            estimate, std, truth = counted_pixels(scene, split)
            np.savez_compressed(self.arrays(job), estimate=estimate, std=std, truth=truth)
        elif job.scenes == "simulated" and job.method == OURS and job.part != "clean":
            np.savez_compressed(self.arrays(job), tissue=split.tissue[0], walls=scene.walls[0])
        return record


@lru_cache
def network_names() -> list[str]:
    """The learned posterior of our method, and the tissue prior of those without a haze prior."""
    return [LearnedPosterior.load(POSTERIOR).name, Prior.load(PRIORS[0], "tissue").name]


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
            with np.load(study.arrays(job)) as arrays:
                parts[job.scenes].append((arrays["estimate"], arrays["std"], arrays["truth"]))
    return calibrate(parts["fit"], parts["simulated"]) if all(parts.values()) else None


def seeds(study: Study) -> list[dict[str, Any]]:
    """Scenes done with every seed: spread of the tissue, and its wall mean under each seed."""
    found = []
    for index in range(study.sizes["seeds"]):
        jobs = [Job(part, "simulated", index, OURS) for part in ("hazy", *(f"seed {s}" for s in SEEDS))]
        if any(study.record(job) is None for job in jobs):
            continue
        stored = [np.load(study.arrays(job)) for job in jobs]
        outputs, walls = np.stack([arrays["tissue"] for arrays in stored]), stored[0]["walls"]
        means = [float(output[walls].mean()) for output in outputs] if walls.any() else []
        spread = seed_spread(outputs, np.ones(walls.shape, bool))
        found.append({"index": index, "n_seeds": len(outputs), "spread_db": spread, "wall_means_db": means})
    return found


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


def dehaze_first(method: Method, cine: Cine, n_frames: int, **options: Any) -> Split:
    """The first frames of a cine by one method. A temporal one sees all of the cine, any other just these frames.

    Args:
        method: see `Method`.
        cine: the scan.
        n_frames: frames that count.
        options: for ``method.make``.
    """
    seen = cine if method.temporal else replace(cine, frames=cine.frames[:n_frames], frame_times_s=None)
    result: Decomposed = method.make(**options)(seen)
    std, settings = getattr(result, "std", None), dict(getattr(result, "settings", {}))
    std = None if std is None else std[:n_frames]
    return Split(result.tissue[:n_frames], result.haze[:n_frames], std, settings)


def chance_figures(scene: Scene) -> dict[str, float]:
    """Leakage of the haze of another scene, which cannot know the tissue: what chance makes of the figures."""
    assert scene.stranger is not None, "chance needs haze of another scene"
    inside = scene.inside
    images = scene.stranger[inside], scene.clean.frames[0][inside], scene.haze[0][inside]
    return {"leak_correlation": leak_correlation(*images), "leak_bits": leak_bits(*images)}


def seed_spread(outputs_db: np.ndarray, inside: np.ndarray) -> float:
    """Spread of the results of one frame under several seeds: root mean variance over the pixels inside, dB.

    Args:
        outputs_db: ``(S, H, W)``, one result a seed, at least two.
        inside: bool ``(H, W)``.

    Raises:
        ValueError: fewer than two seeds, or no pixel inside.
    """
    if len(outputs_db) < 2 or not inside.any():
        raise ValueError(f"spread needs two seeds and a pixel, found {len(outputs_db)} and {int(inside.sum())}")
    return float(np.sqrt(outputs_db[:, inside].astype(np.float64).var(axis=0, ddof=1).mean()))
