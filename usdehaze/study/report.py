"""Scores of a reader study for people: a table for the terminal, a CSV file, plots."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from usdehaze.io.atomic import atomic
from usdehaze.study.design import SCALE
from usdehaze.validation.evaluate import write_json
from usdehaze.validation.report import estimator_lines, wrapped

COLUMNS = (
    "question", "input", "tissue", "difference", "low", "high", "n", "better", "wilcoxon_p_cases", "sign_p_cases",
    "wilcoxon_p_readers", "sign_p_readers", "fleiss_kappa", "gwet_ac1",
)  # fmt: skip
WIDTH, LEFT, RIGHT, ROW, TOP = 720, 170, 40, 30, 40  # of a plot, pixels


def write_report(folder: Path, scores: dict[str, Any], sources: Iterable[Path]) -> list[Path]:
    """Writes ``scores.json``, ``scores.csv``, ``ratings.svg`` and ``choice.svg``; tells where.

    Raises:
        InputError: one cannot be written.
    """
    sources = list(sources)
    names = ("scores.json", "scores.csv", "ratings.svg", "choice.svg")
    paths = [folder / name for name in names]
    write_json(paths[0], scores, sources)
    with atomic(paths[1], True, sources) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows(scores))
    plots = (ratings_plot(scores), choice_plot(scores))
    for path, plot in zip(paths[2:], plots, strict=True):
        with atomic(path, True, sources) as part:
            part.write_text(plot, encoding="utf-8")
    return paths


def rows(scores: dict[str, Any]) -> list[dict[str, Any]]:
    """A row a question, the choice first: its share stands under "tissue", what is left of 1 under "input"."""
    choice = scores["choice"]
    share = {"input": 1 - choice["share"], "tissue": choice["share"], "difference": None, "better": "higher"}
    entries = {"choice": choice | share | {"n": scores["settings"]["n_judgements"]}, **scores["items"]}
    made = []
    for question, entry in entries.items():
        row = {"question": question, **{key: entry[key] for key in COLUMNS if key in entry}}
        row["low"], row["high"] = entry["ci95"] or (None, None)
        for unit in ("case", "reader"):
            for test in ("wilcoxon_p", "sign_p"):
                row[f"{test}_{unit}s"] = entry[f"by_{unit}"][test]
        made.append(row)
    return made


def table(scores: dict[str, Any]) -> list[str]:
    """The scores in lines of at most 100 columns."""
    settings = scores["settings"]
    lines = [
        f"{settings['n_readers']} readers, {settings['n_cases']} cases, {settings['n_judgements']} judgements; ratings "
        f"{SCALE[0]} to {SCALE[1]}, choice: share of the dehazed picture",
        f"{'':<16}{'input':>7}{'tissue':>8}{'diff.':>8}{'95 % interval':>18}{'p, cases':>10}{'p, readers':>12}"
        f"{'kappa':>8}{'AC1':>7}",
    ]
    for row in rows(scores):
        interval = "-" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"
        lines.append(
            f"{row['question']:<16}{row['input']:>7.2f}{row['tissue']:>8.2f}{_number(row['difference']):>8}{interval:>18}"
            f"{_p(row['wilcoxon_p_cases']):>10}{_p(row['wilcoxon_p_readers']):>12}{_number(row['fleiss_kappa']):>8}"
            f"{_number(row['gwet_ac1']):>7}"
        )
    notes = [
        "p: Wilcoxon test; by cases: for these readers, who may not be like others; sign tests are in the files",
        *settings["warnings"],
    ]
    return (
        lines + [line for note in notes for line in wrapped(f"note: {note}")] + estimator_lines(settings["estimators"])
    )


def ratings_plot(scores: dict[str, Any]) -> str:
    """SVG: difference of every item with its interval."""
    entries = [(name, entry["difference"], entry["ci95"]) for name, entry in scores["items"].items()]
    most = max((abs(v) for _, mean, ci95 in entries for v in (mean, *(ci95 or ()))), default=1.0) or 1.0
    return _plot("rating: dehazed minus input (artefacts: lower is better)", entries, -most, most, 0.0)


def choice_plot(scores: dict[str, Any]) -> str:
    """SVG: share of the dehazed picture, of all and of every reader."""
    choice = scores["choice"]
    entries = [("all readers", choice["share"], choice["ci95"])]
    entries += [(reader, share, None) for reader, share in choice["by_reader_share"].items()]
    return _plot("share that chose the dehazed picture", entries, 0.0, 1.0, 0.5)


def _plot(
    title: str, entries: list[tuple[str, float, tuple[float, float] | None]], low: float, high: float, neutral: float
) -> str:
    """A dot a row, with its interval, beside a line at ``neutral``."""

    def x(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    bottom = TOP + ROW * len(entries)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 40}" font-family="sans-serif" '
        'font-size="14">',
        f'<rect width="{WIDTH}" height="{bottom + 40}" fill="#fff"/><text x="{LEFT}" y="22">{escape(title)}</text>',
        f'<line x1="{x(neutral)}" x2="{x(neutral)}" y1="{TOP - 8}" y2="{bottom}" stroke="#888" stroke-dasharray="4"/>',
    ]
    for tick in (low, (low + high) / 2, high):
        parts.append(f'<text x="{x(tick)}" y="{bottom + 22}" text-anchor="middle">{tick:.2f}</text>')
    for i, (name, mean, ci95) in enumerate(entries):
        y = TOP + ROW * i + ROW / 2
        parts.append(f'<text x="{LEFT - 12}" y="{y + 5}" text-anchor="end">{escape(name)}</text>')
        if ci95 is not None:
            parts.append(
                f'<line x1="{x(ci95[0])}" x2="{x(ci95[1])}" y1="{y}" y2="{y}" stroke="#15c" stroke-width="3"/>'
            )
        parts.append(f'<circle cx="{x(mean)}" cy="{y}" r="5" fill="#15c"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
