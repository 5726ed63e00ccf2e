"""Priors and posteriors from one's own scans: frames on their grid, and a sheet to see what was learned."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from usdehaze.errors import InputError
from usdehaze.geometry import ModelGrid, make_mapper
from usdehaze.io import Reading, open_scan
from usdehaze.io.atomic import atomic
from usdehaze.notes import in_full
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.training.data import PICKS, FrameSource, StoredFrames, evenly
from usdehaze.training.samples import draw_samples, split_samples
from usdehaze.training.train import Model

CHUNK = 32  # frames of a scan in memory at once
COLUMNS, CAPTION_HEIGHT, GAP = 8, 20, 2  # of the sheet


def frames_of_scan(
    path: Path, grid: tuple[int, int], reading: Reading | None = None, tell: Callable[[str], None] | None = None
) -> Tensor:
    """A scan as a prior sees it: ``(T, depth, angle)`` half precision in [0, 1] (0 = floor, 1 = 0 dB).

    Frames of one value are left out.

    Args:
        path, reading: see `usdehaze.io.open_scan`.
        grid: depth and angle.
        tell: told in one line what was guessed or left out as the scan was read.

    Raises:
        InputError: a scan that cannot be used.
    """
    with open_scan(path, reading) as scan:
        try:
            mapper = make_mapper(scan.geometry, scan.shape, ModelGrid(*grid))
        except ValueError as error:
            raise InputError(path, str(error)) from error
        parts = []
        for cine in scan.chunks(CHUNK):
            images = cine.frames[np.ptp(cine.frames, axis=(1, 2)) > 0]
            parts.append(torch.from_numpy(mapper.to_model(images) / cine.dynamic_range_db + 1).clamp(0, 1).half())
        if tell and scan.source.assumptions:
            tell(f"{path}: {' '.join(map(in_full, scan.source.assumptions))}")
    return torch.cat(parts)


def frames_of_scans(
    paths: Iterable[Path],
    grid: tuple[int, int],
    reading: Reading | None = None,
    purpose: int = PICKS,
    tell: Callable[[str], None] | None = None,
) -> StoredFrames:
    """Every frame of these scans, for training; ``purpose`` as of `StoredFrames`, the others as of `frames_of_scan`.

    Scans with the same frames (named twice, linked, copied) count once: held out, they would be trained on, too.

    Raises:
        InputError: a scan that cannot be used; a single frame.
    """
    paths, notes = list(paths), list[str]()
    read = (frames_of_scan(path, grid, reading, notes.append) for path in paths)
    scans = list({hashlib.sha256(frames.numpy().tobytes()).digest(): frames for frames in read}.values())
    if sum(len(frames) for frames in scans) < 2:
        raise InputError(paths[0], "1 frame", "at least 2: one to train on, one to hold out")
    if tell:
        for note in notes:
            tell(note)
    return StoredFrames(scans, purpose=purpose)


def write_sheet(path: Path, model: Model, source: FrameSource, seed: int, overwrite: bool = False) -> None:
    """Draws what was learned, as a PNG: of a prior, frames sampled from it above frames that it was trained on; of a
    posterior, held-out frames, one sample of their tissue and haze each, and the truth.

    Raises:
        InputError: the file exists or cannot be written.
    """
    device = next(model.parameters()).device
    if isinstance(model, LearnedPosterior):
        truth = evenly(source.held_out, COLUMNS)
        tissue, haze, hazy = truth.chunk(3, dim=1)
        x, n = split_samples(model, hazy.to(device), seed).cpu().chunk(2, dim=1)
        rows = {
            "hazy": hazy,
            "tissue, found": x,
            "true": tissue,
            "haze, found": n,
            "true haze": haze,
        }
    else:
        rows = {
            f"{model.card['kind']}, drawn from the prior": draw_samples(model, COLUMNS, seed, device),
            f"{model.card['kind']}, trained on": evenly(source.sample, COLUMNS),
        }
    depth, angle = model.card["grid"]
    colour = next(iter(rows.values())).shape[1] == 3
    zoom = max(1, 128 // max(depth, angle))
    height, width = CAPTION_HEIGHT + zoom * depth + GAP, zoom * angle + GAP
    sheet = Image.new("RGB" if colour else "L", (COLUMNS * width - GAP, len(rows) * height - GAP))
    for row, (caption, frames) in enumerate(rows.items()):
        font = ImageFont.load_default(size=12)
        ImageDraw.Draw(sheet).text((4, row * height + 3), caption, fill="white", font=font)
        for column, frame in enumerate(frames.float().cpu().numpy()):
            pixels = np.rint(255 * frame).astype(np.uint8).repeat(zoom, 1).repeat(zoom, 2)
            shown = np.moveaxis(pixels, 0, -1) if colour else pixels[0]
            sheet.paste(Image.fromarray(shown), (column * width, row * height + CAPTION_HEIGHT))
    with atomic(path, overwrite) as part:
        sheet.save(part, format="PNG")
