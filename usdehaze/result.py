"""Result: a cine taken apart into tissue and haze."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from usdehaze.cine import Cine


@dataclass(frozen=True)
class Result:
    """A cine taken apart.

    Attributes:
        cine: the input.
        tissue, haze: ``(T, H, W)`` float32 dB on the input's own grid. Tissue is the native frame lowered by the
            gain (dB) found on the model grid, never above the input; haze is its estimate there, interpolated.
            Outside the image, tissue is the input bit for bit and haze is the floor.
        std: ``(T, H, W)`` float32 dB, deviation of the tissue over the posterior samples, or None for one sample.
        settings: everything that made it: preset, guidance, steps, seed, priors with their hashes, evaluations.
        interval: ``(2, T, H, W)`` float32 dB, between which the tissue lies with 95 % by the posterior; None where it
            was not asked for, or cannot be told.
    """

    cine: Cine
    tissue: np.ndarray
    haze: np.ndarray
    std: np.ndarray | None
    settings: dict[str, Any]
    interval: np.ndarray | None = None
