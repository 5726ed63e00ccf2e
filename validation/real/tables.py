"""REAL.md, and its part in RESULTS.md, from the figures on real frames."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.errors import InputError
from usdehaze.validation.harm import HARM_SHIFT_DB
from usdehaze.validation.report import TITLES, summary_rows
from validation.markdown import head, row

COMMAND = "python -m validation.real"
BEGIN, END = f"<!-- {COMMAND}: begin -->", "<!-- end -->"
COLUMNS = ("input", "tissue", "change", "95 % interval", "Wilcoxon p")
PARTS = {"gcnr": "gCNR", "ks_tissue": "KS tissue", "ks_haze": "KS haze", "tissue_shift_db": "shift of tissue, dB"}
WHAT = {
    "echo-haze": (
        "Hazy clips",
        "Frame 0 of apical four-chamber clips of the DehazingEcho2025 challenge: septum (tissue) and ventricle (haze) "
        "drawn by hand. The simulator was changed after looks at these same frames: they do not only measure.",
    ),
    "camus": (
        "Labelled stills",
        "End-diastole and end-systole of patients of CAMUS: myocardium (tissue) and left ventricle (haze) as labelled "
        "there, 3 pixels inside their borders. **No haze was added, and nobody chose these frames for haze.** So there "
        "is no truth to reach: the figures say what the method does to frames as they come. A shift of the myocardium "
        "is harm. A ventricle that gets darker lost echoes, haze or not, and raises gCNR and contrast in either case.",
    ),
    "camus, held out": (
        "Labelled stills, held-out patients only",
        "The same for the patients that nobody looked at while tuning ([patients.json](../data/patients.json)).",
    ),
}


def page(document: dict[str, Any]) -> str:
    """REAL.md."""
    lines = ["# Real frames: every figure, with intervals", "", f"    {COMMAND}", "", *made_with(document), ""]
    for name, by_seed in document["sets"].items():
        lines += [*section(name, by_seed, "##"), ""]
        if name == "echo-haze":
            lines += [*each_clip(by_seed), ""]
    any_of = next(iter(next(iter(document["sets"].values())).values()))
    lines += ["## How each figure is made", "", *head("figure", ["estimator"])]
    for metric, estimator in any_of["settings"]["estimators"].items():
        lines.append(f"| {TITLES.get(metric, metric)} (`{metric}`) | {estimator.replace('|', chr(92) + '|')} |")
    return "\n".join([*lines, "", "What each of them can hide: [docs/validation.md](../../docs/validation.md).", ""])


def in_results(path: Path, document: dict[str, Any]) -> str:
    """The text of RESULTS.md with its part between the marks made anew.

    Raises:
        InputError: it has no such marks.
    """
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(path, "has no place for the tables", f"lines {BEGIN} and {END}")
    lines = [*made_with(document), "Clip by clip, with estimators: [REAL.md](REAL.md)."]
    for name, by_seed in document["sets"].items():
        lines += ["", *section(name, by_seed, "###")]
    return before + begin + "\n\n" + "\n".join(lines) + "\n\n" + end + after


def made_with(document: dict[str, Any]) -> list[str]:
    """The method, and what an interval is."""
    priors = ", ".join(f"{name[:-52]}..." if "sha256:" in name else name for name in document["priors"])
    return [
        f"Preset {document['preset']}, {document['steps']} steps; networks {priors}. Intervals: means over frames, "
        "2000 resamples of whole patients (a clip is one, and so are the two stills of a patient), of the change, or "
        "of the output where the input has no figure. Wilcoxon signed-rank test, two-sided, over patients.",
    ]


def section(name: str, by_seed: dict[str, dict[str, Any]], heading: str) -> list[str]:
    """One set of scans: the whole table of its first seed, what became of the tissue, and the other seeds."""
    title, words = WHAT[name]
    first = next(iter(by_seed))
    settings = by_seed[first]["settings"]
    sizes = [f"{low} to {high} pixels of {role}" for role, (low, high) in settings["n_pixels_range"].items()]
    lines = [f"{heading} {title}", "", words, ""]
    counts = f"{settings['n_frames']} frames of {settings['n_cines']} of {settings['scans']} scans, seed {first}"
    lines.append(f"{counts}; {', '.join(sizes)} a frame.")
    lines += ["", *whole_table(by_seed[first]), "", harm(by_seed[first])]
    if len(by_seed) > 1:
        lines += ["", "Means over all frames, by seed:", "", *head("seed", PARTS.values())]
        lines += [
            row(seed, [_means(of_seed["frames"], metric) for metric in PARTS]) for seed, of_seed in by_seed.items()
        ]
    return lines


def whole_table(document: dict[str, Any]) -> list[str]:
    """Every metric of a Metrics JSON."""
    lines = head("figure", COLUMNS)
    for of_figure in summary_rows(document):
        cells = (of_figure.input, of_figure.tissue, of_figure.delta, of_figure.interval, of_figure.p)
        lines.append(row(TITLES.get(of_figure.name, of_figure.name), ["" if cell == "-" else cell for cell in cells]))
    bias = document["summary"]["gcnr"]["bias"]
    return [*lines, "", f"Bias of gCNR: {bias['input']:.3f} before, {bias['tissue']:.3f} after."]


def harm(document: dict[str, Any]) -> str:
    """How far the tissue mean moved, frame by frame."""
    shifts = {(r["cine"], r["frame"]): r["tissue_shift_db"]["tissue"] for r in document["frames"]}
    kept = sum(abs(shift) <= HARM_SHIFT_DB for shift in shifts.values())
    (cine, frame), largest = max(shifts.items(), key=lambda item: abs(item[1]))
    quarters = np.percentile(list(shifts.values()), (5, 50, 95))
    return (
        f"Tissue mean within {HARM_SHIFT_DB:g} dB in {kept} of {len(shifts)} frames; 5th, 50th and 95th percentile of "
        f"its shift {', '.join(f'{q:.2f}' for q in quarters)} dB, largest {largest:.2f} dB ({cine}, frame {frame})."
    )


def each_clip(by_seed: dict[str, dict[str, Any]]) -> list[str]:
    """A row a clip and seed."""
    lines = ["Clip by clip:", "", *head("clip", ("seed", *PARTS.values()))]
    for clip in dict.fromkeys(r["cine"] for of_seed in by_seed.values() for r in of_seed["frames"]):
        for seed, of_seed in by_seed.items():
            records = [r for r in of_seed["frames"] if r["cine"] == clip]
            lines.append(row(clip, [seed, *(_means(records, metric) for metric in PARTS)]))
    return lines


def _means(records: Sequence[dict[str, Any]], metric: str) -> str:
    """Mean before and after, or of the output alone."""
    before, after = ([r[metric][part] for r in records] for part in ("input", "tissue"))
    return f"{np.mean(after):.3f}" if None in before else f"{np.mean(before):.3f} -> {np.mean(after):.3f}"
