"""What fine-tuning the posterior on the clean frames of one probe gains on other clips: one command.

    python -m validation.adapt                                       # about half a CPU hour, then ADAPT.md
    python -m validation.adapt --clips 5 --steps 300 --out few.md    # from fewer clips

``usdehaze train posterior --tissue ... --haze simulated --from-prior posterior`` learns from the clips of
``clean-cines`` (in USDEHAZE_DATA) that are for tuning; the posterior that comes out is held against the one that went
in, on the clips that are held out and on another probe's, with parts b, c, d and h of the bench. Steps and rate are not
to be chosen by these figures, but by what ``train`` holds out itself. The weights learned from patients' frames: they
stay in --work and are never shipped. A run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path
from typing import Any

import torch

from usdehaze.cli.train import train
from usdehaze.errors import UsdehazeError
from usdehaze.io.atomic import atomic
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.training.data import Pairs, SimulatedFrames
from usdehaze.training.scans import frames_of_scans
from usdehaze.training.train import errors_on
from usdehaze.validation.benchmark import OURS
from validation.adapt.tables import page
from validation.bench.parts import Bench
from validation.bench.wide import camus_as_it_is
from validation.paths import PATIENTS, RESULTS, RUNS, real_scans
from validation.patients import SHARES, read_patients
from validation.records import PACKAGE, Records, code_hash, file_digest
from validation.scenes import CLEAN_CINES

HAZES = 3  # that each clip is put under: with 21 clips every level and extent comes up equally often
CHECKPOINT_EVERY = 50  # steps after which the log says what the held-out loss is


def main(arguments: list[str] | None = None) -> None:
    """Fine-tunes what is not fine-tuned yet, measures what is not measured yet, and writes the tables."""
    args = parser().parse_args(arguments)
    torch.set_num_threads(args.threads)
    try:
        document = study(args)
        text = "\n".join(page(document, " ".join(["python -m validation.adapt", *(arguments or sys.argv[1:])]).strip()))
        with atomic(args.out, overwrite=True) as part:
            part.write_text(text + "\n", encoding="utf-8")
    except UsdehazeError as error:
        sys.exit(f"adapt: {error}")
    print(text)


def study(args: argparse.Namespace) -> dict[str, Any]:
    """Settings, cards and records of both posteriors."""
    data = real_scans()
    if not (data / CLEAN_CINES).is_dir():
        raise UsdehazeError(f"no real scans in {data}; set USDEHAZE_DATA to their folder")
    names = read_patients(PATIENTS, SHARES[0])[CLEAN_CINES][: args.clips]
    clips = [data / CLEAN_CINES / f"{name}.h5" for name in names]
    shipped = LearnedPosterior.load(args.posterior)
    grid = (int(shipped.card["grid"][0]), int(shipped.card["grid"][1]))
    path = fine_tuned(args, shipped, clips)
    adapted = LearnedPosterior.load(path)

    records = Records(args.work / "records", "validation.adapt.__main__")
    limits = dict.fromkeys("bcdh", args.limit) if args.limit else {}
    benches = {}
    for label, posterior in {"before": args.posterior, "adapted": path}.items():
        options = {"preset": "fast", "posterior": posterior, "device": "cpu"}
        bench = Bench(options, data, records, SHARES[1], limits=dict(limits), sets=(CLEAN_CINES,), oracles=False)
        bench.limits.setdefault("b", HAZES * bench.n_clean)
        benches[label] = bench

    held_out = Pairs(frames_of_scans(clips, grid), SimulatedFrames("haze", grid)).held_out
    return {
        "settings": vars(benches["adapted"].dehazer().settings),
        "posteriors": {"before": shipped.name, "adapted": adapted.name},
        "card": adapted.card,
        "own": {label: errors_on(each, held_out) for label, each in (("before", shipped), ("adapted", adapted))},
        "h": {label: camus_as_it_is(bench)["records"] for label, bench in benches.items()},
        "d": {label: bench.harm() for label, bench in benches.items()},
        "c": {label: bench.clips() for label, bench in benches.items()},
        "b": {label: [r for r in bench.under_haze() if r["method"] == OURS] for label, bench in benches.items()},
    }


def fine_tuned(args: argparse.Namespace, shipped: LearnedPosterior, clips: list[Path]) -> Path:
    """The posterior fine-tuned on these clips, by the command of the manual.

    Raises:
        UsdehazeError: scans that cannot be read, or training was stopped.
    """
    made_by = [shipped.sha256, *map(file_digest, [*clips, PACKAGE / "cli" / "train.py"]), code_hash("usdehaze")]
    digest = hashlib.sha256(" ".join(made_by).encode()).hexdigest()[:8]
    out: Path = args.work / f"posterior-{digest}-{len(clips)}-{args.steps}-{args.lr:g}.safetensors"
    if not out.exists():
        words = ["posterior", "--tissue", *map(str, clips), "--haze", "simulated", "-o", str(out)]
        words += ["--from-prior", str(args.posterior), "--steps", str(args.steps), "--lr", f"{args.lr:g}"]
        words += ["--checkpoint-every", str(CHECKPOINT_EVERY), "--device", "cpu"]
        if train.main(words, prog_name="usdehaze train", standalone_mode=False):
            raise UsdehazeError("fine-tuning was stopped; the same command goes on")
    return out


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="of the fine-tuning (300)")
    parser.add_argument("--lr", type=float, default=2e-4, help="its learning rate (2e-4)")
    parser.add_argument("--clips", type=int, help="first so many clips to learn from (all that are for tuning)")
    parser.add_argument("--posterior", default="posterior", help="to begin with: file, or name of the shipped one")
    parser.add_argument("--limit", type=int, help="at most so many scenes of each part")
    parser.add_argument("--threads", type=int, default=1, help="CPU cores to use (1)")
    parser.add_argument("--work", type=Path, default=RUNS / "adapt", help="weights and records")
    parser.add_argument("--out", type=Path, default=RESULTS / "ADAPT.md", help="the tables")
    return parser


if __name__ == "__main__":
    main()
