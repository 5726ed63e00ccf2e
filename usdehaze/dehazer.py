"""The front door: ``Dehazer.from_pretrained().dehaze(cine)``."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usdehaze.cine import Cine, blocks
from usdehaze.device import find_device, jobs_at_once, run_jobs
from usdehaze.diffusion.denoiser import Denoiser, Posterior, Problem
from usdehaze.diffusion.streams import Streams
from usdehaze.errors import UsdehazeError
from usdehaze.following import look_alike, ranks
from usdehaze.geometry import ModelGrid, make_mapper
from usdehaze.masking import keep_what_is_no_tissue
from usdehaze.priors.doubt import Doubted
from usdehaze.priors.prior import Prior
from usdehaze.settings import BY_TIME, PRESETS, PRIORS, Settings, make_observation, make_rule, sample
from usdehaze.voting import deepen, elect

Job = tuple[int, int]  # place of a frame in its batch, and sample


@dataclass(frozen=True)
class DehazeResult:
    """A cine taken apart.

    Attributes:
        cine: the input.
        tissue, haze: ``(T, H, W)`` float32 dB on the input's own grid. Tissue is the native frame lowered by the
            gain (dB) found on the model grid, never above the input; haze is its estimate there, interpolated.
            Outside the image, tissue is the input bit for bit and haze is the floor.
        std: ``(T, H, W)`` float32 dB, deviation of the tissue over the posterior samples, or None for one sample.
        settings: everything that made it: preset, guidance, steps, seed, priors with their hashes, evaluations.
    """

    cine: Cine
    tissue: np.ndarray
    haze: np.ndarray
    std: np.ndarray | None
    settings: dict[str, Any]


class Dehazer:
    """Splits frames into tissue and haze by sampling both priors jointly, given the frame.

    Args:
        tissue, haze: the two priors, on one grid; None for haze gives the comparison without a haze prior.
        settings: see `Settings`.
        device: "cpu", "cuda", "cuda:N", or "auto" for CUDA where there is one.
        batch_size: frames taken on at a time (whole groups where there is a warm start), or "auto". Never changes a
            result.
        precision: "fp32", or "bf16" for the networks (autocast; worth it on CUDA and on CPUs with AMX).
    """

    def __init__(
        self,
        tissue: Prior,
        haze: Prior | None,
        settings: Settings | None = None,
        device: str = "auto",
        batch_size: int | str = "auto",
        precision: str = "fp32",
    ) -> None:
        self.settings = settings or Settings()
        self.device = find_device(device)
        self.tissue = tissue.to(self.device)
        self.haze = haze and haze.to(self.device)
        if self.device.type == "cpu":  # convolutions then run a fifth faster
            for prior in filter(None, (self.tissue, self.haze)):
                prior.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch leaves it out
        if haze and haze.card["grid"] != tissue.card["grid"]:
            raise UsdehazeError(f"the priors work on different grids: {tissue.card['grid']} and {haze.card['grid']}")
        self._passes: dict[bool, list[int]] = defaultdict(list)
        self.precision = precision
        self.grid = ModelGrid(*tissue.card["grid"])
        auto = max(2, self.group) * jobs_at_once(self.device)
        self.batch_size = auto if batch_size == "auto" else int(batch_size)
        if self.batch_size < 1:
            raise UsdehazeError(f"batch size must be at least 1, found {batch_size}")

    @property
    def group(self) -> int:
        """Frames that hang together, counted from the source's first one: see `usdehaze.cine.blocks`."""
        return self.settings.group if self.settings.warm_start else 1

    @classmethod
    def from_pretrained(
        cls,
        preset: str = "fast",
        tissue_prior: str | Path | None = None,
        haze_prior: str | Path | None = None,
        *,
        guidance: str | None = None,
        observation: str | None = None,
        sampler: str | None = None,
        steps: int | None = None,
        scale: tuple[float, float] | None = None,
        warm_start: bool | None = None,
        seed: int = 0,
        strength: float = 1.0,
        samples: int = 1,
        device: str = "auto",
        batch_size: int | str = "auto",
        precision: str = "fp32",
        use_haze_prior: bool = True,
    ) -> Dehazer:
        """The shipped priors (or others) with a preset.

        Args:
            preset: "fast", "quality", "preview" or "paper".
            tissue_prior, haze_prior: paths of prior files, or names of shipped ones; None for the defaults.
            guidance, observation, sampler, steps, scale: see `Settings`; None for the preset's. Projection alone brings
                the additive observation model along, the only one of frames that it is defined for.
            warm_start: see `Settings`; None for the preset's, and False for samplers that cannot.
            seed, strength, samples: see `Settings`.
            device, batch_size, precision: see `Dehazer`.
            use_haze_prior: False takes all that is not tissue for Gaussian noise: the paper's comparison.

        Raises:
            InputError: a prior that cannot be used.
            UsdehazeError: an unknown preset, guidance or device, or values out of range.
        """
        if preset not in PRESETS:
            raise UsdehazeError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
        if guidance == "projection" and observation is None:
            observation = "additive"
        own = {"guidance": guidance, "observation": observation, "sampler": sampler, "steps": steps, "scale": scale}
        own["warm_start"] = False if warm_start is None and sampler in BY_TIME else warm_start
        chosen: dict[str, Any] = {k: v for k, v in own.items() if v is not None}
        settings = replace(PRESETS[preset], seed=seed, strength=strength, samples=samples, **chosen)
        settings = replace(settings, warm_steps=min(settings.warm_steps, settings.steps))
        tissue = Prior.load(tissue_prior or PRIORS[preset][0], "tissue")
        haze = Prior.load(haze_prior or PRIORS[preset][1], "haze") if use_haze_prior else None
        return cls(tissue, haze, settings, device, batch_size, precision)

    def dehaze(self, cine: Cine, progress: Callable[[int, int], None] | None = None) -> DehazeResult:
        """Takes the haze off every frame; pixels that are no tissue stay.

        Frames are independent of one another, unless the settings have a warm start: then each starts from the result
        of the one before, if that is in the cine and in the same group, and looks like it.

        Args:
            cine: see `Cine`.
            progress: called with (frames done, frames).

        Raises:
            UsdehazeError: a computation that broke down.
        """
        mapper = make_mapper(cine.geometry, cine.frames.shape[1:], self.grid)
        seen = torch.from_numpy(mapper.valid.astype(np.float32))
        n_frames, span = len(cine.frames), cine.dynamic_range_db
        tissue, haze = np.empty_like(cine.frames), np.empty_like(cine.frames)
        std = np.empty_like(cine.frames) if self.settings.samples > 1 else None
        self._passes.clear()
        first = cine.source.first_frame
        for block in blocks(n_frames, self.batch_size, self.group, first):
            native = cine.frames[block]
            y = torch.from_numpy(mapper.to_model(native) / span + 1).clamp(0, 1)
            keys = list(range(first + block.start, first + block.stop))
            gain, level, deviation = (t.numpy() for t in self.split(y, seen, keys, span))
            gain = self.settings.strength * span * gain
            tissue[block] = np.maximum(mapper.apply_gain(native, gain), np.minimum(native, -span))
            haze[block] = mapper.from_model(span * (level - 1), -span)
            if std is not None:
                std[block] = mapper.from_model(self.settings.strength * span * deviation, 0.0)
            if progress:
                progress(block.stop, n_frames)
        settings = {
            **asdict(self.settings),
            "tissue_prior": self.tissue.name,
            "haze_prior": self.haze.name if self.haze else "none (Gaussian noise)",
            "evaluations": self._evaluations(False),
            "warm_evaluations": self._evaluations(True),
            "device": str(self.device),
            "precision": self.precision,
        }
        return keep_what_is_no_tissue(DehazeResult(cine, tissue, haze, std, settings))

    def _evaluations(self, follows: bool) -> int | None:
        """Network passes a frame, both priors counted: what was counted, not what was planned.

        None for frames that there were none of: ``follows`` says whether of those that start from the one before.
        """
        passes = self._passes[follows]
        return round(self.settings.samples * self.settings.chains * sum(passes) / len(passes)) if passes else None

    def split(
        self, y: Tensor, seen: Tensor, frames: list[int], dynamic_range_db: float = 60.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Splits frames that lie on the model grid.

        Args:
            y: ``(B, depth, angle)`` in [0, 1] (0 = floor, 1 = 0 dB).
            seen: ``(depth, angle)`` 1.0 where there is image data.
            frames: index of each frame, for its random stream.
            dynamic_range_db: dB that [0, 1] spans.

        Returns:
            Gain of the tissue (at most 0), level of the haze in [0, 1], and deviation of the gain over samples, each
            ``(B, depth, angle)`` in model units (1 = the dynamic range).
        """
        samples, seen_there = self.settings.samples, seen.to(self.device)
        out = y.new_empty(len(y), samples, 2, *y.shape[1:])
        rank_of = ranks(frames, look_alike(y, seen), self.group)
        ends: dict[Job, Tensor] = {}  # where the chains of every frame and sample have ended

        def run(jobs: list[Job]) -> list[tuple[Tensor, Tensor]]:
            keys = [(self.settings.seed, frames[b], k) for b, k in jobs]
            before = torch.cat([ends[b - 1, k] for b, k in jobs]) if rank_of[jobs[0][0]] else None
            return self._sample(y[[b for b, _ in jobs]], seen_there, keys, dynamic_range_db, before)

        for rank in range(max(rank_of) + 1):
            jobs = [(b, k) for b in range(len(y)) if rank_of[b] == rank for k in range(samples)]
            for job, (answer, end) in zip(jobs, run_jobs(self.device, run, jobs), strict=True):
                out[job], ends[job] = answer, end
        deviation = out[:, :, 0].std(1) if samples > 1 else torch.zeros_like(y)
        return out[:, :, 0].mean(1), out[:, :, 1].mean(1), deviation

    def _doubted(self) -> tuple[Denoiser, Denoiser | None]:
        """The priors with the certainty that the settings give their estimates; one alone keeps its own."""
        if self.haze is None:
            return self.tissue, None
        pairs = (self.tissue, self.settings.tissue_doubt), (self.haze, self.settings.haze_doubt)
        tissue, haze = (Doubted(prior, doubt) if doubt else prior for prior, doubt in pairs)
        return tissue, haze

    def _sample(
        self,
        y: Tensor,
        seen: Tensor,
        keys: list[tuple[int, int, int]],
        dynamic_range_db: float,
        before: Tensor | None = None,
    ) -> list[tuple[Tensor, Tensor]]:
        """One posterior sample for each key.

        Args:
            y, seen, dynamic_range_db: see `split`.
            keys: seed, frame and sample.
            before: ``(B * chains, size)``, where the chains of the frame before ended; None to start afresh.

        Returns:
            For each key gain of tissue and level of haze, ``(2, depth, angle)`` on the CPU, and where its chains end,
            ``(chains, size)``.
        """
        joint, chains = self.haze is not None, self.settings.chains
        s = self.settings if before is None else self.settings.of_follower
        chain_keys = [(seed, frame, k * chains + c) for seed, frame, k in keys for c in range(chains)]
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            frame = y[:, None].repeat_interleave(chains, 0).to(self.device)
            problem = Problem(frame, make_observation(s, joint, dynamic_range_db), *self._doubted(), seen)
            streams = Streams(chain_keys, self.device)
            rule, noise = make_rule(s, lambda: streams.normal((problem.size,)), problem)
            estimates: deque[Tensor] = deque(maxlen=min(s.votes, s.steps))
            end = sample(s, Posterior(problem, rule), noise, lambda step: estimates.append(step.estimate), before)
            estimates[-1] = end
            self._passes[before is not None].append(problem.evaluations)
            parts = [problem.parts(estimate) for estimate in estimates]
            additive = s.observation == "additive"
            gain, level = elect(frame, parts, chains, joint=joint, additive=additive)
            if joint and not additive:
                gain = deepen(gain, frame[::chains], dynamic_range_db, s.deepen_db)
            answer = torch.stack([gain * seen, level], dim=1).float().cpu()  # nothing is known where there is no image
            return list(zip(answer, end.split(chains), strict=True))
