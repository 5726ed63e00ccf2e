"""What a scanner does with beamformed echoes before somebody sees them."""

from __future__ import annotations

import torch
from torch import Tensor

from usdehaze.simulate.draw import Draw
from usdehaze.simulate.speckle import Blur, compress

LOOKS = 2  # independent looks that a frame is compounded of, at most


class Scanner:
    """Compounding, log compression, smoothing, speckle reduction, edge enhancement, reject, grey curve, each by chance.

    Every random choice is made when it is built, so that tissue, haze and their sum can be seen through one scanner.

    Args:
        draw: batch size and randomness.
        shape: depth and angle of the frames.
        dynamic_range_db: dB between full scale and floor.
        gamma_log: range of the logarithm of the grey curve's power.
        span: range of what is shown, as shares of the dynamic range.
        smoothing: whether some compound looks, and some take contrast off speckle.
    """

    def __init__(
        self,
        draw: Draw,
        shape: tuple[int, int],
        dynamic_range_db: float,
        gamma_log: tuple[float, float] = (-0.25, 1.3),
        span: tuple[float, float] = (1.0, 1.0),
        smoothing: bool = True,
    ) -> None:
        self.dynamic_range_db = dynamic_range_db
        weights = torch.rand(LOOKS, draw.batch, 1, 1, generator=draw.generator, device=draw.device)
        weights[1:] *= draw.chance(0.4 * smoothing)  # of the looks beyond the first
        self.weights = weights / weights.sum(0)
        self.mix = Blur(shape, draw.uniform(0.3, 0.8), draw.uniform(0.3, 1.3))
        self.mixed = draw.uniform(0, 1) * draw.chance(0.7)
        self.smooth = Blur(shape, draw.uniform(0.3, 0.7), draw.uniform(0.3, 1.1))
        # A fan has few pixels to a beam near its apex: what comes back from one is smeared across the beams there.
        r = torch.linspace(0, 1, shape[0], device=draw.device)[None, :, None]
        self.smeared = torch.exp(-((r / draw.uniform(0.02, 0.2)) ** 2)) * draw.chance(0.8)
        self.smear = Blur(shape, torch.full_like(r[:, :1], 0.3), draw.uniform(2, 8))
        self.slow = Blur(shape, draw.uniform(1.5, 4), draw.uniform(1.5, 4))
        # speckle keeps its grain and loses its contrast
        self.reduced = draw.chance(0.5 * smoothing) * draw.uniform(0, 0.65)
        self.coarse = Blur(shape, draw.uniform(0.8, 1.6), draw.uniform(0.8, 1.6))
        self.sharpness = draw.chance(0.3) * draw.uniform(0, 0.8)
        self.reject = draw.chance(0.5) * draw.uniform(0.0, 0.25)
        self.s_curve = draw.chance(0.4) * draw.uniform(0, 1)
        self.gamma = torch.exp(draw.uniform(*gamma_log))
        self.span = draw.uniform(*span) if span[0] < span[1] else span[0]

    def develop(self, looks: Tensor) -> Tensor:
        """Frames as they are seen.

        Args:
            looks: ``(LOOKS, batch, depth, angle)`` complex, 0 dB = amplitude 1; or fewer, of which the first count.

        Returns:
            ``(batch, depth, angle)`` in [0, 1] (0 = floor, 1 = 0 dB).
        """
        weights = self.weights[: len(looks)]
        power = (looks.real.square() + looks.imag.square()).mul(weights / weights.sum(0)).sum(0)
        envelope = power.sqrt()
        envelope = torch.lerp(envelope, self.mix(envelope), self.mixed)
        u = 1 + compress(envelope ** (1 / self.span), self.dynamic_range_db) / self.dynamic_range_db
        u = self.smooth(u)
        u = torch.lerp(u, self.smear(u), self.smeared)
        u = torch.lerp(u, self.slow(u), self.reduced)
        u = (u + self.sharpness * (u - self.coarse(u))).clamp(0, 1)
        u = ((u - self.reject) / (1 - self.reject)).clamp(0, 1)
        u = torch.lerp(u, u * u * (3 - 2 * u), self.s_curve)
        return u**self.gamma
