"""What fine-tuning the tissue prior on the clean frames of one probe gains on other clips: one command.

    python -m validation.adapt                                       # about half a CPU hour, then ADAPT.md
    python -m validation.adapt --clips 5 --steps 300 --out few.md    # from fewer clips

``usdehaze train tissue ... --from-prior tissue`` learns from the clips of ``clean-cines`` (in USDEHAZE_DATA) that are
for tuning; the prior that comes out is held against the one that went in, on the clips that are held out, with parts b
to e of the bench. Steps and rate are not to be chosen by these figures, but by what ``train`` holds out itself. The
weights learned from patients' frames: they stay in --work and are never shipped. A run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from usdehaze.cli.train import train
from usdehaze.errors import UsdehazeError
from usdehaze.io.atomic import atomic
from usdehaze.priors.prior import Prior
from usdehaze.training.objective import held_out_loss
from usdehaze.training.scans import frames_of_scans
from usdehaze.training.train import HELD_OUT_SIGMAS
from usdehaze.validation.benchmark import OURS
from validation.adapt.tables import page
from validation.bench.parts import Bench, model_frame
from validation.figures import SIGMAS, denoising_loss
from validation.paths import PATIENTS, RESULTS, RUNS, real_scans
from validation.patients import SHARES, read_patients
from validation.records import PACKAGE, Records, code_hash, digest_of, file_digest
from validation.scenes import CAMUS, CLEAN_CINES

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
    """Settings, cards and records of every prior that is compared."""
    data = real_scans()
    if not (data / CLEAN_CINES).is_dir():
        raise UsdehazeError(f"no real scans in {data}; set USDEHAZE_DATA to their folder")
    names = read_patients(PATIENTS, SHARES[0])[CLEAN_CINES][: args.clips]
    clips = [data / CLEAN_CINES / f"{name}.h5" for name in names]
    shipped = Prior.load(args.tissue_prior, "tissue")
    path = fine_tuned(args, shipped, clips)
    adapted = Prior.load(path, "tissue")
    paths = {"before": args.tissue_prior, "adapted": path}

    records = Records(args.work / "records", "validation.adapt.__main__")
    limits = dict.fromkeys("bcde", args.limit) if args.limit else {}
    benches = {}
    for label, prior in paths.items():
        options = {"preset": "fast", "tissue_prior": prior, "haze_prior": args.haze_prior, "device": "cpu"}
        bench = Bench(options, data, records, SHARES[1], limits=limits, sets=(CLEAN_CINES,), oracles=False)
        bench.limits.setdefault("b", HAZES * bench.n_clean)
        benches[label] = bench
    every_set = Bench(benches["before"].options, data, records, SHARES[1], limits=dict(limits))

    held_out = frames_of_scans(clips, tuple(shipped.card["grid"])).held_out
    before = dict(zip(HELD_OUT_SIGMAS, held_out_loss(shipped, held_out, HELD_OUT_SIGMAS), strict=True))
    dehazer = benches["adapted"].dehazer()
    return {
        "settings": vars(dehazer.settings),
        "haze_prior": dehazer.haze.name if dehazer.haze else "none",
        "priors": {"before": shipped.name, "adapted": adapted.name},
        "card": adapted.card,
        "own": {f"{s:g}": (loss, adapted.card["held_out"][f"{s:g}"]) for s, loss in before.items()},
        "card_before": shipped.card.get("held_out", {}),
        "e": losses(every_set, {"before": shipped, "adapted": adapted}),
        "d": {label: bench.harm() for label, bench in benches.items()},
        "c": {label: bench.clips() for label, bench in benches.items()},
        "b": {label: [r for r in bench.under_haze() if r["method"] == OURS] for label, bench in benches.items()},
    }


def fine_tuned(args: argparse.Namespace, shipped: Prior, clips: list[Path]) -> Path:
    """The prior fine-tuned on these clips, by the command of the manual.

    Raises:
        UsdehazeError: scans that cannot be read, or training was stopped.
    """
    made_by = [shipped.sha256, *map(file_digest, [*clips, PACKAGE / "cli" / "train.py"]), code_hash("usdehaze")]
    digest = hashlib.sha256(" ".join(made_by).encode()).hexdigest()[:8]
    out = args.work / f"tissue-{digest}-{len(clips)}-{args.steps}-{args.lr:g}.safetensors"
    if not out.exists():
        words = ["tissue", *map(str, clips), "-o", str(out), "--from-prior", str(args.tissue_prior)]
        words += ["--steps", str(args.steps), "--lr", f"{args.lr:g}", "--checkpoint-every", str(CHECKPOINT_EVERY)]
        if train.main([*words, "--device", "cpu"], prog_name="usdehaze train", standalone_mode=False):
            raise UsdehazeError("fine-tuning was stopped; the same command goes on")
    return out


def losses(bench: Bench, priors: dict[str, Prior]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Part e, scan by scan: denoising loss over sigma^2 by noise level, for each set of scans and prior."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    grid = bench.dehazer().grid
    for scan in bench.clean_scans(bench.some("e", bench.n_clean)):
        frame, counts = (t[None, None] for t in model_frame(scan.cine, grid))

        def measure(prior: Prior, frame: torch.Tensor = frame, counts: torch.Tensor = counts) -> dict[str, Any]:
            of_level = denoising_loss(prior, frame, counts)
            return {f"{sigma:g}": {"tissue": loss} for sigma, loss in zip(SIGMAS, of_level, strict=True)}

        of_set = found.setdefault(CLEAN_CINES if scan.cavities is None else CAMUS, {label: [] for label in priors})
        for label, prior in priors.items():
            by = {"prior": prior.name, "frames": digest_of(frame.numpy(), counts.numpy())}
            of_set[label].append(bench.records.kept("e", scan.cine.source.name, by, partial(measure, prior)))
    return found


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="of the fine-tuning (300)")
    parser.add_argument("--lr", type=float, default=2e-4, help="its learning rate (2e-4)")
    parser.add_argument("--clips", type=int, help="first so many clips to learn from (all that are for tuning)")
    parser.add_argument("--tissue-prior", default="tissue", help="to begin with: file, or name of a shipped one")
    parser.add_argument("--haze-prior", default="haze", help="that goes with it")
    parser.add_argument("--limit", type=int, help="at most so many scenes of each part")
    parser.add_argument("--threads", type=int, default=1, help="CPU cores to use (1)")
    parser.add_argument("--work", type=Path, default=RUNS / "adapt", help="weights and records")
    parser.add_argument("--out", type=Path, default=RESULTS / "ADAPT.md", help="the tables")
    return parser


if __name__ == "__main__":
    main()
