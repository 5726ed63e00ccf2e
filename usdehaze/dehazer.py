"""The front door: ``Dehazer.from_pretrained().dehaze(cine)``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usdehaze.cine import Cine
from usdehaze.diffusion.denoiser import Posterior, Problem
from usdehaze.diffusion.streams import Streams
from usdehaze.errors import UsdehazeError
from usdehaze.geometry import ModelGrid, make_mapper
from usdehaze.masking import keep_what_is_no_tissue
from usdehaze.priors.prior import Prior
from usdehaze.settings import PRESETS, PRIORS, Settings, make_observation, make_rule, sample
from usdehaze.voting import elect

CUDA_CHUNK = 16  # samples in one network pass on a GPU, always: kernels, and so last bits, depend on it


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
        self.settings = settings or Settings()
        self.device = find_device(device)
        self.tissue = tissue.to(self.device)
        self.haze = haze and haze.to(self.device)
        if self.device.type == "cpu":  # convolutions then run a fifth faster
            for prior in filter(None, (self.tissue, self.haze)):
                prior.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch leaves it out
        if haze and haze.card["grid"] != tissue.card["grid"]:
            raise UsdehazeError(f"the priors work on different grids: {tissue.card['grid']} and {haze.card['grid']}")
        self._passes: list[int] = []
        self.precision = precision
        self.grid = ModelGrid(*tissue.card["grid"])
        auto = CUDA_CHUNK if self.device.type == "cuda" else 2 * torch.get_num_threads()
        self.batch_size = auto if batch_size == "auto" else int(batch_size)
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
            preset: "fast" or "paper".
            tissue_prior, haze_prior: paths of prior files, or names of shipped ones; None for the defaults.
            guidance, observation, sampler, steps, scale: see `Settings`; None for the preset's. Projection alone brings
                the additive observation model along, the only one of frames that it is defined for.
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
        chosen: dict[str, Any] = {k: v for k, v in own.items() if v is not None}
        settings = replace(PRESETS[preset], seed=seed, strength=strength, samples=samples, **chosen)
        tissue = Prior.load(tissue_prior or PRIORS[preset][0], "tissue")
        haze = Prior.load(haze_prior or PRIORS[preset][1], "haze") if use_haze_prior else None
        return cls(tissue, haze, settings, device, batch_size, precision)

    def dehaze(self, cine: Cine, progress: Callable[[int, int], None] | None = None) -> DehazeResult:
        """Takes the haze off every frame; frames are independent of one another, pixels that are no tissue stay.

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
        for start in range(0, n_frames, self.batch_size):
            block = slice(start, min(start + self.batch_size, n_frames))
            native = cine.frames[block]
            y = torch.from_numpy(mapper.to_model(native) / span + 1).clamp(0, 1)
            keys = [cine.source.first_frame + i for i in range(block.start, block.stop)]
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
            "evaluations": self._evaluations(),
            "device": str(self.device),
            "precision": self.precision,
        }
        return keep_what_is_no_tissue(DehazeResult(cine, tissue, haze, std, settings))

    def _evaluations(self) -> int:
        """Network passes a frame, both priors counted: what was counted, not what was planned."""
        return round(self.settings.samples * self.settings.chains * sum(self._passes) / max(len(self._passes), 1))

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
        samples = self.settings.samples
        jobs = [(b, k) for b in range(len(y)) for k in range(samples)]
        seen = seen.to(self.device)

        def run(chosen: list[tuple[int, int]]) -> Tensor:
            keys = [(self.settings.seed, frames[b], k) for b, k in chosen]
            return self._sample(y[[b for b, _ in chosen]], seen, keys, dynamic_range_db)

        if self.device.type == "cuda":
            padded = jobs + jobs[:1] * (-len(jobs) % CUDA_CHUNK)
            with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
                chunks = [run(padded[i : i + CUDA_CHUNK]) for i in range(0, len(padded), CUDA_CHUNK)]
            out = torch.cat(chunks)[: len(jobs)]
        else:
            out = torch.cat(_one_thread_each(lambda job: run([job]), jobs))
        out = out.reshape(len(y), samples, 2, *y.shape[1:])
        deviation = out[:, :, 0].std(1) if samples > 1 else torch.zeros_like(y)
        return out[:, :, 0].mean(1), out[:, :, 1].mean(1), deviation

    def _sample(self, y: Tensor, seen: Tensor, keys: list[tuple[int, int, int]], dynamic_range_db: float) -> Tensor:
        """Gain of tissue and level of haze, ``(B, 2, depth, angle)`` on the CPU, one posterior sample for each key."""
        s, joint = self.settings, self.haze is not None
        last = min(s.votes, s.steps)
        chain_keys = [(seed, frame, k * s.chains + c) for seed, frame, k in keys for c in range(s.chains)]
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            frame = y[:, None].repeat_interleave(s.chains, 0).to(self.device)
            problem = Problem(frame, make_observation(s, joint, dynamic_range_db), self.tissue, self.haze, seen)
            streams = Streams(chain_keys, self.device)
            rule, noise = make_rule(s, lambda: streams.normal((problem.size,)), problem)
            estimates: deque[Tensor] = deque(maxlen=last)
            end = sample(s, Posterior(problem, rule), noise, lambda step: estimates.append(step.estimate))
            estimates[-1] = end
            self._passes.append(problem.evaluations)
            parts = [problem.parts(estimate) for estimate in estimates]
            gain, level = elect(frame, parts, s.chains, joint=joint, additive=s.observation == "additive")
            return torch.stack([gain * seen, level], dim=1).float().cpu()  # nothing is known where there is no image


def find_device(name: str) -> torch.device:
    """The device that "auto", "cpu", "cuda" or "cuda:N" stands for.

    Raises:
        UsdehazeError: another name, or a device that is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsdehazeError(f"no device {name!r}; use auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise UsdehazeError(f"no device {name!r}; use auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsdehazeError(
            f"device {name} is not there: {torch.cuda.device_count()} CUDA devices found; use --device cpu"
        )
    return device


def _one_thread_each(work: Callable[[tuple[int, int]], Tensor], jobs: list[tuple[int, int]]) -> list[Tensor]:
    """Runs each job on one core, as many at once as there are threads.

    A network pass on one core sums in the same order whatever runs beside it, so that neither batch size nor the
    number of cores changes a bit; and small frames gain more from this than from cores that share one convolution.
    """
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, jobs))
    finally:
        torch.set_num_threads(threads)
