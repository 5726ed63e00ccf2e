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
from usdehaze.decision import quantile
from usdehaze.device import find_device, jobs_at_once, run_jobs
from usdehaze.diffusion.denoiser import Posterior, Problem
from usdehaze.diffusion.streams import Streams
from usdehaze.errors import UsdehazeError
from usdehaze.geometry import ModelGrid, make_mapper
from usdehaze.masking import keep_what_is_no_tissue
from usdehaze.priors.prior import Prior
from usdehaze.settings import PRESETS, PRIORS, Settings, make_observation, make_rule, sample

Job = tuple[int, int]  # place of a frame in its batch, and number of the sample


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
        settings: see `Settings`; None for the preset "fast".
        device: "cpu", "cuda", "cuda:N", or "auto" for CUDA where there is one.
        batch_size: frames taken on at a time, or "auto". Never changes a result.
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
        self.settings = settings or PRESETS["fast"]
        self.device = find_device(device)
        self.tissue = tissue.to(self.device)
        self.haze = haze and haze.to(self.device)
        if self.device.type == "cpu":  # convolutions then run a fifth faster
            for prior in filter(None, (self.tissue, self.haze)):
                prior.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch leaves it out
        if haze and haze.card["grid"] != tissue.card["grid"]:
            raise UsdehazeError(f"the priors work on different grids: {tissue.card['grid']} and {haze.card['grid']}")
        self._passes: list[int] = []  # of the networks, a job
        self.precision = precision
        self.grid = ModelGrid(*tissue.card["grid"])
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
        """The shipped priors (or others) with a preset.

        Args:
            preset: "fast", "quality", "preview" or "paper".
            tissue_prior, haze_prior: paths of prior files, or names of shipped ones; None for the defaults.
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
        if preset not in PRESETS:
            raise UsdehazeError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
        if guidance == "projection" and observation is None:
            observation = "additive"
        own = {
            "guidance": guidance, "observation": observation, "sampler": sampler, "steps": steps, "scale": scale,
            "samples": samples, "caution": caution,
        }  # fmt: skip
        chosen: dict[str, Any] = {k: v for k, v in own.items() if v is not None}
        settings = replace(PRESETS[preset], strength=strength, seed=seed, **chosen)
        tissue = Prior.load(tissue_prior or PRIORS[preset][0], "tissue")
        haze = Prior.load(haze_prior or PRIORS[preset][1], "haze") if use_haze_prior else None
        return cls(tissue, haze, settings, device, batch_size, precision)

    def dehaze(self, cine: Cine, progress: Callable[[int, int], None] | None = None) -> DehazeResult:
        """Takes the haze off every frame, each for itself; pixels that are no tissue stay.

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
        for block in blocks(n_frames, self.batch_size):
            native = cine.frames[block]
            y = torch.from_numpy(mapper.to_model(native) / span + 1).clamp(0, 1)
            gain, level, deviation = (t.numpy() for t in self.split(y, seen, span))
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
            "evaluations": round(self.settings.samples * sum(self._passes) / len(self._passes)),
            "device": str(self.device),
            "precision": self.precision,
        }
        return keep_what_is_no_tissue(DehazeResult(cine, tissue, haze, std, settings))

    def split(self, y: Tensor, seen: Tensor, dynamic_range_db: float = 60.0) -> tuple[Tensor, Tensor, Tensor]:
        """Splits frames that lie on the model grid.

        Args:
            y: ``(B, depth, angle)`` in [0, 1] (0 = floor, 1 = 0 dB).
            seen: ``(depth, angle)`` 1.0 where there is image data.
            dynamic_range_db: dB that [0, 1] spans.

        Returns:
            Gain of the tissue in [-1, 0], the quantile over the samples that the settings' caution asks for; level of
            the haze in [0, 1], their median; and deviation of the gain over them, 0 for a single one. Each
            ``(B, depth, angle)`` in model units (1 = the dynamic range).
        """
        samples, seen_there = self.settings.samples, seen.to(self.device)
        jobs = [(b, k) for k in range(samples) for b in range(len(y))]

        def run(some: list[Job]) -> list[Tensor]:
            keys = [(self.settings.seed, k) for _, k in some]  # by sample alone: all frames share their draws
            return self._sample(y[[b for b, _ in some]], seen_there, keys, dynamic_range_db)

        found = torch.stack(run_jobs(self.device, run, jobs)).unflatten(0, (samples, len(y)))
        gains, levels = found.unbind(2)  # (samples, B, depth, angle)
        deviation = gains.std(0) if samples > 1 else torch.zeros_like(y)
        return quantile(gains, self.settings.caution), quantile(levels, 0.5), deviation

    def _sample(self, y: Tensor, seen: Tensor, keys: list[tuple[int, int]], dynamic_range_db: float) -> list[Tensor]:
        """One posterior sample for each frame.

        Args:
            y, seen, dynamic_range_db: see `split`.
            keys: seed and number of the sample, a pair for each frame.

        Returns:
            For each frame gain of tissue and level of haze, ``(2, depth, angle)`` on the CPU.
        """
        s, joint = self.settings, self.haze is not None
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            frame = y[:, None].to(self.device)
            problem = Problem(frame, make_observation(s, joint, dynamic_range_db), self.tissue, self.haze, seen)
            streams = Streams(keys, self.device)
            rule, noise = make_rule(s, lambda: streams.normal((problem.size,)), problem)
            x, n = problem.parts(sample(s, Posterior(problem, rule), noise))
            self._passes.append(problem.evaluations)
            gain = (x - frame).clamp(-1, 0) * seen  # nothing is known where there is no image
            level = (n if joint else frame - x).clamp(0, 1)  # without a haze prior haze is what is not tissue
            return list(torch.cat([gain, level], dim=1).float().cpu())
