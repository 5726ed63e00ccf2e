"""From scatterers to log-compressed frames: point-spread function, envelope, compression."""

from __future__ import annotations

import torch
from torch import Tensor


def _kernel(n: int, sigma: Tensor) -> Tensor:
    """``(batch, n, n)`` Gaussian blur along an axis of n pixels, rows of unit energy; sigma ``(batch, 1, 1)``."""
    at = torch.arange(n, device=sigma.device, dtype=torch.float32)
    kernel = torch.exp(-((at[:, None] - at[None, :]) ** 2) / (2 * sigma.clamp_min(0.2) ** 2))
    return kernel / kernel.square().sum(-1, keepdim=True).sqrt()


def point_spread(field: Tensor, axial_px: Tensor, lateral_px: Tensor, defocus: Tensor | None = None) -> Tensor:
    """Blurs complex scatterers into speckle; white noise of unit power keeps unit power.

    Args:
        field: ``(batch, depth, angle)`` complex.
        axial_px, lateral_px: ``(batch, 1, 1)`` standard deviation of the pulse and of the beam, pixels.
        defocus: ``(batch, depth, 1)`` in [0, 1], how much of a beam 2.5 times as wide is mixed in at each depth.
    """
    n_depth, n_angle = field.shape[1:]
    axial = _kernel(n_depth, axial_px).to(field.dtype)
    lateral = _kernel(n_angle, lateral_px).to(field.dtype)
    focused = axial @ field
    out = focused @ lateral.mT
    if defocus is not None:
        wide = focused @ _kernel(n_angle, 2.5 * lateral_px).to(field.dtype).mT
        out = (1 - defocus).sqrt() * out + defocus.sqrt() * wide
    return out


def blur(frames: Tensor, axial_px: Tensor, lateral_px: Tensor) -> Tensor:
    """Gaussian smoothing of real frames along depth and angle; flat ones stay. Deviations ``(batch, 1, 1)``, pixels."""
    rows, columns = (_kernel(n, sigma) for n, sigma in zip(frames.shape[1:], (axial_px, lateral_px), strict=True))
    rows, columns = (k / k.sum(-1, keepdim=True) for k in (rows, columns))
    return rows @ frames @ columns.mT


def compress(iq: Tensor, dynamic_range_db: float) -> Tensor:
    """Envelope and log compression: ``20 log10 |iq|`` in ``[-dynamic_range_db, 0]`` dB; ``|iq| = 1`` is 0 dB."""
    return (20 * torch.log10(iq.abs().clamp_min(1e-6))).clamp(-dynamic_range_db, 0.0)
