"""Whole cines with known truth."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from usdehaze.cine import Cine, Polar, Source
from usdehaze.simulate.draw import Draw
from usdehaze.simulate.haze import HazeScene
from usdehaze.simulate.speckle import compress
from usdehaze.simulate.tissue import TissueScene


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
