"""TRUST.md from the records of the trust study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.io.atomic import atomic
from usdehaze.validation.benchmark import OURS
from usdehaze.validation.evaluate import summarise
from usdehaze.validation.harm import HARM_SHIFT_DB, RISE_TOLERANCE_DB, harmless
from validation.markdown import head, row

COMMAND = "python -m validation.trust"
SETS = {
    "simulated": "Simulated hearts under heavy haze, echoes added as complex numbers; walls and cavities are the "
    "simulator's labels",
    "camus": "Clean labelled stills (`camus/`) under simulated haze added by power; walls are the myocardium, cavities "
    "the ventricle, 3 pixels inside their borders",
    "clean-cines": "Clean clips (`clean-cines/`) under simulated haze added by power; walls are pixels of the clean "
    "frame brighter than -30 dB, cavities are not known",
}
COLUMNS = {
    "psnr_db": "PSNR tissue, dB",
    "ssim": "SSIM",
    "wall_error_db": "walls, mean error, dB",
    "rmse_tissue_db": "walls, RMSE, dB",
    "rmse_haze_db": "cavities, RMSE, dB",
    "gcnr": "gCNR",
    "ks_tissue": "KS walls",
    "tissue_shift_db": "walls, shift, dB",
    "haze_psnr_db": "PSNR haze, dB",
    "leak_correlation": "leak, correlation",
    "leak_bits": "leak, bits",
    "max_rise_db": "largest rise, dB",
}
NOT_MEASURED = "not measured"
EXPLAINED = """\
Truth is known on every scene here. Frame 0 of each scene is what the first three tables speak of; PSNR is that of
pixels inside the image, SSIM of the whole frame. *Walls, mean error*: mean of output minus **true** tissue; *shift*:
minus input; gCNR never stands without them. *Leak, correlation*: part correlation of the haze estimate with the true
tissue given the true haze, 0 for the true haze itself; *leak, bits*: mutual information of the haze estimate with the
true tissue beyond that of the true haze. Input row: of the hazy frame itself, taken for haze, which is all leak. Chance
row: haze of another scene, which cannot know the tissue. Methods without a haze prior have for haze what they took off.
A row is the mean over the scenes it was measured on; rows with other scenes compare by their *gain*, PSNR of the output
less that of the input on the same scenes, at most. Definitions and what they hide:
[docs/validation.md](../../docs/validation.md).
"""


def write_tables(path: Path, document: dict[str, Any]) -> None:
    """Writes TRUST.md, whole or not at all."""
    sizes, methods = document["settings"]["sizes"], document["settings"]["methods"]
    lines = ["# Can the result be trusted?", "", f"    {COMMAND}", "", EXPLAINED]
    for scenes, title in SETS.items():
        lines += [f"## Who is better: {scenes}", "", f"{title}. {sizes[scenes]} scenes.", ""]
        lines += [*comparison(document, scenes), ""]
    lines += ["## Do no harm: clean frames in", "", *harm(document), ""]
    lines += ["## Calibration", "", *calibration(document), ""]
    lines += ["## Stability", "", *flicker(document), "", *seeds(document), ""]
    lines += ["## Methods", "", *head("method", ["what it is", "CPU s a frame"])]
    lines += [row(name, [what, _seconds(document, name)]) for name, what in methods.items()]
    lines += ["", f"Networks: {', '.join(document['settings']['priors'])}.", ""]
    with atomic(path, overwrite=True) as part:
        part.write_text("\n".join(lines), encoding="utf-8")


def comparison(document: dict[str, Any], scenes: str) -> list[str]:
    """A row a method, mean over the scenes it was measured on."""
    records = {name: _records(document, "hazy", scenes, name) for name in document["settings"]["methods"]}
    n_scenes = document["settings"]["sizes"][scenes]
    measured = {name: found for name, found in records.items() if found}
    if not measured:
        return [f"{NOT_MEASURED}: `{COMMAND} --only hazy`"]
    summaries = {name: summarise([r["figures"] for r in found]) for name, found in measured.items()}
    most = max(measured, key=lambda name: len(measured[name]))
    any_of = summaries[most]
    columns = [name for name in COLUMNS if name in any_of]
    chance = [r["chance"] for r in measured[most]]
    lines = head("", ["scenes", "PSNR gain, dB", *(COLUMNS[name] for name in columns)])
    n_most = f"{len(measured[most])} of {n_scenes}"
    lines.append(row("input", [n_most, "", *(_cell(any_of[name]["input"]) for name in columns)]))
    for name in records:
        if name in summaries:
            cells = [_cell(summaries[name].get(c, {}).get("tissue")) for c in columns]
            gain = _cell(summaries[name]["psnr_db"]["delta"])
            lines.append(row(name, [f"{len(measured[name])} of {n_scenes}", gain, *cells]))
        else:
            lines.append(row(name, _missing(document, scenes, name, len(columns) + 2)))
    of_chance = [_cell(np.mean([c[name] for c in chance])) if name in chance[0] else "" for name in columns]
    return [*lines, row("chance", [n_most, "", *of_chance])]


def harm(document: dict[str, Any]) -> list[str]:
    """What becomes of the same scenes without haze."""
    lines = [
        f"Rule: the tissue mean moves by at most {HARM_SHIFT_DB:g} dB and no pixel gets brighter (by more than "
        f"{RISE_TOLERANCE_DB:g} dB). *Change*: median of the absolute change of pixels brighter than -30 dB.",
        "",
        *head("", ["scenes", "tissue shift, dB", "largest shift", "change, dB", "largest rise, dB", "kept the rule"]),
    ]
    n_scenes = sum(document["settings"]["sizes"][scenes] for scenes in SETS)
    for name in document["settings"]["methods"]:
        found = [r["figures"] for r in document["records"] if r["part"] == "clean" and r["method"] == name]
        if not found:
            lines.append(row(name, _missing(document, None, name, 6)))
            continue
        shifts = [f["clean_shift_db"]["tissue"] for f in found if "clean_shift_db" in f]
        changes = [f["clean_change_db"]["tissue"] for f in found if "clean_change_db" in f]
        rises = [f["clean_rise_db"]["tissue"] for f in found]
        plain = [{key: value["tissue"] for key, value in f.items() if key.startswith("clean_")} for f in found]
        kept = sum(map(harmless, plain))
        cells = [f"{len(found)} of {n_scenes}", _cell(np.mean(shifts)), _cell(max(shifts, key=abs))]
        cells += [_cell(np.mean(changes)), _cell(max(rises)), f"{kept} of {len(found)}"]
        lines.append(row(name, cells))
    return lines


def calibration(document: dict[str, Any]) -> list[str]:
    """Coverage before and after the factor."""
    found = document["calibration"]
    if found is None:
        return [f"{NOT_MEASURED}: `{COMMAND} --only samples`"]
    factors = ", ".join(f"{factor:.1f}" for factor in found["factors"])
    ranks = ", ".join(f"{value:.2f}" for value in found["rank_correlations"])
    lines = [
        f"{document['settings']['samples']} samples a frame, simulated scenes. The factor on the std is fitted on "
        f"{found['n_fit']} scenes (rule: `validation.calibration.fit_factor`) and judged on {found['n_test']} "
        f"others, {found['n_pixels']} pixels above the floor, {100 * found['doubtful']:.0f} % of them with a std of at "
        "least 0.1 dB.",
        "",
        *head("share of pixels whose truth lies in the interval", ["50 %", "80 %", "95 %"]),
    ]
    for label, key in (
        ("std of at least 0.1 dB, as sampled", "before"),
        (f"the same, std times {found['factor']:.2f}", "after"),
        ("all pixels, as sampled", "all_before"),
        (f"all pixels, std times {found['factor']:.2f}", "all_after"),
    ):
        lines.append(row(label, [f"{100 * found[key][level]:.0f} %" for level in ("50", "80", "95")]))
    before, after = (
        ", ".join(f"{100 * scene['95']:.0f}" for scene in found[key]) for key in ("scenes_before", "scenes_after")
    )
    return [
        *lines,
        "",
        f"Scene by scene, the intervals of 95 % of the test scenes (std of at least 0.1 dB) hold {before} % as sampled "
        f"and {after} % with the factor.",
        "",
        f"Each scene by itself would ask for a factor of {factors} (the first {found['n_fit']} are those it was fitted "
        f"on); rank correlation of std and absolute error in the test scenes: {ranks}.",
    ]


def flicker(document: dict[str, Any]) -> list[str]:
    """Flicker of the removed haze over that of the input."""
    n_frames, n_cines = document["settings"]["flicker_frames"], document["settings"]["sizes"]["cines"]
    lines = [
        f"Frame-to-frame change of what was removed over that of the input, {n_frames} frames of {n_cines} simulated "
        "cines at 50 frames/s (0: the same in every frame; 1: as restless as the input's speckle).",
        "",
        *head("", ["removed / input"]),
    ]
    truths = []
    for name in document["settings"]["methods"]:
        found = [r["figures"] for r in document["records"] if r["part"] == "flicker" and r["method"] == name]
        if len(found) == n_cines:
            lines.append(row(name, [_cell(np.mean([f["removed"] for f in found]))]))
            truths = [f["removed_by_truth"] for f in found]
        elif name == OURS:
            lines.append(row(name, [f"{NOT_MEASURED}: `{COMMAND} --only flicker`"]))
    return [*lines, row("the truth", [_cell(np.mean(truths)) if truths else ""])]


def seeds(document: dict[str, Any]) -> list[str]:
    """Spread of the result over seeds."""
    found = document["seeds"]
    if not found:
        return [f"Sensitivity to the seed: {NOT_MEASURED}: `{COMMAND}`"]
    lines = [
        f"Sensitivity to the seed, {found[0]['n_seeds']} seeds, one frame: root mean variance of the tissue over "
        "seeds, and the mean of its walls under each seed.",
        "",
        *head("simulated scene", ["spread, dB", "walls, dB"]),
    ]
    for one in found:
        walls = ", ".join(f"{mean:.1f}" for mean in one["wall_means_db"]) or "no walls"
        lines.append(row(str(one["index"]), [_cell(one["spread_db"]), walls]))
    return lines


def _records(document: dict[str, Any], part: str, scenes: str, method: str) -> list[dict[str, Any]]:
    key = (part, scenes, method)
    return [r for r in document["records"] if (r["part"], r["scenes"], r["method"]) == key]


def _missing(document: dict[str, Any], scenes: str | None, method: str, n_cells: int) -> list[str]:
    reason = document["left_out"].get(f"{method}/{scenes or 'simulated'}")
    return [f"{NOT_MEASURED}: {reason}" if reason else f'{NOT_MEASURED}: `--only "{method}"`', *[""] * (n_cells - 1)]


def _seconds(document: dict[str, Any], method: str) -> str:
    found = [r["cpu_s_per_frame"] for r in document["records"] if r["method"] == method and r["part"] != "samples"]
    return f"{np.median(found):.1f}" if found else ""


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"
