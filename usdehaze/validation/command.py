"""The body of ``usdehaze validate``: metrics of results, or the truth-known benchmark of what is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.cine import Cine, Polar
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.plain_text import one_line
from usdehaze.validation.evaluate import evaluate_cine, metrics_document, write_json
from usdehaze.validation.regions import (
    AUTOMATIC,
    GIVEN,
    Labels,
    check_scan_of,
    find_regions,
    labels_and_margin,
    stem_for,
)

REPORTS = b"1.2.840.10008.5.1.4.1.1.88."  # DICOM structured reports are SOP classes under it
ONE_SOURCE = "several results are of one source, and count as cines of their own: intervals and tests are too sure"
NO_REGIONS = "no regions, so figures of the whole image alone; for gCNR: --roi FILE, or --roi auto"


@dataclass(frozen=True)
class Asked:
    """How results are measured, and what is made of them: see `run`; ``margin_px`` is decided."""

    bins: int | None
    roi: Path | None
    labels: Labels | None
    margin_px: float
    truth: Path | None
    report: Path | None
    with_screen: bool


def run(
    results: list[Path],
    gcnr: bool,
    gcnr_bins: int | None,
    roi: Path | None,
    json_path: Path | None,
    report: Path | None,
    quiet: bool,
    echo: Callable[[str], None],
    labels: str | None = None,
    margin_px: float | None = None,
    truth: Path | None = None,
    with_screen: bool = False,
    sr: Path | None = None,
    source: Path | None = None,
) -> int:
    """Measure, print a table, write what was asked for.

    Args:
        results: result files; none for the benchmark of what is installed.
        gcnr: show gCNR with its company (KS of both regions, tissue mean shift, faint walls) only; files hold every
            metric.
        gcnr_bins: equal-width bins for gCNR; None for equiprobable ones.
        roi: regions of interest for every result, a folder that holds ``STEM.rois.json`` (or ``.png``, ``.h5``, ...)
            for each source, or "auto" for automatic regions of the input; None for figures of whole images alone.
        json_path: Metrics JSON, replaced if there.
        report: folder for metrics.json and metrics.csv, and for results PNG panels and report.pdf, a page a result.
        quiet: print no table.
        echo: prints one line.
        labels: what stands for tissue and haze in label images and segments, "tissue=170 haze=85".
        margin_px: erosion of the regions, pixels; None for 3 with ``labels`` (their borders are nobody's measurement),
            else 0.
        truth: file that ``usdehaze simulate`` wrote and the result was made of, or a folder of them.
        with_screen: pictures of the report show what the screen has around the images; it is black by default.
        sr: DICOM structured report on the one result, replaced if there.
        source: DICOM image that the result was made of, for ``sr``; None where it lies beside the result.

    Returns:
        0 when everything was measured, 1 when some results could not be (one line each on stderr).

    Raises:
        UsdehazeError: nothing could be measured or written; one line.
    """
    from usdehaze.io.atomic import check_same_kind, check_target

    values, margin_px = labels_and_margin(labels, margin_px)
    sources = [*results, *(path for path in (roi, truth, source) if path is not None)]
    for target in (json_path, sr, *((report / name for name in ("metrics.json", "report.pdf")) if report else ())):
        if target is not None:
            check_target(target, True, sources)
    if json_path is not None:
        check_same_kind(json_path, b'"summary"')

    subject = None
    if sr is not None:
        from usdehaze.validation.structured_report import subject_of, write_structured_report

        subject = subject_of(results[0], source)
        check_target(sr, True, subject.files)
        check_same_kind(sr, REPORTS)
    if results:
        document, failed = _measure(results, Asked(gcnr_bins, roi, values, margin_px, truth, report, with_screen))
    else:
        document, failed = _benchmark(gcnr_bins, quiet), 0

    if not quiet:
        for line in _table(document, gcnr):
            echo(line)
    if json_path is not None:
        write_json(json_path, document, sources)
    if report is not None:
        from usdehaze.validation.report import write_csv

        write_json(report / "metrics.json", document, sources)
        write_csv(report / "metrics.csv", document, sources)
    if sr is not None and subject is not None:
        write_structured_report(sr, document, subject)
    return 1 if failed else 0


def _measure(results: list[Path], asked: Asked) -> tuple[dict[str, Any], int]:
    """Metrics of result files, and how many of them failed. One bad file never stops the rest."""
    from usdehaze.io.atomic import atomic

    records: list[dict[str, Any]] = []
    failed, roi, truth = 0, asked.roi, asked.truth
    measured: set[Path] = set()
    drawn: dict[Path, Hashable] = {}  # files of regions in a folder, and the hash of the scan that they are of
    sources: dict[Path, str] = {}  # of those that could be
    made: list[dict[str, str]] = []  # how they were, in words
    unique = len({path.name for path in results}) == len(results)
    with ExitStack() as stack:
        pdf = asked.report and stack.enter_context(atomic(asked.report / "report.pdf", True, results))
        for path in results:
            try:
                name = path.name if unique else str(path)
                if path.resolve() in measured:
                    raise InputError(path, "is named twice", "every result once: it would count as another cine")
                measured.add(path.resolve())
                found, source, how = _measure_one(path, name, asked, pdf, not records, drawn)
            except UsdehazeError as error:
                if len(results) == 1:
                    raise
                print(f"usdehaze: {one_line(str(error))}", file=sys.stderr)
                failed += 1
            else:
                records += found
                sources[path] = source
                made.append(how)
        if not records:
            raise InputError(roi or truth or results[0], f"none of {len(results)} results could be measured")
    settings: dict[str, Any] = {"results": [path.name for path in sources]}
    if truth is not None:
        settings["truth"] = truth.name
    if roi is not None:
        settings |= {"roi": roi.name, "regions": _origin(records, roi, asked)}
    document = metrics_document(records, asked.bins, **settings)
    if failed:
        document["settings"]["warnings"].append(f"{failed} of {len(results)} results could not be measured")
    if differ := [name for name in dict.fromkeys(chain(*made)) if len({how.get(name) for how in made}) > 1]:
        document["settings"]["warnings"].append(f"results were not made alike: they differ in {', '.join(differ)}")
    if len(set(sources.values())) < len(sources):
        document["settings"]["warnings"].append(ONE_SOURCE)
    if roi is None:
        document["settings"]["warnings"].append(NO_REGIONS)
    return document, failed


def _origin(records: list[dict[str, Any]], roi: Path, asked: Asked) -> dict[str, Any]:
    """Where the regions of these records came from."""
    if any(record.get("regions") == AUTOMATIC for record in records):
        return {"origin": AUTOMATIC, "source": "the input", "margin_px": 0.0}
    regions: dict[str, Any] = {"origin": GIVEN, "source": roi.name, "margin_px": asked.margin_px}
    return regions if asked.labels is None else regions | {"labels": dict(asked.labels)}


def _measure_one(
    path: Path, name: str, asked: Asked, pdf: Path | None, first: bool, drawn: dict[Path, Hashable]
) -> tuple[list[dict[str, Any]], str, dict[str, str]]:
    """Records of one result file, with the name it has in them, its source, and how it was made; its panels and its
    page where there is a report. The source is its hash, or where it has none the result's path.
    """
    from usdehaze.geometry import image_mask
    from usdehaze.io.doubts import doubts_of
    from usdehaze.io.result import read_result
    from usdehaze.io.standing import NO_MATTER
    from usdehaze.provenance import describe

    result = read_result(path)
    doubts = doubts_of(path)
    for doubt in doubts:
        print(f"usdehaze: {one_line(f'{path}: {doubt}')}", file=sys.stderr)
    cine, roi, bins = result.cine, asked.roi, asked.bins
    regions = None
    if roi is not None:
        stem = stem_for(roi, path, cine.source)
        check_scan_of(roi, stem, path, cine.source.sha256, drawn)
        regions = find_regions(roi, cine, stem, asked.labels, asked.margin_px, path)
    simulated = cine.source.name or path.name.replace(".dehazed", "")
    true_tissue_db = None if asked.truth is None else _true_tissue(asked.truth, simulated, cine)
    span, start = cine.dynamic_range_db, cine.source.first_frame
    image = image_mask(cine.geometry, (cine.frames.shape[1], cine.frames.shape[2]))
    inside = image if regions is None else None
    records = evaluate_cine(name, cine.frames, result.tissue, regions, bins, start, true_tissue_db, span, inside)
    doubts += [] if regions is None else regions.leaving(image)
    if doubts:
        records = [{**record, "doubts": doubts} for record in records]
    if asked.report is not None and pdf is not None:
        from usdehaze.geometry import blank_screen
        from usdehaze.validation.pdf import append_page, cine_page
        from usdehaze.validation.report import write_panels

        images = {"input": cine.frames, "tissue": result.tissue, "haze": result.haze}
        if not asked.with_screen:
            images = {caption: blank_screen(frames, cine.geometry, -span) for caption, frames in images.items()}
        if regions is not None:
            panels = name.removesuffix(".h5").replace("/", "_")
            write_panels(asked.report, panels, images, span, regions, [path], start)
        settings: dict[str, Any] = {} if roi is None else {"regions": _origin(records, roi, asked)}
        document = metrics_document(records, bins, **settings)
        shape = cine.geometry.row_per_column, isinstance(cine.geometry, Polar)
        append_page(pdf, cine_page(name, images, span, regions, start, document, result.attrs, *shape), first)
    told = describe(result.attrs, "network", "setting", "result")
    how = {field.key: words for field, words in told if field.name not in {*NO_MATTER, "created"}}
    return records, cine.source.sha256 or str(path), how


def _true_tissue(truth: Path, name: str, cine: Cine) -> np.ndarray:
    """The true tissue of a result's frames, ``(T, H, W)`` in dB; ``name`` is that of the simulation in a folder."""
    from usdehaze.io import read_truth

    path = truth / name if truth.is_dir() else truth
    known = read_truth(path)
    frames = slice(cine.source.first_frame, cine.source.first_frame + len(cine.frames))
    hazy = known.cine.frames[frames]
    if hazy.shape != cine.frames.shape or not np.allclose(hazy, cine.frames, atol=1e-3):
        raise InputError(path, "its hazy frames are not the input of the result", "the simulation it was made of")
    return known.tissue[frames]


def _benchmark(bins: int | None, quiet: bool) -> dict[str, Any]:
    from usdehaze.validation.benchmark import run_benchmark

    def progress(done: int, total: int) -> None:
        end = "\n" if done == total else ""
        print(f"\rbenchmark: scene {done} of {total}", end=end, file=sys.stderr, flush=True)

    return run_benchmark(bins=bins, progress=None if quiet or not sys.stderr.isatty() else progress)


def _table(document: dict[str, Any], gcnr: bool) -> list[str]:
    from usdehaze.validation.report import GCNR_COMPANY, estimator_lines, summary_table

    if "others" not in document:
        return summary_table(document, GCNR_COMPANY if gcnr and "gcnr" in document["summary"] else None)
    from usdehaze.validation.benchmark import benchmark_table, trust_table

    settings = document["settings"]
    seconds = ", ".join(f"{name} {value:.2f}" for name, value in settings["seconds_per_frame"].items())
    title = f"{settings['n_frames']} frames of {settings['n_cines']} simulated scenes, truth known, never trained on"
    lines = [title, *benchmark_table(document), "", *trust_table(document), f"seconds a frame: {seconds}"]
    return lines + estimator_lines(settings["estimators"])
