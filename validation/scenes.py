"""Scenes whose tissue and haze are known: simulated hearts, and clean real frames under simulated haze."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usdehaze.cine import Cine
from usdehaze.decibels import db_to_power, power_to_db
from usdehaze.geometry import Mapper, ModelGrid, make_mapper
from usdehaze.io import open_cine
from usdehaze.simulate import simulate_cine
from usdehaze.simulate.draw import Draw
from usdehaze.simulate.haze import HazeScene
from usdehaze.simulate.speckle import compress
from usdehaze.validation.harm import BRIGHT_DB
from usdehaze.validation.regions import Labels, find_regions
from usdehaze.validation.scene import Scene, labelled_scene

CAMUS, CLEAN_CINES = "camus", "clean-cines"  # folders of real scans that count as clean
CAMUS_LABELS = ("label", {"tissue": ("170",), "haze": ("85",)})
HAZE_LEVEL_DB = (-34.0, -14.0)  # near the probe, dB re full scale; what simulate_cine draws from
STRANGER = 500_000_000  # added to a seed for a scene that has nothing to do with it


def simulated_scene(seed: int, n_frames: int) -> Scene:
    """A simulated heart: tissue and haze added as complex echoes. Walls and cavities are the simulator's labels."""
    truth = simulate_cine(n_frames, seed)
    scene = labelled_scene(truth.cine, truth.tissue, truth.haze, truth.labels)
    return replace(scene, stranger=simulate_cine(1, seed + STRANGER).haze[0])


@dataclass(frozen=True)
class CleanScan:
    """Real frames that count as free of haze, which none quite is.

    Attributes:
        cine: the frames.
        mapper: between them and a grid of 128 x 128.
        walls, cavities: as in `Scene`.
    """

    cine: Cine
    mapper: Mapper
    walls: np.ndarray
    cavities: np.ndarray | None

    def under(self, haze_db: np.ndarray) -> Scene:
        """The frames under haze, ``(T, H, W)`` dB, which may lie below the floor of the frames."""
        inside, floor_db = self.mapper.image_mask, -self.cine.dynamic_range_db
        hazy = replace(self.cine, frames=add_haze(self.cine.frames, haze_db, inside))
        true = np.maximum(haze_db, floor_db).astype(np.float32)
        return Scene(hazy, self.cine, true, inside, self.walls, self.cavities)


def open_clean(
    path: Path,
    *,
    n_frames: int,
    dataset: str | None = None,
    labels: tuple[str, Labels] | None = None,
    margin_px: float = 3.0,
) -> CleanScan:
    """Clean real frames and their regions.

    Args:
        path: a clean scan.
        n_frames: first frames to take.
        dataset: of the frames in the file.
        labels: dataset of a label image in the same file, and its values for "tissue" and "haze" (walls and cavities).
            Without it, walls are the pixels brighter than -30 dB.
        margin_px: by which labelled regions are eroded.

    Raises:
        InputError: a scan or labels that cannot be read.
    """
    clean = open_cine(path, dataset=dataset, frames=slice(0, n_frames))
    mapper = make_mapper(clean.geometry, clean.frames.shape[1:], ModelGrid())
    if labels is None:
        return CleanScan(clean, mapper, (clean.frames > BRIGHT_DB) & mapper.image_mask, None)
    regions = find_regions(f"{path}:{labels[0]}", clean, labels=labels[1], margin_px=margin_px)
    walls, cavities = (
        np.stack([regions.mask(role, t) & mapper.image_mask for t in range(len(clean.frames))])
        for role in ("tissue", "haze")
    )
    return CleanScan(clean, mapper, walls, cavities)


def real_scene(path: Path, seed: int, **options: Any) -> Scene:
    """Clean real frames under simulated haze.

    Args:
        path: a clean scan.
        seed: of the haze.
        options: as of `open_clean`.

    Raises:
        InputError: a scan or labels that cannot be read.
    """
    scan = open_clean(path, **options)
    span = scan.cine.dynamic_range_db
    haze, stranger = (
        scan.mapper.from_model(simulated_haze(n, s, scan.mapper.grid, span), -span)
        for n, s in ((len(scan.cine.frames), seed), (1, seed + STRANGER))
    )
    return replace(scan.under(haze), stranger=stranger[0])


def simulated_haze(n_frames: int, seed: int, grid: ModelGrid, dynamic_range_db: float) -> np.ndarray:
    """Haze on the model grid whose level stays and whose speckle is renewed: ``(T, depth, angle)`` float32 dB."""
    draw = Draw(1, torch.Generator().manual_seed(seed))
    frames = HazeScene(draw, *grid.shape, clear=0.0, level_db=HAZE_LEVEL_DB, plain=True).moving(n_frames)
    return compress(torch.cat(frames), dynamic_range_db).numpy()


def add_haze(tissue_db: np.ndarray, haze_db: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Frames under haze: powers added before log compression, ``10 log10(10^(x/10) + 10^(n/10))``, at most 0 dB.

    That is the mean over the unknown phase between the two echoes. Pixels outside keep their bits.

    Args:
        tissue_db, haze_db: ``(T, H, W)`` dB.
        inside: bool ``(H, W)``, where there is image.
    """
    total = power_to_db(db_to_power(tissue_db) + db_to_power(haze_db))
    return np.where(inside, np.minimum(total, 0), tissue_db).astype(np.float32)
