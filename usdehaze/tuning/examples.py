"""Frames to tune on: chosen from scans, with what an estimate of their tissue is judged by."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from usdehaze.cine import Cine
from usdehaze.errors import InputError
from usdehaze.io import Reading, Scan, open_scan, read_truth
from usdehaze.io.detect import stem_of_name
from usdehaze.validation import metrics
from usdehaze.validation.regions import Labels, Regions, check_scan_of, find_regions

KS_ALLOWED = 0.1  # tissue may change by this much for nothing
KS_PENALTY = 2.0
KS_REWARD = 0.1


@dataclass(frozen=True)
class Goal:
    """What a tuned preset is to be good at.

    Attributes:
        name: of the figure, with its unit.
        formula: how it is made; higher is better.
        tie: a figure this close to the best counts as equal, and fewer network passes then decide.
    """

    name: str
    formula: str
    tie: float


TRUTH = Goal(
    "PSNR of tissue, dB",
    "mean over the frames of 10 log10(dynamic range^2 / mean squared error of dB values) against the true tissue",
    0.02,
)
REGIONS = Goal(
    "gCNR with KS",
    f"mean over the frames of gCNR - {KS_PENALTY:g} max(0, KS of tissue - {KS_ALLOWED:g}) + {KS_REWARD:g} KS of haze; "
    "gCNR of the tissue against the haze region in the output, KS of a region input against output",
    0.002,
)


@dataclass(frozen=True)
class Example:
    """A frame to tune on, with its true tissue or with regions.

    Attributes:
        cine: one frame.
        truth: ``(H, W)`` dB, the true tissue; or
        regions: bool ``(H, W)`` of tissue and of haze.
    """

    cine: Cine
    truth: np.ndarray | None = None
    regions: tuple[np.ndarray, np.ndarray] | None = None

    def quality(self, tissue_db: np.ndarray) -> float:
        """The figure of the goal for an estimate ``(H, W)`` in dB of this frame's tissue."""
        if self.truth is not None:
            return metrics.psnr_db(tissue_db, self.truth, self.cine.dynamic_range_db)
        assert self.regions is not None
        (in_tissue, in_haze), before = self.regions, self.cine.frames[0]
        changed = metrics.ks(before[in_tissue], tissue_db[in_tissue])
        removed = metrics.ks(before[in_haze], tissue_db[in_haze])
        contrast = metrics.gcnr(tissue_db[in_tissue], tissue_db[in_haze])
        return contrast - KS_PENALTY * max(0.0, changed - KS_ALLOWED) + KS_REWARD * removed


def goal_of(examples: Sequence[Example]) -> Goal:
    """What is measured on these frames."""
    return TRUTH if examples[0].truth is not None else REGIONS


def find_examples(
    scans: Sequence[Path],
    n_frames: int,
    roi: str | None = None,
    labels: Labels | None = None,
    margin_px: float = 0.0,
    reading: Reading | None = None,
) -> list[Example]:
    """Frames spread evenly over the scans, and over the frames of each that can be used.

    Args:
        scans: files; with ``roi`` any scans, else files of ``usdehaze simulate``, which know their true tissue.
        n_frames: in all; fewer where the scans have no more.
        roi: regions, see `usdehaze.validation.regions.find_regions`; never "auto".
        labels, margin_px: see there.
        reading: what the files leave unsaid.

    Raises:
        InputError: a scan that cannot be read, or has neither truth nor regions.
    """
    usable: list[tuple[list[int], Regions | None]] = []
    drawn: dict[Path, Hashable] = {}
    for path in scans:
        with open_scan(path, reading) as scan:
            if roi is not None:
                check_scan_of(roi, stem_of_name(scan.source.name), path, scan.source.sha256, drawn)
            regions = None if roi is None else _regions(scan, roi, labels, margin_px)
            if regions is None and not _knows_truth(scan):
                advice = "draw regions of tissue and haze: --roi FILE"
                raise InputError(path, "its true tissue is not known", "a file of usdehaze simulate", advice)
            if regions is not None and not regions.frames():
                raise InputError(roi or path, "no frame has both a tissue and a haze region", "both in one at least")
            usable.append((list(range(scan.n_frames)) if regions is None else regions.frames(), regions))
    examples = []
    for path, (frames, regions), n in zip(scans, usable, allot([len(f) for f, _ in usable], n_frames), strict=True):
        chosen = [frames[i] for i in spread(len(frames), n)]
        examples += _known(path, chosen) if regions is None else _drawn(path, chosen, regions, reading)
    return examples


def spread(n: int, k: int) -> list[int]:
    """``k`` of the indices 0 to n - 1, evenly; all of them where there are no more."""
    k = min(n, k)
    return [int((i + 0.5) * n / k) for i in range(k)]


def allot(counts: Sequence[int], total: int) -> list[int]:
    """How many of ``total`` frames each scan gives: as equally as their ``counts`` of frames allow."""
    given = [0] * len(counts)
    chosen = spread(len(counts), total)
    while sum(given) < total and any(given[i] < counts[i] for i in chosen):
        for i in chosen:
            given[i] += given[i] < counts[i] and sum(given) < total
    return given


def _knows_truth(scan: Scan) -> bool:
    return (scan.source.layout, scan.source.dataset) == ("usdehaze simulation", "hazy")


def _regions(scan: Scan, roi: str, labels: Labels | None, margin_px: float) -> Regions:
    """Regions of all frames of a scan, of which one only is read: of the others the size is all that matters."""
    one = scan.read(0, 1)
    frames = np.broadcast_to(one.frames, (scan.n_frames, *scan.shape))
    cine = replace(one, frames=frames, frame_times_s=None, tissue_mask=None)
    return find_regions(roi, cine, stem_of_name(scan.source.name), labels, margin_px)


def _known(path: Path, frames: Sequence[int]) -> list[Example]:
    """Frames of a simulated cine with their true tissue."""
    if not frames:
        return []
    truth = read_truth(path)
    cine = replace(truth.cine, frame_times_s=None)
    return [
        Example(
            replace(cine, frames=cine.frames[t : t + 1], source=replace(cine.source, first_frame=t)), truth.tissue[t]
        )
        for t in frames
    ]


def _drawn(path: Path, frames: Sequence[int], regions: Regions, reading: Reading | None) -> list[Example]:
    """Frames of any scan with their regions."""
    with open_scan(path, reading) as scan:
        return [
            Example(scan.read(t, t + 1), regions=(regions.mask("tissue", t), regions.mask("haze", t))) for t in frames
        ]
