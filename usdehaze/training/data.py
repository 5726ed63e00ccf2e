"""Where training frames come from: the simulator, or frames of scans.

Each batch is a function of (seed, stream, step) alone, so that a run that was interrupted goes on with the very batches
it would have seen, and processes that train together (one stream each) see different ones.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from usdehaze.choices import Scenes
from usdehaze.diffusion.streams import Streams
from usdehaze.priors.posterior import EXPOSURE, lift_of, raised
from usdehaze.simulate import SETUPS, training_frames, training_pairs
from usdehaze.simulate.speckle import PointSpread

HELD_OUT_SEED, SAMPLE_SEED = 2_000_000_000, 1_999_999_999
_FRAMES, PICKS, _NOISE, HAZE_PICKS, _PHASE = range(5)  # purposes of a random stream
SPAN_DB = 60.0  # that frames of scans are taken to span where tissue and haze are put together
PHASE_PX = (0.7, 1.0)  # grain of the random phase between two stored frames, depth and angle


class FrameSource(Protocol):
    """Frames of one kind, all of one shape, values in [0, 1] (0 = floor, 1 = 0 dB).

    They have one channel, or, to train a posterior on, three: tissue, haze, and the frame that the two make.
    """

    @property
    def description(self) -> str:
        """What they are, for the card: no name of a file."""

    @property
    def fingerprint(self) -> str:
        """Tells these frames from others, for the checkpoint."""

    @property
    def simulated(self) -> bool:
        """Whether they come from the simulator alone."""

    @property
    def held_out(self) -> Tensor:
        """Frames ``(N, C, depth, angle)`` that are never trained on."""

    @property
    def sample(self) -> Tensor:
        """Frames ``(N, C, depth, angle)`` to take mean and deviation of a pixel from, and to show."""

    def draw(self, batch: int, seed: int, stream: int, step: int, device: torch.device) -> Tensor:
        """``(batch, C, depth, angle)`` frames for a step, the same ones for the same arguments."""


def generator_for(seed: int, stream: int, purpose: int, index: int, device: torch.device) -> torch.Generator:
    """A random stream of its own for each use."""
    return Streams([(seed, stream, purpose, index)], device).generators[0]


def noise_generator(seed: int, stream: int, step: int, device: torch.device) -> torch.Generator:
    """The random stream of noise levels and noise of a step."""
    return generator_for(seed, stream, _NOISE, step, device)


def pick(frames: Tensor, batch: int, generator: torch.Generator, mirror: bool = True) -> Tensor:
    """Frames drawn with replacement, each mirrored or not where left and right mean nothing to a prior."""
    device = generator.device
    out = frames[torch.randint(len(frames), (batch,), generator=generator, device=device)].float()
    if not mirror:
        return out
    flip = torch.rand(batch, 1, 1, 1, generator=generator, device=device) < 0.5
    return torch.where(flip, out.flip(-1), out)


class SimulatedFrames:
    """A pool of simulated frames; the oldest few are replaced by fresh ones at every step.

    Simulating costs about as much as a training step, so each frame is used about ``batch / refresh`` times, each
    time with other noise and mirrored or not.

    Args:
        kind: "tissue" or "haze", or "posterior" for pairs of both and what they make.
        shape: depth and angle of the grid.
        pool: frames in the pool; a multiple of ``refresh``.
        refresh: frames that are new at every step.
        purpose: of the random stream that picks them; frames that are drawn side by side need one each.
        scenes: of pairs, what they are drawn from, see `usdehaze.simulate.SETUPS`.
    """

    simulated, exposure = True, EXPOSURE

    def __init__(
        self,
        kind: str,
        shape: tuple[int, int],
        pool: int = 1024,
        refresh: int = 4,
        purpose: int = PICKS,
        scenes: Scenes = "wide",
    ) -> None:
        if refresh < 1 or pool < 1 or pool % refresh:
            raise ValueError(f"pool must be a positive multiple of refresh, found {pool} and {refresh}")
        self.kind, self.shape, self.pool, self.refresh, self.purpose = kind, shape, pool, refresh, purpose
        self.setup = SETUPS[scenes]
        of_scenes = "" if scenes == "wide" else f", {scenes}"
        self.description = f"usdehaze.simulate{of_scenes} (no patient data)"
        self.fingerprint = f"simulated{of_scenes}, pool {pool}, {refresh} new a step"
        self._frames: Tensor | None = None
        self._holds = (-1, -1, 0)  # seed, stream and first chunk of what is in the pool

    @cached_property
    def held_out(self) -> Tensor:
        return self._simulate(32, torch.Generator().manual_seed(HELD_OUT_SEED))

    @cached_property
    def sample(self) -> Tensor:
        return self._simulate(128, torch.Generator().manual_seed(SAMPLE_SEED))

    def draw(self, batch: int, seed: int, stream: int, step: int, device: torch.device) -> Tensor:
        chunks, simulate = self.pool // self.refresh, self._chunk
        if self._frames is None or self._holds != (seed, stream, step):
            self._frames = torch.cat([simulate(seed, stream, step + i, device) for i in range(chunks)])
            self._frames = self._frames.roll(step % chunks * self.refresh, 0)  # chunk c lies at place c mod chunks
        frames = pick(self._frames, batch, generator_for(seed, stream, self.purpose, step, device))
        at = step % chunks * self.refresh
        self._frames[at : at + self.refresh] = simulate(seed, stream, step + chunks, device)
        self._holds = (seed, stream, step + 1)
        return frames

    def _chunk(self, seed: int, stream: int, index: int, device: torch.device) -> Tensor:
        generator = generator_for(seed, stream, _FRAMES, index, device)
        return self._simulate(self.refresh, generator)

    def _simulate(self, n: int, generator: torch.Generator) -> Tensor:
        if self.kind == "posterior":
            return training_pairs(n, generator, *self.shape, setup=self.setup)
        return training_frames(self.kind, n, generator, *self.shape)


class InMemory:
    """Frames or images to learn from and some held out, all in memory at half precision.

    Attributes:
        mirror: whether what is drawn is mirrored by chance.
        purpose: of the random stream that draws.
    """

    simulated = False
    mirror = True
    purpose: int
    _train: Tensor
    _held_out: Tensor

    @property
    def held_out(self) -> Tensor:
        return evenly(self._held_out, 32).float()

    @property
    def sample(self) -> Tensor:
        return evenly(self._train, 1024).float()

    def draw(self, batch: int, seed: int, stream: int, step: int, device: torch.device) -> Tensor:
        if self._train.device != device:
            self._train = self._train.to(device)
        return pick(self._train, batch, generator_for(seed, stream, self.purpose, step, device), self.mirror)


class StoredFrames(InMemory):
    """Frames of scans, all in memory (half precision: a step of 0.03 dB at 60 dB).

    A share of them is held out, by scan where there are several: neighbouring frames of one cine are so alike that one
    tells nothing of what was learned from the other. Of a single scan it is its last frames.

    Args:
        scans: ``(T, depth, angle)`` in [0, 1], one for each scan.
        share: of the scans (or frames) to hold out, at least one and never all.
        purpose: of the random stream that picks them; frames that are drawn side by side need one each.

    Raises:
        ValueError: fewer than two frames, or frames of different shapes.
    """

    def __init__(self, scans: list[Tensor], share: float = 0.1, purpose: int = PICKS) -> None:
        self.purpose = purpose
        shapes = {tuple(frames.shape[1:]) for frames in scans}
        total = sum(len(frames) for frames in scans)
        if total < 2 or len(shapes) != 1:
            raise ValueError(f"training takes at least 2 frames of one shape, found {total} of {len(shapes)} shapes")
        self.n_scans = len(scans)
        if len(scans) == 1:
            scans = list(scans[0].split([total - some_of(share, total), some_of(share, total)]))
        order = torch.randperm(len(scans), generator=torch.Generator().manual_seed(HELD_OUT_SEED)).tolist()
        out = {len(scans) - 1} if self.n_scans == 1 else set(order[: some_of(share, len(scans))])
        self._train = torch.cat([s for i, s in enumerate(scans) if i not in out])[:, None].half()
        self._held_out = torch.cat([scans[i] for i in sorted(out)])[:, None].half()
        self.fingerprint = hashlib.sha256(self._train.numpy().tobytes()).hexdigest()[:16]

    @property
    def frames(self) -> set[bytes]:
        """Every different frame, held out or not, by its hash."""
        every = (frame for part in (self._train, self._held_out) for frame in part)
        return {hashlib.sha256(frame.numpy().tobytes()).digest() for frame in every}

    @property
    def description(self) -> str:
        by = "by scan" if self.n_scans > 1 else "last frames of the scan"
        counts = f"{len(self._train)} frames, {len(self._held_out)} more held out ({by})"
        return f"{self.n_scans} scan{'s' if self.n_scans > 1 else ''} of the user's own: {counts}"


class Pairs:
    """Tissue and haze of any two sources, put together anew at every step: no frame of one needs one of the other.

    Powers add with a random phase between the echoes, before log compression over 60 dB. Dark frames are raised, as
    when they are dehazed (`lift_of`); simulated pairs are of every exposure.

    Args:
        tissue, haze: frames of one channel; each with a ``purpose`` of its own.
    """

    simulated, exposure = False, EXPOSURE

    def __init__(self, tissue: FrameSource, haze: FrameSource) -> None:
        self.tissue, self.haze = tissue, haze
        self.fingerprint = f"{tissue.fingerprint} and {haze.fingerprint}"

    @property
    def description(self) -> str:
        return f"tissue of {self.tissue.description}; haze of {self.haze.description}"

    @cached_property
    def held_out(self) -> Tensor:
        return self._paired(self.tissue.held_out, self.haze.held_out, HELD_OUT_SEED)

    @cached_property
    def sample(self) -> Tensor:
        return self._paired(self.tissue.sample, self.haze.sample, SAMPLE_SEED)

    def draw(self, batch: int, seed: int, stream: int, step: int, device: torch.device) -> Tensor:
        x, n = (frames.draw(batch, seed, stream, step, device) for frames in (self.tissue, self.haze))
        return _exposed(put_together(x, n, generator_for(seed, stream, _PHASE, step, device)))

    @staticmethod
    def _paired(tissue: Tensor, haze: Tensor, seed: int) -> Tensor:
        """Each of the longer set with one of the shorter, which is gone through again and again."""
        n = max(len(tissue), len(haze))
        x, y = (frames[torch.arange(n) % len(frames)] for frames in (tissue, haze))
        return _exposed(put_together(x, y, torch.Generator().manual_seed(seed)))


def shared(tissue: FrameSource, haze: FrameSource) -> int:
    """How many different frames of scans are among both."""
    of_scans = [source for source in (tissue, haze) if isinstance(source, StoredFrames)]
    return len(set.intersection(*(source.frames for source in of_scans))) if len(of_scans) == 2 else 0


def put_together(tissue: Tensor, haze: Tensor, generator: torch.Generator) -> Tensor:
    """Tissue, haze and the frame they make, ``(B, 3, depth, angle)``, from frames ``(B, 1, depth, angle)`` in [0, 1].

    ``y = 20 log10 |10^(x/20) + e^(i phi) 10^(n/20)|`` in dB, the phase random with the grain of speckle. What lies on
    the floor sends nothing back.
    """
    n, device = len(tissue), tissue.device
    echoes = [torch.where(u > 0, 10 ** ((u[:, 0:1] - 1) * SPAN_DB / 20), 0.0)[:, 0] for u in (tissue, haze)]
    white = torch.randn(n, *tissue.shape[2:], 2, generator=generator, device=device)
    axial, lateral = (torch.full((n, 1, 1), px, device=device) for px in PHASE_PX)
    phase = PointSpread((tissue.shape[2], tissue.shape[3]), axial, lateral)(torch.view_as_complex(white)).sgn()
    both = (echoes[0] + phase * echoes[1]).abs().clamp_min(1e-6)
    frame = (1 + 20 * torch.log10(both) / SPAN_DB).clamp(0, 1)[:, None]
    return torch.cat([tissue, haze, frame], dim=1)


def _exposed(pairs: Tensor) -> Tensor:
    return raised(pairs, lift_of(pairs[:, 2:]))


def some_of(share: float, n: int) -> int:
    """How many of ``n`` to hold out: about a share of them, at least one and never all."""
    return min(n - 1, max(1, round(share * n)))


def evenly(frames: Tensor, n: int) -> Tensor:
    """At most ``n`` of the frames, evenly spread."""
    return frames[torch.linspace(0, len(frames) - 1, min(n, len(frames))).round().long()]
