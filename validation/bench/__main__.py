"""How good a dehazer and its priors are: one command; of each method a JSON, its tables, and a column of headlines.

    python -m validation.bench                                   # the shipped posterior, real scans kept for tuning
    python -m validation.bench --set posterior=runs/posterior.safetensors
    python -m validation.bench --quick --tissue-prior runs/tissue.safetensors --haze-prior runs/haze.safetensors
    python -m validation.bench --patients held-out --baselines   # final figures
    python -m validation.bench --patients held-out --only b,c,d,e --card   # the same onto the networks' cards
    python -m validation.bench --only g,h,i,j --methods proximal dps --set strength=0.5,1   # several side by side

Parts (--only): a, simulated hearts with known truth; b, clean real frames under a fixed set of simulated hazes; c, real
hazy clips; d, harm done to clean real frames; e, denoising loss on real tissue and on the hazes; f, a sheet of samples
(it shows real frames: keep it out of the repository); g, a second simulator; h, labelled real frames as they are
(CAMUS); i, real hazy clips as they play; j, harm to what can be seen of clean clips. What each figure is:
docs/validation.md. Real scans are in USDEHAZE_DATA. Every frame leaves a record in --out, named after all that it
depends on: a second run, or one that was stopped, measures only what is new.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from usdehaze.dehazing.settings import POSTERIOR, PRESETS, PRIORS
from usdehaze.errors import UsdehazeError
from usdehaze.validation.evaluate import summarise, write_json
from validation.baselines import GAUSSIAN_STEPS
from validation.bench.card import check, write_cards
from validation.bench.methods import chosen_methods
from validation.bench.parts import CINE_FRAMES, Bench
from validation.bench.sheet import write_sheet
from validation.bench.summary import summary_table
from validation.bench.tables import by_cell, lowest_cell, tables
from validation.bench.wide import WIDE
from validation.paths import RUNS, real_scans
from validation.patients import SHARES
from validation.records import Records, priors_of

PARTS = "abcdef" + "".join(WIDE)
QUICK = {"a": 2, "b": 12, "d": 6, "e": 12, "g": 4, "h": 4, "i": 2, "j": 3}  # scenes, with one seed and no sheet
QUICK_CINE_FRAMES = 4


def main(arguments: list[str] | None = None) -> None:
    """Measures, writes the JSON and prints the tables."""
    args = parser().parse_args(arguments)
    try:
        print("\n".join(run(args)))
    except UsdehazeError as error:
        sys.exit(f"bench: {error}")


def run(args: argparse.Namespace) -> list[str]:
    """The tables, once everything asked for is measured and written."""
    wanted = args.only.replace(",", "")
    if not wanted or set(wanted) - set(PARTS):
        raise UsdehazeError(f"no such part in --only {args.only}; there are {','.join(PARTS)}")
    if args.limit is not None and args.limit < 1:
        raise UsdehazeError(f"--limit must be at least 1, found {args.limit}")
    if args.cine_frames is not None and args.cine_frames < 1:
        raise UsdehazeError(f"--cine-frames must be at least 1, found {args.cine_frames}")
    if args.quick:
        wanted = wanted.replace("f", "")
    methods = chosen_methods(args)
    if args.card:
        check(wanted, args.patients, list(methods))
    data = real_scans()
    if set(wanted) - {"a"} and not data.is_dir():
        raise UsdehazeError(f"no real scans in {data}; set USDEHAZE_DATA to their folder, or measure --only a")
    benches = {label: make_bench(args, options, data) for label, options in methods.items()}
    paths = {label: args.out / f"{run_name(args, bench, wanted, label)}.json" for label, bench in benches.items()}
    documents: dict[str, dict[str, Any]] = {}
    lines: list[str] = []
    for label, bench in benches.items():
        document = documents[label] = measure(bench, wanted)
        write_json(paths[label], document)
        lines += [*tables(document), f"figures: {paths[label]}"]
        if "f" in wanted:
            write_sheet(paths[label].with_suffix(".png"), bench)
            lines.append(f"sheet: {paths[label].with_suffix('.png')}")
        lines.append("")
    lines += summary_table(documents)
    if args.card:
        (label,) = methods
        lines += [f"card: {card}" for card in write_cards(documents[label], networks_of(benches[label]))]
    return lines


def make_bench(args: argparse.Namespace, options: dict[str, Any], data: Path) -> Bench:
    """The bench of one method, its dehazer made so that what is wrong with it shows before anything is measured."""
    bench = Bench(
        options=options,
        data=data,
        records=Records(args.out / "records", "validation.bench.wide"),
        share=args.patients,
        seeds=tuple(args.seeds or ((0,) if args.quick else (0, 1, 2))),
        limits=dict.fromkeys(PARTS, args.limit) if args.limit else QUICK if args.quick else {},
        cine_frames=args.cine_frames or (QUICK_CINE_FRAMES if args.quick else CINE_FRAMES),
        baselines=args.baselines,
        gaussian_steps=args.gaussian_steps,
    )
    bench.dehazer()
    return bench


def networks_of(bench: Bench) -> dict[str, str]:
    """File or name of every network of a bench's dehazer, by kind."""
    own = {"posterior": POSTERIOR, **dict(zip(("tissue", "haze"), PRIORS, strict=True))}
    options = {"posterior": "posterior", "tissue": "tissue_prior", "haze": "haze_prior"}
    return {kind: str(bench.options.get(options[kind]) or own[kind]) for kind in priors_of(bench.dehazer())}


