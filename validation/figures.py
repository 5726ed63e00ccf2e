"""What the test bench measures beyond the figures of ``usdehaze validate``: plain functions on frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from usdehaze.priors.prior import Prior
from usdehaze.validation import metrics
from usdehaze.validation.evaluate import figure, region_figures
from usdehaze.validation.harm import lost_share, removal_flicker
from usdehaze.validation.scene import Scene, error_figures
from validation.lpips import Lpips

SIGMAS = (0.03, 0.1, 0.3, 1.0, 3.0)  # noise levels of the denoising loss, model units
RING_PX = (3, 10)  # pixels around a region whose haze its own is compared with
DENOISED_AT_ONCE = 8
STEP_PERCENTILE = 99.5  # of the steps of a gain from pixel to pixel
LOWERED_DB = 1.0  # a pixel of a burned-in trace that lost more is damaged


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
    errors = error_figures(scene, tissue_db)
    box = ndimage.find_objects(inside.astype(np.uint8))[0]
    figures = {
        "psnr_db": errors["psnr_db"],
        "ssim": figure(*(metrics.ssim(image[box], true[box], span, inside[box]) for image in images)),
    }
    if lpips is not None:
        figures["lpips"] = figure(*(lpips.distance(image[box], true[box], span) for image in images))
    walls, cavities = scene.regions(0)
    if walls is not None and cavities is not None:
        figures["gcnr"] = figure(*(metrics.gcnr(image[walls], image[cavities]) for image in images))
        figures["gcnr"]["true"] = metrics.gcnr(true[walls], true[cavities])
        figures |= {name: errors[name] for name in ("rmse_tissue_db", "rmse_haze_db")}
    return figures


def clip_figures(
    frame_db: np.ndarray, tissue_db: np.ndarray, haze_db: np.ndarray, septum: np.ndarray, cavity: np.ndarray
) -> dict[str, Any]:
    """Figures of one real hazy frame with drawn regions; all images ``(H, W)``, dB, regions bool.

    Returns:
        ``gcnr`` (default estimator, without intervals), `region_figures`, and ``print_db`` of frame and haze estimate
        (:func:`print_db`). Each ``{"input", "tissue", "delta"}``.
    """
    gcnr = figure(*(metrics.gcnr(image[septum], image[cavity]) for image in (frame_db, tissue_db)))
    printed = figure(*(print_db(image, septum) for image in (frame_db, haze_db)))
    return {"gcnr": gcnr, **region_figures(frame_db, tissue_db, septum, cavity), "print_db": printed}


def print_db(image_db: np.ndarray, region: np.ndarray) -> float:
    """How much a structure stands out of an image: mean dB of its region less that of a ring 3 to 10 pixels from it.

    Haze does not know where the septum is. In a haze estimate without anatomy the figure is near 0; positive, the
    structure is printed into it; negative, it is cut out. No truth is needed. A ring holds both sides at like depths.
    """
    distance = ndimage.distance_transform_edt(~region)
    ring = (distance >= RING_PX[0]) & (distance <= RING_PX[1])
    return float(image_db[region].mean(dtype=np.float64) - image_db[ring].mean(dtype=np.float64))


def lost_figures(
    frame_db: np.ndarray, tissue_db: np.ndarray, walls: np.ndarray, inside: np.ndarray, floor_db: float
) -> dict[str, Any]:
    """``lost_walls`` and ``lost_elsewhere``: `lost_share` on walls, and in the image around them, of one frame."""
    shares = {
        "lost_walls": lost_share(frame_db, tissue_db, walls, floor_db),
        "lost_elsewhere": lost_share(frame_db, tissue_db, inside & ~walls, floor_db),
    }
    return {name: figure(None, share) for name, share in shares.items() if share is not None}


def cine_figures(input_db: np.ndarray, output_db: np.ndarray, inside: np.ndarray, floor_db: float) -> dict[str, Any]:
    """What a removal looks like when a hazy clip is played; no truth is needed.

    Args:
        input_db, output_db: ``(T, H, W)`` dB.
        inside: bool ``(H, W)``, the image.
        floor_db: of the input.

    Returns:
        ``flicker`` (`removal_flicker`), from two frames on; ``step_db`` (`gain_step_db`) of the native gain over the
        image, and ``step_seen_db`` of that where the output is above the floor, which elsewhere cuts the gain short;
        ``lost`` (`lost_share`). Each ``{"input": None, "tissue", "delta": None}``; left out without pixels.
    """
    gain = output_db - input_db
    figures = {
        "flicker": removal_flicker(input_db, output_db, inside, floor_db) if len(input_db) > 1 else None,
        "step_db": gain_step_db(gain, inside),
        "step_seen_db": gain_step_db(gain, inside & (output_db > floor_db)),
        "lost": lost_share(input_db, output_db, np.broadcast_to(inside, input_db.shape), floor_db),
    }
    return {name: figure(None, value) for name, value in figures.items() if value is not None}


def gain_step_db(gain_db: np.ndarray, counts: np.ndarray) -> float | None:
    """How abrupt a gain is: 99.5th percentile of its absolute steps between neighbours, along rows and columns, in dB.

    Args:
        gain_db: ``(T, H, W)``.
        counts: bool, ``(T, H, W)`` or ``(H, W)``; a step counts between two pixels that do.

    Returns:
        None where no two neighbours count.
    """
    counts = np.broadcast_to(counts, gain_db.shape)
    steps = [
        np.abs(np.diff(gain_db.astype(np.float64), axis=axis))[np.logical_and(*_neighbours(counts, axis))]
        for axis in (1, 2)
    ]
    every = np.concatenate(steps)
    return float(np.percentile(every, STEP_PERCENTILE)) if every.size else None


def _neighbours(image: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Every pixel of ``(T, H, W)`` that has a next one along an axis, and that one."""
    n = image.shape[axis]
    return image.take(range(n - 1), axis), image.take(range(1, n), axis)


def trace_figures(input_db: np.ndarray, output_db: np.ndarray, trace: np.ndarray) -> dict[str, float]:
    """What became of the pixels of a burned-in trace.

    Args:
        input_db, output_db: ``(T, H, W)`` dB.
        trace: bool ``(H, W)``, at least one pixel.

    Returns:
        ``pixels`` of the trace; ``lowered``, those that any frame has more than 1 dB lower; ``largest_db`` and
        ``mean_db``, lowering over pixels and frames, positive downwards.
    """
    lowering = (input_db.astype(np.float64) - output_db)[:, trace]
    return {
        "pixels": int(trace.sum()),
        "lowered": int((lowering > LOWERED_DB).any(axis=0).sum()),
        "largest_db": float(lowering.max()),
        "mean_db": float(lowering.mean()),
    }


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
