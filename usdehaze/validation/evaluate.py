"""From a result and its regions to the Metrics JSON of the contract.

One *record* a frame holds every figure of that frame with its estimator; the *summary* averages the records:

    {"summary": {metric: {"input": v, "tissue": v, "delta": v, "ci95": [lo, hi]}}, "frames": [...], "settings": {...}}

The means are over ``n_frames`` records: those that have the figure, finite before and after. Figures that compare
output with input (Kolmogorov-Smirnov, mean shifts) have no value for the input: there ``input`` and ``delta`` are null
and ``ci95`` belongs to ``tissue``. Elsewhere ``ci95`` belongs to ``delta``, and ``paired`` holds the comparison over
cines. gCNR has its ``bias`` beside it, and in each record intervals of its own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import usdehaze
from usdehaze.validation import metrics
from usdehaze.validation.regions import AUTOMATIC, AUTOMATIC_METHOD, FAINT, ROLES, Regions
from usdehaze.validation.tally import Tally
from usdehaze.validation.uncertainty import SEED, gcnr_figures
from usdehaze.validation.whole_image import faint_figures, image_figures

FEW_PIXELS = 1000  # gCNR of smaller regions is said to be unsure
FEW_BLOCKS = 20
FEW_CLUSTERS = 10  # of normal values, percentile intervals of so many hold the mean in 92 %
CI95 = (
    "95 % percentile interval of the mean over frames, 2000 bootstrap resamples of whole clusters, of delta (of tissue "
    "where input is null); of a single frame for gcnr and gcnr_corrected a block bootstrap of its pixels, else null"
)
PAIRED = (
    "differences averaged over the frames of a cine first: mean over cines, 95 % bootstrap interval of whole cines, "
    "two-sided Wilcoxon signed-rank test, p not adjusted for the number of figures"
)
ESTIMATORS = {
    "gcnr": "1 - overlap of the histograms of the two regions",
    "gcnr_corrected": "square root, with its sign, of (gcnr^2 - bias^2) / (1 - bias^2), below 0: no more than chance; "
    "bias = mean gcnr of 200 random deals of the pixels to the regions, times the square root of the design effect of "
    "correlated speckle",
    "ks_tissue": "two-sample Kolmogorov-Smirnov statistic, input against output in the tissue region, dB values",
    "tissue_shift_db": "mean of the output minus mean of the input in the tissue region, dB values",
    "ks_haze": "two-sample Kolmogorov-Smirnov statistic, input against output in the haze region, dB values",
    "haze_shift_db": "mean of the output minus mean of the input in the haze region, dB values",
    "mean_tissue_db": "mean of the tissue region, dB values",
    "mean_haze_db": "mean of the haze region, dB values",
    "cnr": "|mean_tissue - mean_haze| / sqrt(var_tissue + var_haze) of dB values, population variances; ratio, not dB",
    "cnr_linear": "as cnr, of linear amplitudes 10^(dB/20)",
    "contrast_db": "mean power of the tissue region over mean power of the haze region, dB",
    "speckle_snr_tissue": "mean over standard deviation of linear amplitudes in the tissue region",
    "speckle_snr_haze": "mean over standard deviation of linear amplitudes in the haze region",
    "psnr_db": "10 log10(dynamic_range^2 / mean squared error of dB values), whole frame against the true tissue",
    "ssim": "11 x 11 Gaussian window of sigma 1.5 on [0, 1] images, whole frame against the true tissue",
    "rmse_tissue_db": "root mean squared error of dB values against the true tissue, in the tissue region",
    "rmse_haze_db": "root mean squared error of dB values against the true tissue, in the haze region",
    "ks_faint": "two-sample Kolmogorov-Smirnov statistic, input against output in the faint region, dB values",
    "faint_shift_db": "mean of the output minus mean of the input in the faint region, dB values",
    "faint_gone_share": "share of the faint region's pixels at least 6 dB above the floor that come out at most 3 dB "
    "above it",
    "faint_contrast_db": "mean power of the faint region over mean power of the haze region, dB",
    "removed_dark_db": "mean input minus output, pixels of the image in the lowest third of the dynamic range, above "
    "the floor",
    "removed_middle_db": "mean input minus output, pixels of the image in its middle third",
    "removed_bright_db": "mean input minus output, pixels of the image in its highest third",
    "dim_lost_share": "share of pixels of the image 6 to 15 dB above the floor that come out at most 3 dB above it",
    "removal_flicker": "mean change of what is removed from the frame before to this one, over the mean removed",
    "softness": "1 - fine detail of the output over that of the input: root mean square of the image less itself "
    "smoothed (sigma 1.5 pixels), where the input is above -40 dB",
    "edges_lost": "share of the edges where less than half of the slope is left along its own direction; edges: slopes "
    "of at least 3 dB over 1/64 of the height in the input smoothed by as much",
    "edge_coherence": "sum f.g / sqrt(sum f.f sum g.g) of the slopes g of input and f of output at the edges",
}


def frame_metrics(
    input_db: np.ndarray, tissue_db: np.ndarray, in_tissue: np.ndarray, in_haze: np.ndarray, bins: int | None = None
) -> dict[str, Any]:
    """Region figures of one frame.

    Args:
        input_db, tissue_db: ``(H, W)`` in dB, before and after.
        in_tissue, in_haze: bool ``(H, W)``, at least one pixel each.
        bins: of gCNR; None for equiprobable ones.

    Returns:
        ``n_pixels`` of both regions and one entry a metric, ``{"input", "tissue", "delta"}``; gcnr with its ``bins``,
        bias and intervals (:func:`usdehaze.validation.uncertainty.gcnr_figures`). The two figures that keep gCNR
        honest, KS and mean shift of the tissue, follow it.
    """
    raw, corrected = gcnr_figures(input_db, tissue_db, in_tissue, in_haze, bins)
    return {
        "n_pixels": {"tissue": int(in_tissue.sum()), "haze": int(in_haze.sum())},
        "gcnr": raw,
        "gcnr_corrected": corrected,
        **region_figures(input_db, tissue_db, in_tissue, in_haze),
    }


def region_record(
    input_db: np.ndarray, tissue_db: np.ndarray, masks: Mapping[str, np.ndarray], bins: int | None, floor_db: float
) -> dict[str, Any]:
    """All figures of the regions of one frame: of tissue and haze where both are there, of faint walls where they are.

    Args:
        input_db, tissue_db: ``(H, W)`` in dB, before and after.
        masks: role to bool ``(H, W)``, with or without pixels, of every role.
        bins: of gCNR; None for equiprobable ones.
        floor_db: of the input.

    Returns:
        ``n_pixels`` of the regions and one entry a metric; nothing where there is nothing to measure.
    """
    in_tissue, in_haze, faint = (masks[role] for role in (*ROLES, FAINT))
    record: dict[str, Any] = {}
    if in_tissue.any() and in_haze.any():
        record = frame_metrics(input_db, tissue_db, in_tissue, in_haze, bins)
    if faint.any():
        found = faint_figures(input_db, tissue_db, faint, in_haze if in_haze.any() else None, floor_db)
        record["n_pixels"] = record.get("n_pixels", {}) | {FAINT: int(faint.sum())}
        record |= {key: figure(*values) for key, values in found.items()}
    return record


def region_figures(
    input_db: np.ndarray, tissue_db: np.ndarray, in_tissue: np.ndarray, in_haze: np.ndarray
) -> dict[str, Any]:
    """The figures of `frame_metrics` but for gCNR, which takes long with its bias and intervals."""
    before = input_db[in_tissue], input_db[in_haze]
    after = tissue_db[in_tissue], tissue_db[in_haze]
    figures: dict[str, Any] = {}
    for role, was, now in zip(ROLES, before, after, strict=True):
        figures[f"ks_{role}"] = figure(None, metrics.ks(was, now))
        figures[f"{role}_shift_db"] = figure(None, metrics.mean_shift_db(was, now))
    for role, was, now in zip(ROLES, before, after, strict=True):
        figures[f"mean_{role}_db"] = figure(metrics.mean_db(was), metrics.mean_db(now))
    figures["cnr"] = figure(metrics.cnr(*before), metrics.cnr(*after))
    linear_before, linear_after = map(metrics.amplitude, before), map(metrics.amplitude, after)
    figures["cnr_linear"] = figure(metrics.cnr(*linear_before), metrics.cnr(*linear_after))
    figures["contrast_db"] = figure(metrics.contrast_db(*before), metrics.contrast_db(*after))
    for role, was, now in zip(ROLES, before, after, strict=True):
        figures[f"speckle_snr_{role}"] = figure(metrics.speckle_snr(was), metrics.speckle_snr(now))
    return figures


def truth_metrics(
    input_db: np.ndarray,
    tissue_db: np.ndarray,
    truth_db: np.ndarray,
    dynamic_range_db: float,
    in_tissue: np.ndarray | None = None,
    in_haze: np.ndarray | None = None,
) -> dict[str, Any]:
    """Errors of one frame against the true tissue.

    Args:
        input_db, tissue_db, truth_db: ``(H, W)`` in dB.
        dynamic_range_db: dB between floor and full scale.
        in_tissue, in_haze: bool ``(H, W)``, at least one pixel; None leaves out the error of that region.

    Returns:
        ``psnr_db`` and ``ssim`` of the whole frame, ``rmse_tissue_db`` and ``rmse_haze_db`` of the regions.
    """
    figures = {
        name: figure(measure(input_db, truth_db, dynamic_range_db), measure(tissue_db, truth_db, dynamic_range_db))
        for name, measure in (("psnr_db", metrics.psnr_db), ("ssim", metrics.ssim))
    }
    for role, inside in zip(ROLES, (in_tissue, in_haze), strict=True):
        if inside is not None:
            errors = (metrics.rmse_db(image[inside], truth_db[inside]) for image in (input_db, tissue_db))
            figures[f"rmse_{role}_db"] = figure(*errors)
    return figures


def figure(before: float | None, after: float) -> dict[str, float | None]:
    """One metric of one frame: value of the input, of the tissue estimate, and their difference."""
    return {"input": before, "tissue": after, "delta": None if before is None else after - before}


def evaluate_cine(
    name: str,
    input_db: np.ndarray,
    tissue_db: np.ndarray,
    regions: Regions | None,
    bins: int | None = None,
    first_frame: int = 0,
    truth_db: np.ndarray | None = None,
    dynamic_range_db: float = 60.0,
    inside: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """Records of the frames of a cine that have regions to measure; of every frame where truth is known, or no regions.

    Those are frames with both a tissue and a haze region, or with a faint one. A record of automatic regions says so:
    ``"regions": "automatic"``.

    Args:
        name: of the cine; frames with one name are one cluster.
        input_db, tissue_db: ``(T, H, W)`` in dB.
        regions: laid on frames of that shape, or None.
        bins: of gCNR; None for equiprobable ones.
        first_frame: index in the source of the first frame; records count as the source does.
        truth_db: the true tissue, ``(T, H, W)`` in dB, or None.
        dynamic_range_db: dB between floor and full scale.
        inside: bool ``(H, W)``, the image, for figures of it as a whole (`image_figures`); None leaves them out.
    """
    everywhere = truth_db is not None or regions is None
    records = []
    for t in range(len(input_db)):
        record: dict[str, Any] = {"cine": name, "frame": first_frame + t}
        in_tissue = in_haze = None
        if regions is not None:
            masks = {role: regions.mask(role, t) for role in (*ROLES, FAINT)}
            found = region_record(input_db[t], tissue_db[t], masks, bins, -dynamic_range_db)
            if not (found or everywhere):
                continue
            record |= ({"regions": AUTOMATIC} if found and regions.origin == AUTOMATIC else {}) | found
            if "gcnr" in found:
                in_tissue, in_haze = (masks[role] for role in ROLES)
        if inside is not None:
            previous = (input_db[t - 1], tissue_db[t - 1]) if t else None
            whole = image_figures(input_db[t], tissue_db[t], inside, dynamic_range_db, previous)
            record |= {key: figure(None, value) for key, value in whole.items()}
        if truth_db is not None:
            record |= truth_metrics(input_db[t], tissue_db[t], truth_db[t], dynamic_range_db, in_tissue, in_haze)
        records.append(record)
    return records


def summarise(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over the records that have a metric, with intervals.

    A cluster of the bootstrap is a cine; where there is one cine only, a frame. The frames of one cine are not
    independent, so the interval of a single cine speaks of its frames, never of other patients.
    """
    return Tally.of(records).summary()


