"""What an experiment hands to a system, and what it wants back.

Images are float32 in [0, 1], ``(N, C, H, W)``, C = 3 in colour. A system never sees the truth: it learns from unpaired
signal and noise of the training split, and splits a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from usdehaze.diffusion.observation import GaussianNoise, Linear, LinearOperator

TRAIN_STEPS = 2000  # of FLOW and GAN


@dataclass(frozen=True)
class Problem:
    """Measurements ``y = A x + b n`` to split.

    Attributes:
        y: ``(N, C, H, W)``; of compressed sensing ``(N, C, 1, m)``, each channel measured by the same matrix.
        observation: `Blend` (``A = 1 - share``, ``b = share``), `Additive` (both 1) or `LinearOperator` (``b`` = 1).
        shape: ``(C, H, W)`` of one signal.
        noise_std: deviation of an entry of ``b n`` over everything, for systems that take noise as Gaussian.
        noise_range: what the noise lies within: images in [0, 1], or infinite where it is a random sequence.
    """

    y: Tensor
    observation: Linear | LinearOperator
    shape: tuple[int, int, int]
    noise_std: float
    noise_range: tuple[float, float] = (0.0, 1.0)

    @property
    def is_matrix(self) -> bool:
        """Whether ``A`` mixes pixels (compressed sensing)."""
        return isinstance(self.observation, LinearOperator)

    @property
    def noise_factor(self) -> float:
        """``b``."""
        return 1.0 if isinstance(self.observation, LinearOperator) else self.observation.b

    @property
    def signal_factor(self) -> float:
        """``A`` where it is a number; 1 for a matrix."""
        return 1.0 if isinstance(self.observation, LinearOperator) else self.observation.a

    def forward(self, x: Tensor) -> Tensor:
        """``A x`` of signals ``(N, C, H, W)``, of the shape of ``y``; differentiable."""
        return self.observation.predict(x, self.y.new_zeros(len(x), *self.y.shape[1:]))

    def adjoint(self, v: Tensor) -> Tensor:
        """``A^T v`` of ``(N, *y.shape[1:])``, of the shape of signals."""
        like = v.new_zeros(len(v), *self.shape)
        return self.observation.adjoint(like, torch.zeros_like(v), v)[0]

    def noise_of(self, x: Tensor) -> Tensor:
        """The noise that makes up for what signals ``x`` leave of ``y``, ``(y - A x) / b``; differentiable."""
        return (self.y - self.forward(x)) / self.noise_factor

    def split(self, rows: slice) -> Problem:
        """The problem of some of its measurements."""
        return Problem(self.y[rows], self.observation, self.shape, self.noise_std, self.noise_range)

    def to(self, device: torch.device) -> Problem:
        """The same problem on a device."""
        if self.y.device == device:
            return self
        observation = self.observation
        if isinstance(observation, LinearOperator):
            assert observation.matrix is not None
            observation = LinearOperator(observation.matrix.to(device), std=observation.std)
        return replace(self, y=self.y.to(device), observation=observation)

    def gaussian(self) -> GaussianNoise | LinearOperator:
        """The measurement as if its noise were white, of deviation ``noise_std``; for a blend of ``y / A``."""
        if isinstance(self.observation, LinearOperator):
            assert self.observation.matrix is not None
            return LinearOperator(self.observation.matrix, std=self.noise_std)
        return GaussianNoise(self.noise_std / self.signal_factor)


@dataclass(frozen=True)
class Budget:
    """How much a system may train and search.

    Attributes:
        train_steps: optimiser steps of each network.
        batch: images a step.
        solve_steps: steps of a search for a measurement; None is the paper's number.
        restarts: of a search from random starts.
        tiny: networks as small as they get, for tests.
        device: where networks train and search.
    """

    train_steps: int = TRAIN_STEPS
    batch: int = 32
    solve_steps: int | None = None
    restarts: int = 1
    tiny: bool = False
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (immutable)


class System(Protocol):
    """A way to split measurements."""

    name: str

    def prepare(self, signal: Tensor, noise: Tensor, seed: int, budget: Budget, work: Path) -> str:
        """Trains what it needs, or loads it from ``work`` where it was trained on the same with the same budget.

        Args:
            signal: ``(N, C, H, W)`` training images in [0, 1].
            noise: ``(N, *noise shape)`` training noise: images in [0, 1], or sequences as measured.
            seed: of weights, batches and noise.
            budget: see `Budget`.
            work: folder of its own for weights and checkpoints: a run that was stopped goes on from there.

        Returns:
            One line on what was trained how long, for the table; "" where there is nothing to train.

        Raises:
            UsdehazeError: a package that is missing, in one line with the command that installs it.
        """

    def solve(self, problem: Problem, seed: int) -> tuple[Tensor, Tensor | None]:
        """Signals ``(N, C, H, W)`` in [0, 1], and noise of the shape of ``y`` or None where the system has none.

        Raises:
            UsdehazeError: a measurement that the system is not made for (BM3D takes no compressed sensing).
        """
