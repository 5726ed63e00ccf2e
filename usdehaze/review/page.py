"""Builds the review page: one HTML file that holds everything and asks no network for anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from re import fullmatch
from tempfile import TemporaryFile
from typing import Any, TextIO

import numpy as np

from usdehaze.budget import file_sha256, read_text
from usdehaze.cine import Geometry, Polar
from usdehaze.errors import InputError
from usdehaze.geometry import blank_screen, image_mask
from usdehaze.io.atomic import atomic, check_target
from usdehaze.io.detect import REVIEW_SUFFIX, beside_result
from usdehaze.io.doubts import doubts_of
from usdehaze.io.hdf5.layouts.own import FORMAT_VERSION
from usdehaze.io.result import OpenResult, open_result
from usdehaze.io.run_marks import MARK
from usdehaze.page_policy import page_policy
from usdehaze.preview import DEFAULT_FRAME_TIME_S, known_frame_time_s
from usdehaze.provenance import describe
from usdehaze.review.against import PREFIX, Against, open_against
from usdehaze.review.figures import Figures
from usdehaze.review.frames import pack, planes_of
from usdehaze.validation.evaluate import json_ready
from usdehaze.validation.regions import (
    AUTO,
    FAINT,
    ROLES,
    Regions,
    automatic_regions,
    compact,
    labels_and_margin,
    read_regions,
    region_file,
    stem_for,
)
from usdehaze.validation.risk import REASONS, StructureRisk

MAX_PAGE_BYTES = 400 * 10**6  # browsers hold no string much longer than 500 MB, and nobody waits for it
SCRIPTS = (  # in this order
    "elements.js",
    "picture.js",
    "state.js",
    "frames.js",
    "estimators.js",
    "polygons.js",
    "zoom.js",
    "editor.js",
    "figures.js",
    "histograms.js",
    "risk.js",
    "against.js",
    "drawing.js",
    "player.js",
    "page.js",
)


def default_page_path(result_path: str | os.PathLike[str]) -> Path:
    """``STEM.review.html`` beside ``STEM.dehazed.h5``."""
    return beside_result(result_path, REVIEW_SUFFIX)


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
    with_screen: bool = False,
    progress: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] | None = None,
    served: bool = False,
    against: str | os.PathLike[str] | None = None,
) -> Path:
    """Builds the page of one result. Frames are read one at a time.

    Args:
        result_path: file written by ``usdehaze process``.
        out_path: HTML file to write, whole or not at all.
        roi: regions of interest (see `usdehaze.validation.regions`), a folder that holds them, or "auto" for automatic
            ones; without them no figures of regions.
        overwrite: replace a page that exists.
        labels, margin_px: of the regions, as ``usdehaze validate`` takes them.
        frames: frames of the result to show, a slice without a step; all by default.
        show_source_name: print the source's file name and dataset, which may name a patient; the hash is always there.
        with_screen: show what the screen has around the images, names perhaps; it is black by default.
        progress: called with (frames done, frames).
        tell: called with every sentence of `usdehaze.io.doubts.doubts_of`; the page has them too.
        served: the page may speak to `usdehaze.review.ReviewServer`, and has a button that saves regions.
        against: a second result of the same source, to be looked at beside the first.

    Returns:
        ``out_path``.

    Raises:
        InputError: the results, the regions or the target cannot be used, or the page would be too large for a browser.
    """
    out_path = Path(out_path)
    sources = [result_path, *(path for path in (against, roi) if path is not None)]
    check_target(out_path, overwrite, sources)
    doubts = doubts_of(result_path)
    for doubt in doubts:
        if tell is not None:
            tell(doubt)
    with atomic(out_path, overwrite, sources) as part:
        write_page(
            result_path, part, roi, labels=labels, margin_px=margin_px, frames=frames,
            show_source_name=show_source_name, with_screen=with_screen, progress=progress, doubts=doubts, served=served,
            against=against,
        )  # fmt: skip
    return out_path


def write_page(
    result_path: str | os.PathLike[str],
    path: Path,
    roi: str | os.PathLike[str] | None = None,
    *,
    labels: str | None = None,
    margin_px: float | None = None,
    frames: slice | None = None,
    show_source_name: bool = False,
    with_screen: bool = False,
    progress: Callable[[int, int], None] | None = None,
    doubts: Sequence[str] = (),
    served: bool = False,
    against: str | os.PathLike[str] | None = None,
) -> None:
    """Writes the page of one result to ``path`` as it is, with what is to be doubted of it; see `build_review`.

    A page that is ``served`` by `usdehaze.review.serve` may speak to its server, and has a button that saves regions.
    """
    with open_result(result_path) as result:
        if roi is not None and os.fspath(roi) != AUTO:
            roi = region_file(Path(roi), stem_for(Path(roi), Path(result_path), result.cine.source))
        chosen = range(*(frames or slice(None)).indices(result.cine.n_frames))
        if not chosen:
            raise InputError(result_path, "no such frames", f"frames of 0 to {result.cine.n_frames - 1}")
        regions = None if roi is None else _read_regions(result, roi, labels, margin_px)
        if regions is not None:
            doubts = [*doubts, *regions.leaving(image_mask(result.cine.geometry, regions.shape[1:]))]
        polygons = [] if regions is None or regions.margin_px else drawn_polygons(Path(os.fspath(roi or "")))
        with (
            nullcontext() if against is None else open_against(against, result, chosen) as other,
            path.open("w", encoding="utf-8", newline="\n") as file,
            TemporaryFile("w+", encoding="utf-8", newline="\n", dir=path.parent) as records,
        ):
            page = _Page(result, regions, chosen, other, show_source_name, with_screen, progress)
            page.write(file, records, polygons, doubts, served)


def _read_regions(
    result: OpenResult, roi: str | os.PathLike[str], labels: str | None, margin_px: float | None
) -> Regions:
    if os.fspath(roi) == AUTO:
        return automatic_regions(result.cine, os.path.basename(result.path))
    values, margin_px = labels_and_margin(labels, margin_px)
    cine, source = result.cine, result.cine.source
    how: dict[str, Any] = {"labels": values, "margin_px": margin_px, "source_frames": source.frames}
    how["result"] = Path(result.path)
    return read_regions(Path(roi), cine.frames.shape, source.first_frame, geometry=cine.geometry, **how)


def drawn_polygons(roi: Path) -> list[dict[str, Any]]:
    """Regions of a file, already known to be good, that the page can go on drawing: polygons in pixels, or none."""
    if roi.suffix.lower() != ".json":
        return []
    document = json.loads(read_text(roi), object_hook=compact)
    entries = [{"name": str(index), "frames": None, **entry} for index, entry in enumerate(document["regions"])]
    if any(entry.get("units", document.get("units", "px")) != "px" for entry in entries):
        return []
    keys = ("name", "role", "frames", "polygon")
    return [{key: str(entry[key]) if key == "name" else entry[key] for key in keys} for entry in entries]


@dataclass(frozen=True)
class _Page:
    """A page of ``chosen`` frames of a result, and of another one beside it; see `build_review`."""

    result: OpenResult
    regions: Regions | None
    chosen: range
    other: Against | None
    show_source_name: bool
    with_screen: bool
    progress: Callable[[int, int], None] | None

    def write(
        self, file: TextIO, records: TextIO, polygons: list[dict[str, Any]], doubts: Sequence[str], served: bool
    ) -> None:
        """The template with its gaps filled; the frames come before the data that are known after them.

        What there is of every frame goes to the file as it comes, ``records`` of figures by way of a file of their own.
        """
        parts = {name: _asset(name) for name in ("page.html", "page.css", *SCRIPTS)}
        script = "\n".join(parts[name] for name in SCRIPTS)
        head, rest = parts["page.html"].split("{{frames}}")
        middle, tail = rest.split("{{data}}")
        run, cine = self.result.run, self.result.cine
        head = head.replace("{{run}}", f"usdehaze {MARK}{run}" if fullmatch("[0-9a-f]{32}", run) else "usdehaze")
        policy = page_policy(parts["page.css"], script, served)
        file.write(head.replace("{{csp}}", policy).replace("{{css}}", parts["page.css"]))
        name = _cine_name(self.result, self.show_source_name)
        inside = image_mask(cine.geometry, cine.shape)
        figures = Figures(cine.dynamic_range_db, self.regions, name, cine.source.first_frame, inside)
        planes = self._write_frames(file, records, figures)
        page = self._data(figures, planes)
        page |= {"served": served, "against": None if self.other is None else _second(self.other)}
        page["provenance"] += [["to be doubted", doubt] for doubt in doubts]
        file.write(middle + '<script type="application/json" id="metrics-json">')
        records.seek(0)
        _write_with_list(file, figures.metrics(), "frames", records)
        file.write('</script>\n<script type="application/json" id="page-json">')
        _write_with_list(file, page, "polygons", map(_json, polygons))
        file.write("</script>" + tail.replace("{{js}}", script))

    def _write_frames(self, file: TextIO, records: TextIO, figures: Figures) -> list[str]:
        """One element a frame, and a line of ``records`` for each that is measured; returns the names of the planes."""
        result, regions, chosen = self.result, self.regions, self.chosen
        names: list[str] = []
        written = 0
        risk = StructureRisk(result.cine.dynamic_range_db)
        for index, frame in enumerate(chosen):
            input_db, tissue_db, haze_db = result.input[frame], result.tissue[frame], result.haze[frame]
            std_db = None if result.std is None else result.std[frame]
            planes = planes_of(input_db, tissue_db, haze_db, std_db, result.cine.dynamic_range_db)
            levels = {"input": planes["input"], "tissue": planes["input"] - planes["removed"]}
            record = figures.add(frame, input_db, tissue_db, std_db, levels)
            if record is not None:
                records.write(_json(record) + "\n")
            planes["risk"] = figures.mark(risk.add(input_db, tissue_db, std_db))
            if self.other is not None:
                planes |= self.other.planes(frame, input_db)
            if not self.with_screen:
                planes = {name: blank_screen(plane, result.cine.geometry, 0) for name, plane in planes.items()}
            elif not figures.inside.all():
                planes["image"] = figures.inside.astype(np.uint8)
            if regions is not None:
                planes["regions"] = sum(
                    (regions.mask(role, frame).astype(np.uint8) << bit for bit, role in enumerate((*ROLES, FAINT))),
                    np.zeros(result.cine.shape, np.uint8),
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
            if self.progress is not None:
                self.progress(index + 1, len(chosen))
        return names

    def _data(self, figures: Figures, planes: list[str]) -> dict[str, Any]:
        """What the script needs beside frames and metrics."""
        result, regions, chosen = self.result, self.regions, self.chosen
        cine = result.cine
        height, width = cine.shape
        times = None if cine.frame_times_s is None else cine.frame_times_s[chosen.start : chosen.stop]
        frame_time_s = known_frame_time_s(times)
        return {
            "n_frames": len(chosen),
            "height": height,
            "width": width,
            "first_frame": cine.source.first_frame + chosen.start,
            "frame_time_s": frame_time_s or DEFAULT_FRAME_TIME_S,
            "frame_time_known": frame_time_s is not None,
            "frame_times_s": None if times is None else np.round(times - times[0], 6).tolist(),
            "dynamic_range_db": cine.dynamic_range_db,
            "planes": planes,
            "geometry": _geometry(cine.geometry),
            "regions": None if regions is None else {"origin": regions.origin, "names": regions.names},
            "image": figures.image(result.std is not None),
            "histograms": figures.histograms(),
            "risk": {"reasons": REASONS, "marks": figures.marks},
            "provenance": _provenance(result, self.show_source_name),
            "source_sha256": cine.source.sha256,
        }


def _write_with_list(file: TextIO, document: dict[str, Any] | None, name: str, entries: Iterable[str]) -> None:
    """A document as JSON with one more list in it, whose entries are JSON already, written one at a time."""
    if document is None:
        file.write("null")
        return
    text = _json({key: value for key, value in document.items() if key != name})
    file.write(f'{text[:-1]}, "{name}": [')
    for index, entry in enumerate(entries):
        file.write(", " * (index > 0) + entry.rstrip("\n"))
    file.write("]}")


def _second(other: Against) -> dict[str, Any]:
    """What the script needs of a second result beside its planes."""
    return {"prefix": PREFIX, "differences": other.differences(), "sha256": file_sha256(other.other.path)}


def _geometry(geometry: Geometry) -> dict[str, Any]:
    if isinstance(geometry, Polar):
        axes = {"depths_m": geometry.depths_m, "angles_rad": geometry.angles_rad}
        return {"kind": "polar", **{name: np.asarray(axis, np.float64).tolist() for name, axis in axes.items()}}
    return {"kind": "cartesian", "row_per_column": geometry.row_per_column}


def _cine_name(result: OpenResult, show_source_name: bool) -> str:
    """What the cine is called in the Metrics JSON: a piece of the source's hash, unless its name may be shown."""
    source = result.cine.source
    return source.name if show_source_name and source.name else source.sha256[:12] or "cine"


def _provenance(result: OpenResult, show_source_name: bool) -> list[list[str]]:
    """Labels and values of what the result says about itself.

    Nothing else of its attributes: whatever a reader has added can identify a patient.
    """
    told = describe({**result.attrs, "format_version": FORMAT_VERSION})
    rows = [[field.label, words] for field, words in told if show_source_name or not field.may_name_patient]
    return [*rows, ["result file, SHA-256", file_sha256(result.path)]]


def _json(document: Any) -> str:
    """JSON that cannot end the element it lies in; what is not finite becomes null."""
    return json.dumps(json_ready(document), allow_nan=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return files("usdehaze.review").joinpath(name).read_text(encoding="utf-8")