def metrics_document(records: Sequence[dict[str, Any]], bins: int | None, **settings: Any) -> dict[str, Any]:
    """The whole Metrics JSON, as a dict, from the records of all frames."""
    return {**tallied_document(Tally.of(records), bins, **settings), "frames": list(records)}


def tallied_document(tally: Tally, bins: int | None, **settings: Any) -> dict[str, Any]:
    """The Metrics JSON, as a dict, without its records: ``frames`` is empty."""
    summary = tally.summary()
    n_records, n_cines = len(tally.cines), len(set(tally.cines))
    cluster = "cine" if n_cines > 1 else "frame" if n_records > 1 else "block of pixels"
    estimators = {name: ESTIMATORS[name] for name in summary if name in ESTIMATORS}
    if "gcnr" in estimators:
        estimators["gcnr"] += f"; {describe_bins(bins)}"
    return {
        "summary": summary,
        "frames": [],
        "settings": {
            "usdehaze": usdehaze.__version__,
            "estimators": estimators,
            "gcnr_bins": "equiprobable" if bins is None else bins,
            "n_frames": n_records,
            "n_cines": n_cines,
            "n_pixels_range": {role: tally.n_pixels[role] for role in (*ROLES, FAINT) if role in tally.n_pixels},
            "domain": "dB on the native grid, 0 dB = full scale",
            "ci95": CI95,
            "ci95_cluster": cluster,
            "paired": PAIRED,
            "warnings": _warnings(tally, cluster),
            "seed": SEED,
            **settings,
        },
    }


