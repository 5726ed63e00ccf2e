"""Tissue: complex beamformed echoes of random cardiac and non-cardiac scenes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from usdehaze.simulate.anatomy import Hearts, leaflet_distance, random_blobs
from usdehaze.simulate.draw import Draw
from usdehaze.simulate.leaves import Leaves
from usdehaze.simulate.speckle import PointSpread

OTHER, WALL, CAVITY = 0, 1, 2  # labels


def amplitude(level_db: Tensor) -> Tensor:
    """Amplitude of a level in dB."""
    return 10.0 ** (level_db / 20)


def _mix(a: Tensor, b: Tensor, share: Tensor) -> Tensor:
    return a + (b - a) * share


@dataclass(frozen=True)
class Habit:
    """What the hearts of scenes are usually like.

    Attributes:
        wall: range of the thickness of the first chamber's wall, in units of the imaging depth.
        dark: probability that what lies around a heart is dark.
        dark_db: range of its level then, dB re the wall.
        cloudy_db: range of the deviation of its level from place to place.
        exposed: probability that somebody set the gain so that the brightest fiftieth comes out bright, -14 to 0 dB.
        noise_db: range of the level of the receiver's noise, dB re the floor.
        deeper_db: how much more of it there is at the far end, at most, dB.
        noise_grain: its grain as shares of tissue's, depth and angle; None for white noise.
        blood_db: range of the level of blood, dB re the floor.
        wall_db: range of the level of walls, dB re full scale.
        even: probability that a scene is more or less even.
        broken: probability that walls are in fragments, and again that stretches of them send next to nothing back.
        dropout_db: at most, of walls along the beam.
        edge: range of the width of an edge, in units of the imaging depth.
        uneven: of scatterers: deviation of the logarithm of their strength, at most.
    """

    wall: tuple[float, float] = (0.008, 0.085)
    dark: float = 0.5
    dark_db: tuple[float, float] = (-34.0, -6.0)
    cloudy_db: tuple[float, float] = (1.0, 9.0)
    exposed: float = 0.0
    noise_db: tuple[float, float] = (-35.0, -5.0)
    deeper_db: float = 9.0
    noise_grain: tuple[float, float] | None = None
    blood_db: tuple[float, float] = (-35.0, 0.0)
    wall_db: tuple[float, float] = (-44.0, -12.0)
    even: float = 0.35
    broken: float = 0.5
    dropout_db: float = 22.0
    edge: tuple[float, float] = (0.003, 0.05)
    uneven: float = 1.3


HEARTS = Habit()


class TissueScene:
    """A batch of random scenes on the polar grid; every random choice is made here, evaluation is deterministic.

    Args:
        draw: batch size and randomness.
        n_depth, n_angle: polar grid.
        dynamic_range_db: levels are drawn relative to the floor ``-dynamic_range_db``.
        cardiac: probability that a scene is a heart.
        leaves: probability that one that is no heart is dead leaves, not layers and cysts.
        habit: what walls, surroundings and exposure are usually like.

    Attributes:
        half_angle: ``(batch, 1, 1)`` half the opening angle of the fan, rad.
        power: ``(batch, depth, angle)`` mean power of the echoes of what was evaluated last, without noise.
        x, z: ``(batch, depth, angle)`` where each grid point lies, in units of the imaging depth.
    """

    def __init__(
        self,
        draw: Draw,
        n_depth: int = 128,
        n_angle: int = 128,
        dynamic_range_db: float = 60.0,
        cardiac: float = 0.7,
        leaves: float = 0.65,
        habit: Habit = HEARTS,
    ) -> None:
        self.shape, floor = (n_depth, n_angle), -dynamic_range_db
        self.cardiac, self.leafy = draw.chance(cardiac), draw.chance(leaves)
        linear = (1 - self.cardiac) * draw.chance(0.4)
        self.half_angle = draw.uniform(0.45, 0.85)
        first = draw.uniform(0.0, 0.06)
        self.r = first + (1 - first) * torch.linspace(0, 1, n_depth, device=draw.device)[None, :, None]
        beam = torch.linspace(-1, 1, n_angle, device=draw.device)[None, None, :]
        theta = beam * self.half_angle
        width = draw.uniform(0.2, 0.6)
        self.x = _mix(self.r * theta.sin(), beam * width, linear)
        self.z = _mix(self.r * theta.cos(), self.r.expand(-1, -1, n_angle), linear)

        self.hearts, self.blobs = Hearts.random(draw, habit.wall), random_blobs(draw, 6)
        self.leaves = Leaves.random(draw, floor)
        # Levels in dB re full scale. Speckle scatters about them with the 5.6 dB of a Rayleigh envelope.
        self.wall_db = draw.uniform(*habit.wall_db)
        around = torch.where(draw.chance(habit.dark) > 0, draw.uniform(*habit.dark_db), draw.uniform(-12, 4))
        varied = 1 - draw.chance(habit.even) * draw.uniform(0.5, 1)
        cloudy = draw.uniform(*habit.cloudy_db) * draw.smooth(n_depth, n_angle, 4, 4)
        self.around_db = self.wall_db + around + varied * cloudy
        self.cavity_db = torch.minimum(self.wall_db - draw.uniform(18, 45), floor + draw.uniform(*habit.blood_db))
        self.blob_db = torch.where(draw.chance(0.6, 6) > 0, draw.uniform(-55, -15, 6), draw.uniform(-6, 10, 6))
        self.leaflet_db = self.wall_db + draw.uniform(-6, 10)
        patchy = draw.uniform(2, 10) * draw.smooth(n_depth, n_angle, 12, 10)
        self.rim_db = self.wall_db[:, None] + draw.uniform(-6, 16, 2) + patchy[:, None]
        self.rim_width = draw.uniform(0.004, 0.016, 2)
        self.rim_power, self.rim_floor = draw.uniform(1, 6, 2), draw.uniform(0.0, 0.4, 2)
        # Walls are never even: patches, fragments, and stretches along the beam that send next to nothing back.
        self.wall_db = (
            self.wall_db
            + draw.uniform(0, 9) * draw.smooth(n_depth, n_angle, 6, 6)
            + draw.chance(habit.broken) * draw.uniform(0, 9) * draw.smooth(n_depth, n_angle, 18, 14)
        )
        lost = torch.sigmoid(4 * (draw.smooth(n_depth, n_angle, 5, 5) - draw.uniform(0.6, 2.0)))
        self.wall_db = self.wall_db - draw.chance(habit.broken) * draw.uniform(5, 30) * lost
        self.dropout_db = draw.uniform(0, habit.dropout_db)
        self.edge = draw.log_uniform(*habit.edge)
        self.effusion_width = draw.uniform(0.01, 0.05) * draw.chance(0.06)
        walls = torch.ones(4, device=draw.device)
        walls[1:] = 0.5
        uneven = torch.exp(draw.uniform(0.1, 0.45) * draw.smooth(n_depth, n_angle, 5, 6))
        self.chamber_wall = self.hearts.wall[:, None] * walls[None, :, None, None] * uneven[:, None]

        # Texture: slow changes of echogenicity in every tissue, layers where there is no heart, sparse bright grains.
        slow = (
            draw.smooth(n_depth, n_angle, 5, 5) * draw.uniform(1, 8)
            + draw.smooth(n_depth, n_angle, 16, 12) * draw.uniform(0, 5)
            + draw.smooth(n_depth, n_angle, 40, 16) * draw.uniform(0, 5)  # streaks across the beam
        )
        layers = torch.tanh(3 * draw.smooth(n_depth, n_angle, 14, 1)) * draw.uniform(2, 12)
        self.texture_db = varied * (slow + layers * (1 - 0.7 * self.cardiac))
        grains = draw.smooth(n_depth, n_angle, n_depth // 2, n_angle // 3)
        # Nothing alive is a clean ellipse: everything is bent a little, on two scales.
        self.bend = [
            draw.uniform(0.0, 0.03) * draw.smooth(n_depth, n_angle, 5, 5)
            + draw.uniform(0.0, 0.008) * draw.smooth(n_depth, n_angle, 20, 14)
            for _ in range(2)
        ]
        self.grains_db = draw.uniform(0, 5) * grains.clamp(-2, 3)
        self.gain_db = self._gain(draw, beam)
        near = draw.uniform(0.02, 0.22) + draw.uniform(0, 0.03) * draw.smooth(1, n_angle, 1, 5)
        bands = draw.uniform(0, 6) * torch.sin(self.r * draw.uniform(60, 300) + draw.uniform(0, 6.3))
        bands = bands + draw.uniform(2, 9) * draw.smooth(n_depth, n_angle, 45, 3)
        self.near_share = torch.sigmoid((near - self.r) / draw.uniform(0.006, 0.03)) * draw.chance(0.8)
        self.near_db = draw.uniform(-36, -6) + bands
        axial_px, lateral_px = draw.uniform(0.35, 0.9), draw.uniform(0.4, 1.8)
        defocus = ((self.r - draw.uniform(0.3, 0.8)).abs() * draw.uniform(0.2, 1.6)).clamp(0, 1)
        self.point_spread = PointSpread(self.shape, axial_px, lateral_px, defocus)
        self.noise_db = floor + draw.uniform(*habit.noise_db) + draw.uniform(0, habit.deeper_db) * self.r
        # Few strong scatterers among many weak ones: brighter grains than a Rayleigh envelope has.
        normal = torch.randn(draw.batch, n_depth, n_angle, generator=draw.generator, device=draw.device)
        uneven = draw.uniform(0, habit.uneven) * normal
        self.scatterers = draw.white(n_depth, n_angle) * torch.exp(uneven - uneven.square().mean((1, 2), keepdim=True))
        self.electronics = draw.white(n_depth, n_angle)
        self.noise_spread: PointSpread | None = None
        if habit.noise_grain is not None:
            axial, lateral = habit.noise_grain
            self.noise_spread = PointSpread(self.shape, axial * axial_px, lateral * lateral_px)
        self.exposure_db = torch.zeros(draw.batch, 1, 1, device=draw.device)
        if habit.exposed > 0:
            bright = draw.uniform(-14, 0)
            self._paint(self.x, self.z)
            found = 10 * self.power.flatten(1).quantile(0.98, 1).clamp_min(1e-12).log10()[:, None, None]
            self.exposure_db = draw.chance(habit.exposed) * (bright - found).clamp(-15, 30)

    def _gain(self, draw: Draw, beam: Tensor) -> Tensor:
        """Time-gain error, attenuation, beams lost at the sides, and shadows behind ribs, in dB."""
        gain = draw.uniform(-14, 14) * self.r + draw.uniform(0, 4) * draw.smooth(self.shape[0], 1, 6, 1)
        side = draw.uniform(0.7, 1.3)
        gain = gain - draw.uniform(0, 25) * torch.sigmoid((beam.abs() - side) / 0.06)
        for _ in range(2):
            centre, half = draw.uniform(-1.1, 1.1), draw.uniform(0.03, 0.25)
            dark = torch.sigmoid((half - (beam - centre).abs()) / 0.03) * torch.sigmoid(
                (self.r - draw.uniform(0.03, 0.4)) / 0.02
            )
            gain = gain - draw.chance(0.25) * draw.uniform(8, 40) * dark
        return gain

    def _rim(self, distance: Tensor, cosine: Tensor, k: int) -> Tensor:
        """Amplitude of a specular interface: brightest where the beam meets it head on."""
        width = self.rim_width[:, k]
        facing = _mix(self.rim_floor[:, k], torch.ones_like(width), cosine.abs() ** self.rim_power[:, k])
        return amplitude(self.rim_db[:, k]) * torch.exp(-0.5 * (distance / width) ** 2) * facing

    def evaluate(self, x: Tensor, z: Tensor, scatterers: Tensor, electronics: Tensor) -> tuple[Tensor, Tensor]:
        """Echoes of the scene as it lies at the points ``(x, z)``.

        Args:
            x, z: ``(batch, depth, angle)`` material coordinates of the grid points.
            scatterers, electronics: ``(batch, depth, angle)`` complex white noise.

        Returns:
            I/Q ``(batch, depth, angle)`` complex, 0 dB = amplitude 1, and labels uint8 of the same shape.
        """
        labels = self._paint(x, z)
        return self._echo(scatterers, electronics), labels

    def _paint(self, x: Tensor, z: Tensor) -> Tensor:
        """Sets the mean power of the echoes from material at ``(x, z)``; returns its labels."""
        x, z = x + self.bend[0], z + self.bend[1]
        shapes = self.hearts.chambers.distance(x, z)
        papillary = self.hearts.papillary.distance(x, z).amin(1)
        inner = torch.maximum(shapes.amin(1), -papillary)
        outer = (shapes - self.chamber_wall).amin(1)
        leaflet = leaflet_distance(self.hearts.leaflets, x, z)
        step = self.r[:, 1:2] - self.r[:, :1]
        cos_inner, cos_outer = (torch.gradient(d, dim=1)[0].div(step).clamp(-1, 1) for d in (inner, outer))

        heart = self.around_db + self.texture_db
        cavity = self.cavity_db - self.exposure_db.clamp_min(0)  # blood stays at the floor
        wall = self.wall_db + 0.8 * self.texture_db - self.dropout_db * (1 - cos_inner.abs())
        heart = _mix(heart, cavity, torch.sigmoid((self.effusion_width - outer) / 0.004) * (self.effusion_width > 0))
        heart = _mix(heart, wall, torch.sigmoid(-outer / self.edge))
        heart = _mix(heart, cavity, torch.sigmoid(-inner / self.edge))
        heart = _mix(heart, self.leaflet_db, torch.sigmoid(-leaflet / 0.004))
        blobs = self.blobs.distance(x, z)
        organ = self.wall_db + self.texture_db
        for k in range(blobs.shape[1]):
            organ = organ + self.blob_db[:, k] * torch.sigmoid(-blobs[:, k] / self.edge)
        painted = self.leaves.paint(x, z, self.wall_db) + 0.5 * self.texture_db
        level = _mix(_mix(organ, painted, self.leafy), heart, self.cardiac)
        level = _mix(level, self.near_db, self.near_share) + self.grains_db
        rims = self.cardiac * (self._rim(inner, cos_inner, 0) + self._rim(outer, cos_outer, 1))
        rims = rims + (1 - self.cardiac) * (1 - self.leafy) * self._rim(
            blobs.amin(1), torch.gradient(blobs.amin(1), dim=1)[0].div(step).clamp(-1, 1), 0
        )
        strength = (amplitude(level) + rims * (1 - self.near_share)) * amplitude(self.gain_db + self.exposure_db)
        self.power = strength.square()

        labels = torch.zeros(inner.shape, dtype=torch.uint8, device=inner.device)
        solid = (outer < -self.edge) & (inner > self.edge) & (self.cardiac > 0) & (self.near_share < 0.1)
        fluid = (inner < -3 * self.edge) & (leaflet > 0.02) & (self.cardiac > 0) & (self.near_share < 0.1)
        labels[solid], labels[fluid] = WALL, CAVITY
        return labels

    def _echo(self, scatterers: Tensor, electronics: Tensor) -> Tensor:
        noise = amplitude(self.noise_db) * self.grain(electronics)
        return self.point_spread(self.power.sqrt() * scatterers) + noise

    def grain(self, electronics: Tensor) -> Tensor:
        """White noise as the receiver's: with the grain that the habit gives it."""
        return electronics if self.noise_spread is None else self.noise_spread(electronics)

    def look(self, draw: Draw) -> Tensor:
        """I/Q of what was evaluated last, as another angle or frequency shows it: speckle of its own."""
        return self._echo(draw.white(*self.shape), draw.white(*self.shape))

    def still(self) -> tuple[Tensor, Tensor]:
        """The scene at rest: I/Q and labels, as :meth:`evaluate` gives them."""
        return self.evaluate(self.x, self.z, self.scatterers, self.electronics)

    def moved(self, squeeze: float, shift: tuple[float, float], electronics: Tensor) -> tuple[Tensor, Tensor]:
        """The scene with its heart squeezed towards the first chamber's centre and shifted; scatterers move along.

        Args:
            squeeze: fraction by which the heart has shrunk at its centre, about -0.05 to 0.3.
            shift: (x, z) translation in units of the imaging depth.
            electronics: fresh thermal noise for this frame.
        """
        cx, cz = self.hearts.chambers.x[:, 0], self.hearts.chambers.z[:, 0]
        near = torch.exp(-((self.x - cx) ** 2 + (self.z - cz) ** 2) / 0.35**2)
        x = self.x + near * (squeeze * (self.x - cx) - shift[0])
        z = self.z + near * (squeeze * (self.z - cz) - shift[1])
        # Scatterers sit in the material: read them where the material came from, in polar grid units.
        radius, angle = torch.hypot(x, z), torch.atan2(x, z)
        first, last = self.r[:, :1], self.r[:, -1:]
        grid = torch.stack([angle / self.half_angle, 2 * (radius - first) / (last - first) - 1], dim=-1)
        parts = torch.stack([self.scatterers.real, self.scatterers.imag], dim=1)
        parts = F.grid_sample(parts, grid, mode="bilinear", padding_mode="reflection", align_corners=True)
        power = parts.square().sum(1, keepdim=True).mean((2, 3), keepdim=True)
        parts = parts / power.sqrt()  # bilinear reading averages neighbours: give back the power that it took
        return self.evaluate(x, z, torch.complex(parts[:, 0].contiguous(), parts[:, 1].contiguous()), electronics)
