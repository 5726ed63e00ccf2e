"""Haze: reverberation, side lobes, clutter and stray echoes that lie over the tissue."""

from __future__ import annotations

import torch
from torch import Tensor

from usdehaze.simulate.draw import Draw
from usdehaze.simulate.speckle import Blur, PointSpread

# Field correlation of haze speckle between frames: a share that stays, the rest passing by. In dB it makes correlations
# of 0.48, 0.32 and 0.19 at 1, 2 and 5 frames; in ventricles of real apical cines 0.23 to 0.72, 0.16 to 0.53 and 0.10 to
# 0.28 were measured.
FROZEN, KEPT = 0.5, 0.6


class HazeScene:
    """A batch of random hazes on the polar grid: power profiles times complex speckle.

    Of each frame some of these are there, by chance: haze that is strongest near the probe, free forms anywhere, an
    even fill of fine grain, the near field's reverberation with itself, side lobes of bright structures.

    Args:
        draw: batch size and randomness.
        n_depth, n_angle: polar grid.
        clear: probability that a frame has no haze at all.
        level_db: range of the haze level near the probe, dB re full scale.
        echo: ``(batch, depth, angle)`` mean power of the tissue that reverberates and is seen by side lobes; None for
            haze of the probe alone.
        plain: only haze that is strongest near the probe, as hearts are measured under.
        lateral_px: range of the deviation of its grain along the angle, pixels.
        uneven: of what it scatters from: deviation of the logarithm of the strength, at most.
    """

    def __init__(
        self,
        draw: Draw,
        n_depth: int = 128,
        n_angle: int = 128,
        clear: float = 0.12,
        level_db: tuple[float, float] = (-42.0, -12.0),
        echo: Tensor | None = None,
        plain: bool = False,
        lateral_px: tuple[float, float] = (0.5, 6.0),
        uneven: float = 1.8,
    ) -> None:
        self.draw, self.shape = draw, (n_depth, n_angle)
        self.r = torch.linspace(0, 1, n_depth, device=draw.device)[None, :, None]
        self.beam = torch.linspace(-1, 1, n_angle, device=draw.device)[None, None, :]
        power, fine = self._near_probe(level_db), torch.zeros_like(self.r)
        if not plain:
            power = draw.chance(0.7) * power + draw.chance(0.4) * self._free_form()
            fine = draw.chance(0.5) * 10 ** ((draw.uniform(-56, -30) + draw.uniform(-12, 12) * self.r) / 10)
            if echo is not None:
                power = power + draw.chance(0.3) * self._reverberation(echo) + draw.chance(0.3) * self._side_lobes(echo)
        there = 1 - draw.chance(clear)
        streaks = draw.chance(0.6) * draw.uniform(0, 6) * draw.smooth(n_depth, n_angle, 48, 6)  # along an arc
        self.amplitude, self.fine = (power * there * 10 ** (streaks / 10)).sqrt(), (fine * there).sqrt()
        self.point_spread = PointSpread(self.shape, draw.log_uniform(0.3, 1.6), draw.log_uniform(*lateral_px))
        self.uneven = draw.uniform(0, uneven)  # few strong scatterers among many weak ones, as in tissue

    def _near_probe(self, level_db: tuple[float, float]) -> Tensor:
        """Strongest near the probe, fading out at some depth that differs a little from beam to beam."""
        draw, shape, r, beam = self.draw, self.shape, self.r, self.beam
        level = draw.uniform(*level_db)
        half_way = draw.chance(0.5)  # as in most real clips: gone at a third to a half of the depth
        edge = half_way * draw.uniform(0.2, 0.55) + (1 - half_way) * draw.uniform(0.15, 1.1)
        edge = edge + draw.uniform(0, 0.12) * draw.smooth(*shape, 1, 6)
        fade = torch.sigmoid((r - edge) / draw.uniform(0.02, 0.15))
        profile = level - draw.uniform(0, 35) * r - draw.uniform(20, 60) * fade
        profile = (
            profile + draw.uniform(0, 6) * draw.smooth(*shape, 1, 4) + draw.uniform(0, 3) * draw.smooth(*shape, 3, 3)
        )
        profile = profile + draw.uniform(0, 5) * draw.smooth(*shape, 36, 2)  # layers of reverberation
        side = draw.uniform(-0.9, 0.9)
        sharp = torch.sigmoid((beam - side) * (1 - 2 * draw.chance(0.5)) / draw.uniform(0.01, 0.1))
        profile = profile - draw.chance(0.25) * draw.uniform(10, 40) * sharp
        power = 10 ** (profile / 10)
        for _ in range(3):  # clouds away from the probe
            at_r, at_beam = draw.uniform(0.05, 0.9), draw.uniform(-1, 1)
            blob = ((r - at_r) / draw.uniform(0.12, 0.3)) ** 2 + ((beam - at_beam) / draw.uniform(0.35, 1.0)) ** 2
            power = power + draw.chance(0.25) * 10 ** ((level + draw.uniform(-14, 2)) / 10) * torch.exp(-0.5 * blob)
        period, width = draw.uniform(0.05, 0.25), draw.uniform(0.008, 0.03)
        window = torch.exp(-0.5 * ((beam - draw.uniform(-0.8, 0.8)) / draw.uniform(0.5, 1.2)) ** 2)
        strength, decay = draw.chance(0.2) * 10 ** ((level + draw.uniform(-8, 6)) / 10), draw.uniform(2, 10)
        for k in range(1, 6):  # echoes between probe and a reflector at one depth
            band = torch.exp(-0.5 * ((r - k * period) / width) ** 2) * window
            power = power + strength * 10 ** (-decay * k / 10) * band
        close = torch.sigmoid((draw.uniform(0.02, 0.1) - r) / 0.01)
        return power * 10 ** (draw.chance(0.5) * draw.uniform(0, 12) * close / 10)

    def _free_form(self) -> Tensor:
        """Smooth profiles anywhere: what is taken for haze must not hang on where it lies."""
        draw, shape = self.draw, self.shape
        profile = draw.uniform(-52, -20) + draw.uniform(-20, 20) * (self.r - 0.5)
        profile = (
            profile + draw.uniform(0, 11) * draw.smooth(*shape, 2, 2) + draw.uniform(0, 6) * draw.smooth(*shape, 5, 4)
        )
        profile = profile + draw.chance(0.3) * draw.uniform(0, 4) * draw.smooth(*shape, 12, 8)
        hole = torch.sigmoid((draw.smooth(*shape, 3, 3) + draw.uniform(-1.0, 1.5)) / draw.log_uniform(0.05, 0.8))
        return 10 ** ((profile - draw.uniform(0, 45) * (1 - hole)) / 10).clamp(max=0.1)

    def _reverberation(self, echo: Tensor) -> Tensor:
        """The near field's layers met again deeper: its profile with itself, once and twice over."""
        draw = self.draw
        reach = draw.uniform(0.08, 0.35)
        smooth = Blur(self.shape, torch.full_like(reach, 0.6), draw.uniform(1, 6))
        near = smooth(echo.sqrt()) * torch.sigmoid((reach - self.r) / 0.02)
        spectrum = torch.fft.rfft(near, n=2 * self.shape[0], dim=1)
        power = torch.zeros_like(echo)
        for order, loss_db in ((2, draw.uniform(0, 10)), (3, draw.uniform(6, 22))):
            again = torch.fft.irfft(spectrum**order, n=2 * self.shape[0], dim=1)[:, : self.shape[0]].clamp_min(0)
            again = again / again.amax((1, 2), keepdim=True).clamp_min(1e-9)
            power = power + (again * 10 ** (-loss_db / 20)) ** 2
        return power * 10 ** (draw.uniform(-38, -10) / 10)

    def _side_lobes(self, echo: Tensor) -> Tensor:
        """What strong reflectors send into the beams beside theirs, at their own depth."""
        draw, n = self.draw, self.shape[1]
        apart = torch.arange(n, device=draw.device, dtype=torch.float32)
        apart = (apart[:, None] - apart[None, :]).abs()[None]
        lobes = 1 / (1 + (apart / draw.uniform(3, 20)) ** 2) * torch.sigmoid((apart - draw.uniform(2, 8)) / 1.5)
        return (echo @ lobes * 10 ** (draw.uniform(-48, -24) / 10)).clamp(max=0.3)

    def speckle(self) -> Tensor:
        """A fresh realisation ``(batch, depth, angle)`` of unit-power complex speckle."""
        shape = (self.draw.batch, *self.shape)
        normal = torch.randn(shape, generator=self.draw.generator, device=self.draw.device)
        strength = torch.exp(self.uneven * normal - self.uneven**2)  # of unit power in the mean
        return self.point_spread(self.draw.white(*self.shape) * strength)

    def still(self) -> Tensor:
        """One frame of haze: I/Q ``(batch, depth, angle)`` complex, 0 dB = amplitude 1."""
        return self.amplitude * self.speckle() + self.fine * self.draw.white(*self.shape)

    def moving(self, n_frames: int) -> list[Tensor]:
        """Frames of haze whose level stays and whose speckle is renewed about as fast as tissue's."""
        frozen, passing, frames = self.speckle(), self.speckle(), []
        for _ in range(n_frames):
            grain = FROZEN**0.5 * frozen + (1 - FROZEN) ** 0.5 * passing
            frames.append(self.amplitude * grain + self.fine * self.draw.white(*self.shape))
            passing = KEPT * passing + (1 - KEPT**2) ** 0.5 * self.speckle()
        return frames