def describe_bins(bins: int | None) -> str:
    """The gCNR estimator in words."""
    return "ceil(2 N^0.4) equiprobable bins on pooled ranks" if bins is None else f"{bins} equal bins, joint range"


def _warnings(tally: Tally, cluster: str) -> list[str]:
    """What makes the figures less sure than they look, one sentence each."""
    found = []
    if tally.fewest_pixels < FEW_PIXELS:
        found.append(
            f"a region holds only {tally.fewest_pixels} pixels; under {FEW_PIXELS} gcnr reads too high, see its bias"
        )
    if tally.fewest_blocks < FEW_BLOCKS:
        found.append(
            f"a region holds only {tally.fewest_blocks} blocks of independent speckle; under {FEW_BLOCKS} the "
            "intervals of single frames are too narrow"
        )
    if tally.automatic:
        found.append(f"automatic regions: {AUTOMATIC_METHOD}")
    if (few := tally.fewest_clusters()) < FEW_CLUSTERS:
        found.append(
            f"ci95 of means over {few} {cluster}s is too narrow: over 2 it holds the truth in 51 % of cases, "
            "over 3 in 72, over 6 in 85"
        )
    alike: dict[str, list[str]] = {}  # but for numbers
    for cine, doubt in sorted(tally.doubts):
        alike.setdefault(re.sub(r"\d+", "", doubt), []).append(f"{cine}: {doubt}")
    told = [f"{len(same)} cines, such as {same[0]}" if len(same) > 1 else same[0] for same in alike.values()]
    return found + told


def write_json(path: Path, document: Any, sources: Iterable[Path] = (), indent: int | None = 1) -> None:
    """Write JSON, whole or not at all; what is not finite becomes null (JSON has no NaN).

    Whoever may not read the ``sources`` may not read it; ``indent`` None puts everything on one line.

    Raises:
        InputError: the file cannot be written.
    """
    from usdehaze.io.atomic import atomic

    with atomic(path, True, sources) as part:
        text = json.dumps(json_ready(document), indent=indent, allow_nan=False, default=str)
        part.write_text(text + "\n", encoding="utf-8")


def json_ready(value: Any) -> Any:
    """The same document with plain Python numbers, and None for those that JSON cannot hold."""
    if isinstance(value, dict):
        return {str(k): json_ready(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return json_ready(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
