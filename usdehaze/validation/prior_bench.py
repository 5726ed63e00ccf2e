"""What the test bench for priors measures on one frame.

Plain functions; which frames, which priors and where records are kept is ``validation/bench.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from usdehaze.priors.prior import Prior
from usdehaze.validation import metrics
from usdehaze.validation.benchmark import MIN_REGION_PIXELS
from usdehaze.validation.evaluate import figure
from usdehaze.validation.lpips import Lpips
from usdehaze.validation.realhaze import Scene

SIGMAS = (0.03, 0.1, 0.3, 1.0, 3.0)  # noise levels of the denoising loss, model units
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
