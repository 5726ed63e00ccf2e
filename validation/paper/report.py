"""Tables of the paper's experiments: printed figures beside ours, what was not measured, and a sheet of pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from validation.markdown import head, row
from validation.paper import metrics
from validation.paper.experiments import EXPERIMENTS, Experiment, Measured
from validation.paper.methods import JOINT, METHODS
from validation.paper.study import wanted

DIGITS = {"psnr_db": 2, "ssim": 3, "lpips": 3}
HEADINGS = ("images", "PSNR, dB", "SSIM", "LPIPS", "printed", "best joint ahead by, dB", "s an image")
HEADER = """Printed: PSNR in dB / SSIM / LPIPS of Stevens et al. (TMLR 03/2025), on other faces, characters and
networks than ours. ±: half of the 95 % interval over images. Ahead: the joint sampler in bold less the method, over the
images that both have. What each method is: `validation/paper/methods.py`; what differs from the paper: docs/paper.md.
Seconds are of one thread beside other work."""
NOT_MEASURED = "not measured"
MARK = "<!-- {} -->"
CAPTION, GAP = 14, 2  # pixels of the sheet


def summary(record: dict[str, Any], reference: dict[str, Any] | None) -> dict[str, Any]:
    """Means with intervals of a method, and its paired differences to the reference: reference less method."""
    figures = {int(i): f for i, f in record.get("figures", {}).items()}
    told: dict[str, Any] = {"images": len(figures), "trained": record.get("trained", "")}
    if "missing" in record:
        told["missing"] = record["missing"]
    if not figures:
        return told
    for name in (*metrics.NAMES, "noise_psnr_db"):
        if values := [f[name] for f in figures.values() if name in f]:
            told[name] = metrics.interval(values)
        if reference and name in metrics.NAMES:
            ours = {int(i): f[name] for i, f in reference["figures"].items() if name in f}
            told[f"ahead_{name}"] = metrics.paired(ours, {i: f[name] for i, f in figures.items() if name in f})
    told["wall_s"] = float(np.mean([f["wall_s"] for f in figures.values()]))
    told["solve_cpu_s"] = float(np.mean([f["solve_cpu_s"] for f in figures.values()]))
    return told


def best_joint(records: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The record of joint sampling with the highest mean PSNR, over the images that all of it have."""
    joint = [r for r in records if r["method"] in JOINT and r.get("figures")]
    psnr_db = {r["method"]: {int(i): f["psnr_db"] for i, f in r["figures"].items()} for r in joint}
    shared = set.intersection(*map(set, psnr_db.values())) if joint else set()
    return max(joint, key=lambda r: np.mean([psnr_db[r["method"]][i] for i in shared]), default=None)


def table(experiment: Experiment, records: list[dict[str, Any]]) -> list[str]:
    """One line a method: ours, the printed figures, and by how much the best joint sampler is ahead, paired."""
    best = best_joint(records)
    found = {r["method"]: summary(r, best) for r in records}
    lines = head("method", HEADINGS)
    if printed := experiment.printed.get("best joint"):
        lines.append(row("joint sampling, the paper's best", ["", "", "", "", _printed(printed), "", ""]))
    for name in METHODS:  # in their order, not in that of the command line
        printed_here = _printed(experiment.printed[name]) if name in experiment.printed else ""
        told = found.get(name)
        if told is None or not told["images"]:
            if printed_here or (told and "missing" in told):
                why = told["missing"] if told and "missing" in told else ""
                lines.append(row(name, ["0", NOT_MEASURED, "", "", printed_here, why, ""]))
            continue
        label = f"**{name}**" if best and name == best["method"] else name
        ahead = "" if best and name == best["method"] else _with_interval(told.get("ahead_psnr_db"), 2)
        figures = [_with_interval(told.get(m), DIGITS[m]) for m in metrics.NAMES]
        lines.append(row(label, [str(told["images"]), *figures, printed_here, ahead, f"{told['wall_s']:.3g}"]))
    return lines


def _printed(figures: tuple[float | None, ...]) -> str:
    formats = (".2f", ".3f", ".3f")
    return " / ".join("-" if f is None else f"{f:{spec}}" for f, spec in zip(figures, formats, strict=True))


def _with_interval(told: tuple[float, ...] | None, digits: int) -> str:
    if told is None:
        return ""
    mean, half = told[0], told[1]
    return f"{mean:.{digits}f}" if math.isnan(half) else f"{mean:.{digits}f} ± {half:.{digits}f}"


