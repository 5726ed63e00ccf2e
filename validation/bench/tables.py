"""The tables of ``validation.bench``, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from usdehaze.validation.benchmark import OURS
from validation.hazes import EXTENTS, LEVELS_DB
from validation.markdown import head, row

SIMULATED = ("psnr_db", "ssim", "haze_psnr_db", "gcnr", "ks_tissue", "ks_haze", "leak_correlation", "clean_change_db")
CLIPS = ("gcnr", "cnr", "ks_tissue", "ks_haze", "tissue_shift_db", "haze_shift_db", "print_db")
ALL = "all"
HARM = ("clean_change_db", "clean_shift_db", "clean_rise_db")
SECOND = ("psnr_db", "wall_error_db", "rmse_haze_db")
AS_IT_IS = ("tissue_shift_db", "haze_shift_db", "gcnr", "lost_walls", "lost_elsewhere")
CINES = ("flicker", "step_db", "step_seen_db", "step_polar_db", "lost")
COVERAGE = ("coverage", "coverage_all")
SETTINGS = ("preset", "guidance", "steps", "samples", "caution")
PRIORS = ("tissue_prior", "haze_prior", "posterior_prior")


def by_cell(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Mean PSNR of input and output, and number of scenes: ``ROW/EXTENT``, rows are haze levels and sets of scans."""
    cells: dict[str, dict[str, Any]] = {}
    for group in (ALL, *LEVELS_DB, *dict.fromkeys(record["set"] for record in records)):
        for extent in (ALL, *EXTENTS):
            chosen = [
                record["psnr_db"]
                for record in records
                if group in (ALL, record["level"], record["set"]) and extent in (ALL, record["extent"])
            ]
            if chosen:
                means = {
                    part: float(np.mean([figure[part] for figure in chosen])) for part in ("input", "tissue", "delta")
                }
                cells[f"{group}/{extent}"] = means | {"scenes": len(chosen)}
    return cells


def lowest_cell(
    cells: dict[str, dict[str, Any]], levels: Sequence[str] = (), extents: Sequence[str] = ()
) -> str | None:
    """The cell ``LEVEL/EXTENT`` with the lowest mean gain, of those in one of the levels or extents given, else of all.

    Args:
        cells: as of `by_cell`.
        levels, extents: names; none of either takes every cell.

    Returns:
        None where there is no such cell.
    """
    every = [(level, extent) for level in LEVELS_DB for extent in EXTENTS if f"{level}/{extent}" in cells]
    chosen = [f"{a}/{b}" for a, b in every if a in levels or b in extents or not (levels or extents)]
    return min(chosen, key=lambda name: cells[name]["delta"], default=None)


def tables(document: dict[str, Any]) -> list[str]:
    """All of it, one string a line."""
    settings = document["settings"]
    named = [settings[kind] for kind in PRIORS if kind in settings]
    priors = [name.split(":")[0] + ":" + name.split(":")[-1][:8] for name in named]
    made = ", ".join(f"{name} {settings[name]}" for name in SETTINGS if name in settings)
    lines = [f"{' and '.join(priors)}; {made}; {settings['patients']} scans"]
    if "a" in document:
        lines += ["", *_before_after("a. simulated hearts", document["a"], (*SIMULATED, *COVERAGE))]
    if "b" in document:
        lines += ["", *_hazed(document["b"])]
    if "c" in document:
        wanted = {"gcnr": "+0.07", "ks_tissue": "<= 0.06", "ks_haze": ">= 0.55", "print_db": "0"}
        lines += ["", *_before_after("c. real hazy clips", document["c"], CLIPS, wanted)]
    if "d" in document:
        lines += ["", *_before_after("d. clean real frames", document["d"], HARM, {"clean_change_db": "<= 0.5"})]
    if "e" in document:
        lines += ["", *_losses(document["e"])]
    for half, summary in document.get("g", {}).get("summary", {}).items():
        records = [record for record in document["g"]["records"] if record["half"] == half]
        part = {"summary": summary, "records": records}
        lines += ["", *_before_after(f"g. second simulator, {half}", part, (*SECOND, *COVERAGE))]
    if "h" in document:
        lines += ["", *_before_after("h. CAMUS as it is", document["h"], AS_IT_IS)]
    if "i" in document:
        lines += ["", *_before_after("i. hazy clips as they play", document["i"], CINES), *_traces(document["i"])]
    if "j" in document:
        lines += ["", *_before_after("j. clean clips", document["j"], ("visible_shift_db",))]
    return lines


