"""Masks that take little memory: bits, deflated, unpacked a frame at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np


class PackedMasks:
    """Masks of one size, read like a bool array ``(N, H, W)``: ``len(masks)``, ``masks[n]``; some 100 bytes a mask.

    Args:
        masks: bool ``(H, W)`` each, taken one at a time.
        shape: ``(H, W)``.
    """

    def __init__(self, masks: Iterable[np.ndarray], shape: tuple[int, int]) -> None:
        self.shape = shape
        self._packed = [zlib.compress(np.packbits(mask).tobytes(), 1) for mask in masks]

    def __len__(self) -> int:
        return len(self._packed)

    def __getitem__(self, index: int) -> np.ndarray:
        bits = np.frombuffer(zlib.decompress(self._packed[index]), np.uint8)
        return np.unpackbits(bits, count=self.shape[0] * self.shape[1]).astype(bool).reshape(self.shape)

    def any(self) -> bool:
        """Whether any pixel of any mask is inside."""
        return any(self[n].any() for n in range(len(self)))
