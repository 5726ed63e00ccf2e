"""BM3D (Dabov et al. 2007): takes all noise for white. Its package's licence is non-commercial."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usdehaze.errors import UsdehazeError
from validation.paper.systems.base import Budget, Problem


class Bm3d:
    """Denoises ``y / A``, told the deviation of the noise there."""

    name = "bm3d"

    def prepare(self, signal: Tensor, noise: Tensor, seed: int, budget: Budget, work: Path) -> str:
        """Nothing to train; see `System`."""
        if find_spec("bm3d") is None:
            raise UsdehazeError("BM3D is not installed: pip install 'usdehaze[bm3d]' (non-commercial licence)")
        return ""

    def key(self) -> dict[str, Any]:
        """What decides the estimates beside the measurement, for records."""
        return {"bm3d": version("bm3d")}

    def solve(self, problem: Problem, seed: int) -> tuple[Tensor, Tensor | None]:
        """See `System`; colours are denoised together.

        Raises:
            UsdehazeError: compressed sensing.
        """
        if problem.is_matrix:
            raise UsdehazeError("BM3D denoises images; it takes no compressed sensing")
        from bm3d import bm3d, bm3d_rgb

        std = problem.noise_std / problem.signal_factor
        images = (problem.y / problem.signal_factor).permute(0, 2, 3, 1).numpy().astype(np.float64)

        def denoise(image: np.ndarray) -> np.ndarray:
            if np.ptp(image, axis=-1).max() == 0:  # no colour: the package's colour space divides by it
                return np.broadcast_to(np.reshape(bm3d(image[..., 0], std), (*image.shape[:2], 1)), image.shape)
            return np.asarray(bm3d_rgb(image, std))

        found = [denoise(image) for image in images]
        x = torch.from_numpy(np.stack(found)).to(problem.y.dtype).permute(0, 3, 1, 2)
        return x.clamp(0, 1).contiguous(), None
