"""The front door: ``Dehazer.from_pretrained().dehaze(cine)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import torch
from torch import Tensor

from usdehaze.choices import PRECISIONS, EngineName, Precision
from usdehaze.cine import Cine, Geometry, blocks
from usdehaze.dehazing.chain import Chain, GuidedChain, LearnedChain
from usdehaze.dehazing.decision import quantiles, spread
from usdehaze.dehazing.device import check_device_name, find_devices, jobs_at_once, run_jobs
from usdehaze.dehazing.masking import joined, keep_what_is_no_tissue
from usdehaze.dehazing.registry import LEARNED, ObservationEntry, RuleEntry, SamplerEntry, name_of
from usdehaze.dehazing.settings import POSTERIOR, PRIORS, Preset, Settings, preset_with, settings_of
from usdehaze.diffusion.denoiser import Rule
from usdehaze.diffusion.guidance import LambdaKappa
from usdehaze.diffusion.observation import Observation
from usdehaze.engines.registry import Engine, check_engine, check_fits, make_engine
from usdehaze.errors import UsdehazeError
from usdehaze.geometry import Mapper, ModelGrid, make_mapper
from usdehaze.geometry.screen import images_of
from usdehaze.priors.cards import find_weights
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.priors.prior import Prior
from usdehaze.result import Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

Draw = tuple[int, range]  # place of a frame in its batch, and numbers of its samples
INTERVAL = (0.025, 0.975)
CPU = torch.device("cpu")


class DehazerOptions(TypedDict, total=False):
    """The options of `Dehazer.from_pretrained` as keywords."""

    preset: Preset | Settings
    tissue_prior: str | Path | None
    haze_prior: str | Path | None
    posterior: str | Path | None
    use_haze_prior: bool
    guidance: str | RuleEntry | Rule | None
    observation: str | ObservationEntry | Observation | None
    sampler: str | SamplerEntry | Callable[..., Tensor] | None
    steps: int | None
    scale: LambdaKappa | None
    sigma_max: float | None
    sigma_min: float | None
    from_guess: bool | None
    samples: int | None
    caution: float | None
    strength: float | None
    seed: int | None
    device: str
    batch_size: int | Literal["auto"]
    precision: Precision
    engine: EngineName | Literal["auto"]


class Dehazer:
    """Splits frames into tissue and haze by sampling both jointly, given the frame.

    Args:
        model: the learned posterior, or the tissue prior for one of the rules.
        haze: its haze prior, on the same grid; None gives the comparison without a haze prior.
        settings: see `Settings`; None for the preset "fast".
        device: "cpu", "cuda", "cuda:N", or "auto" for CUDA where there is one; several, "cuda:0,cuda:1", share frames.
        batch_size: frames taken on at a time, or "auto". Never changes a result.
        precision: "fp32", or "bf16" for the networks (autocast; worth it on CUDA and on CPUs with AMX); "int8" for the
            learned posterior by onnxruntime at one noise level, see `usdehaze.engines.int8`.
        engine: what runs the learned posterior: "torch", "onnxruntime" or "openvino" (both on a CPU, and installed by
            extras), an `Engine` of this posterior, or "auto", which is "torch". Last bits depend on it.
    """

    @torch.inference_mode(False)  # the caller's own, in which rules would have no gradient
    def __init__(
        self,
        model: LearnedPosterior | Prior,
        haze: Prior | None = None,
        settings: Settings | None = None,
        device: str = "auto",
        batch_size: int | Literal["auto"] = "auto",
        precision: Precision = "fp32",
        engine: EngineName | Literal["auto"] | Engine = "auto",
    ) -> None:
        self.settings = settings or preset_with("fast", LEARNED if isinstance(model, LearnedPosterior) else "proximal")
        if isinstance(model, LearnedPosterior) == self.settings.by_rule:
            what = "explicit priors" if isinstance(model, Prior) else "the learned posterior"
            raise UsdehazeError(f"guidance {name_of(self.settings.guidance)} does not work with {what}")
        if haze and haze.card["grid"] != model.card["grid"]:
            raise UsdehazeError(f"the priors work on different grids: {model.card['grid']} and {haze.card['grid']}")
        for network in (model, haze):
            if network is not None and network.channels != 1:
                raise UsdehazeError(f"{network.card['name']} is of colour images; expected a network of scans")
        given: Any = getattr(engine, "name", engine)
        check_engine(given)
        self.devices = find_devices("cpu" if device == "auto" and given not in ("auto", "torch") else device)
        self.device, self._on = self.devices[0], ",".join(map(str, self.devices))
        self.precision = check_precision(precision)
        levels = self.settings.steps, self.settings.sigma_max
        check_fits(given, self.settings.by_rule, self.device, self.precision, levels)
        self.model, self.haze = model.to(self.device), haze and haze.to(self.device)
        self.posterior = model if isinstance(model, LearnedPosterior) else None
        self.tissue = model if isinstance(model, Prior) else None
        if self.device.type == "cpu":  # convolutions then run a fifth faster
            for each in filter(None, (self.model, self.haze)):
                each.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch leaves it out
        self.engine: Engine | None = None
        if isinstance(model, LearnedPosterior):
            self.engine = make_engine(engine, model, self.precision) if isinstance(engine, str) else engine
            self.chain: Chain = LearnedChain(model, self.engine)
        else:
            self.chain = GuidedChain(model, self.haze)
        self.chains = {self.device: self.chain, **{device: self.chain.on(device) for device in self.devices[1:]}}
        self.grid = ModelGrid(*model.card["grid"])
        check_batch_size(batch_size)
        self.batch_size = 2 * jobs_at_once(self.device) * len(self.devices) if batch_size == "auto" else int(batch_size)
        self._mapped: tuple[Geometry, tuple[int, ...], list[tuple[Geometry, Mapper]]] | None = None

    @classmethod
    @torch.inference_mode(False)
    def from_pretrained(
        cls,
        preset: Preset | Settings = "fast",
        tissue_prior: str | Path | None = None,
        haze_prior: str | Path | None = None,
        *,
        posterior: str | Path | None = None,
        use_haze_prior: bool = True,
        guidance: str | RuleEntry | Rule | None = None,
        observation: str | ObservationEntry | Observation | None = None,
        sampler: str | SamplerEntry | Callable[..., Tensor] | None = None,
        steps: int | None = None,
        scale: LambdaKappa | None = None,
        sigma_max: float | None = None,
        sigma_min: float | None = None,
        from_guess: bool | None = None,
        samples: int | None = None,
        caution: float | None = None,
        strength: float | None = None,
        seed: int | None = None,
        device: str = "auto",
        batch_size: int | Literal["auto"] = "auto",
        precision: Precision = "fp32",
        engine: EngineName | Literal["auto"] = "auto",
    ) -> Dehazer:
        """The shipped posterior (or another, or priors) with a preset.

        Args:
            preset: "fast", "quality", "preview" or "paper"; or settings of one's own.
            tissue_prior, haze_prior: paths of prior files, or names of shipped ones; None for the defaults. Given
                either, and no guidance, a rule guides them ("proximal").
            posterior: path of a learned posterior, or name of a shipped one; None for the default.
            use_haze_prior: False takes all that is not tissue for Gaussian noise: the paper's comparison.
            guidance, observation, sampler, steps, scale, sigma_max, sigma_min, from_guess, samples, caution, strength,
                seed: see `Settings`; None for the preset's. Projection alone brings the additive observation model
                along, the only one of frames that it is defined for.
            device, batch_size, precision, engine: see `Dehazer`.

        Raises:
            InputError: a prior that cannot be used.
            UsdehazeError: an unknown preset, guidance, device, precision or engine, an engine that is not installed, or
                values out of range.
        """
        settings = settings_of(**locals())  # all options, by their names
        if not settings.by_rule:
            model = LearnedPosterior.load(posterior or POSTERIOR)
            return cls(model, None, settings, device, batch_size, precision, engine)
        tissue = Prior.load(tissue_prior or PRIORS[0], "tissue")
        haze = Prior.load(haze_prior or PRIORS[1], "haze") if use_haze_prior else None
        return cls(tissue, haze, settings, device, batch_size, precision, engine)

    @torch.inference_mode(False)
    def dehaze(self, cine: Cine, progress: Callable[[int, int], None] | None = None, interval: bool = False) -> Result:
        """Takes the haze off every frame, and off every image on its screen, each for itself; what is no tissue stays.

        Args:
            cine: see `Cine`.
            progress: called with (frames done, frames).
            interval: also tell between which values the tissue lies with 95 %; of the learned posterior only.

        Raises:
            TypeError: something else than a cine.
            UsdehazeError: a computation that broke down.
        """
        if not isinstance(cine, Cine):
            found, made = type(cine).__name__, "open_cine(path), or Cine(frames, geometry, dynamic_range_db)"
            raise TypeError(f"a Cine is dehazed, found {found}; make one with {made}")
        mappers = self._mappers_of(cine)
        parts = []
        for i, (geometry, mapper) in enumerate(mappers):
            told = progress and _part_of(progress, i, len(mappers))
            parts.append(self._dehaze(replace(cine, geometry=geometry), mapper, told, interval))
        return keep_what_is_no_tissue(joined(cine, parts))

    def _mappers_of(self, cine: Cine) -> list[tuple[Geometry, Mapper]]:
        """The images on the screen with their mappers; kept, as the next frames mostly are of the same cine."""
        shape, known = cine.frames.shape[1:], self._mapped
        if known is None or known[0] is not cine.geometry or known[1] != shape:
            made = [(image, make_mapper(image, shape, self.grid)) for image in images_of(cine.geometry)]
            known = self._mapped = (cine.geometry, shape, made)
        return known[2]

    def _dehaze(
        self, cine: Cine, mapper: Mapper, progress: Callable[[int, int], None] | None, interval: bool
    ) -> Result:
        """Takes the haze off one image of the screen."""
        seen = torch.from_numpy(mapper.valid.astype(np.float32))
        n_frames, span = len(cine.frames), cine.dynamic_range_db
        tissue, haze = np.empty_like(cine.frames), np.empty_like(cine.frames)
        std = np.empty_like(cine.frames) if self.settings.samples > 1 else None
        between = np.empty((2, *cine.frames.shape), np.float32) if interval and self.posterior else None
        passes: list[int] = []
        scale = self.settings.strength * span

        def finish(some: list[tuple[np.ndarray, list[Tensor], int]], _: torch.device) -> list[None]:
            for frame, draws, at in some:
                parts, native, here = self._decide(draws, between is not None), frame[None], slice(at, at + 1)
                tissue[here] = _lowered(mapper, native, scale * parts.gain.numpy(), span)
                haze[here] = _in_steps(mapper.from_model(span * (parts.level.numpy() - 1), -span), -span)
                if std is not None:
                    std[here] = _in_steps(mapper.from_model(scale * parts.deviation.numpy(), 0.0), 0.0)
                if between is not None and parts.ends is not None:
                    for i, end in enumerate(parts.ends.numpy()):
                        between[i, here] = _lowered(mapper, native, span * end, span)
            return [None] * len(some)

        for block in blocks(n_frames, self.batch_size):
            native = cine.frames[block]
            y = torch.from_numpy(np.clip(mapper.to_model(native) / span + 1, 0, 1))
            drawn, made = self._draw(y, seen, span)
            passes += made
            made_of = [(*each, block.start + b) for b, each in enumerate(zip(native, drawn, strict=True))]
            run_jobs([CPU], finish, made_of)
            if progress:
                progress(block.stop, n_frames)
        settings = {
            **self.told,
            **({"own_settings": own} if (own := self.settings.own()) else {}),
            "evaluations": round(self.settings.samples * sum(passes) / len(passes)),
            "device": self._on,
            "engine": self.engine.name if self.engine else "torch",
        }
        return Result(cine, tissue, haze, std, settings, between)

    @property
    def told(self) -> dict[str, Any]:
        """Settings and networks that decide results, by the names that they have there."""
        return {**self.settings.told(), **self.chain.networks(), "precision": self.precision}

    def with_settings(self, settings: Settings) -> Dehazer:
        """The same networks, device, batch size, precision and engine under other settings."""
        engine: Literal["torch"] | Engine = self.engine or "torch"
        return Dehazer(self.model, self.haze, settings, self._on, self.batch_size, self.precision, engine)

    def split(self, y: Tensor, seen: Tensor, dynamic_range_db: float) -> Split:
        """Splits frames that lie on the model grid.

        Args:
            y: ``(B, depth, angle)`` in [0, 1] (0 = floor, 1 = 0 dB).
            seen: ``(depth, angle)`` 1.0 where there is image data.
            dynamic_range_db: dB that [0, 1] spans.
        """
        drawn, _ = self._draw(y, seen, dynamic_range_db)
        return Split.joined(run_jobs([CPU], lambda some, _: [self._decide(draws) for draws in some], drawn))

    def _draw(self, y: Tensor, seen: Tensor, dynamic_range_db: float) -> tuple[list[list[Tensor]], tuple[int, ...]]:
        """The draws of each frame ``(samples, 1 + Q, depth, angle)``, haze level and gains; passes of every draw."""
        k, at_once = self.settings.samples, self.chain.at_once
        draws = [(b, range(i, min(i + at_once, k))) for i in range(0, k, at_once) for b in range(len(y))]
        seen_there = {device: seen.to(device) for device in self.devices}

        def run(some: list[Draw], device: torch.device) -> list[tuple[Tensor, int]]:
            keys = [(self.settings.seed, sample) for _, samples in some for sample in samples]
            frames = torch.cat([y[b].expand(len(samples), -1, -1) for b, samples in some])[:, None].to(device)
            with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                drawn, passes = self.chains[device].sample(
                    self.settings, frames, seen_there[device], keys, dynamic_range_db
                )
            return [(of_frame, passes) for of_frame in drawn.split([len(samples) for _, samples in some])]

        n = k // at_once * len(y)  # the shorter draws by themselves: a pass on a GPU always has as many rows
        found = run_jobs(self.devices, run, draws[:n]) + run_jobs(self.devices, run, draws[n:])
        return [[drawn for drawn, _ in found[b :: len(y)]] for b in range(len(y))], tuple(passes for _, passes in found)

    def _decide(self, draws: list[Tensor], interval: bool = True) -> Split:
        """What is applied of one frame's draws, with the interval where its samples tell one and it is asked for."""
        samples = torch.cat(draws)
        weights = self.chain.weights(len(samples))
        level, gains = samples[:, 0], samples[:, 1:].flatten(0, 1)
        places = (self.settings.caution, *(INTERVAL if interval and weights is not None else ()))
        gain, *ends = quantiles(gains, places, weights)
        deviation = spread(gains, weights) if len(samples) > 1 else torch.zeros_like(gain)
        between = torch.stack(ends)[:, None] if ends else None
        return Split(gain[None], quantiles(level, (0.5,)), deviation[None], between)


