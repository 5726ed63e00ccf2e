"""Parts g to j of ``validation.bench``: what regions of septum and ventricle in simulated haze do not see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.cine import Cartesian, Cine, Source
from usdehaze.geometry import make_mapper
from usdehaze.io import open_cine
from usdehaze.io.hdf5.access import get_dataset, open_file
from usdehaze.validation.evaluate import figure, summarise
from usdehaze.validation.harm import VISIBLE_DB
from usdehaze.validation.metrics import MIN_REGION_PIXELS
from usdehaze.validation.scene import Scene, error_figures, wall_error
from validation.bench.parts import Bench, clean_scan, coverage_figures, labelled_scan, outcome
from validation.figures import cine_figures, clip_figures, gain_step_db, lost_figures, trace_figures
from validation.records import digest_of, made_by, truth_of
from validation.scenes import CLEAN_CINES
from validation.traces import burned_in

HALVES = {"A": "free haze", "R": "reverberation"}  # letters of the second simulator's attribute ``haze``
LEVELS, REGIONS = ("hazy", "tissue", "haze"), ("wall", "chamber")  # datasets of its file
FRAMES_FILE = Path("second-simulator", "frames.h5")
KEPT_DB = 1.0  # a shift of the myocardium that still counts as kept
TRACED = ("clip-02", "clip-10", "clip-36", "clip-41")  # clips whose ECG trace stands still
LOOKED_AT = 12  # first frames that tell a trace from tissue, however many are dehazed
LATERAL_CINE = Path("dicom", "us", "examples_ybr_color.dcm")
LATERAL_WALL = np.s_[:, 85:125, 190:214]  # of its frames, faint
LATERAL_FRAMES = 9


def second_simulator(bench: Bench) -> dict[str, Any]:
    """Part g: simulated hearts of another simulator, the halves in turn."""

    def measure(scene: Scene) -> dict[str, Any]:
        tissue, interval = outcome(bench.dehazer().dehaze(scene.hazy, interval=True))
        return error_figures(scene, tissue) | wall_error(scene, tissue) | coverage_figures(scene, interval)

    scenes = list(_in_turn(bench.data / FRAMES_FILE))
    records = []
    for half, scene in scenes[: bench.some("g", len(scenes))]:
        by = made_by(scene.hazy, bench.dehazer()) | truth_of(scene)
        records.append(bench.records.kept("g", scene.name, by, partial(measure, scene)) | {"half": half})
    halves = {half: [record for record in records if record["half"] == half] for half in HALVES.values()}
    return {"summary": {half: summarise(of) for half, of in halves.items() if of}, "records": records}


def _in_turn(path: Path) -> Iterator[tuple[str, Scene]]:
    """Half and scene of every frame of the second simulator, its halves in turn."""
    with open_file(path) as file:
        stored = {name: get_dataset(file, name, path)[:][:, None] for name in (*LEVELS, *REGIONS)}
        letters, floor_db, step_db = str(file.attrs["haze"]), float(file.attrs["floor_db"]), file.attrs["db_per_step"]
    levels = {name: (stored[name] * step_db + floor_db).astype(np.float32) for name in LEVELS}
    inside = np.ones(stored["hazy"].shape[2:], bool)
    of_half = [[t for t, letter in enumerate(letters) if letter == half] for half in HALVES]
    for t in (t for pair in zip_longest(*of_half) for t in pair if t is not None):
        source = Source(f"second-simulator-{t:02d}", first_frame=t)
        hazy, tissue, haze = (levels[name][t] for name in LEVELS)
        cine = Cine(hazy, Cartesian(), -floor_db, source=source)
        walls, chambers = (stored[name][t].astype(bool) for name in REGIONS)
        yield HALVES[letters[t]], Scene(cine, replace(cine, frames=tissue), haze, inside, walls, chambers)


def camus_as_it_is(bench: Bench) -> dict[str, Any]:
    """Part h: both labelled frames of every patient of the share, with the haze that they have and no other."""

    def measure(cine: Cine, masks: Sequence[np.ndarray], drawn: np.ndarray, inside: np.ndarray) -> dict[str, Any]:
        result = bench.dehazer().dehaze(cine)
        frame, tissue = cine.frames[0], result.tissue[0]
        figures = clip_figures(frame, tissue, result.haze[0], *masks)
        return figures | lost_figures(frame, tissue, drawn, inside, -cine.dynamic_range_db)

    records = []
    for name in bench.patients[: bench.some("h", len(bench.patients))]:
        scan = labelled_scan(bench.data, name, n_frames=2)
        drawn = labelled_scan(bench.data, name, n_frames=2, margin_px=0.0).walls
        assert scan.cavities is not None
        for t, masks in enumerate(zip(scan.walls, scan.cavities, strict=True)):
            if min(mask.sum() for mask in masks) < MIN_REGION_PIXELS:
                continue
            source = replace(scan.cine.source, first_frame=t)
            cine = replace(scan.cine, frames=scan.cine.frames[t : t + 1], source=source)
            by = made_by(cine, bench.dehazer()) | {"frame": t, "regions": digest_of(*masks, drawn[t])}
            work = partial(measure, cine, masks, drawn[t], scan.mapper.image_mask)
            records.append(bench.records.kept("h", source.name, by, work) | {"frame": t})
    shifts = [record["tissue_shift_db"]["tissue"] for record in records]
    kept = float(np.mean([abs(shift) <= KEPT_DB for shift in shifts])) if shifts else None
    return {
        "summary": summarise(records),
        "kept": kept,
        "worst_shift_db": min(shifts, default=None),
        "records": records,
    }


def cines(bench: Bench) -> dict[str, Any]:
    """Part i: first frames of real hazy clips as they play, burned-in ECG traces, and a faint lateral wall."""

    def measure(cine: Cine, trace: np.ndarray | None) -> dict[str, Any]:
        tissue, floor_db = bench.dehazer().dehaze(cine).tissue, -cine.dynamic_range_db
        mapper = make_mapper(cine.geometry, cine.frames.shape[1:], bench.dehazer().grid)
        figures = cine_figures(cine.frames, tissue, mapper.image_mask, floor_db)
        if (step := gain_step_db(mapper.to_model(tissue - cine.frames), mapper.valid)) is not None:
            figures["step_polar_db"] = figure(None, step)
        if trace is not None:
            figures["trace"] = trace_figures(cine.frames, tissue, trace)
        return figures

    found = sorted((bench.data / "echo-haze").glob("*.h5"))
    records = []
    for path in found[: bench.some("i", len(found))]:
        seen = open_cine(path, frames=slice(0, max(LOOKED_AT, bench.cine_frames)))
        cine = replace(seen, frames=seen.frames[: bench.cine_frames])
        trace = burned_in(seen.frames[:LOOKED_AT]) if path.stem in TRACED else None
        if trace is not None:
            trace &= make_mapper(cine.geometry, cine.frames.shape[1:]).image_mask
        trace = trace if trace is not None and trace.any() else None
        by = made_by(cine, bench.dehazer()) | {"trace": digest_of(trace)}
        records.append(bench.records.kept("i", path.name, by, partial(measure, cine, trace)))
    return {"summary": summarise(records), "lateral_wall": _lateral_wall(bench), "records": records}


def _lateral_wall(bench: Bench) -> dict[str, Any] | None:
    """What is taken off the lateral wall of one clip, dB a frame; None without the clip."""

    def measure(cine: Cine) -> dict[str, Any]:
        removed = (cine.frames.astype(np.float64) - bench.dehazer().dehaze(cine).tissue)[LATERAL_WALL]
        of_frames = removed.mean(axis=(1, 2))
        return {"removed_db": of_frames.tolist(), "min_db": float(of_frames.min()), "max_db": float(of_frames.max())}

    path = bench.data / LATERAL_CINE
    if not path.exists():
        return None
    cine = open_cine(path, frames=slice(0, min(LATERAL_FRAMES, bench.cine_frames)))
    return bench.records.kept("i", path.name, made_by(cine, bench.dehazer()), partial(measure, cine))


def clean_clips(bench: Bench) -> dict[str, Any]:
    """Part j: first frames of clean clips; nothing that can be seen should fall."""

    def measure(cine: Cine, inside: np.ndarray) -> dict[str, Any]:
        shift = visible_shift_db(cine.frames[0], bench.dehazer().dehaze(cine).tissue[0], inside)
        return {} if shift is None else {"visible_shift_db": figure(None, shift)}

    names = bench.names[CLEAN_CINES]
    records = []
    for name in names[: bench.some("j", len(names))]:
        scan = clean_scan(bench.data, CLEAN_CINES, name)
        work = partial(measure, scan.cine, scan.mapper.image_mask)
        records.append(bench.records.kept("j", scan.cine.source.name, made_by(scan.cine, bench.dehazer()), work))
    shifts = [record["visible_shift_db"]["tissue"] for record in records if "visible_shift_db" in record]
    return {"summary": summarise(records), "worst_shift_db": min(shifts, default=None), "records": records}


WIDE = {"g": second_simulator, "h": camus_as_it_is, "i": cines, "j": clean_clips}


def visible_shift_db(clean_db: np.ndarray, output_db: np.ndarray, inside: np.ndarray) -> float | None:
    """Mean output minus input of the pixels inside that are brighter than -40 dB, ``(H, W)`` all; None without any."""
    visible = inside & (clean_db > VISIBLE_DB)
    return float((output_db.astype(np.float64) - clean_db)[visible].mean()) if visible.any() else None
