"""The learned joint posterior as what a sampler calls: no priors, no observation model, no guidance rule."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from usdehaze.errors import UsdehazeError


class JointDenoiser(Protocol):
    """A network that was trained to denoise tissue and haze given the frame that the two make."""

    def __call__(self, u: Tensor, sigma: float, y: Tensor, /) -> tuple[Tensor, Tensor]:
        """Expected clean ``(B, 2, ...)`` given noisy ``u`` ``(B, 2 C, ...)`` and ``y`` ``(B, C, ...)``; quantiles of
        the gain ``(B, Q, ...)``."""


class Learned:
    """Tissue and haze given the frame, as one denoiser over ``(B, size)`` rows, like `Posterior`.

    ``D(u, sigma) = E[x, n | x_t, n_t, y]`` is the denoiser of the posterior itself, so that whatever samples a prior by
    its denoiser samples the posterior by this one.

    Args:
        y: ``(B, C, depth, angle)`` frames in [0, 1].
        network: see `JointDenoiser`.

    Attributes:
        gains: ``(B, Q, depth, angle)`` of the last call; None before the first.
        evaluations: network passes so far, per frame.

    Raises:
        UsdehazeError: when called, as soon as a value is not finite: a partial result is worse than none.
    """

    def __init__(self, y: Tensor, network: JointDenoiser) -> None:
        self.y, self.network = y, network
        self.gains: Tensor | None = None
        self.evaluations = 0

    @property
    def size(self) -> int:
        """Unknowns of a frame."""
        return 2 * math.prod(self.y.shape[1:])

    def parts(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Tissue and haze of ``(B, size)`` unknowns, each of ``y``'s shape."""
        x, n = self._frames(u).chunk(2, dim=1)
        return x, n

    def first_guess(self) -> Tensor:
        """No haze unless shown: tissue is the frame, haze is on the floor; rows of unknowns."""
        return torch.cat([self.y, torch.zeros_like(self.y)], dim=1).flatten(1)

    def __call__(self, u: Tensor, sigma: float, step: float | None = None) -> Tensor:
        """Expected clean unknowns ``(B, size)``; ``step`` as in `Posterior`, without use here."""
        self.evaluations += 1
        clean, self.gains = self.network(self._frames(u), sigma, self.y)
        if not math.isfinite(float(clean.sum())):  # faster than to ask every value
            raise UsdehazeError(
                f"sampling broke down at step {self.evaluations} (guidance learned, noise level {sigma:.3g}): values "
                "are not finite; try more steps or --device cpu"
            )
        return clean.flatten(1)

    def _frames(self, u: Tensor) -> Tensor:
        return u.reshape(len(u), 2 * self.y.shape[1], *self.y.shape[2:])
