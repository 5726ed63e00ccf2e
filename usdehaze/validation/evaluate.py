"""From a result and its regions to the Metrics JSON of the contract.

One *record* a frame holds every figure of that frame with its estimator; the *summary* averages the records:

    {"summary": {metric: {"input": v, "tissue": v, "delta": v, "ci95": [lo, hi]}}, "frames": [...], "settings": {...}}

Figures that compare output with input (Kolmogorov-Smirnov, mean shifts) have no value for the input: there ``input``
and ``delta`` are null and ``ci95`` belongs to ``tissue``. Elsewhere ``ci95`` belongs to ``delta``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.validation import metrics
from usdehaze.validation.regions import Regions

CI95 = (
    "95 % percentile interval of the mean over frames, 2000 bootstrap resamples of whole clusters, of delta (of tissue "
    "where input is null); null with fewer than two clusters"
)
ESTIMATORS = {
    "gcnr": "1 - overlap of the histograms of the two regions",
    "cnr": "|mean_tissue - mean_haze| / sqrt(var_tissue + var_haze) of dB values, population variances",
    "contrast_db": "mean power of the tissue region over mean power of the haze region, dB",
    "ks_tissue": "two-sample Kolmogorov-Smirnov statistic, input against output in the tissue region, dB values",
    "ks_haze": "two-sample Kolmogorov-Smirnov statistic, input against output in the haze region, dB values",
    "tissue_shift_db": "mean of the output minus mean of the input in the tissue region, dB values",
    "haze_shift_db": "mean of the output minus mean of the input in the haze region, dB values",
    "psnr_db": "10 log10(dynamic_range^2 / mean squared error of dB values), whole frame against the true tissue",
    "ssim": "11 x 11 Gaussian window of sigma 1.5 on [0, 1] images, whole frame against the true tissue",
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
        ``n_pixels`` of both regions and one entry a metric, ``{"input", "tissue", "delta"}``; gcnr with its ``bins``.
    """
    before = input_db[in_tissue], input_db[in_haze]
    after = tissue_db[in_tissue], tissue_db[in_haze]
    n_tissue, n_haze = before[0].size, before[1].size
    return {
        "n_pixels": {"tissue": n_tissue, "haze": n_haze},
        "gcnr": {
            **figure(metrics.gcnr(*before, bins=bins), metrics.gcnr(*after, bins=bins)),
            "bins": bins or metrics.equiprobable_bins(n_tissue + n_haze),
        },
        "cnr": figure(metrics.cnr(*before), metrics.cnr(*after)),
        "contrast_db": figure(metrics.contrast_db(*before), metrics.contrast_db(*after)),
        "ks_tissue": figure(None, metrics.ks(before[0], after[0])),
        "ks_haze": figure(None, metrics.ks(before[1], after[1])),
        "tissue_shift_db": figure(None, metrics.mean_shift_db(before[0], after[0])),
        "haze_shift_db": figure(None, metrics.mean_shift_db(before[1], after[1])),
    }


def truth_metrics(
    input_db: np.ndarray, tissue_db: np.ndarray, truth_db: np.ndarray, dynamic_range_db: float
) -> dict[str, Any]:
    """PSNR and SSIM of one frame ``(H, W)`` in dB against the true tissue."""
    return {
        name: figure(measure(input_db, truth_db, dynamic_range_db), measure(tissue_db, truth_db, dynamic_range_db))
        for name, measure in (("psnr_db", metrics.psnr_db), ("ssim", metrics.ssim))
    }


def figure(before: float | None, after: float) -> dict[str, float | None]:
    """One metric of one frame: value of the input, of the tissue estimate, and their difference."""
    return {"input": before, "tissue": after, "delta": None if before is None else after - before}


