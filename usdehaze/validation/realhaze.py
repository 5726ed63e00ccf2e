"""Scenes whose tissue and haze are known: simulated hearts, and clean real frames under simulated haze."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from usdehaze.cine import Cine
from usdehaze.geometry import ModelGrid, make_mapper
from usdehaze.io import open_cine
from usdehaze.signal import db_to_power, power_to_db
from usdehaze.simulate import simulate_cine
from usdehaze.simulate.draw import Draw
from usdehaze.simulate.haze import HazeScene
from usdehaze.simulate.speckle import compress
from usdehaze.validation.regions import find_regions
from usdehaze.validation.trust import BRIGHT_DB

WALL, CAVITY = 1, 2  # values of SimulatedCine.labels
HAZE_LEVEL_DB = (-34.0, -14.0)  # near the probe, dB re full scale; what simulate_cine draws from
STRANGER = 500_000_000  # added to a seed for a scene that has nothing to do with it
NEW_HAZE = 0.1  # share of the haze's power that is new in each frame, as in simulate_cine


@dataclass(frozen=True)
class Scene:
    """A cine whose truth is known.

    Attributes:
        hazy: the cine as a dehazer gets it.
        clean: the same without haze; ``clean.frames`` is the true tissue.
        haze: ``(T, H, W)`` float32 dB, the true haze.
        stranger: ``(H, W)`` float32 dB, haze of another scene, which knows nothing of this one.
        inside: bool ``(H, W)``, the image.
        walls: bool ``(T, H, W)``, tissue that should stay.
        cavities: bool ``(T, H, W)``, fluid under haze, or None where it is not known.
    """

    hazy: Cine
    clean: Cine
    haze: np.ndarray
    stranger: np.ndarray
    inside: np.ndarray
    walls: np.ndarray
    cavities: np.ndarray | None

    @property
    def name(self) -> str:
        return self.hazy.source.name


def simulated_scene(seed: int, n_frames: int) -> Scene:
    """A simulated heart: tissue and haze added as complex echoes. Walls and cavities are the simulator's labels."""
    truth = simulate_cine(n_frames, seed)
    hazy = truth.cine
    clean = replace(hazy, frames=truth.tissue)
    inside = np.ones(truth.hazy.shape[1:], bool)
    stranger = simulate_cine(1, seed + STRANGER).haze[0]
    return Scene(hazy, clean, truth.haze, stranger, inside, truth.labels == WALL, truth.labels == CAVITY)


def real_scene(
    path: Path,
    seed: int,
    *,
    n_frames: int,
    dataset: str | None = None,
    labels: tuple[str, dict[str, Sequence[str]]] | None = None,
    margin_px: float = 3.0,
) -> Scene:
    """Clean real frames under simulated haze.

    Args:
        path: a clean scan; its frames count as free of haze, which no real frame quite is.
        seed: of the haze.
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
    span = clean.dynamic_range_db
    haze, stranger = (
        mapper.from_model(simulated_haze(n, s, mapper.grid, span), -span)
        for n, s in ((len(clean.frames), seed), (1, seed + STRANGER))
    )
    hazy = replace(clean, frames=add_haze(clean.frames, haze, mapper.image_mask))
    if labels is None:
        walls, cavities = (clean.frames > BRIGHT_DB) & mapper.image_mask, None
    else:
        values = {role: tuple(names) for role, names in labels[1].items()}
        regions = find_regions(f"{path}:{labels[0]}", clean, labels=values, margin_px=margin_px)
        walls, cavities = (
            np.stack([regions.mask(role, t) & mapper.image_mask for t in range(len(clean.frames))])
            for role in ("tissue", "haze")
        )
    return Scene(hazy, clean, haze, stranger[0], mapper.image_mask, walls, cavities)


def simulated_haze(n_frames: int, seed: int, grid: ModelGrid, dynamic_range_db: float) -> np.ndarray:
    """Haze on the model grid that hardly moves from frame to frame: ``(T, depth, angle)`` float32 dB."""
    scene = HazeScene(Draw(1, torch.Generator().manual_seed(seed)), *grid.shape, clear=0.0, level_db=HAZE_LEVEL_DB)
    frozen = scene.speckle()
    frames = [
        scene.amplitude * (math.sqrt(1 - NEW_HAZE) * frozen + math.sqrt(NEW_HAZE) * scene.speckle())
        for _ in range(n_frames)
    ]
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
