"""The parts of the test bench for priors: what is measured on which frames, each piece kept as a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usdehaze.cine import Cartesian, Cine
from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.dehazing.settings import PRIORS
from usdehaze.geometry import ModelGrid, make_mapper
from usdehaze.io import open_cine
from usdehaze.validation.benchmark import FIRST_SEED, OURS
from usdehaze.validation.evaluate import figure
from usdehaze.validation.regions import find_regions
from usdehaze.validation.scene import Decomposed, Scene, clean_figures, hazy_figures, wall_error
from validation.baselines import GAUSSIAN_STEPS, methods
from validation.calibration import Interval, interval_coverage, interval_of
from validation.figures import SIGMAS, clip_figures, denoising_loss, scene_figures
from validation.hazes import FLOOR_DB, Haze, load_hazes
from validation.lpips import Lpips
from validation.oracles import ORACLES, oracle
from validation.paths import HAZES, PATIENTS
from validation.patients import read_patients
from validation.records import Records, digest_of, made_by, truth_of
from validation.scenes import CAMUS, CAMUS_LABELS, CLEAN_CINES, CleanScan, open_clean, simulated_scene

LOW_HAZE_DB = -46.0  # a CAMUS scan counts as clean where the median of its ventricle is no higher
SIMULATED = 8
SCENES = {"tuning": 36, "held-out": 72}  # of part b: four, or eight, of each haze level and extent
SPAN_DB = 60.0  # of the frames that hazes are shown to a prior as
CLASSICAL = ("median over beams", "non-local means")
CINE_FRAMES = 12  # first ones of a clip, in part i
RULES = {"projection": "projection", "PiGDM": "pigdm", "DPS": "dps"}
Outcome = tuple[np.ndarray, Interval | None]  # tissue (H, W) in dB, and its 95 % interval where a method states one


@dataclass(eq=False)
class Bench:
    """What is measured, and where it is kept.

    Attributes:
        options: of `Dehazer.from_pretrained`: the preset, and priors, steps, samples and device where they are given.
        data: folder of real scans.
        records: what was measured before.
        share: of the real clean scans, "tuning" or "held-out".
        seeds: of part c.
        limits: most scenes of a part, by its letter.
        cine_frames: most frames of a clip, in part i.
        baselines: also measure what runs without a haze prior in part b.
        gaussian_steps: of the paper's rules among these.
        sets: of real clean scans.
        oracles: also measure, in part b, what could be reached.
    """

    options: dict[str, Any]
    data: Path
    records: Records
    share: str = "tuning"
    seeds: tuple[int, ...] = (0, 1, 2)
    limits: dict[str, int] = field(default_factory=dict)
    cine_frames: int = CINE_FRAMES
    baselines: bool = False
    gaussian_steps: int = GAUSSIAN_STEPS
    sets: tuple[str, ...] = (CAMUS, CLEAN_CINES)
    oracles: bool = True

    def __post_init__(self) -> None:
        of_share = read_patients(PATIENTS, self.share)
        self.names = {name: of_share[name] for name in self.sets}
        self.patients = [name for name in of_share[CAMUS] if (self.data / CAMUS / f"{name}.h5").exists()]
        if CAMUS in self.names:
            self.names[CAMUS] = [scan for scan in self.patients if self._has_low_haze(scan)]
        self.hazes = load_hazes(HAZES)

    @lru_cache  # noqa: B019 (one bench a run)
    def dehazer(self, seed: int = 0, with_haze_prior: bool = True) -> Dehazer:
        return Dehazer.from_pretrained(**self.options, seed=seed, use_haze_prior=with_haze_prior)

    @lru_cache  # noqa: B019 (one bench a run)
    def without_haze_prior(self, rule: str) -> Dehazer:
        """The tissue prior by the paper's sampler, everything else taken for Gaussian noise."""
        options = self.options | {"preset": "paper", "steps": self.gaussian_steps, "samples": 1, "guidance": rule}
        options.setdefault("tissue_prior", PRIORS[0])
        options.pop("posterior", None)
        return Dehazer.from_pretrained(**options, sampler="euler-maruyama", use_haze_prior=False)

    @cached_property
    def lpips(self) -> Lpips | None:
        folder = self.data / "lpips"
        return Lpips(folder) if folder.is_dir() else None

    def some(self, part: str, everything: int) -> int:
        """How many scenes of a part are measured."""
        return min(self.limits.get(part, everything), everything)

    def clean_scans(self, n: int) -> Iterator[CleanScan]:
        """First frames of n clean scans of this share, the two sets in turn; after the last scan comes the first."""
        sets = [[(name, scan) for scan in scans] for name, scans in self.names.items()]
        in_turn = [scans[i] for i in range(max(map(len, sets))) for scans in sets if i < len(scans)]
        for i in range(n):
            yield clean_scan(self.data, *in_turn[i % len(in_turn)])

    def _has_low_haze(self, scan: str) -> bool:
        """Many CAMUS scans come with haze of their own, which a dehazer rightly takes off and is then charged for."""
        opened = clean_scan(self.data, CAMUS, scan)
        assert opened.cavities is not None
        return bool(np.median(opened.cine.frames[0][opened.cavities[0]]) <= LOW_HAZE_DB)

    @property
    def n_clean(self) -> int:
        return sum(map(len, self.names.values()))

    def simulated(self) -> list[dict[str, Any]]:
        """Part a: hearts of seeds that no prior was trained on, hazy and clean."""

        def measure(scene: Scene) -> dict[str, Any]:
            clean = self.dehazer().dehaze(scene.clean)
            harm = clean_figures(scene.clean.frames[0], clean.tissue[0], scene.walls[0])
            result = self.dehazer().dehaze(scene.hazy, interval=True)
            tissue, interval = outcome(result)
            figures = hazy_figures(scene, result) | wall_error(scene, tissue)
            return harm | figures | coverage_figures(scene, interval)

        records = []
        for seed in range(FIRST_SEED, FIRST_SEED + self.some("a", SIMULATED)):
            scene = simulated_scene(seed, 1)
            by = made_by(scene.hazy, self.dehazer()) | truth_of(scene)
            records.append(self.records.kept("a", scene.name, by, partial(measure, scene)))
        return records

    def under_haze(self) -> list[dict[str, Any]]:
        """Part b: real tissue under a haze of each level and extent, by every method."""

        def measure(scene: Scene, run: Callable[[], Decomposed]) -> dict[str, Any]:
            tissue, interval = outcome(run())
            return scene_figures(scene, tissue, self.lpips) | coverage_figures(scene, interval)

        records = []
        lpips = self.lpips and self.lpips.sha256
        for i, scan in enumerate(self.clean_scans(self.some("b", SCENES[self.share]))):
            haze = self.hazes[i % len(self.hazes)]
            native = scan.mapper.from_model(haze.frame_db[None], FLOOR_DB)
            scene = scan.under(native)
            design = {"level": haze.level, "extent": haze.extent, "haze": haze.seed}
            design["set"] = CLEAN_CINES if scan.cavities is None else CAMUS
            for method, by, run in self.rows(scene, scan, haze):
                by = by | truth_of(scene) | {"method": method, "haze": digest_of(haze.frame_db), "lpips": lpips}
                record = self.records.kept("b", scene.name, by, partial(measure, scene, run))
                records.append(record | {"method": method, "scene": i} | design)
        return records

    def rows(
        self, scene: Scene, scan: CleanScan, haze: Haze
    ) -> Iterator[tuple[str, dict[str, Any], Callable[[], Decomposed]]]:
        """Name, what it depends on, and what gives its result, of every method of part b."""
        hazy, dehazers = scene.hazy, {OURS: self.dehazer()}
        for name in ORACLES if self.oracles else ():
            yield name, {"frames": digest_of(hazy.frames)}, partial(oracle, name, scene, scan.mapper, haze.frame_db)
        if self.baselines:
            table = methods()
            for name in CLASSICAL:
                if table[name].available:
                    yield name, {"frames": digest_of(hazy.frames)}, partial(table[name].make(), hazy)
            if self.dehazer().haze:
                dehazers["same sampler, Gaussian noise"] = self.dehazer(with_haze_prior=False)
            dehazers |= {f"{name}, Gaussian noise": self.without_haze_prior(rule) for name, rule in RULES.items()}
        for name, dehazer in dehazers.items():
            yield name, made_by(hazy, dehazer), partial(dehazer.dehaze, hazy, interval=True)

    def clips(self) -> list[dict[str, Any]]:
        """Part c: first frames of real hazy clips, under every seed."""

        def measure(cine: Cine, masks: list[np.ndarray], dehazer: Dehazer) -> dict[str, Any]:
            result = dehazer.dehaze(cine)
            return clip_figures(cine.frames[0], result.tissue[0], result.haze[0], *masks)

        found = sorted((self.data / "echo-haze").glob("*.h5"))
        records = []
        for path in found[: self.some("c", len(found))]:
            cine = open_cine(path, frames=slice(0, 1))
            regions = find_regions(path.with_suffix(".rois.json"), cine)
            masks = [regions.mask(role, 0) for role in ("tissue", "haze")]
            for seed in self.seeds:
                dehazer = self.dehazer(seed)
                by = made_by(cine, dehazer) | {"regions": digest_of(*masks)}
                work = partial(measure, cine, masks, dehazer)
                records.append(self.records.kept("c", path.name, by, work) | {"seed": seed})
        return records

    def harm(self) -> list[dict[str, Any]]:
        """Part d: clean real frames, dehazed."""

        def measure(scan: CleanScan) -> dict[str, Any]:
            tissue = self.dehazer().dehaze(scan.cine).tissue[0]
            return clean_figures(scan.cine.frames[0], tissue, scan.walls[0])

        records = []
        for scan in self.clean_scans(self.some("d", self.n_clean)):
            by = made_by(scan.cine, self.dehazer()) | {"regions": digest_of(scan.walls)}
            records.append(self.records.kept("d", scan.cine.source.name, by, partial(measure, scan)))
        return records

    def losses(self) -> dict[str, Any]:
        """Part e: denoising losses by noise level: tissue prior on each set of real frames, haze prior on the hazes."""
        dehazer = self.dehazer()
        sets: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {CAMUS: [], CLEAN_CINES: []}
        for scan in self.clean_scans(self.some("e", self.n_clean)):
            sets[CLEAN_CINES if scan.cavities is None else CAMUS].append(model_frame(scan.cine, dehazer.grid))
        losses: dict[str, Any] = {
            "sigmas": list(SIGMAS),
            "frames": {name: len(frames) for name, frames in sets.items()},
        }
        losses["tissue"] = {}
        for name, frames in sets.items():
            if frames and dehazer.tissue:
                images, counts = (torch.stack(parts)[:, None] for parts in zip(*frames, strict=True))
                losses["tissue"][name] = denoising_loss(dehazer.tissue, images, counts)
        if dehazer.haze:
            hazes = self.haze_frames()[:, None]
            losses["haze"] = denoising_loss(dehazer.haze, hazes, torch.ones_like(hazes, dtype=torch.bool))
        return losses

    def haze_frames(self) -> torch.Tensor:
        """The hazes on the priors' grid, ``(N, depth, angle)`` in [0, 1] of 60 dB."""
        to_grid = make_mapper(Cartesian(), self.hazes[0].frame_db.shape, self.dehazer().grid)
        frames = to_grid.to_model(np.stack([haze.frame_db for haze in self.hazes]))
        return torch.from_numpy(frames / SPAN_DB + 1).clamp(0, 1)


