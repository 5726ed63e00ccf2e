"""What a scanner does with beamformed echoes before somebody sees them."""

from __future__ import annotations

import torch
from torch import Tensor

from usdehaze.simulate.draw import Draw
from usdehaze.simulate.speckle import blur, compress


def develop(draw: Draw, iq: Tensor, dynamic_range_db: float) -> Tensor:
    """Compounding, log compression, smoothing, edge enhancement, reject and grey-level curve, each by chance.

    Args:
        draw: batch size and randomness.
        iq: ``(batch, depth, angle)`` complex, 0 dB = amplitude 1.
        dynamic_range_db: dB between full scale and floor.

    Returns:
        ``(batch, depth, angle)`` in [0, 1].
    """
    n_depth = iq.shape[1]
    # Looks from several angles or frequencies, averaged: speckle loses its black holes, not its grain.
    looks = blur(iq.abs(), draw.uniform(0.3, 0.8), draw.uniform(0.3, 1.3))
    envelope = torch.lerp(iq.abs(), looks, draw.uniform(0, 1) * draw.chance(0.7))
    u = 1 + compress(envelope, dynamic_range_db) / dynamic_range_db
    u = blur(u, draw.uniform(0.3, 0.7), draw.uniform(0.3, 1.1))
    # A fan has few pixels to a beam near its apex: what comes back from one is smeared across the beams there.
    r = torch.linspace(0, 1, n_depth, device=u.device)[None, :, None]
    smeared = torch.exp(-((r / draw.uniform(0.02, 0.2)) ** 2)) * draw.chance(0.8)
    u = torch.lerp(u, blur(u, torch.full_like(r[:, :1], 0.3), draw.uniform(2, 8)), smeared)
    fine = u - blur(u, draw.uniform(0.8, 1.6), draw.uniform(0.8, 1.6))
    u = (u + draw.chance(0.3) * draw.uniform(0, 0.8) * fine).clamp(0, 1)
    reject = draw.chance(0.5) * draw.uniform(0.0, 0.25)
    u = ((u - reject) / (1 - reject)).clamp(0, 1)
    u = torch.lerp(u, u * u * (3 - 2 * u), draw.chance(0.4) * draw.uniform(0, 1))  # S-shaped curves
    return u ** torch.exp(draw.uniform(-0.25, 0.6))
