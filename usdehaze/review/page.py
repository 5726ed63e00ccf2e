"""Builds the review page: one HTML file that holds everything and asks no network for anything."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from usdehaze.cine import Geometry, Polar
from usdehaze.errors import InputError
from usdehaze.io.atomic import atomic, check_target
from usdehaze.io.detect import RESULT_SUFFIX, REVIEW_SUFFIX
from usdehaze.review.figures import Figures
from usdehaze.review.frames import pack, planes_of
from usdehaze.review.source import OpenResult, open_result
from usdehaze.validation.command import LABEL_MARGIN_PX
from usdehaze.validation.evaluate import json_ready
from usdehaze.validation.regions import ROLES, Regions, automatic_regions, parse_labels, read_regions

MAX_PAGE_BYTES = 400 * 10**6  # browsers hold no string much longer than 500 MB, and nobody waits for it
DEFAULT_FRAME_TIME_S = 0.05
SCRIPTS = (  # in this order
    "elements.js",
    "picture.js",
    "state.js",
    "frames.js",
    "figures.js",
    "histograms.js",
    "drawing.js",
    "player.js",
    "page.js",
)
# Attributes of a result that say how it was made. Everything else stays out: names of files and datasets, and
# whatever a reader may add, can identify a patient.
PROVENANCE = (
    ("source_sha256", "source, SHA-256"),
    ("source_layout", "source layout"),
    ("source_units", "source values"),
    ("usdehaze_version", "usdehaze version"),
    ("format_version", "result format"),
    ("created", "result made"),
    ("posterior", "learned posterior"),
    ("tissue_prior", "tissue prior"),
    ("haze_prior", "haze prior"),
    ("preset", "preset"),
    ("guidance", "guidance"),
    ("observation", "observation model"),
    ("sampler", "sampler"),
    ("steps", "steps"),
    ("scale", "guidance scale (tissue, haze)"),
    ("from_guess", "starts from a first guess"),
    ("sigma_max", "first noise level"),
    ("sigma_min", "last noise level"),
    ("samples", "posterior samples"),
    ("caution", "caution"),
    ("strength", "strength"),
    ("seed", "seed"),
    ("evaluations", "network evaluations a frame"),
    ("device", "device"),
    ("precision", "precision"),
)


def default_page_path(result_path: str | os.PathLike[str]) -> Path:
    """``STEM.review.html`` beside ``STEM.dehazed.h5``."""
    path = Path(result_path)
    stem = path.name.removesuffix(RESULT_SUFFIX) if path.name.endswith(RESULT_SUFFIX) else path.stem
    return path.with_name(stem + REVIEW_SUFFIX)


def build_review(
    result_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    roi: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    *,
    labels: str | None = None,
    margin_px: float | None = None,
    frames: slice | None = None,
    show_source_name: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Builds the page of one result. Frames are read one at a time.

    Args:
        result_path: file written by ``usdehaze process``.
        out_path: HTML file to write, whole or not at all.
        roi: regions of interest (see `usdehaze.validation.regions`), or "auto" for automatic ones; without them no
            figures of regions.
        overwrite: replace a page that exists.
        labels, margin_px: of the regions, as ``usdehaze validate`` takes them.
        frames: frames of the result to show, a slice without a step; all by default.
        show_source_name: print the source's file name and dataset, which may name a patient; the hash is always there.
        progress: called with (frames done, frames).

    Returns:
        ``out_path``.

    Raises:
        InputError: the result, the regions or the target cannot be used, or the page would be too large for a browser.
    """
    out_path = Path(out_path)
    check_target(out_path, overwrite)
    with open_result(result_path) as result:
        chosen = range(*(frames or slice(None)).indices(result.shape[0]))
        if not chosen:
            raise InputError(result_path, "no such frames", f"frames of 0 to {result.shape[0] - 1}")
        regions = None if roi is None else _read_regions(result, roi, labels, margin_px)
        with atomic(out_path, overwrite) as part, part.open("w", encoding="utf-8", newline="\n") as file:
            _write(file, result, regions, chosen, show_source_name, progress)
    return out_path


def _read_regions(
    result: OpenResult, roi: str | os.PathLike[str], labels: str | None, margin_px: float | None
) -> Regions:
    if os.fspath(roi) == "auto":
        return automatic_regions(result.input_cine())
    if margin_px is None:
        margin_px = 0.0 if labels is None else LABEL_MARGIN_PX
    values = None if labels is None else parse_labels(labels)
    return read_regions(
        Path(roi), result.shape, result.first_frame, geometry=result.geometry, labels=values, margin_px=margin_px
    )


def _write(
    file: TextIO,
    result: OpenResult,
    regions: Regions | None,
    chosen: range,
    show_source_name: bool,
    progress: Callable[[int, int], None] | None,
) -> None:
    """The template with its gaps filled; the frames come before the data that are known after them."""
    parts = {name: _asset(name) for name in ("page.html", "page.css", *SCRIPTS)}
    script = "\n".join(parts[name] for name in SCRIPTS)
    head, rest = parts["page.html"].split("{{frames}}")
    middle, tail = rest.split("{{data}}")
    file.write(head.replace("{{csp}}", _policy(parts["page.css"], script)).replace("{{css}}", parts["page.css"]))
    cine = _cine_name(result, show_source_name)
    figures = Figures(result.dynamic_range_db, regions, cine, result.first_frame)
    planes = _write_frames(file, result, regions, chosen, figures, progress)
    page = _page_data(result, regions, chosen, figures, planes, show_source_name)
    file.write(middle)
    file.write(f'<script type="application/json" id="metrics-json">{_json(figures.metrics())}</script>\n')
    file.write(f'<script type="application/json" id="page-json">{_json(page)}</script>')
    file.write(tail.replace("{{js}}", script))


