"""Random streams by key, so that a result never depends on what else is in the batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Streams:
    """Standard normal noise for a batch of rows, each from a generator of its own; equal keys draw equal noise.

    Args:
        keys: one tuple of non-negative whole numbers per row, such as (seed, sample).
        device: where the noise is made; CPU and CUDA each give the same noise every time, but not the same as another.
    """

    def __init__(self, keys: Sequence[tuple[int, ...]], device: torch.device | str = "cpu") -> None:
        self.generators = [torch.Generator(device=device).manual_seed(_mix(key)) for key in keys]
        self.device = torch.device(device)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """``(rows, *shape)`` float32, one draw from each row's stream."""
        return torch.stack(
            [torch.randn(shape, generator=g, device=self.device, dtype=torch.float32) for g in self.generators]
        )


def _mix(key: tuple[int, ...]) -> int:
    """A 63-bit seed from a key; neighbouring keys land far apart (SplitMix64, Steele et al. 2014)."""
    state = 0
    for part in key:
        state = (state + part + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1
