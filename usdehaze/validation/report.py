"""What a person looks at: the table in the terminal, the CSV, the panels with the regions drawn in."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

from usdehaze.io.atomic import atomic
from usdehaze.validation.regions import Regions

COLOURS = {"tissue": (64, 224, 96), "haze": (255, 160, 32)}  # green and orange: apart for the colour-blind, too
CAPTION_HEIGHT = 16
# gCNR can be gamed by blackening a chamber: it is never shown alone.
GCNR_COMPANY = ("gcnr", "ks_tissue", "ks_haze", "tissue_shift_db")
FEW_PIXELS = 1000


def summary_table(document: dict[str, Any], only: tuple[str, ...] | None = None) -> list[str]:
    """The summary of a Metrics JSON, one line a string, with the estimator of every figure beside it.

    Args:
        document: as :func:`usdehaze.validation.evaluate.metrics_document` makes it.
        only: metrics to show; None for all.
    """
    settings = document["settings"]
    counts = ", ".join(f"{role} {low} to {high}" for role, (low, high) in settings["n_pixels_range"].items())
    lines = [
        f"frames: {settings['n_frames']}, cines: {settings['n_cines']}; pixels in a frame's regions: {counts}",
        f"{'':<16}{'input':>10}{'tissue':>10}{'delta':>10}{'95 % interval':>20}  estimator",
    ]
    for name, entry in document["summary"].items():
        if only is not None and name not in only:
            continue
        values = "".join(f"{_number(entry[part]):>10}" for part in ("input", "tissue", "delta"))
        interval = "-" if entry["ci95"] is None else " to ".join(_number(v) for v in entry["ci95"])
        lines.append(f"{name:<16}{values}{interval:>20}  {settings['estimators'].get(name, '')}")
    smallest = min((low for low, _ in settings["n_pixels_range"].values()), default=FEW_PIXELS)
    if smallest < FEW_PIXELS:
        lines.append(f"note: a region holds only {smallest} pixels; under {FEW_PIXELS} gCNR reads too high")
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def write_csv(path: Path, document: dict[str, Any]) -> None:
    """One row a frame and metric: cine, frame, metric, input, tissue, delta, pixels of both regions, gCNR bins."""
    with atomic(path, overwrite=True) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        columns = ["input", "tissue", "delta"]
        writer.writerow(["cine", "frame", "metric", *columns, "pixels_tissue", "pixels_haze", "bins"])
        for record in document["frames"]:
            pixels = record.get("n_pixels", {})
            for name, value in record.items():
                if isinstance(value, dict) and "delta" in value:
                    figures = ["" if value[part_] is None else value[part_] for part_ in columns]
                    row = [record["cine"], record["frame"], name, *figures]
                    writer.writerow([*row, pixels.get("tissue", ""), pixels.get("haze", ""), value.get("bins", "")])


def panel(
    images_db: dict[str, np.ndarray], dynamic_range_db: float, regions: Regions | None = None, frame: int = 0
) -> Image.Image:
    """Frames side by side in grey, captioned, with the outlines of the regions.

    Args:
        images_db: caption to ``(H, W)`` in dB; one size.
        dynamic_range_db: dB from black to white.
        regions: outlined in green (tissue) and orange (haze), one pixel wide, inside the region.
        frame: whose regions are drawn.
    """
    tiles = []
    for image in images_db.values():
        grey = np.clip(np.rint((1 + image / dynamic_range_db) * 255), 0, 255).astype(np.uint8)
        tile = np.repeat(grey[..., None], 3, axis=2)
        for role, colour in COLOURS.items():
            if regions is not None:
                mask = regions.mask(role, frame)
                tile[mask & ~ndimage.binary_erosion(mask)] = colour
        tiles.append(np.pad(tile, ((CAPTION_HEIGHT, 0), (0, 2), (0, 0))))
    sheet = Image.fromarray(np.concatenate(tiles, axis=1))
    draw = ImageDraw.Draw(sheet)
    left = 0
    for caption, tile in zip(images_db, tiles, strict=True):
        draw.text((left + 3, 2), caption, fill=(255, 255, 255))
        left += tile.shape[1]
    return sheet


def write_panels(
    folder: Path, stem: str, images_db: dict[str, np.ndarray], dynamic_range_db: float, regions: Regions
) -> list[Path]:
    """PNG panels of the first, middle and last frame that has regions.

    Args:
        folder: where they go.
        stem: of their names, ``STEM-frame-NNN.png``.
        images_db: caption to ``(T, H, W)`` in dB.
        dynamic_range_db: dB from black to white.
        regions: drawn in.
    """
    frames = regions.frames()
    paths = []
    for t in sorted({frames[0], frames[len(frames) // 2], frames[-1]}):
        sheet = panel({caption: cine[t] for caption, cine in images_db.items()}, dynamic_range_db, regions, t)
        path = folder / f"{stem}-frame-{t:03d}.png"
        with atomic(path, overwrite=True) as part:
            sheet.save(part, format="PNG")
        paths.append(path)
    return paths