def run_name(args: argparse.Namespace, bench: Bench, wanted: str, label: str) -> str:
    """Of the files of a run: what was measured, and how much of it."""
    priors = [name.rsplit(":", 1)[-1][:8] for name in priors_of(bench.dehazer()).values()]
    method = [] if label == args.preset else [re.sub(r"[^\w.]+", "_", label)]
    numbers = [
        f"{what.split('_')[0]}{value}"
        for what in ("steps", "samples", "limit", "cine_frames")
        if (value := getattr(args, what))
    ]
    parts = [] if set(wanted) == set(PARTS) else [wanted]
    switches = [what for what in ("quick", "baselines") if getattr(args, what)]
    return "-".join([args.patients, *priors, args.preset, *method, *numbers, *switches, *parts])


def measure(bench: Bench, wanted: str) -> dict[str, Any]:
    """Settings, and of every part its summary and its records."""
    dehazer = bench.dehazer()
    document: dict[str, Any] = {
        "settings": {
            **{f"{kind}_prior": name for kind, name in priors_of(dehazer).items()},
            **vars(dehazer.settings),
            "patients": bench.share,
            "seeds": bench.seeds,
            "limits": bench.limits,
            "cine_frames": bench.cine_frames,
        }
    }
    for part, work in (("a", bench.simulated), ("c", bench.clips), ("d", bench.harm)):
        if part in wanted:
            records = work()
            document[part] = {"summary": summarise([{"frame": 0, **record} for record in records]), "records": records}
    if "b" in wanted:
        records = bench.under_haze()
        rows = {
            name: [r for r in records if r["method"] == name] for name in dict.fromkeys(r["method"] for r in records)
        }
        cells = {name: by_cell(rows[name]) for name in rows}
        document["b"] = {
            "methods": {name: summarise(rows[name]) for name in rows},
            "cells": cells,
            "lowest_cell": {name: lowest_cell(cells[name]) for name in rows},
            "records": records,
        }
    if "e" in wanted:
        document["e"] = bench.losses()
    return document | {part: work(bench) for part, work in WIDE.items() if part in wanted}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tissue-prior", help="file, or name of a shipped prior (the preset's)")
    parser.add_argument("--haze-prior", help="file, or name of a shipped prior (the preset's)")
    parser.add_argument("--preset", choices=list(PRESETS), default="fast")
    parser.add_argument("--steps", type=int, help="noise levels (the preset's)")
    parser.add_argument("--samples", type=int, help="posterior samples a frame (the preset's)")
    parser.add_argument("--methods", nargs="+", metavar="GUIDANCE", help="guidances to compare (the preset's)")
    parser.add_argument(
        "--set",
        action="append",
        metavar="NAME=VALUE[,VALUE]",
        help="any other setting of Dehazer.from_pretrained, for all methods; of several values each is a method",
    )
    parser.add_argument("--only", default=PARTS, help="parts, as in b,c (all)")
    parser.add_argument("--patients", choices=SHARES, default=SHARES[0], help="real clean scans to measure (tuning)")
    parser.add_argument("--limit", type=int, help="at most so many scenes of each part")
    parser.add_argument("--cine-frames", type=int, help=f"first frames of each clip of part i ({CINE_FRAMES})")
    parser.add_argument("--seeds", type=int, nargs="+", help="of the real hazy clips (0 1 2)")
    parser.add_argument("--quick", action="store_true", help="few scenes, one seed, no sheet")
    parser.add_argument("--baselines", action="store_true", help="also what runs without a haze prior, in part b")
    parser.add_argument("--gaussian-steps", type=int, default=GAUSSIAN_STEPS, help=f"of these ({GAUSSIAN_STEPS})")
    parser.add_argument("--card", action="store_true", help="put scores of held-out scans on the networks' cards")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:N or auto")
    parser.add_argument("--out", type=Path, default=RUNS / "bench", help="records, JSON, sheet")
    return parser


if __name__ == "__main__":
    main()
