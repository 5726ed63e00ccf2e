"""What could be reached on a frame under haze, by those who know part of the truth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import ndimage

from usdehaze.decibels import db_to_power, power_to_db
from usdehaze.geometry import Mapper
from usdehaze.validation.scene import Scene, Split

LOCAL_CELLS = 9  # of the model grid, along either axis: what the local mean of haze is taken over
QUADRATURE = 96  # levels of tissue that are weighed


def level_subtracted(seen_db: np.ndarray, haze_db: np.ndarray, floor_db: float) -> np.ndarray:
    """Oracle that subtracts the true local mean of haze: ``10 log10(P_y - mean P_h)``, at least the floor.

    The mean is over 9 x 9 cells. Where speckle of the haze lies below its mean, tissue falls to the floor.

    Args:
        seen_db, haze_db: ``(depth, angle)`` dB, the hazy frame and the true haze.
        floor_db: of the frame.
    """
    left = db_to_power(seen_db) - _local_mean(db_to_power(haze_db))
    return np.maximum(power_to_db(np.maximum(left, 0)), floor_db)


def level_expected(seen_db: np.ndarray, haze_db: np.ndarray, floor_db: float) -> np.ndarray:
    """Oracle that knows the true local mean of haze, and weighs what its speckle may have been: mean of the tissue, dB.

    Of a pixel of power ``P_y`` under haze of mean power ``q``: the tissue's level is taken as any from the floor to
    ``P_y`` alike, and the rest is haze with the exponential distribution of speckle, so that a level ``P_x`` weighs
    ``exp(-(P_y - P_x) / q)``. Nothing is known of neighbours: what a tissue prior can gain over this is what it knows
    of structure.
    """
    level = np.maximum(_local_mean(db_to_power(haze_db)), 1e-12)[..., None]
    share = np.linspace(0, 1, QUADRATURE)
    tissue_db = floor_db + share * (np.maximum(seen_db, floor_db) - floor_db)[..., None]
    power = db_to_power(tissue_db)
    weight = np.exp((power - power[..., -1:]) / level)
    weight[..., [0, -1]] /= 2  # trapezoids
    return (weight * tissue_db).sum(axis=-1) / weight.sum(axis=-1)


BY_HAZE_LEVEL: dict[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "oracle: mean haze subtracted": level_subtracted,
    "oracle: mean haze known": level_expected,
}
GRID_LIMIT = "oracle: tissue known on the grid"  # what the model grid costs: no gain found there can do better
ORACLES = (*BY_HAZE_LEVEL, GRID_LIMIT)


def oracle(name: str, scene: Scene, mapper: Mapper, haze_db: np.ndarray) -> Split:
    """First frame by an oracle, found on the model grid and put back on the native one as the dehazer does.

    Args:
        name: one of `ORACLES`.
        scene: its first frame counts.
        mapper: of its frames.
        haze_db: ``(depth, angle)`` dB, the true haze on the model grid.
    """
    floor_db, native = -scene.hazy.dynamic_range_db, scene.hazy.frames[:1]
    seen = mapper.to_model(native)[0].astype(np.float64)
    if name == GRID_LIMIT:
        found = mapper.to_model(scene.clean.frames[:1])[0]
    else:
        found = BY_HAZE_LEVEL[name](seen, haze_db.astype(np.float64), floor_db)
    gain = np.minimum(found - seen, 0)
    return Split(np.maximum(mapper.apply_gain(native, gain[None]), np.minimum(native, floor_db)), scene.haze[:1])


def _local_mean(power: np.ndarray) -> np.ndarray:
    return ndimage.uniform_filter(power, LOCAL_CELLS, mode="nearest")