def section(name: str, experiment: Experiment, records: list[dict[str, Any]]) -> str:
    """The part of RESULTS.md of an experiment, between its marks."""
    trained = sorted({r["trained"] for r in records if r.get("trained")})
    commands = dict.fromkeys(r["command"] for r in records) or [f"python -m validation.paper {name}"]
    measured = {r["method"] for r in records if r.get("figures")}
    missing = [name for name in wanted(experiment, None) if name not in measured]
    lines = [
        MARK.format(name),
        f"## {experiment.title}",
        "",
        *(f"    {command}" for command in commands),
        "",
        *([f"{experiment.note[0].upper()}{experiment.note[1:]}.", ""] if experiment.note else []),
        *table(experiment, records),
        "",
        *([f"Not measured: {'; '.join(missing)}.", ""] if missing else []),
        *([f"Trained: {'; '.join(trained)}.", ""] if trained else []),
        MARK.format(f"/{name}"),
    ]
    return "\n".join(lines)


def write_section(path: Path, name: str, text: str) -> None:
    """Puts a section into the results, in place of an earlier one of that name."""
    before = path.read_text(encoding="utf-8") if path.exists() else _empty()
    start, stop = MARK.format(name), MARK.format(f"/{name}")
    if start in before:
        first, _, rest = before.partition(start)
        after = first + text + rest.partition(stop)[2]
    else:
        after = before.rstrip("\n") + "\n\n" + text + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(after, encoding="utf-8")


def _empty() -> str:
    """Results before anything is measured: every experiment with its printed figures."""
    sections = [section(name, each, []) for name, each in EXPERIMENTS.items()]
    return "\n\n".join(["# The paper's experiments", HEADER, *sections]) + "\n"


def merged(path: Path, records: list[dict[str, Any]], command: str) -> list[dict[str, Any]]:
    """Records of ``command``, and from earlier figures in ``path`` those of methods that it did not measure."""
    earlier = json.loads(path.read_text(encoding="utf-8"))["records"] if path.exists() else []
    by_method = {r["method"]: r for r in earlier if r.get("figures")}
    for record in records:
        if record.get("figures") or record["method"] not in by_method:
            by_method[record["method"]] = {**record, "command": command}
    return list(by_method.values())


def write_figures(path: Path, name: str, records: list[dict[str, Any]]) -> None:
    """All figures by image, as JSON."""
    for record in records:
        for figures in record.get("figures", {}).values():
            figures.pop("estimate", None)
    best = best_joint(records)
    means = {r["method"]: summary(r, best) for r in records}
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"experiment": name, "best joint": best and best["method"], "means": means}
    text = json.dumps(content | {"records": records}).replace('{"method"', '\n{"method"')  # a line for each method
    path.write_text(text + "\n", encoding="utf-8")


def sheet(path: Path, every: Measured, records: list[dict[str, Any]]) -> None:
    """A picture: input and truth, then of every method its signals above its noise."""
    shown = [r for r in records if any("estimate" in f for f in r.get("figures", {}).values())]
    n = min(len(every.signal), 6)
    rows: list[tuple[str, list[np.ndarray | None]]] = []
    if not every.problem.is_matrix:
        rows.append(("input", [_pixels(y.numpy()) for y in every.problem.y[:n]]))
    rows.append(("truth", [_pixels(x.numpy()) for x in every.signal[:n]]))
    if not every.problem.is_matrix:
        rows.append(("true noise", [_pixels(v.numpy()) for v in every.noise[:n]]))
    for record in (r for r in shown if r["method"] != "input"):
        estimates = [_stored(record["figures"].get(i, {}).get("estimate")) for i in range(n)]
        rows.append((record["method"], [None if e is None else _pixels(e["signal"]) for e in estimates]))
        if not every.problem.is_matrix and any(e and "noise" in e for e in estimates):
            rows.append(("its noise", [_pixels(e["noise"]) if e and "noise" in e else None for e in estimates]))
    _, height, width = every.problem.shape
    page = Image.new("RGB", (n * (width + GAP), len(rows) * (height + GAP + CAPTION)))
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(size=10)
    for r, (caption, pictures) in enumerate(rows):
        top = r * (height + GAP + CAPTION)
        draw.text((2, top + 1), caption, fill="white", font=font)
        for c, picture in enumerate(pictures):
            if picture is not None:
                page.paste(Image.fromarray(picture), (c * (width + GAP), top + CAPTION))
    path.parent.mkdir(parents=True, exist_ok=True)
    page.save(path)


def _stored(path: str | None) -> dict[str, np.ndarray] | None:
    if path is None or not Path(path).exists():
        return None
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def _pixels(image: np.ndarray) -> np.ndarray:
    return np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8).transpose(1, 2, 0)
