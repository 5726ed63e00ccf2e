"""Structured noise that is computed, not photographed: sine-modulated pixel noise, and rain streaks."""

from __future__ import annotations

import math

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from usdehaze.diffusion.denoiser import Gaussian

PERIOD = 16
MATRIX_SEED = 20250302
STREAKS, SLANT_DEG, DRAWN_AT = (
    (40, 90),
    25.0,
    4,
)  # streaks an image; degrees from vertical, at most; times finer


def sine_deviations(n: int, mean: float) -> Tensor:
    """``(n,)`` deviations ``exp(sin(2 pi k / 16))`` of noise, scaled to this mean."""
    profile = torch.exp(torch.sin(2 * math.pi * torch.arange(n) / PERIOD))
    return mean / profile.mean() * profile


def sine_noise(n: int, deviations: Tensor, shape: tuple[int, ...], seed: int) -> Tensor:
    """``(n, *shape)`` independent Gaussian entries; the deviations broadcast to ``shape``."""
    generator = torch.Generator().manual_seed(seed)
    return deviations * torch.randn(n, *shape, generator=generator)


def sine_prior(deviations: Tensor) -> Gaussian:
    """The exact prior of `sine_noise`: its score is a closed form, so that no network is needed."""
    return Gaussian(0.0, deviations.reshape(1, *deviations.shape[-2:]) ** 2)


def sensing_matrix(d: int, factor: int) -> Tensor:
    """``A`` of compressed sensing, ``(d / factor, d)``, entries ``N(0, 1 / m)``."""
    m = d // factor
    return torch.randn(m, d, generator=torch.Generator().manual_seed(MATRIX_SEED)) / math.sqrt(m)


def rain(n: int, size: tuple[int, int], seed: int) -> Tensor:
    """``(n, 3, *size)`` streaks in [0, 1] on black: straight, thin, of one slant an image, of several lengths."""
    random = np.random.default_rng(seed)
    return torch.stack([_rain(size, random) for _ in range(n)])


def _rain(size: tuple[int, int], random: np.random.Generator) -> Tensor:
    height, width = (DRAWN_AT * side for side in size)
    sheet = Image.new("L", (width, height))
    draw = ImageDraw.Draw(sheet)
    slant = math.radians(random.uniform(-SLANT_DEG, SLANT_DEG))
    for _ in range(random.integers(*STREAKS)):
        x, y = random.uniform(-0.1, 1.1) * width, random.uniform(-0.1, 1.0) * height
        length = random.uniform(0.08, 0.3) * height
        end = (x + length * math.sin(slant), y + length * math.cos(slant))
        draw.line([(x, y), end], fill=int(random.integers(80, 220)), width=int(random.integers(2, 5)))
    pixels = np.asarray(sheet.resize(size[::-1], Image.Resampling.BOX), np.float32) / 255
    return torch.from_numpy(pixels)[None].expand(3, -1, -1)