def _write_frames(
    file: TextIO,
    result: OpenResult,
    regions: Regions | None,
    chosen: range,
    figures: Figures,
    progress: Callable[[int, int], None] | None,
) -> list[str]:
    """One element a frame; returns the names of the planes in it."""
    names: list[str] = []
    written = 0
    for index, frame in enumerate(chosen):
        input_db, tissue_db, haze_db = (result.read(name, frame) for name in ("input", "tissue", "haze"))
        std_db = result.read("tissue_std", frame) if result.has_std else None
        planes = planes_of(input_db, tissue_db, haze_db, std_db, result.dynamic_range_db)
        levels = {"input": planes["input"], "tissue": planes["input"] - planes["removed"]}
        figures.add(frame, input_db, tissue_db, std_db, levels)
        if regions is not None:
            planes["regions"] = sum(
                (regions.mask(role, frame).astype(np.uint8) << bit for bit, role in enumerate(ROLES)),
                np.zeros(result.shape[1:], np.uint8),
            )
        packed = pack(list(planes.values()))
        names, written = list(planes), written + len(packed)
        if written > MAX_PAGE_BYTES:
            raise InputError(
                result.path,
                f"a page of {len(chosen)} frames would be larger than {MAX_PAGE_BYTES / 1e6:g} MB",
                advice=f"take part of them with --frames, for instance --frames 0:{index}",
            )
        file.write(f'<script type="text/plain" id="frame-{index}">{packed}</script>\n')
        if progress is not None:
            progress(index + 1, len(chosen))
    return names


def _page_data(
    result: OpenResult,
    regions: Regions | None,
    chosen: range,
    figures: Figures,
    planes: list[str],
    show_source_name: bool,
) -> dict[str, Any]:
    """What the script needs beside frames and metrics."""
    _, height, width = result.shape
    times = None if result.frame_times_s is None else result.frame_times_s[chosen.start : chosen.stop]
    frame_time_s = _frame_time_s(times)
    return {
        "n_frames": len(chosen),
        "height": height,
        "width": width,
        "first_frame": result.first_frame + chosen.start,
        "frame_time_s": frame_time_s or DEFAULT_FRAME_TIME_S,
        "frame_time_known": frame_time_s is not None,
        "dynamic_range_db": result.dynamic_range_db,
        "planes": planes,
        "geometry": _geometry(result.geometry),
        "regions": None if regions is None else _region_names(regions),
        "image": figures.image(result.has_std),
        "histograms": figures.histograms(),
        "provenance": _provenance(result, show_source_name),
        "source_sha256": str(result.attrs.get("source_sha256", "")),
    }


def _geometry(geometry: Geometry) -> dict[str, Any]:
    if isinstance(geometry, Polar):
        axes = {"depths_m": geometry.depths_m, "angles_rad": geometry.angles_rad}
        return {"kind": "polar", **{name: np.asarray(axis, np.float64).tolist() for name, axis in axes.items()}}
    aspect = 1.0
    if geometry.spacing_m is not None:
        aspect = geometry.spacing_m[0] / geometry.spacing_m[1]
    elif geometry.sector is not None:
        aspect = geometry.sector.aspect
    return {"kind": "cartesian", "row_per_column": aspect}


def _region_names(regions: Regions) -> dict[str, Any]:
    """Where the regions came from, and their names by role, in the order of the bits of the plane ``regions``."""
    names = {role: [region.name for region in regions.regions if region.role == role] for role in ROLES}
    return {"origin": regions.origin, "names": names}


def _frame_time_s(times: np.ndarray | None) -> float | None:
    """Median time between frames, s; None where the file does not say, or says what no scanner does."""
    if times is None or len(times) < 2:
        return None
    step = float(np.median(np.diff(times)))
    return step if 0.0005 <= step <= 10 else None


def _cine_name(result: OpenResult, show_source_name: bool) -> str:
    """What the cine is called in the Metrics JSON: a piece of the source's hash, unless its name may be shown."""
    name = str(result.attrs.get("source_name", ""))
    digest = str(result.attrs.get("source_sha256", ""))[:12]
    return name if show_source_name and name else digest or "cine"


def _provenance(result: OpenResult, show_source_name: bool) -> list[list[str]]:
    named = (("source_name", "source"), ("source_dataset", "source dataset")) if show_source_name else ()
    rows = [[label, _words(result.attrs.get(key))] for key, label in (*named, *PROVENANCE)]
    rows = [row for row in rows if row[1]]
    digest = hashlib.sha256()
    with open(result.path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return [*rows, ["result file, SHA-256", digest.hexdigest()], ["dynamic range", f"{result.dynamic_range_db:g} dB"]]


def _words(value: Any) -> str:
    """An attribute as it is printed; "" where there is none."""
    if isinstance(value, np.ndarray):
        return ", ".join(map(_words, value.tolist()))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _policy(css: str, script: str) -> str:
    """Content security policy: these very styles and this very script, and no connection to anywhere."""
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (css, script)
    )
    rules = (
        "default-src 'none'",
        "img-src data:",
        f"style-src 'sha256-{style_hash}'",
        f"script-src 'sha256-{script_hash}'",
    )
    return "; ".join((*rules, "base-uri 'none'", "form-action 'none'"))


def _json(document: Any) -> str:
    """JSON that cannot end the element it lies in; what is not finite becomes null."""
    return json.dumps(json_ready(document), allow_nan=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return files("usdehaze.review").joinpath(name).read_text(encoding="utf-8")
