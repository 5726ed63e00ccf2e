"""Single frames and pairs to train from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from usdehaze.choices import Scenes
from usdehaze.simulate.draw import Draw
from usdehaze.simulate.graphics import overlay
from usdehaze.simulate.haze import HazeScene
from usdehaze.simulate.scanner import LOOKS, Scanner
from usdehaze.simulate.tissue import Habit, TissueScene, amplitude

# What training frames are like: scanners are set so that there is something to see, walls have 2 to 16 mm at depths of
# 12 to 16 cm, and around a heart there is lung more often than not.
SEEN = Habit(wall=(0.015, 0.1), dark=0.65, dark_db=(-45.0, -10.0), cloudy_db=(0.0, 6.0), exposed=0.9)
# Brighter hearts, whole walls; of the first the receiver's noise and blood may be seen.
NOISY = Habit(
    noise_db=(-22.0, 14.0), deeper_db=18.0, noise_grain=(0.7, 0.5), blood_db=(-25.0, 14.0), wall_db=(-38.0, -12.0),
    even=0.0, broken=0.0, dropout_db=16.0, edge=(0.003, 0.025), uneven=0.9,
)  # fmt: skip
QUIET = replace(NOISY, noise_db=(-35.0, -5.0), deeper_db=9.0, blood_db=(-35.0, 0.0))


@dataclass(frozen=True)
class Setup:
    """What scenes, hazes and scanners are drawn from.

    Attributes:
        habit: of hearts.
        cardiac, leaves: probabilities, as of a `TissueScene`.
        plain: haze of the probe alone, its speckle like a Rayleigh envelope's; no graphics, and no fan is cut off.
        noise_as_haze: whether noise of a receiver lies in the haze.
        span: how much of the dynamic range scanners show, of it; above 1 speckle has less contrast.
        gamma_log, smoothing: of a `Scanner`.
        by_eye: probability that the gain is turned down until up to 45 % of the frame is black, whatever was there.
    """

    habit: Habit = SEEN
    cardiac: float = 0.7
    leaves: float = 0.65
    plain: bool = False
    noise_as_haze: bool = False
    span: tuple[float, float] = (1.0, 1.0)
    gamma_log: tuple[float, float] = (-0.25, 1.3)
    smoothing: bool = True
    by_eye: float = 0.0


_HEARTS = Setup(NOISY, cardiac=0.8, leaves=0.0, plain=True, gamma_log=(-0.25, 0.6), smoothing=False, by_eye=0.7)
# By name. "hearts" keeps what is grey all over, "quiet-hearts" takes it off: the default is the mean of the two.
SETUPS: Final[dict[Scenes, Setup]] = {
    "wide": Setup(),
    "hearts": replace(_HEARTS, span=(0.8, 1.8)),
    "quiet-hearts": replace(_HEARTS, habit=QUIET, noise_as_haze=True),
}


def training_frames(
    kind: str,
    batch: int,
    generator: torch.Generator,
    n_depth: int = 128,
    n_angle: int = 128,
    dynamic_range_db: float = 60.0,
) -> Tensor:
    """A batch of single frames in [0, 1] (0 = floor, 1 = 0 dB) to train a prior on: ``(batch, 1, depth, angle)``.

    Args:
        kind: "tissue" or "haze".
        batch: number of frames, each another scene.
        generator: randomness and device.
        n_depth, n_angle, dynamic_range_db: as in :func:`simulate_cine`.
    """
    if kind not in ("tissue", "haze"):
        raise ValueError(f'kind must be "tissue" or "haze", found {kind!r}')
    scene = _Scene(batch, generator, (n_depth, n_angle), dynamic_range_db, SETUPS["wide"])
    return scene.finish(scene.tissue_looks if kind == "tissue" else scene.haze_looks, kind == "tissue")[:, None]


def training_pairs(
    batch: int,
    generator: torch.Generator,
    n_depth: int = 128,
    n_angle: int = 128,
    dynamic_range_db: float = 60.0,
    setup: Setup = SETUPS["wide"],
) -> Tensor:
    """Tissue, haze and the hazy frame they make, to train a posterior on: ``(batch, 3, depth, angle)`` in [0, 1].

    Tissue and haze add as complex echoes; all three are seen through one scanner. Graphics of the screen are in tissue
    and in the hazy frame, and where the fan is cut off all three are black.

    Args:
        batch, generator, n_depth, n_angle, dynamic_range_db: as in :func:`training_frames`.
        setup: what scenes are drawn from.
    """
    scene = _Scene(batch, generator, (n_depth, n_angle), dynamic_range_db, setup)
    x, n = scene.tissue_looks, scene.haze_looks
    pairs = torch.stack([scene.finish(x, True), scene.finish(n, False), scene.finish(x + n, True)], dim=1)
    return _by_eye(scene.draw, pairs, setup.by_eye) if setup.by_eye else pairs


class _Scene:
    """One draw of tissue, haze, scanner and screen."""

    def __init__(
        self, batch: int, generator: torch.Generator, shape: tuple[int, int], dynamic_range_db: float, setup: Setup
    ) -> None:
        self.draw = draw = Draw(batch, generator)
        self.tissue = TissueScene(draw, *shape, dynamic_range_db, setup.cardiac, setup.leaves, setup.habit)
        first = self.tissue.still()[0]
        self.tissue_looks = torch.stack([first, *(self.tissue.look(draw) for _ in range(LOOKS - 1))])
        if setup.plain:
            self.haze = HazeScene(draw, *shape, level_db=(-42.0, -8.0), plain=True, lateral_px=(0.5, 4.0), uneven=0.0)
        else:
            self.haze = HazeScene(draw, *shape, echo=self.tissue.power)
        self.noise: Tensor | None = None
        if setup.noise_as_haze:
            noise_db = draw.uniform(*NOISY.noise_db) + draw.uniform(0, NOISY.deeper_db) * self.tissue.r
            self.noise = amplitude(noise_db - dynamic_range_db)
        self.scanner = Scanner(draw, shape, dynamic_range_db, setup.gamma_log, setup.span, setup.smoothing)
        self.graphics, self.shown = torch.zeros((), device=draw.device), torch.ones((), device=draw.device)
        if not setup.plain:
            x, z = self.tissue.x, self.tissue.z
            self.graphics = overlay(draw, x, z)
            below = z > 1.5 - draw.chance(0.2) * draw.uniform(0.5, 0.75)
            side = x * (1 - 2 * draw.chance(0.5)) > 1.5 - draw.chance(0.15) * draw.uniform(0.8, 1.3)
            self.shown = 1.0 - (below | side).float()  # where the picture does not cut the fan off

    @cached_property
    def haze_looks(self) -> Tensor:
        return torch.stack([self._haze() for _ in range(LOOKS)])

    def _haze(self) -> Tensor:
        haze = self.haze.still()
        return haze if self.noise is None else haze + self.noise * self.tissue.grain(self.draw.white(*self.haze.shape))

    def finish(self, looks: Tensor, graphics: bool) -> Tensor:
        """``(batch, depth, angle)`` in [0, 1] as the screen shows it."""
        frames = self.scanner.develop(looks)
        return self.shown * (torch.maximum(frames, self.graphics) if graphics else frames)


def _by_eye(draw: Draw, pairs: Tensor, probability: float) -> Tensor:
    """The gain turned down: a level that up to 45 % of the hazy frame lies under becomes the floor of all three."""
    share = draw.chance(probability) * draw.uniform(0, 0.45)
    ordered = pairs[:, 2].flatten(1).sort(1).values
    at = (share.flatten(1) * (ordered.shape[1] - 1)).long()
    floor = (ordered.gather(1, at)[:, :, None] * (share > 0))[:, None]
    stretch = draw.uniform(0, 1)[:, None]  # what is left may be spread over the greys again
    return ((pairs - floor) / (1 - stretch * floor)).clamp(0, 1)
