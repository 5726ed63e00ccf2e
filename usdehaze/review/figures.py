"""Figures of a page, gathered frame by frame: the Metrics JSON of the regions, whole-image figures, histograms."""

from __future__ import annotations

from typing import Any

import numpy as np

from usdehaze.validation.evaluate import region_record, tallied_document
from usdehaze.validation.regions import AUTOMATIC, FAINT, ROLES, Regions
from usdehaze.validation.tally import Tally

HISTOGRAM_BINS = 64  # of four 8-bit levels each; page.js bins the frame it shows in the same way
LOWERED_DB = (1, 3, 10)


class Figures:
    """Sums over the frames seen so far; of a frame a kilobyte of numbers is kept.

    Args:
        dynamic_range_db: dB between full scale and floor.
        regions: laid on the cine, or None.
        cine: what the cine is called in the Metrics JSON.
        first_frame: index in the source of frame 0; the Metrics JSON counts frames as the source does.
        inside: bool ``(H, W)``, the images on the screen.
    """

    def __init__(
        self, dynamic_range_db: float, regions: Regions | None, cine: str, first_frame: int, inside: np.ndarray
    ) -> None:
        self.dynamic_range_db, self.regions, self.inside = dynamic_range_db, regions, inside
        self.cine, self.first_frame = cine, first_frame
        self.tally = Tally()
        self.removed_db: list[float | None] = []  # mean over the image, one a frame
        self.n_pixels = 0
        self.removed_sum = self.std_sum = 0.0
        self.lowered = dict.fromkeys(LOWERED_DB, 0)
        self.largest_rise_db = -np.inf
        self.counts: dict[str, dict[str, np.ndarray]] = {}
        self.marks: list[list[int]] = []  # of structure at risk: reasons as bits, and pixels, one pair a frame

    def add(
        self,
        frame: int,
        input_db: np.ndarray,
        tissue_db: np.ndarray,
        std_db: np.ndarray | None,
        levels: dict[str, np.ndarray],
    ) -> dict[str, Any] | None:
        """Takes in one frame: ``(H, W)`` dB before, after and deviation, and the 8-bit ``input`` and ``tissue``.

        Returns:
            Its record for the Metrics JSON; None where it has no regions to measure.
        """
        image = self.inside & (input_db > -self.dynamic_range_db)
        change = (input_db - tissue_db).astype(np.float64)
        self.largest_rise_db = max(self.largest_rise_db, float(-change.min()))
        removed = change[image]
        self.removed_db.append(float(removed.mean()) if removed.size else None)
        self.n_pixels += removed.size
        self.removed_sum += float(removed.sum())
        for limit in LOWERED_DB:
            self.lowered[limit] += int((removed > limit).sum())
        if std_db is not None:
            self.std_sum += float(std_db[image].sum(dtype=np.float64))
        self._count("image", levels, image)
        if self.regions is None:
            return None
        masks = {role: self.regions.mask(role, frame) for role in (*ROLES, FAINT)}
        for role in self.regions.names:
            self._count(role, levels, masks[role])
        found = region_record(input_db, tissue_db, masks, None, -self.dynamic_range_db)
        if not found:
            return None
        automatic = {"regions": AUTOMATIC} if self.regions.origin == AUTOMATIC else {}
        record = {"cine": self.cine, "frame": self.first_frame + frame, **automatic, **found}
        self.tally.add(record)
        return record

    def mark(self, marks: np.ndarray) -> np.ndarray:
        """Takes in what is at risk in a frame, ``(H, W)`` uint8 of `StructureRisk`, and gives it back."""
        self.marks.append([int(np.bitwise_or.reduce(marks, axis=None)), int(np.count_nonzero(marks))])
        return marks

    def _count(self, place: str, levels: dict[str, np.ndarray], mask: np.ndarray) -> None:
        counts = self.counts.setdefault(place, {name: np.zeros(HISTOGRAM_BINS, np.int64) for name in levels})
        for name, plane in levels.items():
            counts[name] += np.bincount(plane[mask] // (256 // HISTOGRAM_BINS), minlength=HISTOGRAM_BINS)

    def metrics(self) -> dict[str, Any] | None:
        """The Metrics JSON of the contract but for its records, or None without regions in the frames seen."""
        if self.regions is None or not self.tally.cines:
            return None
        regions = {"origin": self.regions.origin, "margin_px": self.regions.margin_px}
        return tallied_document(self.tally, None, regions=regions)

    def image(self, has_std: bool) -> dict[str, Any]:
        """Whole-image figures over all frames; null where no pixel lies above the floor."""
        n = self.n_pixels
        return {
            "n_pixels": n,
            "removed_mean_db": self.removed_sum / n if n else None,
            "lowered_share": {str(limit): count / n if n else None for limit, count in self.lowered.items()},
            "largest_rise_db": self.largest_rise_db,
            "std_mean_db": self.std_sum / n if n and has_std else None,
            "removed_mean_db_by_frame": self.removed_db,
        }

    def histograms(self) -> dict[str, dict[str, list[int]]]:
        """Pixel counts by place ("image" and roles) and picture ("input", "tissue"), from floor to full scale."""
        return {place: {name: c.tolist() for name, c in planes.items()} for place, planes in self.counts.items()}
