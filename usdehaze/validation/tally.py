"""What a summary needs of many records: columns of numbers, so that the records themselves need not be kept."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

from usdehaze.validation.regions import AUTOMATIC, ROLES
from usdehaze.validation.uncertainty import bootstrap_ci95, paired_statistics

PARTS = ("input", "tissue", "delta")


class Tally:
    """Figures of records, taken in one at a time; about a kilobyte a record.

    Attributes:
        cines: of each record.
        n_pixels: smallest and largest region of each role.
        fewest_pixels, fewest_blocks: of a region that gCNR was measured in; infinite without any.
        automatic: whether any record is of automatic regions.
        doubts: cines and a sentence each, of the results that the records are of.
    """

    def __init__(self) -> None:
        self.cines: list[str] = []
        self.n_pixels: dict[str, list[int]] = {}
        self.fewest_pixels = self.fewest_blocks = math.inf
        self.automatic = False
        self.doubts: set[tuple[str, str]] = set()
        self._columns: dict[str, _Column] = {}

    @classmethod
    def of(cls, records: Iterable[dict[str, Any]]) -> Tally:
        """The tally of records that are there already."""
        tally = cls()
        for record in records:
            tally.add(record)
        return tally

    def add(self, record: dict[str, Any]) -> None:
        """Takes in a record, see `usdehaze.validation.evaluate`."""
        for name, entry in record.items():
            if isinstance(entry, dict) and "tissue" in entry and "delta" in entry:
                self._columns.setdefault(name, _Column()).add(len(self.cines), entry)
        self.cines.append(record["cine"])
        sizes = record.get("n_pixels", {})
        for role, size in sizes.items():
            low, high = self.n_pixels.get(role, (size, size))
            self.n_pixels[role] = [min(low, size), max(high, size)]
        if "gcnr" in record:
            self.fewest_pixels = min([self.fewest_pixels, *(sizes[role] for role in ROLES if role in sizes)])
            self.fewest_blocks = min([self.fewest_blocks, *record["gcnr"].get("n_blocks", {}).values()])
        self.automatic |= record.get("regions") == AUTOMATIC
        self.doubts |= {(record["cine"], doubt) for doubt in record.get("doubts", ())}

    def summary(self) -> dict[str, Any]:
        """Means over the records that have a metric, with intervals: see `usdehaze.validation.evaluate.summarise`."""
        clusters = self._clusters()
        return {name: column.summary(self.cines, clusters) for name, column in self._columns.items()}

    def fewest_clusters(self) -> float:
        """Clusters that the interval of a mean comes from, of the figure with the fewest; infinite without any."""
        clusters = self._clusters()
        counts = (len({clusters[row] for row in column.rows}) for column in self._columns.values())
        return min((count for count in counts if count > 1), default=math.inf)

    def _clusters(self) -> list[str]:
        """Of each record its cine, or where there is one cine only, itself."""
        return self.cines if len(set(self.cines)) > 1 else [str(i) for i in range(len(self.cines))]


class _Column:
    """One metric: its values before, after and their difference, where there are any, and the rows that they are of."""

    def __init__(self) -> None:
        self.rows = array("l")
        self.values = {part: array("d") for part in PARTS}
        self.bias: dict[str, array[float]] = {}
        self.first_ci95: list[float] | None = None

    def add(self, row: int, entry: dict[str, Any]) -> None:
        bias: dict[str, float | None] = entry.get("bias") or {}
        if not self.rows:
            self.first_ci95 = entry.get("ci95")
            self.bias = {part: array("d") for part in bias}
        if not bias:
            self.bias = {}  # a mean of some of them would be that of other frames
        for part, column in self.bias.items():
            column.append(_float(bias[part]))
        for part, column in self.values.items():
            column.append(_float(entry[part]))
        self.rows.append(row)

    def summary(self, cines: list[str], clusters: list[str]) -> dict[str, Any]:
        values = {part: np.array(column) for part, column in self.values.items()}
        both = np.isfinite(values["delta"])  # so that the means are of the same frames, and differ by that of delta
        mean = {part: _mean(column[both] if both.any() else column) for part, column in values.items()}
        varied = self.values["tissue" if mean["delta"] is None else "delta"]
        interval = bootstrap_ci95(varied, [clusters[row] for row in self.rows])
        summary: dict[str, Any] = {**mean, "ci95": None if interval is None else list(interval)}
        summary["n_frames"] = int(both.sum()) or max(int(np.isfinite(column).sum()) for column in values.values())
        if len(self.rows) == 1:
            summary["ci95"] = self.first_ci95
        if mean["delta"] is not None:
            before, after = self.values["input"], self.values["tissue"]
            summary["paired"] = paired_statistics(before, after, [cines[row] for row in self.rows])
        if self.bias:
            summary["bias"] = {part: _mean(np.array(column)) for part, column in self.bias.items()}
        return summary


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _mean(values: np.ndarray) -> float | None:
    """Mean of what is finite; None when nothing is."""
    finite = values[np.isfinite(values)]
    return float(np.mean(finite)) if finite.size else None
