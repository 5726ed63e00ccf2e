"""From scatterers to log-compressed frames: point-spread function, envelope, compression."""

from __future__ import annotations

import torch
from torch import Tensor


def _kernel(n: int, sigma: Tensor) -> Tensor:
    """``(batch, n, n)`` Gaussian blur along an axis of n pixels, rows of unit energy; sigma ``(batch, 1, 1)``."""
    at = torch.arange(n, device=sigma.device, dtype=torch.float32)
    kernel = torch.exp(-((at[:, None] - at[None, :]) ** 2) / (2 * sigma.clamp_min(0.2) ** 2))
    return kernel / kernel.square().sum(-1, keepdim=True).sqrt()


class PointSpread:
    """Blurs complex scatterers into speckle; white noise of unit power keeps it, out of focus up to 2.6 dB more.

    Args:
        shape: depth and angle of the frames.
        axial_px, lateral_px: ``(batch, 1, 1)`` standard deviation of the pulse and of the beam, pixels.
        defocus: ``(batch, depth, 1)`` in [0, 1], how much of a beam 2.5 times as wide is mixed in at each depth.
    """

    def __init__(
        self, shape: tuple[int, int], axial_px: Tensor, lateral_px: Tensor, defocus: Tensor | None = None
    ) -> None:
        self.axial, self.lateral = _kernel(shape[0], axial_px), _kernel(shape[1], lateral_px)
        self.wide = None if defocus is None else _kernel(shape[1], 2.5 * lateral_px)
        self.defocus = defocus

    def __call__(self, field: Tensor) -> Tensor:
        """Speckle of ``(batch, depth, angle)`` complex scatterers."""
        parts = torch.stack([field.real, field.imag])  # the kernels are real: half the arithmetic
        focused = self.axial @ parts
        out = focused @ self.lateral.mT
        if self.wide is not None and self.defocus is not None:
            out = (1 - self.defocus).sqrt() * out + self.defocus.sqrt() * (focused @ self.wide.mT)
        return torch.complex(*out)


class Blur:
    """Gaussian smoothing of real frames along depth and angle; flat ones stay.

    Args:
        shape: depth and angle of the frames.
        axial_px, lateral_px: ``(batch, 1, 1)`` standard deviations, pixels.
    """

    def __init__(self, shape: tuple[int, int], axial_px: Tensor, lateral_px: Tensor) -> None:
        kernels = (_kernel(n, sigma) for n, sigma in zip(shape, (axial_px, lateral_px), strict=True))
        self.rows, self.columns = (k / k.sum(-1, keepdim=True) for k in kernels)

    def __call__(self, frames: Tensor) -> Tensor:
        """Smoothed ``(batch, depth, angle)`` frames."""
        return self.rows @ frames @ self.columns.mT


def compress(iq: Tensor, dynamic_range_db: float) -> Tensor:
    """Envelope and log compression: ``20 log10 |iq|`` in ``[-dynamic_range_db, 0]`` dB; ``|iq| = 1`` is 0 dB."""
    return (20 * torch.log10(iq.abs().clamp_min(1e-6))).clamp(-dynamic_range_db, 0.0)
