"""What the test bench for priors measures on one frame, and what could be reached there.

Plain functions; which frames, which priors and where records are kept is ``validation/bench.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from usdehaze.geometry import Mapper
from usdehaze.priors.prior import Prior
from usdehaze.signal import db_to_power, power_to_db
from usdehaze.validation import metrics
from usdehaze.validation.benchmark import MIN_REGION_PIXELS
from usdehaze.validation.evaluate import figure
from usdehaze.validation.lpips import Lpips
from usdehaze.validation.realhaze import Scene

SIGMAS = (0.03, 0.1, 0.3, 1.0, 3.0)  # noise levels of the denoising loss, model units
LOCAL_CELLS = 9  # of the model grid, along either axis: what an oracle takes the local mean of haze over
QUADRATURE = 96  # levels that the per-pixel oracle sums over
RING_PX = (3, 10)  # pixels around a region whose haze its own is compared with
DENOISED_AT_ONCE = 8


def scene_figures(scene: Scene, tissue_db: np.ndarray, lpips: Lpips | None) -> dict[str, Any]:
    """Figures of one dehazed frame whose truth is known, inside the image.

    Args:
        scene: its first frame counts.
        tissue_db: ``(H, W)``, what is taken for tissue.
        lpips: None leaves that figure out.

    Returns:
        ``psnr_db`` and ``ssim`` over the pixels of the image, ``lpips`` of the rectangle round it; with regions large
        enough ``gcnr`` of cavities against walls, with that of the true tissue under ``true``, ``rmse_tissue_db`` of
        walls and ``rmse_haze_db`` of cavities. Each ``{"input", "tissue", "delta"}``.
    """
    span, inside = scene.hazy.dynamic_range_db, scene.inside
    images, true = (scene.hazy.frames[0], tissue_db), scene.clean.frames[0]
    box = ndimage.find_objects(inside.astype(np.uint8))[0]
    figures = {
        "psnr_db": figure(*(metrics.psnr_db(image[inside], true[inside], span) for image in images)),
        "ssim": figure(*(metrics.ssim(image[box], true[box], span, inside[box]) for image in images)),
    }
    if lpips is not None:
        figures["lpips"] = figure(*(lpips.distance(image[box], true[box], span) for image in images))
    if scene.cavities is None:
        return figures
    walls, cavities = scene.walls[0], scene.cavities[0]
    if min(walls.sum(), cavities.sum()) >= MIN_REGION_PIXELS:
        figures["gcnr"] = figure(*(metrics.gcnr(image[walls], image[cavities]) for image in images))
        figures["gcnr"]["true"] = metrics.gcnr(true[walls], true[cavities])
        for role, pixels in (("tissue", walls), ("haze", cavities)):
            figures[f"rmse_{role}_db"] = figure(*(metrics.rmse_db(image[pixels], true[pixels]) for image in images))
    return figures


def clip_figures(
    frame_db: np.ndarray, tissue_db: np.ndarray, haze_db: np.ndarray, septum: np.ndarray, cavity: np.ndarray
) -> dict[str, Any]:
    """Figures of one real hazy frame with drawn regions; all images ``(H, W)``, dB, regions bool.

    Returns:
        ``gcnr`` (default estimator), ``cnr``, ``ks_tissue``, ``ks_haze``, ``tissue_shift_db``, ``haze_shift_db``, and
        ``print_db`` of frame and haze estimate (:func:`print_db`). Each ``{"input", "tissue", "delta"}``.
    """
    pairs = [(image[septum], image[cavity]) for image in (frame_db, tissue_db)]
    figures = {
        "gcnr": figure(*(metrics.gcnr(*pair) for pair in pairs)),
        "cnr": figure(*(metrics.cnr(*pair) for pair in pairs)),
    }
    for role, (was, now) in zip(("tissue", "haze"), zip(*pairs, strict=True), strict=True):
        figures[f"ks_{role}"] = figure(None, metrics.ks(was, now))
        figures[f"{role}_shift_db"] = figure(None, metrics.mean_shift_db(was, now))
    return figures | {"print_db": figure(*(print_db(image, septum) for image in (frame_db, haze_db)))}


def print_db(image_db: np.ndarray, region: np.ndarray) -> float:
    """How much a structure stands out of an image: mean dB of its region less that of a ring 3 to 10 pixels from it.

    Haze does not know where the septum is. In a haze estimate without anatomy the figure is near 0; positive, the
    structure is printed into it; negative, it is cut out. No truth is needed. A ring holds both sides at like depths.
    """
    distance = ndimage.distance_transform_edt(~region)
    ring = (distance >= RING_PX[0]) & (distance <= RING_PX[1])
    return float(image_db[region].mean(dtype=np.float64) - image_db[ring].mean(dtype=np.float64))


def denoising_loss(
    prior: Prior, frames: Tensor, counts: Tensor, sigmas: Sequence[float] = SIGMAS, seed: int = 7
) -> list[float]:
    """Mean squared error of the denoiser over ``sigma^2``, one value a noise level; 1 is doing nothing.

    Args:
        prior: any.
        frames: ``(N, 1, depth, angle)`` in [0, 1].
        counts: bool ``(N, 1, depth, angle)``, pixels whose error counts: those that hold image.
        sigmas: noise levels.
        seed: of the noise, the same for every level and prior.
    """
    device = next(prior.parameters()).device
    noise = torch.randn(frames.shape, generator=torch.Generator().manual_seed(seed)).to(device)
    frames, counts = frames.to(device), counts.to(device)
    losses = []
    with torch.inference_mode():
        for sigma in sigmas:
            parts = zip(*(t.split(DENOISED_AT_ONCE) for t in (frames, noise, counts)), strict=True)
            errors = [(prior(x + sigma * z, sigma) - x).square()[seen] for x, z, seen in parts]
            losses.append(float(torch.cat(errors).double().mean()) / sigma**2)
    return losses


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
    return (weight * tissue_db).sum(axis=-1) / weight.sum(axis=-1)


BY_HAZE_LEVEL: dict[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "oracle: mean haze subtracted": level_subtracted,
    "oracle: mean haze known": level_expected,
}
GRID_LIMIT = "oracle: tissue known on the grid"  # what the model grid costs: no gain found there can do better
ORACLES = (*BY_HAZE_LEVEL, GRID_LIMIT)


def oracle(name: str, scene: Scene, mapper: Mapper, haze_db: np.ndarray) -> np.ndarray:
    """Tissue by an oracle, found on the model grid and put back on the native frame as the dehazer does: ``(H, W)``.

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
    return np.maximum(mapper.apply_gain(native, gain[None]), np.minimum(native, floor_db))[0]


def _local_mean(power: np.ndarray) -> np.ndarray:
    return ndimage.uniform_filter(power, LOCAL_CELLS, mode="nearest")
