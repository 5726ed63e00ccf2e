"""A fixed set of simulated hazes, by level near the probe and by how deep they reach.

The set is stored, not drawn anew: scores stay comparable when the simulator that the priors learn from changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from usdehaze.errors import InputError
from usdehaze.simulate.draw import Draw
from usdehaze.simulate.haze import HazeScene

FLOOR_DB = -80.0  # below the floor of any frame: where haze ends, it must add nothing
LEVELS_DB = {"light": (-34.0, -28.0), "medium": (-28.0, -20.0), "heavy": (-20.0, -14.0)}
EXTENTS = {"near": (0.2, 0.5), "half": (0.5, 0.75), "whole": (0.9, 1.0)}  # reach, share of the depth
NEAR = 0.2  # share of the depth that counts as near the probe
FADED_DB = 15.0  # haze ends where its mean power has fallen by so much
WIDE = 0.9  # share of the beams that haze of the whole sector covers
DRAWN_LEVEL_DB = (-42.0, -8.0)
FIRST_SEED = 1_600_000_000  # training draws by keys, and others
MOST_DRAWS = 20_000


@dataclass(frozen=True)
class Haze:
    """A haze on the model grid.

    Attributes:
        level, extent: cell of the design, keys of `LEVELS_DB` and `EXTENTS`.
        seed: it was drawn from.
        frame_db: ``(depth, angle)`` float32 dB re full scale, speckled, at least -80.
    """

    level: str
    extent: str
    seed: int
    frame_db: np.ndarray


def measure_haze(power: np.ndarray) -> tuple[float, float, float]:
    """Level, reach and width of a haze from its mean power, without speckle.

    Args:
        power: ``(depth, angle)`` relative to full scale.

    Returns:
        Mean power of the first fifth of the depth, dB; the deepest row, as a share of the depth, whose mean over beams
        lies within 15 dB of it; the share of the beams whose mean over depth lies within 15 dB of the strongest one.
    """
    n_depth = len(power)
    level_db = 10 * np.log10(power[: round(NEAR * n_depth)].mean())
    rows_db, beams_db = 10 * np.log10(power.mean(axis=1)), 10 * np.log10(power.mean(axis=0))
    deepest = np.flatnonzero(rows_db >= level_db - FADED_DB).max()
    return float(level_db), float((deepest + 1) / n_depth), float((beams_db >= beams_db.max() - FADED_DB).mean())


def cell_of(level_db: float, reach: float, width: float) -> tuple[str, str] | None:
    """Level and extent of a haze in the design, None where it lies between two."""
    levels = [name for name, (low, high) in LEVELS_DB.items() if low <= level_db < high]
    extents = [name for name, (low, high) in EXTENTS.items() if low <= reach <= high]
    if not levels or not extents or (extents[0] == "whole" and width < WIDE):
        return None
    return levels[0], extents[0]


def draw_hazes(per_cell: int, n_depth: int = 128, n_angle: int = 128) -> list[Haze]:
    """The first hazes of the simulator that fall into each cell, seed by seed; in each round one of every cell.

    Raises:
        ValueError: the simulator does not fill a cell.
    """
    found: dict[tuple[str, str], list[Haze]] = {(level, extent): [] for level in LEVELS_DB for extent in EXTENTS}
    for seed in range(FIRST_SEED, FIRST_SEED + MOST_DRAWS):
        draw = Draw(1, torch.Generator().manual_seed(seed))
        scene = HazeScene(draw, n_depth, n_angle, clear=0.0, level_db=DRAWN_LEVEL_DB, plain=True)
        cell = cell_of(*measure_haze(scene.amplitude[0].square().double().numpy()))
        if cell is None or len(found[cell]) == per_cell:
            continue
        echo = (scene.amplitude * scene.speckle())[0].abs()
        frame_db = (20 * torch.log10(echo.clamp_min(1e-9))).clamp(FLOOR_DB, 0).numpy()
        found[cell].append(Haze(*cell, seed, frame_db))
        if all(len(hazes) == per_cell for hazes in found.values()):
            return [hazes[i] for i in range(per_cell) for hazes in found.values()]
    raise ValueError(f"{MOST_DRAWS} draws do not fill {[cell for cell, n in found.items() if len(n) < per_cell]}")


def save_hazes(path: Path, hazes: list[Haze]) -> None:
    """Writes hazes as 8-bit levels, 0.31 dB apart."""
    levels = np.rint((np.stack([haze.frame_db for haze in hazes]) / -FLOOR_DB + 1) * 255).astype(np.uint8)
    level, extent, seed = (np.array([getattr(haze, key) for haze in hazes]) for key in ("level", "extent", "seed"))
    np.savez_compressed(path, frames=levels, level=level, extent=extent, seed=seed)


def load_hazes(path: Path) -> list[Haze]:
    """Reads what `save_hazes` wrote, in its order.

    Raises:
        InputError: the file is missing or holds something else.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            frames = ((stored["frames"].astype(np.float32) / 255 - 1) * -FLOOR_DB).astype(np.float32)
            names = [stored[key].tolist() for key in ("level", "extent", "seed")]
    except (OSError, KeyError, ValueError) as error:
        raise InputError(path, f"not a set of hazes ({type(error).__name__})", "what save_hazes writes") from error
    return [Haze(level, extent, seed, frame) for level, extent, seed, frame in zip(*names, frames, strict=True)]
