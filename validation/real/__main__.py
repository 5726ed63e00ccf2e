"""Every figure of regions on real frames, the whole table with intervals: one command.

    python -m validation.real                       # what is not measured yet, then REAL.md, real.json, RESULTS.md
    python -m validation.real --limit 2 --out DIR   # the first two files of each set, tables elsewhere

The shipped default on frame 0 of the hazy clips of ``echo-haze``, and on both frames of every patient of ``camus``, in
USDEHAZE_DATA. Each file leaves a record in --work, named after all that it depends on: priors, settings, seed, frames,
regions and code. A second run, or one that was stopped, measures only what is new; runs with different --only may go on
side by side.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.errors import UsdehazeError
from usdehaze.io import open_cine
from usdehaze.io.atomic import atomic
from usdehaze.validation.evaluate import evaluate_cine, metrics_document, write_json
from usdehaze.validation.regions import ROLES, Labels, find_regions
from usdehaze.validation.regions.reading import LABEL_MARGIN_PX
from validation.paths import PATIENTS, RESULTS, RUNS, real_scans
from validation.patients import read_patients
from validation.real.tables import in_results, page
from validation.records import Records, digest_of, made_by, priors_of
from validation.scenes import CAMUS_LABELS


@dataclass(frozen=True)
class Files:
    """One set of real scans, and where their regions are.

    Attributes:
        name: of its folder.
        frames: of each scan that are measured.
        dataset: of the frames, None for the one that is there.
        labels_in: dataset of a label image in the same file; "" for ``STEM.rois.json`` beside it.
        labels: its values, None for polygons.
    """

    name: str
    frames: slice
    dataset: str | None = None
    labels_in: str = ""
    labels: Labels | None = None

    @property
    def margin_px(self) -> float:
        return LABEL_MARGIN_PX if self.labels else 0.0


SETS = (
    Files("echo-haze", slice(0, 1)),
    Files("camus", slice(0, 2), "image", *CAMUS_LABELS),
)


def measure(scan: Path, of: Files, dehazer: Dehazer, kept: Records) -> list[dict[str, Any]]:
    """Records of the frames of one scan, dehazed as ``usdehaze process`` does and measured as ``validate`` does."""
    cine = open_cine(scan, dataset=of.dataset, frames=of.frames)
    where = f"{scan}:{of.labels_in}" if of.labels_in else scan.parent
    regions = find_regions(where, cine, scan.stem, of.labels, of.margin_px)
    masks = np.stack([regions.mask(role, t) for role in ROLES for t in range(len(cine.frames))])
    by = made_by(cine, dehazer) | {"regions": digest_of(masks)}

    def work() -> dict[str, Any]:
        result = dehazer.dehaze(cine)
        return {"records": evaluate_cine(scan.stem, cine.frames, result.tissue, regions, first_frame=0)}

    return [dict(record, seed=dehazer.settings.seed) for record in kept.kept(of.name, scan.stem, by, work)["records"]]


def study(args: argparse.Namespace, data: Path) -> dict[str, Any]:
    """Metrics JSON of each set and seed, from records that are there or are made."""
    kept = Records(args.work, "validation.real.__main__")
    document: dict[str, Any] = {"sets": {}}
    for of in SETS:
        if args.only not in (None, of.name):
            continue
        scans = sorted((data / of.name).glob("*.h5"))
        if not scans:
            raise UsdehazeError(f"no scans in {data / of.name}; set USDEHAZE_DATA to the folder of real data")
        by_seed = {}
        for seed in args.seeds if of.name == "echo-haze" else args.seeds[:1]:
            dehazer = Dehazer.from_pretrained(seed=seed, device="cpu")
            records = [r for scan in scans[: args.limit] for r in measure(scan, of, dehazer, kept)]
            by_seed[str(seed)] = metrics_document(records, None, scans=len(scans), margin_px=of.margin_px)
            document |= {
                "priors": list(priors_of(dehazer).values()),
                "preset": dehazer.settings.preset,
                "steps": dehazer.settings.steps,
            }
        document["sets"][of.name] = by_seed
    if "camus" in document["sets"]:
        held_out = set(read_patients(PATIENTS, "held-out")["camus"])
        for seed, of_seed in document["sets"]["camus"].items():
            records = [record for record in of_seed["frames"] if record["cine"] in held_out]
            if records:
                document["sets"]["camus, held out"] = {seed: metrics_document(records, None, scans=len(held_out))}
    return document


def main(arguments: list[str] | None = None) -> None:
    """Measures, and writes REAL.md and real.json; in RESULTS.md, where there is one, the part between the marks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the clips; stills take the first")
    parser.add_argument("--limit", type=int, help="first files of each set")
    parser.add_argument("--only", choices=[of.name for of in SETS], help="one set; writes no tables")
    parser.add_argument("--threads", type=int, default=1, help="CPU cores to use")
    parser.add_argument("--work", type=Path, default=RUNS / "real", help="where records are kept")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where REAL.md, real.json and RESULTS.md are")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    try:
        document = study(args, real_scans())
        if args.only:
            return
        texts = {args.out / "REAL.md": page(document)}
        results = args.out / "RESULTS.md"
        if results.exists():
            texts[results] = in_results(results, document)
        write_json(args.out / "real.json", document)
        for path, text in texts.items():
            with atomic(path, overwrite=True) as part:
                part.write_text(text, encoding="utf-8")
    except UsdehazeError as error:
        sys.exit(f"real: {error}")


if __name__ == "__main__":
    main()
