"""The front door: ``Dehazer.from_pretrained().dehaze(cine)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usdehaze.cine import Cine, blocks
from usdehaze.dehazing.decision import quantiles, spread
from usdehaze.dehazing.device import find_device, jobs_at_once, run_jobs
from usdehaze.dehazing.masking import keep_what_is_no_tissue
from usdehaze.dehazing.settings import (
    LEARNED,
    POSTERIOR,
    PRIORS,
    Settings,
    make_observation,
    make_rule,
    preset_with,
    sample,
)
from usdehaze.diffusion.denoiser import Posterior, Problem
from usdehaze.diffusion.learned import Learned
from usdehaze.diffusion.streams import Streams
from usdehaze.errors import UsdehazeError
from usdehaze.geometry import Mapper, ModelGrid, make_mapper
from usdehaze.priors.posterior import WEIGHTS, LearnedPosterior
from usdehaze.priors.prior import Prior
from usdehaze.result import Result

Job = tuple[int, range]  # place of a frame in its batch, and numbers of its samples
AT_ONCE = 4  # samples of a frame in one pass of the learned posterior, always: last bits depend on it
INTERVAL = (0.025, 0.975)
OF_RULES = ("observation", "scale")  # settings that the learned posterior has no use for


class Dehazer:
    """Splits frames into tissue and haze by sampling both jointly, given the frame.

    Args:
        model: the learned posterior, or the tissue prior for one of the rules.
        haze: its haze prior, on the same grid; None gives the comparison without a haze prior.
        settings: see `Settings`; None for the preset "fast".
        device: "cpu", "cuda", "cuda:N", or "auto" for CUDA where there is one.
        batch_size: frames taken on at a time, or "auto". Never changes a result.
        precision: "fp32", or "bf16" for the networks (autocast; worth it on CUDA and on CPUs with AMX).
    """

    def __init__(
        self,
        model: LearnedPosterior | Prior,
        haze: Prior | None = None,
        settings: Settings | None = None,
        device: str = "auto",
        batch_size: int | str = "auto",
        precision: str = "fp32",
    ) -> None:
        learned = isinstance(model, LearnedPosterior)
        self.settings = settings or preset_with("fast", LEARNED if learned else "proximal")
        if learned != (self.settings.guidance == LEARNED):
            what = "the learned posterior" if learned else "explicit priors"
            raise UsdehazeError(f"guidance {self.settings.guidance} does not work with {what}")
        self.device = find_device(device)
        self.model, self.haze = model.to(self.device), haze and haze.to(self.device)
        self.posterior = model if isinstance(model, LearnedPosterior) else None
        self.tissue = model if isinstance(model, Prior) else None
        if self.device.type == "cpu":  # convolutions then run a fifth faster
            for network in filter(None, (self.model, self.haze)):
                network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch leaves it out
        if haze and haze.card["grid"] != model.card["grid"]:
            raise UsdehazeError(f"the priors work on different grids: {model.card['grid']} and {haze.card['grid']}")
        self._passes: list[int] = []  # of the networks, a job
        self.precision = precision
        self.grid = ModelGrid(*model.card["grid"])
        self.batch_size = 2 * jobs_at_once(self.device) if batch_size == "auto" else int(batch_size)
        if self.batch_size < 1:
            raise UsdehazeError(f"batch size must be at least 1, found {batch_size}")

    @classmethod
    def from_pretrained(
        cls,
        preset: str = "fast",
        tissue_prior: str | Path | None = None,
        haze_prior: str | Path | None = None,
        *,
        posterior: str | Path | None = None,
        guidance: str | None = None,
        observation: str | None = None,
        sampler: str | None = None,
        steps: int | None = None,
        scale: tuple[float, float] | None = None,
        samples: int | None = None,
        caution: float | None = None,
        strength: float = 1.0,
        seed: int = 0,
        device: str = "auto",
        batch_size: int | str = "auto",
        precision: str = "fp32",
        use_haze_prior: bool = True,
    ) -> Dehazer:
        """The shipped posterior (or another, or priors) with a preset.

        Args:
            preset: "fast", "quality", "preview" or "paper".
            tissue_prior, haze_prior: paths of prior files, or names of shipped ones; None for the defaults. Given
                either, and no guidance, a rule guides them ("proximal").
            posterior: path of a learned posterior, or name of a shipped one; None for the default.
            guidance, observation, sampler, steps, scale, samples, caution: see `Settings`; None for the preset's.
                Projection alone brings the additive observation model along, the only one of frames that it is
                defined for.
            strength, seed: see `Settings`.
            device, batch_size, precision: see `Dehazer`.
            use_haze_prior: False takes all that is not tissue for Gaussian noise: the paper's comparison.

        Raises:
            InputError: a prior that cannot be used.
            UsdehazeError: an unknown preset, guidance or device, or values out of range.
        """
        explicit = bool(tissue_prior or haze_prior or not use_haze_prior)
        own = {
            "observation": observation, "sampler": sampler, "steps": steps, "scale": scale,
            "samples": samples, "caution": caution,
        }  # fmt: skip
        chosen: dict[str, Any] = {k: v for k, v in own.items() if v is not None}
        settings = replace(preset_with(preset, guidance, explicit), strength=strength, seed=seed, **chosen)
        if settings.guidance == LEARNED:
            if explicit or observation or scale:
                what = "priors" if explicit else "observation model" if observation else "lambda and kappa"
                raise UsdehazeError(f"the learned posterior takes no {what}; leave out, or choose another guidance")
            return cls(LearnedPosterior.load(posterior or POSTERIOR), None, settings, device, batch_size, precision)
        if posterior:
            raise UsdehazeError(f"guidance {settings.guidance} takes no posterior; leave it out, or choose learned")
        tissue = Prior.load(tissue_prior or PRIORS[preset][0], "tissue")
        haze = Prior.load(haze_prior or PRIORS[preset][1], "haze") if use_haze_prior else None
        return cls(tissue, haze, settings, device, batch_size, precision)

    def dehaze(self, cine: Cine, progress: Callable[[int, int], None] | None = None, interval: bool = False) -> Result:
        """Takes the haze off every frame, each for itself; pixels that are no tissue stay.

        Args:
            cine: see `Cine`.
            progress: called with (frames done, frames).
            interval: also tell between which values the tissue lies with 95 %; of the learned posterior only.

        Raises:
            UsdehazeError: a computation that broke down.
        """
        mapper = make_mapper(cine.geometry, cine.frames.shape[1:], self.grid)
        seen = torch.from_numpy(mapper.valid.astype(np.float32))
        n_frames, span = len(cine.frames), cine.dynamic_range_db
        tissue, haze = np.empty_like(cine.frames), np.empty_like(cine.frames)
        std = np.empty_like(cine.frames) if self.settings.samples > 1 else None
        between = np.empty((2, *cine.frames.shape), np.float32) if interval and self.posterior else None
        self._passes.clear()
        for block in blocks(n_frames, self.batch_size):
            native = cine.frames[block]
            y = torch.from_numpy(mapper.to_model(native) / span + 1).clamp(0, 1)
            parts = self.split(y, seen, span)
            scale = self.settings.strength * span
            tissue[block] = _lowered(mapper, native, scale * parts.gain.numpy(), span)
            haze[block] = mapper.from_model(span * (parts.level.numpy() - 1), -span)
            if std is not None:
                std[block] = mapper.from_model(scale * parts.deviation.numpy(), 0.0)
            if between is not None and parts.ends is not None:
                for i, end in enumerate(parts.ends.numpy()):
                    between[i, block] = _lowered(mapper, native, span * end, span)
            if progress:
                progress(block.stop, n_frames)
        settings = {
            **{name: value for name, value in asdict(self.settings).items() if self.tissue or name not in OF_RULES},
            **self._models(),
            "evaluations": round(self.settings.samples * sum(self._passes) / len(self._passes)),
            "device": str(self.device),
            "precision": self.precision,
        }
        return keep_what_is_no_tissue(Result(cine, tissue, haze, std, settings, between))

    def with_settings(self, settings: Settings) -> Dehazer:
        """The same networks, device, batch size and precision under other settings."""
        return Dehazer(self.model, self.haze, settings, str(self.device), self.batch_size, self.precision)

    def _models(self) -> dict[str, str]:
        """Names and hashes of the networks; of a learned posterior also what its two sides learned from."""
        if self.posterior is not None:
            card = self.posterior.card
            sides = {f"{side}_prior": card.get(f"{side}_data", card["training_data"]) for side in ("tissue", "haze")}
            return {"posterior": self.posterior.name, **sides}
        assert self.tissue is not None
        return {
            "tissue_prior": self.tissue.name,
            "haze_prior": self.haze.name if self.haze else "none (Gaussian noise)",
        }

    def split(self, y: Tensor, seen: Tensor, dynamic_range_db: float = 60.0) -> Split:
        """Splits frames that lie on the model grid.

        Args:
            y: ``(B, depth, angle)`` in [0, 1] (0 = floor, 1 = 0 dB).
            seen: ``(depth, angle)`` 1.0 where there is image data.
            dynamic_range_db: dB that [0, 1] spans.
        """
        k = self.settings.samples
        at_once = AT_ONCE if self.posterior is not None else 1
        jobs = [(b, range(i, min(i + at_once, k))) for i in range(0, k, at_once) for b in range(len(y))]
        seen_there = seen.to(self.device)

        def run(some: list[Job]) -> list[Tensor]:
            keys = [(self.settings.seed, sample) for _, samples in some for sample in samples]
            frames = torch.cat([y[b].expand(len(samples), -1, -1) for b, samples in some])
            found = self._sample(frames, seen_there, keys, dynamic_range_db)
            return list(found.split([len(samples) for _, samples in some]))

        n = k // at_once * len(y)  # the shorter jobs by themselves: a pass on a GPU always has as many rows
        found = run_jobs(self.device, run, jobs[:n]) + run_jobs(self.device, run, jobs[n:])
        whole = [torch.cat(found[b :: len(y)]) for b in range(len(y))]  # (samples, 1 + Q, depth, angle) of each frame
        weights = None if self.posterior is None else torch.tensor(WEIGHTS).repeat(k) / k
        return Split.stack(run_jobs(torch.device("cpu"), lambda some: [self._decide(t, weights) for t in some], whole))

    def _decide(self, samples: Tensor, weights: Tensor | None) -> Split:
        """What is applied of one frame's samples ``(samples, 1 + Q, depth, angle)``, haze level and gains."""
        level, gains = samples[:, 0], samples[:, 1:].flatten(0, 1)
        places = (self.settings.caution, *(INTERVAL if weights is not None else ()))
        gain, *ends = quantiles(gains, places, weights)
        return Split(gain, quantiles(level, (0.5,))[0], spread(gains, weights), torch.stack(ends) if ends else None)

    def _sample(self, y: Tensor, seen: Tensor, keys: list[tuple[int, int]], dynamic_range_db: float) -> Tensor:
        """Posterior samples, one for each key.

        Args:
            y: ``(B, depth, angle)``, the frame of each.
            seen, dynamic_range_db: see `split`.
            keys: seed and number of the sample: all frames share their draws, so that what changes is the heart.

        Returns:
            ``(B, 1 + Q, depth, angle)`` on the CPU: level of haze, and the gain of tissue, of the learned posterior as
            quantiles at the levels that it tells.
        """
        s = self.settings
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            frame = y[:, None].to(self.device)
            streams = Streams(keys, self.device)
            if self.posterior is not None:
                # Left and right mean nothing to a posterior: every other sample sees the frame mirrored.
                mirrored = torch.tensor([k % 2 == 1 for _, k in keys], device=self.device)[:, None, None, None]
                learned = Learned(_flipped(frame * seen, mirrored), self.posterior)
                _, n = learned.parts(sample(s, learned, lambda: streams.normal((learned.size,))))
                self._passes.append(learned.evaluations)
                assert learned.gains is not None  # no sampler ends without asking once
                n, gain = _flipped(n, mirrored), _flipped(learned.gains, mirrored)
            else:
                assert self.tissue is not None
                joint = self.haze is not None
                problem = Problem(frame, make_observation(s, joint, dynamic_range_db), self.tissue, self.haze, seen)
                rule, noise = make_rule(s, lambda: streams.normal((problem.size,)), problem)
                x, n = problem.parts(sample(s, Posterior(problem, rule), noise))
                self._passes.append(problem.evaluations)
                gain = (x - frame).clamp(-1, 0)
                n = n if joint else frame - x  # without a haze prior haze is what is not tissue
            gain = gain * seen  # nothing is known where there is no image
            return torch.cat([n.clamp(0, 1), gain], dim=1).float().cpu()


