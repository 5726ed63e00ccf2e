"""PSNR, SSIM and LPIPS of images, and what can be said of their means."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from monai.metrics import SSIMMetric
from scipy.stats import t as student
from torch import Tensor

from validation.lpips import Lpips
from validation.paths import real_scans

NAMES = ("psnr_db", "ssim", "lpips")


def psnr_db(a: Tensor, b: Tensor) -> float:
    """Peak signal-to-noise ratio of two images in [0, 1], dB."""
    return -10 * math.log10(max(float((a - b).square().mean()), 1e-12))


def figures(estimates: Tensor, truth: Tensor, lpips: Lpips | None) -> list[dict[str, float]]:
    """PSNR in dB, SSIM (Wang et al. 2004: Gaussian window of 11 pixels) and LPIPS of each image.

    Args:
        estimates, truth: ``(N, 3, H, W)`` in [0, 1].
        lpips: see `load_lpips`; None leaves it out.
    """
    with torch.no_grad():
        ssim = torch.as_tensor(SSIMMetric(spatial_dims=2, data_range=1.0)(estimates, truth)).flatten().tolist()
        apart = lpips(2 * estimates - 1, 2 * truth - 1).tolist() if lpips else []
    found = [{"psnr_db": psnr_db(a, b), "ssim": s} for a, b, s in zip(estimates, truth, ssim, strict=True)]
    return [f | {"lpips": apart[i]} if apart else f for i, f in enumerate(found)]


def load_lpips() -> Lpips:
    """LPIPS on SqueezeNet, from the folder of test data."""
    return Lpips(real_scans() / "lpips")


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % interval (Student's t over images); NaN for a single image."""
    v = np.asarray(values, float)
    if len(v) < 2:
        return float(v.mean()), math.nan
    return float(v.mean()), float(student.ppf(0.975, len(v) - 1) * v.std(ddof=1) / math.sqrt(len(v)))


def paired(ours: dict[int, float], theirs: dict[int, float]) -> tuple[float, float, int] | None:
    """Mean of ``ours - theirs`` over the images that both have, its interval, and how many; None without two."""
    both = sorted(ours.keys() & theirs.keys())
    if len(both) < 2:
        return None
    return *interval([ours[i] - theirs[i] for i in both]), len(both)
