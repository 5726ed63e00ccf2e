"""The truth-known benchmark: simulated hazy scenes, fixed seeds that no prior was trained on.

Every scene is dehazed twice: by the method as it ships, and by a rule that guides the tissue prior alone and takes all
else for Gaussian noise (what a denoiser without any idea of haze makes of it). Both are compared with the true tissue
and the true haze. Then the tissue is dehazed alone, without haze: it should come back as it went in ("do no harm").

The figures of trust that cost nothing more are taken on the way; the rest, and other methods, are
``python validation/trust.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from usdehaze.cine import Cine, Source
from usdehaze.validation import metrics
from usdehaze.validation.evaluate import figure, frame_metrics, metrics_document, summarise, truth_metrics
from usdehaze.validation.trust import flicker_ratio, harm_figures, leak_bits, leak_correlation

FIRST_SEED = 1_000_000_000  # training draws its seeds below this
WALL, CAVITY = 1, 2  # values of SimulatedCine.labels
MIN_REGION_PIXELS = 200  # fewer of walls or cavities and a frame has no region figures
OURS = "ours"
BASELINE = "gaussian noise"

ESTIMATORS = {
    "psnr_db": "true tissue, whole frame, dB values, peak = dynamic range",
    "ssim": "true tissue, whole frame, 11 x 11 Gaussian window on [0, 1]",
    "haze_psnr_db": "haze estimate (input column: the hazy frame itself) against the true haze, as psnr_db",
    "gcnr": "walls against cavities of the simulator's labels",
    "ks_tissue": "input against output in the walls",
    "tissue_shift_db": "mean output minus mean input in the walls",
    "ks_haze": "input against output in the cavities",
    "rmse_tissue_db": "root mean squared error against the true tissue, dB values, in the walls",
    "rmse_haze_db": "root mean squared error against the true tissue, dB values, in the cavities",
}
TRUST_ESTIMATORS = {
    "clean_shift_db": "mean output minus mean input in the walls of tissue without haze; within 1 dB",
    "clean_change_db": "median |output - input| over pixels brighter than -30 dB of tissue without haze",
    "clean_rise_db": "largest output - input of any pixel of tissue without haze",
    "max_rise_db": "largest output - input of any pixel; haze is only ever removed",
    "leak_correlation": "part correlation of the haze estimate (input: the hazy frame) with the true tissue, given the "
    "true haze; 0 for the true haze",
    "leak_bits": "mutual information of haze estimate and true tissue less that of true haze and true tissue, bits",
    "removed_flicker": "frame-to-frame change of what was removed over that of the input",
}
FULL_STUDY = "calibration, seeds, classical methods and real frames: python validation/trust.py, validation/TRUST.md"


class Decomposed(Protocol):
    """What a dehazer gives back: both ``(T, H, W)`` in dB."""

    @property
    def tissue(self) -> np.ndarray: ...

    @property
    def haze(self) -> np.ndarray: ...


Method = Callable[[Cine], Decomposed]


def installed_methods() -> dict[str, Method]:
    """The shipped posterior with the default preset, and the shipped tissue prior without a haze prior."""
    from usdehaze.dehazing.dehazer import Dehazer

    return {
        OURS: Dehazer.from_pretrained().dehaze,
        BASELINE: Dehazer.from_pretrained(use_haze_prior=False).dehaze,
    }


def run_benchmark(
    n_scenes: int = 8,
    n_frames: int = 2,
    bins: int | None = None,
    methods: Mapping[str, Method] | None = None,
    simulate: Callable[..., Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Dehaze the scenes and measure.

    Args:
        n_scenes: scenes, with the seeds 1,000,000,000 and up.
        n_frames: frames a scene.
        bins: of gCNR; None for equiprobable ones.
        methods: name to ``dehaze(cine)``; "ours" must be among them. None for `installed_methods`.
        simulate: ``simulate_cine``; None for the package's own.
        progress: called with (scenes done, scenes).

    Returns:
        The Metrics JSON for "ours" as a dict, with the other methods' summaries and the truth's own gCNR (what a
        perfect method would reach) under "others". Seconds a frame are in the settings.
    """
    if methods is None:
        methods = installed_methods()
    if simulate is None:
        from usdehaze.simulate import simulate_cine

        simulate = simulate_cine
    records: dict[str, list[dict[str, Any]]] = {name: [] for name in [*methods, "truth"]}
    seconds = dict.fromkeys(methods, 0.0)
    made_by: dict[str, Any] = {}

    for scene in range(n_scenes):
        seed = FIRST_SEED + scene
        truth = simulate(n_frames=n_frames, seed=seed)
        hazy = _cine(truth, truth.hazy, seed)
        for name, dehaze in methods.items():
            started = time.perf_counter()
            result = dehaze(hazy)
            seconds[name] += time.perf_counter() - started
            made_by[name] = getattr(result, "settings", {})
            records[name] += [_record(seed, t, truth, result.tissue[t], result.haze[t], bins) for t in range(n_frames)]
            clean = dehaze(_cine(truth, truth.tissue, seed))
            for t, record in enumerate(records[name][-n_frames:]):
                harm = harm_figures(truth.tissue[t], clean.tissue[t], truth.labels[t] == WALL)
                record |= {key: figure(None, value) for key, value in harm.items()}
            records[name][-n_frames] |= _flicker(truth, result.tissue)
        records["truth"] += [_record(seed, t, truth, truth.tissue[t], truth.haze[t], bins) for t in range(n_frames)]
        records["truth"][-n_frames] |= _flicker(truth, truth.tissue)
        if progress is not None:
            progress(scene + 1, n_scenes)

    n_total = n_scenes * n_frames
    document = metrics_document(
        records[OURS],
        bins,
        benchmark="simulated scenes with known truth",
        seeds=[FIRST_SEED, FIRST_SEED + n_scenes - 1],
        frames_per_scene=n_frames,
        seconds_per_frame={name: round(total / n_total, 3) for name, total in seconds.items()},
        min_region_pixels=MIN_REGION_PIXELS,
        methods=made_by,
    )
    estimators = ESTIMATORS | TRUST_ESTIMATORS
    document["settings"]["estimators"] |= {k: v for k, v in estimators.items() if k in document["summary"]}
    document["others"] = {name: summarise(records[name]) for name in records if name != OURS}
    return document


