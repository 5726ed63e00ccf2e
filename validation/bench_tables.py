"""The tables of ``validation/bench.py``, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from usdehaze.validation.benchmark import OURS
from usdehaze.validation.hazes import EXTENTS, LEVELS_DB

SIMULATED = ("psnr_db", "ssim", "haze_psnr_db", "gcnr", "ks_tissue", "ks_haze", "leak_correlation", "clean_change_db")
CLIPS = ("gcnr", "cnr", "ks_tissue", "ks_haze", "tissue_shift_db", "haze_shift_db", "print_db")
ALL = "all"
HARM = ("clean_change_db", "clean_shift_db", "clean_rise_db")


def by_cell(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Mean PSNR of input and output, and number of scenes: ``ROW/EXTENT``, rows are haze levels and sets of scans."""
    cells: dict[str, dict[str, Any]] = {}
    for row in (ALL, *LEVELS_DB, *dict.fromkeys(record["set"] for record in records)):
        for extent in (ALL, *EXTENTS):
            chosen = [
                record["psnr_db"]
                for record in records
                if row in (ALL, record["level"], record["set"]) and extent in (ALL, record["extent"])
            ]
            if chosen:
                means = {
                    part: float(np.mean([figure[part] for figure in chosen])) for part in ("input", "tissue", "delta")
                }
                cells[f"{row}/{extent}"] = means | {"scenes": len(chosen)}
    return cells


def tables(document: dict[str, Any]) -> list[str]:
    """All of it, one string a line."""
    settings = document["settings"]
    priors = [
        settings[name].split(":")[0] + ":" + settings[name].split(":")[-1][:8]
        for name in ("tissue_prior", "haze_prior")
    ]
    made = f"preset {settings['preset']}, {settings['steps']} steps, samples {settings['samples']}"
    lines = [f"{' and '.join(priors)}; {made}; {settings['patients']} scans"]
    if "a" in document:
        lines += ["", *_before_after("a. simulated hearts", document["a"], SIMULATED)]
    if "b" in document:
        lines += ["", *_hazed(document["b"])]
    if "c" in document:
        wanted = {"gcnr": "+0.07", "ks_tissue": "<= 0.06", "ks_haze": ">= 0.55", "print_db": "0"}
        lines += ["", *_before_after("c. real hazy clips", document["c"], CLIPS, wanted)]
    if "d" in document:
        lines += ["", *_before_after("d. clean real frames", document["d"], HARM, {"clean_change_db": "<= 0.5"})]
    if "e" in document:
        lines += ["", *_losses(document["e"])]
    return lines


def _before_after(
    title: str, part: dict[str, Any], names: Sequence[str], wanted: dict[str, str] | None = None
) -> list[str]:
    records, summary = part["records"], part["summary"]
    names = [name for name in names if name in summary]
    lines = _head(f"{title} ({len(records)})", names)
    for label, key in (("input", "input"), ("output", "tissue")):
        lines.append(_row(label, [_number(summary[name][key]) for name in names]))
    lines.append(_row("95 % of change, else of output", [_interval(summary[name]["ci95"]) for name in names]))
    worst = [max((r[name]["tissue"] for r in records if name in r), key=abs) for name in names]
    lines.append(_row("largest output", [_number(value) for value in worst]))
    return [*lines, _row("wanted", [wanted.get(name, "") for name in names])] if wanted else lines


def _hazed(part: dict[str, Any]) -> list[str]:
    names = ("psnr_db", "gain", "95 % of gain", "ssim", "lpips", "gcnr", "rmse_tissue_db", "rmse_haze_db", "CPU s")
    ours = part["methods"][OURS]
    n_scenes = len({record["scene"] for record in part["records"]})

    def row(label: str, summary: dict[str, Any], key: str, seconds: str) -> str:
        cells = [_number(summary.get(name, {}).get(key)) for name in ("psnr_db", "ssim", "lpips", "gcnr")]
        errors = [_number(summary.get(f"rmse_{role}_db", {}).get(key)) for role in ("tissue", "haze")]
        gain = [_number(summary["psnr_db"]["delta"]), _interval(summary["psnr_db"]["ci95"])]
        return _row(label, [cells[0], *(gain if key == "tissue" else ["", ""]), *cells[1:], *errors, seconds])

    lines = _head(f"b. real tissue under simulated haze ({n_scenes})", names)
    lines.append(row("input", ours, "input", ""))
    for name, summary in part["methods"].items():
        seconds = np.mean([record["cpu_s"] for record in part["records"] if record["method"] == name])
        lines.append(row(name, summary, "tissue", f"{seconds:.1f}"))
    true = [record["gcnr"]["true"] for record in part["records"] if record["method"] == OURS and "gcnr" in record]
    if true:
        lines.append(_row("truth", ["", "", "", "", "", _number(float(np.mean(true))), "", "", ""]))
    lines.append("")
    cells, columns = part["cells"][OURS], [ALL, *EXTENTS]
    lines += _head("PSNR gain, dB (of the input's PSNR)", columns)
    for label in dict.fromkeys(key.split("/")[0] for key in cells):
        found = [cells.get(f"{label}/{extent}") for extent in columns]
        lines.append(_row(label, [f"{c['delta']:+.2f} ({c['input']:.1f})" if c else "" for c in found]))
    return lines


def _losses(part: dict[str, Any]) -> list[str]:
    lines = _head("e. denoising loss over sigma^2", [f"sigma {sigma:g}" for sigma in part["sigmas"]])
    rows = {f"tissue, {name} ({part['frames'][name]})": losses for name, losses in part["tissue"].items()}
    rows |= {"haze, the bench's": part["haze"]} if "haze" in part else {}
    return [*lines, *(_row(name, [f"{value:.4f}" for value in losses]) for name, losses in rows.items())]


def _head(title: str, names: Sequence[str]) -> list[str]:
    return [_row(title, names), "|" + "---|" * (len(names) + 1)]


def _row(label: str, cells: Sequence[str]) -> str:
    return f"| {label} | {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"


def _interval(ci95: Sequence[float] | None) -> str:
    return "" if ci95 is None else f"{ci95[0]:.2f} to {ci95[1]:.2f}"
