"""The headline figures of ``validation.bench``: what is wanted, and what each method reaches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from usdehaze.validation.benchmark import OURS
from validation.bench.tables import lowest_cell, number
from validation.bench.wide import HALVES
from validation.markdown import head, row
from validation.scenes import CAMUS

MISSED = " !"
LARGE_SHIFT_CLIP = "clip-41"  # whose septum a dehazer is tempted to take for haze
Document = dict[str, Any]


@dataclass(frozen=True)
class Headline:
    """One figure.

    Attributes:
        part: letter of the part that measures it.
        what: it is.
        of: takes it from a part's share of the document; None where it was not measured.
        low, high: what is wanted, both included; None is no limit.
    """

    part: str
    what: str
    of: Callable[[Any], float | None]
    low: float | None = None
    high: float | None = None

    @property
    def wanted(self) -> str:
        if self.low is None or self.high is None:
            return f"<= {self.high:g}" if self.low is None else f">= {self.low:g}"
        return f"{self.low:g} to {self.high:g}"

    def cell(self, document: Document) -> str:
        """The value, with a mark where it misses what is wanted; empty where it was not measured."""
        value = self.of(document[self.part]) if self.part in document else None
        if value is None:
            return ""
        missed = (self.low is not None and value < self.low) or (self.high is not None and value > self.high)
        return number(value) + MISSED * missed


def summary_table(documents: dict[str, Document]) -> list[str]:
    """Headline figures in rows, methods in columns, one string a line; figures that nobody measured are left out."""
    lines = head("headline figures", ["wanted", *documents])
    for line in HEADLINES:
        cells = [line.cell(document) for document in documents.values()]
        if any(cells):
            lines.append(row(f"{line.part}. {line.what}", [line.wanted, *cells]))
    return [*lines, f"Marked{MISSED}: not what is wanted."]


def _mean(name: str, key: str = "tissue") -> Callable[[Any], float | None]:
    return lambda part: part["summary"].get(name, {}).get(key)


def _half(half: str, name: str, key: str = "tissue") -> Callable[[Any], float | None]:
    return lambda part: part["summary"].get(half, {}).get(name, {}).get(key)


def _camus_coverage(part: Any) -> float | None:
    ours = [r for r in part["records"] if r["method"] == OURS and r["set"] == CAMUS and "coverage" in r]
    return float(np.mean([record["coverage"]["tissue"] for record in ours])) if ours else None


def _light_or_near(part: Any) -> float | None:
    cells = part["cells"][OURS]
    lowest = lowest_cell(cells, levels=("light",), extents=("near",))
    return cells[lowest]["delta"] if lowest else None


def _large_shift(part: Any) -> float | None:
    """Largest shift of one clip's septum over the seeds, dB."""
    records = [record for record in part["records"] if record["cine"].startswith(LARGE_SHIFT_CLIP)]
    return max((abs(record["tissue_shift_db"]["tissue"]) for record in records), default=None)


def _wall(part: Any, spread: bool) -> float | None:
    wall = part["lateral_wall"]
    return None if wall is None else wall["max_db"] - (wall["min_db"] if spread else 0.0)


def _lowered(part: Any) -> int | None:
    traces = [record["trace"]["lowered"] for record in part["records"] if "trace" in record]
    return sum(traces) if traces else None


HEADLINES = (
    *(Headline("g", f"{half}: PSNR gain, dB", _half(half, "psnr_db", "delta"), 1.5) for half in HALVES.values()),
    *(
        Headline("g", f"{half}: mean error on walls, dB", _half(half, "wall_error_db"), -1.5, 1.5)
        for half in HALVES.values()
    ),
    *(Headline("g", f"{half}: coverage where in doubt", _half(half, "coverage"), 0.8) for half in HALVES.values()),
    Headline("a", "coverage where in doubt", _mean("coverage"), 0.9, 0.98),
    Headline("b", "PSNR gain, dB", lambda part: part["methods"][OURS]["psnr_db"]["delta"], 3.0),
    Headline("b", "lowest gain of the light and the near cells, dB", _light_or_near, 0.0),
    Headline("b", "CAMUS: coverage where in doubt", _camus_coverage, 0.8),
    Headline("c", "gCNR, change", _mean("gcnr", "delta"), 0.07),
    Headline("c", "KS tissue", _mean("ks_tissue"), None, 0.06),
    Headline("c", "KS haze", _mean("ks_haze"), 0.6),
    Headline("c", f"{LARGE_SHIFT_CLIP}: largest shift of the septum over seeds, dB", _large_shift, None, 1.0),
    Headline("h", "shift of the myocardium, dB", _mean("tissue_shift_db"), -1.0),
    Headline("h", "share of frames where it is within 1 dB", lambda part: part["kept"], 0.7),
    Headline("h", "lowest shift of the myocardium, dB", lambda part: part["worst_shift_db"], -3.0),
    Headline("h", "gCNR, change", _mean("gcnr", "delta"), 0.04),
    Headline("i", "flicker of what is removed", _mean("flicker"), None, 0.1),
    Headline("i", "lateral wall: most removed of a frame, dB", lambda part: _wall(part, spread=False), None, 2.0),
    Headline("i", "lateral wall: most less least, dB", lambda part: _wall(part, spread=True), None, 1.0),
    Headline("i", "pixels of ECG traces lowered by more than 1 dB", _lowered, None, 0),
    Headline("j", "shift of what is brighter than -40 dB, dB", _mean("visible_shift_db"), -0.3),
    Headline("j", "lowest shift of a scan, dB", lambda part: part["worst_shift_db"], -1.0),
)