@dataclass(frozen=True)
class Split:
    """Frames on the model grid taken apart, in model units (1 = the dynamic range), each ``(B, depth, angle)``.

    Attributes:
        gain: of the tissue in [-1, 0]: the quantile over the samples that the settings' caution asks for.
        level: of the haze in [0, 1], the samples' median.
        deviation: of the gain over the samples, 0 for a single one.
        ends: ``(2, B, depth, angle)`` the gain's 95 % interval; None where a sample does not tell its own.
    """

    gain: Tensor
    level: Tensor
    deviation: Tensor
    ends: Tensor | None

    @staticmethod
    def stack(frames: list[Split]) -> Split:
        """Many frames of one."""
        ends = [f.ends for f in frames if f.ends is not None]
        gain, level, deviation = (torch.stack([getattr(f, n) for f in frames]) for n in ("gain", "level", "deviation"))
        return Split(gain, level, deviation, torch.stack(ends, dim=1) if ends else None)


def _flipped(frames: Tensor, which: Tensor) -> Tensor:
    """Those of the frames ``(B, C, depth, angle)`` left to right that ``which`` ``(B, 1, 1, 1)`` says."""
    return torch.where(which, frames.flip(-1), frames)


def _lowered(mapper: Mapper, native: np.ndarray, gain_db: np.ndarray, span: float) -> np.ndarray:
    """The native frames ``(B, H, W)`` lowered by a gain on the model grid, not below the floor."""
    return np.maximum(mapper.apply_gain(native, gain_db), np.minimum(native, -span))
