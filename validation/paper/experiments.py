"""The paper's experiments: what is measured how, and the figures that are printed for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from usdehaze.diffusion.denoiser import Gaussian
from usdehaze.diffusion.observation import Additive, Blend, LinearOperator
from validation.paper import data, noises
from validation.paper.systems.base import Problem

Printed = tuple[float | None, float | None, float | None]  # PSNR in dB, SSIM, LPIPS
FACTOR = 2  # d / m of compressed sensing
SENSED_STD, SINE_STD = 0.2, 0.139  # mean deviation: the paper's; that at which the input has the printed 15.60 dB
TO_KNOW = 20  # noises whose deviation systems are told that take it as white
OBSERVED_STD = 0.01  # of what neither signal nor structured noise explains


@dataclass(frozen=True)
class Experiment:
    """One row of the paper.

    Attributes:
        title: for tables.
        signal, noise: kinds of `data.images`; noise also "sine", "sequence" or "rain", see `noises`.
        learned: noise that the priors know: another kind is out of distribution, and so are natural images.
        printed: figures by method, as of `methods`.
        note: how this differs from the paper's.
    """

    title: str
    signal: str
    noise: str
    learned: str = ""
    printed: dict[str, Printed] = field(default_factory=dict)
    note: str = ""

    @property
    def known(self) -> str:
        """Kind of noise that is trained on."""
        return self.learned or self.noise

    @property
    def is_blend(self) -> bool:
        return self.noise not in ("sine", "sequence", "rain")


EXPERIMENTS = {
    "faces-digits": Experiment("faces + digits", "faces", "digits", note="printed as a bar chart alone"),
    "faces-letters": Experiment(
        "faces + other characters", "faces", "letters", "digits",
        {"best joint": (25.94, 0.851, 0.159), "flow": (22.61, 0.826, 0.179), "input": (12.26, 0.633, 0.305)},
        "letters of many typefaces (notMNIST), as large as digits, in place of TMNIST",
    ),
    "faces-kannada": Experiment("faces + Kannada digits", "faces", "kannada", "digits", note="not in the paper"),
    "faces-omniglot": Experiment("faces + Omniglot", "faces", "omniglot", "digits", note="not in the paper"),
    "faces-translated": Experiment(
        "faces + translated digits", "faces", "translated", "digits",
        {"best joint": (23.63, 0.893, 0.150), "flow": (22.96, 0.837, 0.167)},
    ),
    "natural-letters": Experiment(
        "other images + other characters", "natural", "letters", "digits",
        {"best joint": (22.59, 0.858, 0.197), "flow": (20.06, 0.831, 0.177)},
        "letters of many typefaces (notMNIST), as large as digits, in place of TMNIST",
    ),
    "natural-translated": Experiment(
        "other images + translated digits", "natural", "translated", "digits",
        {"best joint": (21.55, 0.895, 0.167), "flow": (20.54, 0.839, 0.157)},
    ),
    "cs-faces": Experiment(
        "compressed sensing, faces", "faces", "sequence",
        printed={
            "best joint": (25.51, 0.823, 0.042), "dps alone": (25.34, 0.820, 0.052), "flow": (24.96, 0.779, 0.105),
            "gan": (18.90, None, None), "lasso": (12.93, None, None),
        },
        note="the same 2048 x 4096 matrix for each colour; the noise's own score in place of a learned one",
    ),
    "cs-natural": Experiment(
        "compressed sensing, other images", "natural", "sequence",
        printed={
            "best joint": (22.90, 0.823, 0.059), "dps alone": (22.79, None, None), "flow": (19.85, None, None),
            "gan": (12.39, None, None), "lasso": (11.62, None, None),
        },
        note="the same 2048 x 4096 matrix for each colour; the noise's own score in place of a learned one",
    ),
    "sine": Experiment(
        "2-D sine noise, faces", "faces", "sine",
        printed={
            "best joint": (18.61, 0.772, 0.054), "dps alone": (22.31, 0.716, 0.074), "bm3d": (23.12, 0.695, 0.209),
            "gan": (21.15, None, None), "flow": (18.11, None, None), "input": (15.60, None, None),
        },
        note="the noise's own score in place of a learned one; mean deviation 0.139: the printed input, unclipped",
    ),
    "rain": Experiment(
        "rain streaks, faces", "faces", "rain",
        printed={"best joint": (23.97, 0.82, 0.18), "dps alone": (19.70, 0.67, 0.40)},
        note="64 x 64, the size of the faces there are, in place of 256 x 256; streaks of our own simulation",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """Measurements with their truth.

    Attributes:
        problem: what systems are handed.
        signal: ``(N, 3, 64, 64)`` in [0, 1].
        noise: of the shape of ``problem.y``.
    """

    problem: Problem
    signal: Tensor
    noise: Tensor


def measured(experiment: Experiment, split: str, n: int) -> Measured:
    """The first ``n`` measurements of a split: image i always under the same noise.

    Raises:
        InputError: see `data.images`.
    """
    x = data.images(experiment.signal, split, n)
    shape = (x.shape[1], x.shape[2], x.shape[3])
    noise = noise_of(experiment.noise, split, len(x))
    x = x[: len(noise)]
    observation: Blend | Additive | LinearOperator
    if experiment.is_blend:
        observation = Blend(0.5, OBSERVED_STD)
    elif experiment.noise == "sequence":
        observation = LinearOperator(matrix(), std=OBSERVED_STD)
    else:
        observation = Additive(OBSERVED_STD)
    y = torch.cat([observation.predict(a, b) for a, b in zip(x.split(1), noise.split(1), strict=True)])
    factor = 0.5 if experiment.is_blend else 1.0
    bounds = (0.0, 1.0) if experiment.is_blend or experiment.noise == "rain" else (-float("inf"), float("inf"))
    other = noise_of(experiment.noise, "validation", TO_KNOW)  # so that no image's problem depends on the others
    return Measured(Problem(y, observation, shape, factor * float(other.square().mean().sqrt()), bounds), x, noise)


def noise_of(kind: str, split: str, n: int | None) -> Tensor:
    """Noise of a kind, for training or for measurements; computed kinds have 3820 to train on."""
    seed = data.SPLIT_SEED + 10 * (1 + data.SPLITS.index(split))
    some = 3820 if n is None else n
    if kind == "sequence":
        return noises.sine_noise(some, _deviations(kind), (3, *_deviations(kind).shape[-2:]), seed)
    if kind == "sine":
        return noises.sine_noise(some, _deviations(kind), (3, *data.GRID), seed)
    if kind == "rain":
        return noises.rain(some, data.GRID, seed)
    return data.images(kind, split, n)


def exact_prior(kind: str, device: torch.device) -> Gaussian | None:
    """The prior of noise whose score is a closed form; None of noise that has to be learned."""
    return noises.sine_prior(_deviations(kind).to(device)) if kind in ("sine", "sequence") else None


@lru_cache
def matrix() -> Tensor:
    """``A`` of compressed sensing, for one channel."""
    return noises.sensing_matrix(data.GRID[0] * data.GRID[1], FACTOR)


def _deviations(kind: str) -> Tensor:
    if kind == "sequence":
        return noises.sine_deviations(data.GRID[0] * data.GRID[1] // FACTOR, SENSED_STD)[None]  # (1, m)
    return noises.sine_deviations(data.GRID[0], SINE_STD)[:, None].expand(data.GRID)  # of a row


def training_signal(n: int | None = None) -> Tensor:
    """Faces to train on, ``n`` or all: no other signal is ever learned."""
    return data.images("faces", "train", n)
