"""What a person looks at: the table in the terminal, the CSV, the panels with the regions drawn in."""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

from usdehaze.decibels import db_to_grey
from usdehaze.io.atomic import atomic
from usdehaze.plain_text import cell
from usdehaze.validation.evaluate import json_ready
from usdehaze.validation.regions import AUTOMATIC, FAINT, GIVEN, Regions

COLOURS = {"tissue": (64, 224, 96), "haze": (255, 160, 32), "faint": (80, 160, 255)}  # apart for the colour-blind, too
COLUMNS = 100  # of a terminal
CAPTION_HEIGHT = 16
# gCNR can be gamed by blackening a chamber: it is never shown alone.
GCNR_COMPANY = (
    "gcnr",
    "gcnr_corrected",
    "ks_tissue",
    "tissue_shift_db",
    "ks_haze",
    "ks_faint",
    "faint_shift_db",
    "faint_gone_share",
    "faint_contrast_db",
)
TITLES = {
    "gcnr": "gCNR",
    "gcnr_corrected": "gCNR without its bias",
    "ks_tissue": "KS, tissue region",
    "tissue_shift_db": "shift, tissue region, dB",
    "ks_haze": "KS, haze region",
    "haze_shift_db": "shift, haze region, dB",
    "mean_tissue_db": "mean, tissue region, dB",
    "mean_haze_db": "mean, haze region, dB",
    "cnr": "CNR",
    "cnr_linear": "CNR of amplitudes",
    "contrast_db": "contrast, dB",
    "speckle_snr_tissue": "speckle SNR, tissue region",
    "speckle_snr_haze": "speckle SNR, haze region",
    "psnr_db": "PSNR, dB",
    "ssim": "SSIM",
    "rmse_tissue_db": "RMSE, tissue region, dB",
    "rmse_haze_db": "RMSE, haze region, dB",
    "ks_faint": "KS, faint region",
    "faint_shift_db": "shift, faint region, dB",
    "faint_gone_share": "share gone, faint region",
    "faint_contrast_db": "contrast, faint region, dB",
    "removed_dark_db": "removed, dark pixels, dB",
    "removed_middle_db": "removed, middle pixels, dB",
    "removed_bright_db": "removed, bright pixels, dB",
    "dim_lost_share": "share of dim pixels lost",
    "removal_flicker": "flicker of the removal",
    "edges_lost": "share of edges lost",
    "edge_coherence": "coherence of edges",
}


@dataclass(frozen=True)
class Row:
    """One metric of a summary in words: values, interval and p as printed ("-" where there is none), and estimator."""

    name: str
    input: str
    tissue: str
    delta: str
    interval: str
    p: str
    estimator: str


def summary_rows(document: dict[str, Any]) -> list[Row]:
    """The summary of a Metrics JSON, a row a metric."""
    rows = []
    for name, entry in document["summary"].items():
        p = entry.get("paired", {}).get("wilcoxon_p")
        estimator = document["settings"]["estimators"].get(name, "")
        if "bias" in entry:
            estimator += f"; bias {_number(entry['bias']['input'])} before, {_number(entry['bias']['tissue'])} after"
        if entry["n_frames"] < (n_frames := document["settings"]["n_frames"]):
            estimator += f"; over {entry['n_frames']} of {n_frames} frames"
        before, after, delta = (_number(entry[part]) for part in ("input", "tissue", "delta"))
        interval = "-" if entry["ci95"] is None else " to ".join(_number(v) for v in entry["ci95"])
        rows.append(Row(name, before, after, delta, interval, "-" if p is None else f"{p:.2g}", estimator))
    return rows


def summary_table(document: dict[str, Any], only: tuple[str, ...] | None = None) -> list[str]:
    """The summary of a Metrics JSON in lines of at most `COLUMNS`: a row a metric, then how each was estimated.

    Args:
        document: as :func:`usdehaze.validation.evaluate.metrics_document` makes it.
        only: metrics to show; None for all.
    """
    settings = document["settings"]
    counts = ", ".join(f"{role} {low} to {high}" for role, (low, high) in settings["n_pixels_range"].items())
    title = f"frames: {settings['n_frames']}, cines: {settings['n_cines']}"
    if "regions" in settings:
        title += f"; {regions_in_words(settings['regions'])}"
    columns = ("input", "tissue", "delta")
    tested = settings["n_cines"] > 1
    heads = [
        *(f"{name:>10}" for name in columns),
        f"{'95 % interval':>20}",
        *([f"{'Wilcoxon p':>12}"] if tested else []),
    ]
    sizes = f"pixels in a frame's regions: {counts}" if counts else ""
    lines = [*wrapped(title), *wrapped(sizes), f"{'':<20}{''.join(heads)}"]
    estimators = {}
    for row in summary_rows(document):
        if only is not None and row.name not in only:
            continue
        values = [f"{value:>10}" for value in (row.input, row.tissue, row.delta)]
        values += [f"{row.interval:>20}", *([f"{row.p:>12}"] if tested else [])]
        lines.append(f"{row.name:<20}{''.join(values)}")
        estimators[row.name] = row.estimator
    notes = [line for warning in settings["warnings"] for line in wrapped(f"note: {warning}")]
    return lines + notes + estimator_lines(estimators)