def evaluate_cine(
    name: str,
    input_db: np.ndarray,
    tissue_db: np.ndarray,
    regions: Regions,
    bins: int | None = None,
    first_frame: int = 0,
) -> list[dict[str, Any]]:
    """Records of every frame of a cine ``(T, H, W)`` that has both a tissue and a haze region.

    Args:
        name: of the cine; frames with one name are one cluster.
        input_db, tissue_db: ``(T, H, W)`` in dB.
        regions: laid on frames of that shape.
        bins: of gCNR; None for equiprobable ones.
        first_frame: index in the source of the first frame; records count as the source does.
    """
    return [
        {"cine": name, "frame": first_frame + t}
        | frame_metrics(input_db[t], tissue_db[t], regions.mask("tissue", t), regions.mask("haze", t), bins)
        for t in regions.frames()
    ]


def summarise(records: Sequence[dict[str, Any]], seed: int = 0) -> dict[str, Any]:
    """Means over the records that have a metric, with intervals.

    A cluster of the bootstrap is a cine; where there is one cine only, a frame. The frames of one cine are not
    independent, so the interval of a single cine speaks of its frames, never of other patients.
    """
    names = list(dict.fromkeys(key for record in records for key, value in record.items() if _is_figure(value)))
    cines = [record["cine"] for record in records]
    clusters = cines if len(set(cines)) > 1 else [str(i) for i in range(len(records))]
    summary: dict[str, Any] = {}
    for name in names:
        have = [i for i, record in enumerate(records) if _is_figure(record.get(name))]
        mean = {part: _mean(records[i][name][part] for i in have) for part in ("input", "tissue", "delta")}
        varied = "tissue" if mean["delta"] is None else "delta"
        values = [_float(records[i][name][varied]) for i in have]
        interval = metrics.bootstrap_ci95(values, [clusters[i] for i in have], seed=seed)
        summary[name] = {**mean, "ci95": None if interval is None else list(interval)}
    return summary


def metrics_document(records: Sequence[dict[str, Any]], bins: int | None, seed: int = 0, **settings: Any) -> dict:
    """The whole Metrics JSON, as a dict, from the records of all frames."""
    summary = summarise(records, seed)
    n_cines = len({record["cine"] for record in records})
    estimators = {name: ESTIMATORS[name] for name in summary if name in ESTIMATORS}
    if "gcnr" in estimators:
        estimators["gcnr"] += f"; {describe_bins(bins)}"
    counts = {
        role: [min(sizes), max(sizes)]
        for role in ("tissue", "haze")
        if (sizes := [record["n_pixels"][role] for record in records if "n_pixels" in record])
    }
    return {
        "summary": summary,
        "frames": list(records),
        "settings": {
            "estimators": estimators,
            "gcnr_bins": "equiprobable" if bins is None else bins,
            "n_frames": len(records),
            "n_cines": n_cines,
            "n_pixels_range": counts,
            "domain": "dB on the native grid, 0 dB = full scale",
            "ci95": CI95,
            "ci95_cluster": "cine" if n_cines > 1 else "frame",
            "seed": seed,
            **settings,
        },
    }


def describe_bins(bins: int | None) -> str:
    """The gCNR estimator in words."""
    return "ceil(2 N^0.4) equiprobable bins on pooled ranks" if bins is None else f"{bins} equal bins, joint range"


def write_json(path: Path, document: Any) -> None:
    """Write JSON, whole or not at all; what is not finite becomes null (JSON has no NaN).

    Raises:
        InputError: the file cannot be written.
    """
    from usdehaze.io.atomic import atomic

    with atomic(path, overwrite=True) as part:
        part.write_text(json.dumps(_finite(document), indent=1, allow_nan=False, default=str) + "\n", encoding="utf-8")


def _is_figure(value: Any) -> bool:
    return isinstance(value, dict) and "tissue" in value and "delta" in value


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _mean(values: Iterable[float | None]) -> float | None:
    """Mean of what is finite; None when nothing is."""
    finite = [v for v in map(_float, values) if math.isfinite(v)]
    return float(np.mean(finite)) if finite else None


def _finite(value: Any) -> Any:
    """The same document with plain Python numbers and null for what JSON cannot hold."""
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
