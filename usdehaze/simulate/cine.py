"""Whole cines with known truth, and batches of single frames and pairs to train from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from usdehaze.cine import Cine, Polar, Source
from usdehaze.simulate.draw import Draw
from usdehaze.simulate.graphics import overlay
from usdehaze.simulate.haze import HazeScene
from usdehaze.simulate.scanner import LOOKS, Scanner
from usdehaze.simulate.speckle import compress
from usdehaze.simulate.tissue import Habit, TissueScene

# What training frames are like: scanners are set so that there is something to see, walls have 2 to 16 mm at depths of
# 12 to 16 cm, and around a heart there is lung more often than not.
SEEN = Habit(wall=(0.015, 0.1), dark=0.65, dark_db=(-45.0, -10.0), cloudy_db=(0.0, 6.0), exposed=0.9)


@dataclass(frozen=True)
class SimulatedCine:
    """A hazy cine and its truth.

    Attributes:
        hazy, tissue, haze: ``(T, depth, angle)`` float32 dB; ``hazy`` is the log-compressed sum of the complex echoes.
        labels: ``(T, depth, angle)`` uint8: 0 other, 1 wall, 2 cavity (fluid).
        geometry: polar grid in m and rad.
        dynamic_range_db: dB.
        frame_times_s: ``(T,)`` s.
        seed: what it was drawn from.
    """

    hazy: np.ndarray
    tissue: np.ndarray
    haze: np.ndarray
    labels: np.ndarray
    geometry: Polar
    dynamic_range_db: float
    frame_times_s: np.ndarray
    seed: int

    @property
    def cine(self) -> Cine:
        """The hazy frames as a cine, ready for the dehazer."""
        source = Source(name=f"simulation-{self.seed}", layout="usdehaze simulation")
        return Cine(self.hazy, self.geometry, self.dynamic_range_db, self.frame_times_s, source)


def simulate_cine(
    n_frames: int = 8,
    seed: int = 0,
    *,
    n_depth: int = 128,
    n_angle: int = 128,
    dynamic_range_db: float = 60.0,
    frame_rate_hz: float = 50.0,
    haze_level_db: tuple[float, float] = (-34.0, -14.0),
) -> SimulatedCine:
    """Draws a beating heart under haze. Tissue and haze add as complex echoes, so the truth is exact.

    Args:
        n_frames: frames, at least 1.
        seed: any non-negative whole number; the same seed gives the same cine.
        n_depth, n_angle: polar grid.
        dynamic_range_db: dB between full scale and floor.
        frame_rate_hz: 1/s; the heart beats 60 to 100 times a minute.
        haze_level_db: range of the haze level near the probe, dB re full scale.

    Raises:
        ValueError: no frames, or a negative seed.
    """
    if n_frames < 1 or seed < 0:
        raise ValueError(f"n_frames must be at least 1 and seed at least 0, found {n_frames} and {seed}")
    draw = Draw(1, torch.Generator().manual_seed(seed))
    tissue = TissueScene(draw, n_depth, n_angle, dynamic_range_db, cardiac=1.0)
    haze = HazeScene(draw, n_depth, n_angle, clear=0.0, level_db=haze_level_db, plain=True)
    depth_m, rate_hz = float(draw.uniform(0.12, 0.18)), float(draw.uniform(1.0, 1.7))
    squeeze, drift = float(draw.uniform(0.08, 0.25)), draw.uniform(-0.02, 0.02, 2)[0, :, 0, 0].tolist()
    times = np.arange(n_frames) / frame_rate_hz
    frames: dict[str, list[Tensor]] = {"hazy": [], "tissue": [], "haze": [], "labels": []}
    for t, haze_iq in zip(times.tolist(), haze.moving(n_frames), strict=True):
        beat = 0.5 - 0.5 * math.cos(2 * math.pi * rate_hz * t)
        tissue_iq, labels = tissue.moved(
            squeeze * beat, (drift[0] * beat, drift[1] * beat), draw.white(n_depth, n_angle)
        )
        for name, iq in (("hazy", tissue_iq + haze_iq), ("tissue", tissue_iq), ("haze", haze_iq)):
            frames[name].append(compress(iq, dynamic_range_db))
        frames["labels"].append(labels)
    arrays = {name: torch.cat(parts).numpy() for name, parts in frames.items()}
    half = float(tissue.half_angle)
    geometry = Polar(depth_m * tissue.r[0, :, 0].double().numpy(), np.linspace(-half, half, n_angle))
    return SimulatedCine(**arrays, geometry=geometry, dynamic_range_db=dynamic_range_db, frame_times_s=times, seed=seed)


def training_frames(
    kind: str,
    batch: int,
    generator: torch.Generator,
    n_depth: int = 128,
    n_angle: int = 128,
    dynamic_range_db: float = 60.0,
) -> Tensor:
    """Frames of tissue alone or haze alone to train a prior on, ``(batch, 1, depth, angle)`` in [0, 1].

    Args:
        kind: "tissue" or "haze".
        batch: number of frames, each of a scene of its own.
        generator: randomness and device.
        n_depth, n_angle, dynamic_range_db: as in :func:`simulate_cine`.
    """
    if kind not in ("tissue", "haze"):
        raise ValueError(f'kind must be "tissue" or "haze", found {kind!r}')
    scene = _Scene(batch, generator, (n_depth, n_angle), dynamic_range_db)
    return scene.finish(scene.tissue_looks if kind == "tissue" else scene.haze_looks, kind == "tissue")[:, None]


def training_pairs(
    batch: int,
    generator: torch.Generator,
    n_depth: int = 128,
    n_angle: int = 128,
    dynamic_range_db: float = 60.0,
) -> Tensor:
    """Tissue, haze and the hazy frame they make, to train a posterior on: ``(batch, 3, depth, angle)`` in [0, 1].

    Tissue and haze add as complex echoes; all three are seen through one scanner. Graphics of the screen are in tissue
    and in the hazy frame, and where the fan is cut off all three are black.

    Args:
        batch, generator, n_depth, n_angle, dynamic_range_db: as in :func:`training_frames`.
    """
    scene = _Scene(batch, generator, (n_depth, n_angle), dynamic_range_db)
    x, n = scene.tissue_looks, scene.haze_looks
    return torch.stack([scene.finish(x, True), scene.finish(n, False), scene.finish(x + n, True)], dim=1)


class _Scene:
    """One draw of tissue, haze, scanner and screen."""

    def __init__(self, batch: int, generator: torch.Generator, shape: tuple[int, int], dynamic_range_db: float) -> None:
        self.draw = draw = Draw(batch, generator)
        self.tissue = TissueScene(draw, *shape, dynamic_range_db, habit=SEEN)
        first = self.tissue.still()[0]
        self.tissue_looks = torch.stack([first, *(self.tissue.look(draw) for _ in range(LOOKS - 1))])
        self.haze = HazeScene(draw, *shape, echo=self.tissue.power)
        self.scanner = Scanner(draw, shape, dynamic_range_db)
        x, z = self.tissue.x, self.tissue.z
        self.graphics = overlay(draw, x, z)
        below = z > 1.5 - draw.chance(0.2) * draw.uniform(0.5, 0.75)
        side = x * (1 - 2 * draw.chance(0.5)) > 1.5 - draw.chance(0.15) * draw.uniform(0.8, 1.3)
        self.shown = 1.0 - (below | side).float()  # where the picture does not cut the fan off

    @cached_property
    def haze_looks(self) -> Tensor:
        return torch.stack([self.haze.still() for _ in range(LOOKS)])

    def finish(self, looks: Tensor, graphics: bool) -> Tensor:
        """``(batch, depth, angle)`` in [0, 1] as the screen shows it."""
        frames = self.scanner.develop(looks)
        return self.shown * (torch.maximum(frames, self.graphics) if graphics else frames)
