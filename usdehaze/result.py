"""Result: a cine taken apart into tissue and haze."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import usdehaze
from usdehaze.cine import Cine
from usdehaze.provenance import attributes_of


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A cine taken apart. `usdehaze.io.open_result` gives the same of a file, frame by frame.

    One equals itself alone, and its ``repr`` shows no pixel.

    Attributes:
        cine: the input.
        tissue, haze: ``(T, H, W)`` float32 dB on the input's own grid. Tissue is the native frame lowered by the
            gain (dB) found on the model grid, never above the input; haze is its estimate there, interpolated, in
            steps of 1/1024 dB, as is ``std``. Outside the image, tissue is the input bit for bit and haze is the floor.
        std: ``(T, H, W)`` float32 dB, deviation of the tissue by the posterior, its samples and the quantiles that each
            tells taken together; None for one sample.
        settings: everything that made it: preset, guidance, steps, seed, priors with their hashes, evaluations.
        interval: ``(2, T, H, W)`` float32 dB, between which the tissue lies with 95 % by the posterior; None where it
            was not asked for, or cannot be told, and out of a file, which does not hold it.
        usdehaze_version: that made it.
        created: when it was first written, ISO 8601 in UTC; None before.
    """

    cine: Cine
    tissue: np.ndarray
    haze: np.ndarray
    std: np.ndarray | None
    settings: dict[str, Any]
    interval: np.ndarray | None = None
    usdehaze_version: str = field(default_factory=lambda: usdehaze.__version__)
    created: str | None = None

    def __repr__(self) -> str:
        return f"Result({self.cine!r}, {self.settings})"

    @property
    def input(self) -> np.ndarray:
        """The frames that were dehazed, ``(T, H, W)`` float32 dB."""
        return self.cine.frames

    @property
    def attrs(self) -> dict[str, Any]:
        """All that it says about itself, by the names that its attributes have in a file (`usdehaze.provenance`)."""
        cine = self.cine
        return attributes_of(self.settings, cine.source, cine.dynamic_range_db, self.usdehaze_version, self.created)