def benchmark_table(document: dict[str, Any]) -> list[str]:
    """The table of a benchmark, one line a string: a row a method, a column a figure."""
    return _table(document, ESTIMATORS)


def trust_table(document: dict[str, Any]) -> list[str]:
    """The figures of trust of a benchmark, and where the others are."""
    return [*_table(document, TRUST_ESTIMATORS), FULL_STUDY]


def _table(document: dict[str, Any], names: Iterable[str]) -> list[str]:
    columns = [name for name in names if name in document["summary"]]
    rows = [("input", document["summary"], "input")]
    rows += [(name, summary, "tissue") for name, summary in document["others"].items() if name != "truth"]
    rows += [(OURS, document["summary"], "tissue")]
    if "truth" in document["others"]:
        rows += [("truth", document["others"]["truth"], "tissue")]

    def cell(summary: dict[str, Any], column: str, part: str) -> str:
        value = summary.get(column, {}).get(part)
        return "-" if value is None else f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"

    width = {name: max(8, len(name) + 2) for name in columns}
    lines = ["".join([f"{'':<16}", *(f"{name:>{width[name]}}" for name in columns)])]
    for label, summary, part in rows:
        lines.append("".join([f"{label:<16}", *(f"{cell(summary, name, part):>{width[name]}}" for name in columns)]))
    return lines


def _cine(truth: Any, frames: np.ndarray, seed: int) -> Cine:
    """Simulated frames as a Cine."""
    source = Source(name=f"scene-{seed}", layout="usdehaze simulation")
    return Cine(np.ascontiguousarray(frames, dtype=np.float32), truth.geometry, truth.dynamic_range_db, None, source)


def _record(seed: int, t: int, truth: Any, tissue: np.ndarray, haze: np.ndarray, bins: int | None) -> dict[str, Any]:
    """Figures of one frame of one scene against its truth; ``tissue`` and ``haze`` are ``(H, W)`` estimates in dB."""
    hazy, dynamic_range_db = truth.hazy[t], truth.dynamic_range_db
    record: dict[str, Any] = {"cine": f"scene-{seed}", "frame": t}
    wall, cavity = truth.labels[t] == WALL, truth.labels[t] == CAVITY
    enough = min(wall.sum(), cavity.sum()) >= MIN_REGION_PIXELS
    regions = (wall, cavity) if enough else (None, None)
    record |= truth_metrics(hazy, tissue, truth.tissue[t], dynamic_range_db, *regions)
    record["haze_psnr_db"] = figure(
        metrics.psnr_db(hazy, truth.haze[t], dynamic_range_db), metrics.psnr_db(haze, truth.haze[t], dynamic_range_db)
    )
    for name, leak in (("leak_correlation", leak_correlation), ("leak_bits", leak_bits)):
        record[name] = figure(*(leak(image, truth.tissue[t], truth.haze[t]) for image in (hazy, haze)))
    record["max_rise_db"] = figure(None, float((tissue - hazy).max()))
    if enough:
        record |= frame_metrics(hazy, tissue, wall, cavity, bins)
    return record


def _flicker(truth: Any, tissue: np.ndarray) -> dict[str, Any]:
    """Flicker of what was removed from a scene, for the record of its first frame; nothing for a single frame."""
    if len(tissue) < 2:
        return {}
    ratio = flicker_ratio(truth.hazy - tissue, truth.hazy, np.ones(truth.hazy.shape[1:], bool))
    return {"removed_flicker": figure(None, ratio)}