def _before_after(
    title: str, part: dict[str, Any], names: Sequence[str], wanted: dict[str, str] | None = None
) -> list[str]:
    records, summary = part["records"], part["summary"]
    names = [name for name in names if name in summary]
    lines = head(f"{title} ({len(records)})", names)
    for label, key in (("input", "input"), ("output", "tissue")):
        lines.append(row(label, [number(summary[name][key]) for name in names]))
    lines.append(row("95 % of change, else of output", [_interval(summary[name]["ci95"]) for name in names]))
    worst = [max((r[name]["tissue"] for r in records if name in r), key=abs) for name in names]
    lines.append(row("largest output", [number(value) for value in worst]))
    return [*lines, row("wanted", [wanted.get(name, "") for name in names])] if wanted else lines


def _hazed(part: dict[str, Any]) -> list[str]:
    names = ("psnr_db", "gain", "95 % of gain", "ssim", "lpips", "gcnr", "rmse_tissue_db", "rmse_haze_db", "CPU s")
    ours = part["methods"][OURS]
    n_scenes = len({record["scene"] for record in part["records"]})

    def of_method(label: str, summary: dict[str, Any], key: str, seconds: str) -> str:
        cells = [number(summary.get(name, {}).get(key)) for name in ("psnr_db", "ssim", "lpips", "gcnr")]
        errors = [number(summary.get(f"rmse_{role}_db", {}).get(key)) for role in ("tissue", "haze")]
        gain = [number(summary["psnr_db"]["delta"]), _interval(summary["psnr_db"]["ci95"])]
        return row(label, [cells[0], *(gain if key == "tissue" else ["", ""]), *cells[1:], *errors, seconds])

    lines = head(f"b. real tissue under simulated haze ({n_scenes})", names)
    lines.append(of_method("input", ours, "input", ""))
    for name, summary in part["methods"].items():
        seconds = np.mean([record["cpu_s"] for record in part["records"] if record["method"] == name])
        lines.append(of_method(name, summary, "tissue", f"{seconds:.1f}"))
    true = [record["gcnr"]["true"] for record in part["records"] if record["method"] == OURS and "gcnr" in record]
    if true:
        lines.append(row("truth", ["", "", "", "", "", number(float(np.mean(true))), "", "", ""]))
    lines.append("")
    cells, columns = part["cells"][OURS], [ALL, *EXTENTS]
    lines += head("PSNR gain, dB (of the input's PSNR)", columns)
    for label in dict.fromkeys(key.split("/")[0] for key in cells):
        found = [cells.get(f"{label}/{extent}") for extent in columns]
        lines.append(row(label, [f"{c['delta']:+.2f} ({c['input']:.1f})" if c else "" for c in found]))
    lowest = lowest_cell(cells)
    lines += [f"Lowest cell: {lowest}, {cells[lowest]['delta']:+.2f} dB."] if lowest else []
    shares = [(name, ours[name]["tissue"]) for name in COVERAGE if name in ours]
    return [*lines, *(f"{name}: {share:.3f}" for name, share in shares)]


def _traces(part: dict[str, Any]) -> list[str]:
    traced = {record["cine"]: record["trace"] for record in part["records"] if "trace" in record}
    lines = []
    if traced:
        lines = ["", *head("ECG traces, dB lowered", ["pixels", "more than 1 dB", "largest", "mean"])]
        for name, trace in traced.items():
            numbers = [number(trace[key]) for key in ("largest_db", "mean_db")]
            lines.append(row(name, [f"{trace['pixels']}", f"{trace['lowered']}", *numbers]))
    wall = part["lateral_wall"]
    removed = (
        wall and f"Lateral wall of {wall['cine']}: {wall['min_db']:.2f} to {wall['max_db']:.2f} dB removed a frame."
    )
    return [*lines, "", removed] if removed else lines


def _losses(part: dict[str, Any]) -> list[str]:
    lines = head("e. denoising loss over sigma^2", [f"sigma {sigma:g}" for sigma in part["sigmas"]])
    rows = {f"tissue, {name} ({part['frames'][name]})": losses for name, losses in part["tissue"].items()}
    rows |= {"haze, the bench's": part["haze"]} if "haze" in part else {}
    return [*lines, *(row(name, [f"{value:.4f}" for value in losses]) for name, losses in rows.items())]


def number(value: float | None) -> str:
    """A value as it stands in a table; empty for None, counts as they are."""
    if value is None or isinstance(value, int):
        return "" if value is None else str(value)
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"


def _interval(ci95: Sequence[float] | None) -> str:
    return "" if ci95 is None else f"{ci95[0]:.2f} to {ci95[1]:.2f}"