def check_options(**options: Unpack[DehazerOptions]) -> Settings:
    """The settings that options of `Dehazer.from_pretrained` come to, once it is sure that they can be used.

    Nothing is loaded; whether a device is there is not asked, since the work may be done elsewhere.

    Raises:
        InputError: no file of a prior or posterior that is named.
        UsdehazeError: see `Dehazer.from_pretrained`.
    """
    settings = settings_of(**options)
    for name in str(options.get("device", "auto")).split(","):
        check_device_name(name)
    check_precision(options.get("precision", "fp32"))
    check_batch_size(options.get("batch_size", "auto"))
    check_engine(options.get("engine", "auto"))
    for which in (options.get("tissue_prior"), options.get("haze_prior")):
        if which:
            find_weights(which, "prior")
    if posterior := options.get("posterior"):
        find_weights(posterior, "posterior")
    return settings


def check_precision(precision: str) -> Precision:
    """The precision itself; a `UsdehazeError` where there is none of that name."""
    if precision not in PRECISIONS:
        raise UsdehazeError(f"no precision {precision!r}; there are {', '.join(PRECISIONS)}")
    return precision


def check_batch_size(batch_size: int | str) -> None:
    """Raises a `UsdehazeError` for what is neither "auto" nor a whole number of frames."""
    if batch_size != "auto" and (not isinstance(batch_size, int | np.integer) or batch_size < 1):
        raise UsdehazeError(f"batch size must be at least 1, or auto, found {batch_size!r}")


