"""The truth-known benchmark: simulated hazy scenes, fixed seeds that no prior was trained on.

Every scene is dehazed twice: by the method as it ships, and by a rule that guides the tissue prior alone and takes all
else for Gaussian noise (what a denoiser without any idea of haze makes of it). Both are compared with the true tissue
and the true haze. Then the tissue is dehazed alone, without haze: it should come back as it went in ("do no harm").

The figures of trust that cost nothing more are taken on the way; the rest, and other methods, are
``python -m validation.trust``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from usdehaze.cine import Cine, Source
from usdehaze.simulate.tissue import CAVITY, WALL
from usdehaze.validation import metrics
from usdehaze.validation.evaluate import describe_bins, figure, metrics_document, summarise
from usdehaze.validation.scene import (
    Decomposed,
    Dehaze,
    Scene,
    clean_figures,
    hazy_figures,
    labelled_scene,
    removed_flicker,
)

FIRST_SEED = 1_000_000_000  # training draws its scenes by keys, and others
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
FULL_STUDY = (
    "calibration, seeds, classical methods and real frames: python -m validation.trust, validation/results/TRUST.md"
)


def installed_methods() -> dict[str, Dehaze]:
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
    methods: Mapping[str, Dehaze] | None = None,
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

    for done, seed in enumerate(range(FIRST_SEED, FIRST_SEED + n_scenes), 1):
        truth = simulate(n_frames=n_frames, seed=seed)
        scene = _scene(truth, seed)
        for name, dehaze in methods.items():
            started = time.perf_counter()
            result = dehaze(scene.hazy)
            seconds[name] += time.perf_counter() - started
            made_by[name] = getattr(result, "settings", {})
            clean = dehaze(scene.clean)
            of_scene = _records(scene, result, bins)
            for t, record in enumerate(of_scene):
                record |= clean_figures(truth.tissue[t], clean.tissue[t], truth.labels[t] == WALL)
            of_scene[0] |= _flicker(scene, result.tissue)
            records[name] += of_scene
        of_truth = _records(scene, scene.truth, bins)
        of_truth[0] |= _flicker(scene, scene.truth.tissue)
        records["truth"] += of_truth
        if progress is not None:
            progress(done, n_scenes)

    n_total = n_scenes * n_frames
    document = metrics_document(
        records[OURS],
        bins,
        benchmark="simulated scenes with known truth",
        seeds=[FIRST_SEED, FIRST_SEED + n_scenes - 1],
        frames_per_scene=n_frames,
        seconds_per_frame={name: round(total / n_total, 3) for name, total in seconds.items()},
        min_region_pixels=metrics.MIN_REGION_PIXELS,
        methods=made_by,
    )
    estimators = ESTIMATORS | TRUST_ESTIMATORS | {"gcnr": f"{ESTIMATORS['gcnr']}; {describe_bins(bins)}"}
    document["settings"]["estimators"] |= {k: v for k, v in estimators.items() if k in document["summary"]}
    document["others"] = {name: summarise(records[name]) for name in records if name != OURS}
    return document


def benchmark_table(document: dict[str, Any]) -> list[str]:
    """The table of a benchmark, one line a string: a row a figure, a column a method."""
    return _table(document, ESTIMATORS)


def trust_table(document: dict[str, Any]) -> list[str]:
    """The figures of trust of a benchmark, and where the others are."""
    return [*_table(document, TRUST_ESTIMATORS), FULL_STUDY]


def _table(document: dict[str, Any], names: Iterable[str]) -> list[str]:
    methods = [("input", document["summary"], "input")]
    methods += [(name, summary, "tissue") for name, summary in document["others"].items() if name != "truth"]
    methods += [(OURS, document["summary"], "tissue")]
    if "truth" in document["others"]:
        methods += [("truth", document["others"]["truth"], "tissue")]

    def cell(summary: dict[str, Any], name: str, part: str) -> str:
        value = summary.get(name, {}).get(part)
        return "-" if value is None else f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"

    lines = ["".join([f"{'':<18}", *(f"{label:>16}" for label, _, _ in methods)])]
    for name in names:
        if name in document["summary"]:
            lines.append(
                "".join([f"{name:<18}", *(f"{cell(summary, name, part):>16}" for _, summary, part in methods)])
            )
    return lines


def _scene(truth: Any, seed: int) -> Scene:
    """A simulated cine and its truth, with regions in those frames alone that have enough pixels of both."""
    source = Source(name=f"scene-{seed}", layout="usdehaze simulation")
    hazy, tissue = (np.ascontiguousarray(frames, dtype=np.float32) for frames in (truth.hazy, truth.tissue))
    cine = Cine(hazy, truth.geometry, truth.dynamic_range_db, None, source)
    counts = [(truth.labels == label).sum(axis=(1, 2)) for label in (WALL, CAVITY)]
    enough = np.minimum(*counts) >= metrics.MIN_REGION_PIXELS
    return labelled_scene(cine, tissue, truth.haze, truth.labels * enough[:, None, None])


def _records(scene: Scene, split: Decomposed, bins: int | None) -> list[dict[str, Any]]:
    return [hazy_figures(scene, split, t, bins) for t in range(len(scene.haze))]


def _flicker(scene: Scene, tissue: np.ndarray) -> dict[str, Any]:
    """Flicker of what was removed from a scene, for the record of its first frame; nothing for a single frame."""
    return {"removed_flicker": figure(None, removed_flicker(scene, tissue))} if len(tissue) > 1 else {}
