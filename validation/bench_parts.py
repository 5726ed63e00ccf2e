"""The parts of the test bench for priors: what is measured on which frames, each piece kept as a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_records import Records, digest_of, made_by

from usdehaze.cine import Cartesian, Cine
from usdehaze.dehazer import Dehazer
from usdehaze.geometry import ModelGrid, make_mapper
from usdehaze.io import open_cine
from usdehaze.settings import PRIORS
from usdehaze.validation.baselines import GAUSSIAN_STEPS, methods
from usdehaze.validation.benchmark import FIRST_SEED, OURS
from usdehaze.validation.evaluate import figure
from usdehaze.validation.hazes import FLOOR_DB, Haze, load_hazes
from usdehaze.validation.lpips import Lpips
from usdehaze.validation.oracles import ORACLES, oracle
from usdehaze.validation.patients import read_patients
from usdehaze.validation.prior_bench import SIGMAS, clip_figures, denoising_loss, scene_figures
from usdehaze.validation.realhaze import CleanScan, Scene, open_clean, simulated_scene
from usdehaze.validation.regions import find_regions
from usdehaze.validation.trust import harm_figures
from usdehaze.validation.trust_study import clean_figures, hazy_figures

HERE = Path(__file__).resolve().parent
CAMUS, CLEAN_CINES = "camus", "clean-cines"
CAMUS_LABELS = ("label", {"tissue": ["170"], "haze": ["85"]})
LOW_HAZE_DB = -46.0  # a CAMUS scan counts as clean where the median of its ventricle is no higher
SIMULATED = 8
SCENES = {"tuning": 36, "held-out": 72}  # of part b: four, or eight, of each haze level and extent
SPAN_DB = 60.0  # of the frames that hazes are shown to a prior as
CLASSICAL = ("median over beams", "non-local means")
RULES = {"projection": "projection", "PiGDM": "pigdm", "DPS": "dps"}


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
    baselines: bool = False
    gaussian_steps: int = GAUSSIAN_STEPS
    sets: tuple[str, ...] = (CAMUS, CLEAN_CINES)
    oracles: bool = True

    def __post_init__(self) -> None:
        of_share = read_patients(HERE / "patients.json", self.share)
        self.names = {name: of_share[name] for name in self.sets}
        if CAMUS in self.names:
            self.names[CAMUS] = [scan for scan in self.names[CAMUS] if self._has_low_haze(scan)]
        self.hazes = load_hazes(HERE / "hazes.npz")

    @lru_cache  # noqa: B019 (one bench a run)
    def dehazer(self, seed: int = 0, with_haze_prior: bool = True) -> Dehazer:
        return Dehazer.from_pretrained(**self.options, seed=seed, use_haze_prior=with_haze_prior)

    @lru_cache  # noqa: B019 (one bench a run)
    def without_haze_prior(self, rule: str) -> Dehazer:
        """The same tissue prior by the paper's sampler, everything else taken for Gaussian noise."""
        options = self.options | {"preset": "paper", "steps": self.gaussian_steps, "samples": 1, "guidance": rule}
        options.setdefault("tissue_prior", PRIORS[self.options["preset"]][0])
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
        if not (self.data / CAMUS / f"{scan}.h5").exists():
            return False
        opened = clean_scan(self.data, CAMUS, scan)
        assert opened.cavities is not None
        return bool(np.median(opened.cine.frames[0][opened.cavities[0]]) <= LOW_HAZE_DB)

    @property
    def n_clean(self) -> int:
        return sum(map(len, self.names.values()))

    def simulated(self) -> list[dict[str, Any]]:
        """Part a: hearts of seeds that no prior was trained on, hazy and clean."""

        def measure(scene: Scene) -> dict[str, Any]:
            harm = clean_figures(scene, self.dehazer().dehaze(scene.clean))
            return harm | hazy_figures(scene, self.dehazer().dehaze(scene.hazy))

        records = []
        for seed in range(FIRST_SEED, FIRST_SEED + self.some("a", SIMULATED)):
            scene = simulated_scene(seed, 1)
            by = made_by(scene.hazy, self.dehazer()) | {"truth": digest_of(scene.clean.frames)}
            records.append(self.records.kept("a", scene.name, by, partial(measure, scene)))
        return records

    def under_haze(self) -> list[dict[str, Any]]:
        """Part b: real tissue under a haze of each level and extent, by every method."""

        def measure(scene: Scene, tissue: Callable[[], np.ndarray]) -> dict[str, Any]:
            return scene_figures(scene, tissue(), self.lpips)

        records = []
        for i, scan in enumerate(self.clean_scans(self.some("b", SCENES[self.share]))):
            haze = self.hazes[i % len(self.hazes)]
            native = scan.mapper.from_model(haze.frame_db[None], FLOOR_DB)
            scene = scan.under(native, native[0])
            design = {"level": haze.level, "extent": haze.extent, "haze": haze.seed}
            design["set"] = CLEAN_CINES if scan.cavities is None else CAMUS
            for method, by, tissue in self.rows(scene, scan, haze):
                by = by | {"method": method, "haze": haze.seed, "lpips": self.lpips is not None}
                record = self.records.kept("b", scene.name, by, partial(measure, scene, tissue))
                records.append(record | {"method": method, "scene": i} | design)
        return records

    def rows(
        self, scene: Scene, scan: CleanScan, haze: Haze
    ) -> Iterator[tuple[str, dict[str, Any], Callable[[], np.ndarray]]]:
        """Name, what it depends on, and tissue ``(H, W)``, of every method of part b."""
        hazy, dehazers = scene.hazy, {OURS: self.dehazer()}
        for name in ORACLES if self.oracles else ():
            yield name, {"frames": digest_of(hazy.frames)}, partial(oracle, name, scene, scan.mapper, haze.frame_db)
        if self.baselines:
            table = methods()
            for name in CLASSICAL:
                if table[name].available:
                    run = table[name].make()
                    yield name, {"frames": digest_of(hazy.frames)}, lambda run=run: run(hazy).tissue[0]
            dehazers["same sampler, Gaussian noise"] = self.dehazer(with_haze_prior=False)
            dehazers |= {f"{name}, Gaussian noise": self.without_haze_prior(rule) for name, rule in RULES.items()}
        for name, dehazer in dehazers.items():
            yield name, made_by(hazy, dehazer), lambda dehazer=dehazer: dehazer.dehaze(hazy).tissue[0]

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
                by = made_by(cine, dehazer)
                records.append(
                    self.records.kept("c", path.name, by, partial(measure, cine, masks, dehazer)) | {"seed": seed}
                )
        return records

    def harm(self) -> list[dict[str, Any]]:
        """Part d: clean real frames, dehazed."""

        def measure(scan: CleanScan) -> dict[str, Any]:
            tissue = self.dehazer().dehaze(scan.cine).tissue[0]
            figures = harm_figures(scan.cine.frames[0], tissue, scan.walls[0])
            return {name: figure(None, value) for name, value in figures.items()}

        return [
            self.records.kept("d", scan.cine.source.name, made_by(scan.cine, self.dehazer()), partial(measure, scan))
            for scan in self.clean_scans(self.some("d", self.n_clean))
        ]

    def losses(self) -> dict[str, Any]:
        """Part e: denoising losses by noise level: tissue prior on each set of real frames, haze prior on the hazes."""
        dehazer, sets = self.dehazer(), {CAMUS: [], CLEAN_CINES: []}
        for scan in self.clean_scans(self.some("e", self.n_clean)):
            sets[CLEAN_CINES if scan.cavities is None else CAMUS].append(model_frame(scan.cine, dehazer.grid))
        losses = {"sigmas": list(SIGMAS), "frames": {name: len(frames) for name, frames in sets.items()}}
        losses["tissue"] = {
            name: denoising_loss(
                dehazer.tissue, *(torch.stack(images)[:, None] for images in zip(*frames, strict=True))
            )
            for name, frames in sets.items()
            if frames
        }
        if dehazer.haze:
            hazes = self.haze_frames()[:, None]
            losses["haze"] = denoising_loss(dehazer.haze, hazes, torch.ones_like(hazes, dtype=torch.bool))
        return losses

    def haze_frames(self) -> torch.Tensor:
        """The hazes on the priors' grid, ``(N, depth, angle)`` in [0, 1] of 60 dB."""
        to_grid = make_mapper(Cartesian(), self.hazes[0].frame_db.shape, self.dehazer().grid)
        frames = to_grid.to_model(np.stack([haze.frame_db for haze in self.hazes]))
        return torch.from_numpy(frames / SPAN_DB + 1).clamp(0, 1)


@lru_cache(maxsize=64)  # the sector is not looked for anew for every haze and prior
def clean_scan(data: Path, set_name: str, scan: str) -> CleanScan:
    """First frame of a clean scan, with its regions."""
    labels: dict[str, Any] = {"dataset": "image", "labels": CAMUS_LABELS} if set_name == CAMUS else {}
    return open_clean(data / set_name / f"{scan}.h5", n_frames=1, **labels)


def model_frame(cine: Cine, grid: ModelGrid) -> tuple[torch.Tensor, torch.Tensor]:
    """First frame as the dehazer shows it to a prior, in [0, 1], and the pixels that hold image: ``(depth, angle)``."""
    mapper = make_mapper(cine.geometry, cine.frames.shape[1:], grid)
    frame = torch.from_numpy(mapper.to_model(cine.frames[:1])[0] / cine.dynamic_range_db + 1).clamp(0, 1)
    return frame, torch.from_numpy(mapper.valid)