def outcome(result: Any) -> Outcome:
    """Of the first frame of a dehazed cine."""
    interval = interval_of(result)
    return result.tissue[0], None if interval is None else (interval[0][0], interval[1][0])


def coverage_figures(scene: Scene, interval: Interval | None) -> dict[str, Any]:
    """`interval_coverage` of a scene's first frame, as figures; none where there is no interval."""
    if interval is None:
        return {}
    frames = scene.hazy.frames[0], scene.clean.frames[0], scene.haze[0]
    shares = interval_coverage(interval, *frames, scene.inside, -scene.hazy.dynamic_range_db)
    return {name: figure(None, share) for name, share in shares.items()}


@lru_cache(maxsize=64)  # the sector is not looked for anew for every haze and prior
def clean_scan(data: Path, set_name: str, scan: str) -> CleanScan:
    """First frame of a clean scan, with its regions."""
    if set_name == CAMUS:
        return labelled_scan(data, scan, n_frames=1)
    return open_clean(data / set_name / f"{scan}.h5", n_frames=1)


def labelled_scan(data: Path, patient: str, n_frames: int, margin_px: float = 3.0) -> CleanScan:
    """First frames of a CAMUS patient, with their regions eroded by a margin."""
    path = data / CAMUS / f"{patient}.h5"
    return open_clean(path, n_frames=n_frames, dataset="image", labels=CAMUS_LABELS, margin_px=margin_px)


def model_frame(cine: Cine, grid: ModelGrid) -> tuple[torch.Tensor, torch.Tensor]:
    """First frame as the dehazer shows it to a prior, in [0, 1], and the pixels that hold image: ``(depth, angle)``."""
    mapper = make_mapper(cine.geometry, cine.frames.shape[1:], grid)
    frame = torch.from_numpy(mapper.to_model(cine.frames[:1])[0] / cine.dynamic_range_db + 1).clamp(0, 1)
    return frame, torch.from_numpy(mapper.valid)