def estimator_lines(estimators: dict[str, str]) -> list[str]:
    """How every figure was estimated, in lines of at most `COLUMNS`."""
    return [line for name, text in estimators.items() for line in wrapped(f"  {name}: {text}")]


def wrapped(line: str) -> list[str]:
    """A line in lines of at most `COLUMNS`, all but the first of them set in."""
    return textwrap.wrap(line, COLUMNS, subsequent_indent="    ", break_on_hyphens=False)


def regions_in_words(regions: dict[str, Any]) -> str:
    """Where regions came from, as the settings of a Metrics JSON have it."""
    words = f"{AUTOMATIC} regions" if regions["origin"] == AUTOMATIC else f"regions: {regions['source']}"
    return words + (f", eroded by {regions['margin_px']:g} pixels" if regions["margin_px"] else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 3) + 0.0:.3f}"  # no -0.000


def write_csv(path: Path, document: dict[str, Any], sources: Iterable[Path] = ()) -> None:
    """One row a frame and metric: the figures, and what they were measured with.

    Columns: cine, frame, metric, input, tissue, delta, pixels of tissue and haze, bins and bias (of input and output)
    and 95 % interval of delta of gCNR, where the regions came from, if there are any, and pixels of faint walls. Text
    that a spreadsheet would take for a formula begins with an apostrophe; what is not finite is left out, as in the
    JSON. Whoever may not read the ``sources`` may not read it.
    """
    with atomic(path, True, sources) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        columns = ["input", "tissue", "delta"]
        extra = [
            "pixels_tissue",
            "pixels_haze",
            "bins",
            "bias_input",
            "bias_tissue",
            "ci95_low",
            "ci95_high",
            "regions",
            "pixels_faint",
        ]
        writer.writerow(["cine", "frame", "metric", *columns, *extra])
        for record in map(json_ready, document["frames"]):
            pixels = record.get("n_pixels", {})
            origin = record.get("regions", GIVEN if pixels else "")
            for name, value in record.items():
                if isinstance(value, dict) and "delta" in value:
                    bias, interval = value.get("bias", {}), value.get("ci95") or (None, None)
                    row = [record["cine"], record["frame"], name, *(value[part_] for part_ in columns)]
                    row += [pixels.get("tissue"), pixels.get("haze"), value.get("bins")]
                    row += [bias.get("input"), bias.get("tissue"), *interval, origin, pixels.get(FAINT)]
                    writer.writerow([cell(value) for value in row])


def panel(
    images_db: dict[str, np.ndarray], dynamic_range_db: float, regions: Regions | None = None, frame: int = 0
) -> Image.Image:
    """Frames side by side in grey, captioned, with the outlines of the regions.

    Args:
        images_db: caption to ``(H, W)`` in dB; one size.
        dynamic_range_db: dB from black to white.
        regions: outlined in green (tissue), orange (haze) and blue (faint), one pixel wide, inside the region;
            captions say so where they are automatic.
        frame: whose regions are drawn.
    """
    tiles = [
        np.pad(tile(image, dynamic_range_db, regions, frame), ((CAPTION_HEIGHT, 0), (0, 2), (0, 0)))
        for image in images_db.values()
    ]
    sheet = Image.fromarray(np.concatenate(tiles, axis=1))
    draw = ImageDraw.Draw(sheet)
    left = 0
    remark = f", {AUTOMATIC} regions" if regions is not None and regions.origin == AUTOMATIC else ""
    for caption, pixels in zip(images_db, tiles, strict=True):
        draw.text((left + 3, 2), caption + remark, fill=(255, 255, 255))
        left += pixels.shape[1]
    return sheet


def tile(image_db: np.ndarray, dynamic_range_db: float, regions: Regions | None, frame: int) -> np.ndarray:
    """One picture of a panel, without caption: ``(H, W, 3)`` uint8."""
    pixels = np.repeat(db_to_grey(image_db, dynamic_range_db)[..., None], 3, axis=2)
    for role, colour in COLOURS.items():
        if regions is not None:
            mask = regions.mask(role, frame)
            pixels[mask & ~ndimage.binary_erosion(mask)] = colour
    return pixels


def write_panels(
    folder: Path,
    stem: str,
    images_db: dict[str, np.ndarray],
    dynamic_range_db: float,
    regions: Regions,
    sources: Iterable[Path] = (),
    first_frame: int = 0,
) -> list[Path]:
    """PNG panels of the first, middle and last frame that has regions.

    Args:
        folder: where they go.
        stem: of their names, ``STEM-frame-NNN.png``.
        images_db: caption to ``(T, H, W)`` in dB.
        dynamic_range_db: dB from black to white.
        regions: drawn in.
        sources: whoever may not read them may not read the panels.
        first_frame: index in the source of the first frame; names count as the source does.
    """
    frames = regions.frames() or regions.frames((FAINT,))
    paths = []
    for t in sorted({frames[0], frames[len(frames) // 2], frames[-1]}):
        sheet = panel({caption: cine[t] for caption, cine in images_db.items()}, dynamic_range_db, regions, t)
        path = folder / f"{stem}-frame-{first_frame + t:03d}.png"
        with atomic(path, True, sources) as part:
            sheet.save(part, format="PNG")
        paths.append(path)
    return paths
