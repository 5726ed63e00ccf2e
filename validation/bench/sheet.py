"""Part f of ``validation.bench``: what each prior believes, beside what there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from usdehaze.io.atomic import atomic
from usdehaze.training.samples import draw_samples
from validation.bench.parts import Bench, model_frame

COLUMNS, GAP_PX, BACKGROUND = 8, 4, 96


def write_sheet(path: Path, bench: Bench) -> None:
    """Rows of polar frames: samples of tissue, real frames, samples of haze, the bench's hazes.

    A dehazer without such priors has no rows of samples.

    It shows real frames of patients: never for the repository.

    Raises:
        InputError: the file cannot be written.
    """
    dehazer = bench.dehazer()
    real = [model_frame(scan.cine, dehazer.grid)[0] for scan in bench.clean_scans(COLUMNS)]
    rows: list[list[torch.Tensor]] = []
    for prior, frames in ((dehazer.tissue, real), (dehazer.haze, bench.haze_frames()[:COLUMNS])):
        if prior:
            rows.append(list(draw_samples(prior, COLUMNS, device=dehazer.device).cpu()[:, 0]))
        rows.append(list(frames))
    sheet = np.concatenate([np.concatenate([_tile(frame) for frame in row], axis=1) for row in rows])
    with atomic(path, overwrite=True) as part:
        Image.fromarray(sheet).save(part, format="PNG")


def _tile(frame: torch.Tensor) -> np.ndarray:
    grey = (frame.clamp(0, 1) * 255).round().byte().numpy()
    return np.pad(grey, GAP_PX // 2, constant_values=BACKGROUND)