@dataclass(frozen=True)
class Split:
    """Frames on the model grid taken apart, in model units (1 = the dynamic range), each ``(B, depth, angle)``.

    Attributes:
        gain: of the tissue in [-1, 0]: of what the samples tell, the quantile that the settings' caution asks for.
        level: of the haze in [0, 1], the samples' median.
        deviation: of what they tell of the gain, 0 for a single sample.
        ends: ``(2, B, depth, angle)`` the gain's 95 % interval; None where a sample does not tell its own, or where it
            was not asked for.
    """

    gain: Tensor
    level: Tensor
    deviation: Tensor
    ends: Tensor | None

    @staticmethod
    def joined(parts: list[Split]) -> Split:
        """Those of many frames as one."""
        ends = [part.ends for part in parts if part.ends is not None]
        gain, level, deviation = (torch.cat([getattr(p, n) for p in parts]) for n in ("gain", "level", "deviation"))
        return Split(gain, level, deviation, torch.cat(ends, dim=1) if ends else None)


def _part_of(progress: Callable[[int, int], None], index: int, count: int) -> Callable[[int, int], None]:
    """Progress of one image of the screen as that of all of them."""
    return lambda done, n_frames: progress((index * n_frames + done) // count, n_frames)


def _in_steps(values: np.ndarray, floor: float) -> np.ndarray:
    """Values in dB in steps of 1/1024, the floor as it is: finer digits say nothing and make files a fifth larger."""
    least = np.float32(floor)
    told: np.ndarray = np.where(values > least, np.maximum(np.rint(values * 1024) / 1024, least), least)
    return told


def _lowered(mapper: Mapper, native: np.ndarray, gain_db: np.ndarray, span: float) -> np.ndarray:
    """The native frames ``(B, H, W)`` lowered by a gain on the model grid, not below the floor."""
    lowered: np.ndarray = np.maximum(mapper.apply_gain(native, gain_db), np.minimum(native, -span))
    return lowered
