"""The paper's experiments: ``python -m validation.paper EXPERIMENT [--methods ...] [--images N] [--quick]``.

Trains the priors and systems that are missing, measures every method image by image, and writes figures (JSON), a
table (RESULTS.md) and a sheet of pictures. What was measured is kept in --work: the same command goes on where it was
stopped, and adds methods and images to those that are there; figures of other methods stay. "all" is one experiment
after another, "timing" one image of each method with one thread.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import torch

from usdehaze.dehazing.device import find_device
from usdehaze.errors import UsdehazeError
from validation.paper import report, timing
from validation.paper.experiments import EXPERIMENTS, measured
from validation.paper.methods import METHODS, PAPER_STEPS
from validation.paper.priors import RECIPES
from validation.paper.study import SHOWN, Options, study, wanted
from validation.paper.systems.base import TRAIN_STEPS, Budget
from validation.paths import HERE, RUNS

RESULTS = HERE / "paper" / "RESULTS.md"
FIGURES = HERE / "paper" / "results"
RESTARTS = 3
QUICK = {"images": 2, "network": "tiny", "prior_steps": 2, "steps": 3, "trained_on": 24}


def main(words: list[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        prog="python -m validation.paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", choices=[*EXPERIMENTS, "all", "timing"])
    parser.add_argument("--methods", nargs="+", metavar="M[=N]", help=f"on N images; of: {'; '.join(METHODS)}")
    parser.add_argument("--images", type=_positive, help="of each other method at most (100, or 20 of slow ones)")
    parser.add_argument("--quick", action="store_true", help="two images, tiny networks, three steps: does it run?")
    parser.add_argument("--work", type=Path, default=RUNS / "paper", help="records, weights, pictures")
    parser.add_argument("--network", choices=[n for n in RECIPES if n != "tiny"], default="fast-unet")
    parser.add_argument("--prior-steps", type=_positive, default=8000, help="optimiser steps of missing priors (8000)")
    parser.add_argument("--signal-prior", type=Path, help="weights to take, as of usdehaze train tissue")
    parser.add_argument("--noise-prior", type=Path, help="weights to take, as of usdehaze train haze")
    parser.add_argument("--posterior", type=Path, help="weights to take, as of usdehaze train posterior")
    parser.add_argument("--steps", type=_positive, default=PAPER_STEPS, help="of the paper's samplers (600)")
    parser.add_argument("--train-steps", type=_positive, default=TRAIN_STEPS, help="of FLOW and GAN (2000)")
    parser.add_argument("--no-lpips", action="store_true", help="leave LPIPS out")
    parser.add_argument("--restarts", type=_positive, default=RESTARTS, help="of a search from random starts (3)")
    parser.add_argument("--batch", type=_positive, default=20, help="measurements solved together (20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N")
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    each = [_counted(parser, word) for word in args.methods or ()]
    methods = [name for name, _ in each] or None
    if args.experiment == "all" and (args.noise_prior or args.posterior):
        parser.error("--noise-prior and --posterior go with one experiment, whose noise they know")
    given = {k: getattr(args, k) for k in ("network", "prior_steps", "steps", "images")}
    try:
        device = find_device(args.device)
    except UsdehazeError as error:
        parser.error(f"--device: {error}")
    budget = Budget(args.train_steps, restarts=args.restarts, device=device)
    if args.quick:
        given |= QUICK
        each.append(("bm3d", 1))  # it has no small size
        budget = Budget(2, batch=4, solve_steps=2, tiny=True, device=device)
    priors = {"signal_prior": args.signal_prior, "noise_prior": args.noise_prior, "posterior": args.posterior}
    options = Options(
        work=args.work,
        batch=args.batch,
        seed=args.seed,
        budget=budget,
        lpips=not args.no_lpips,
        device=device,
        **given,
        **priors,
        of_method={name: n for name, n in each if n},
    )
    where = (args.work / "RESULTS.md", args.work / "results") if args.quick else (RESULTS, FIGURES)
    try:
        if args.experiment == "timing":
            timing.run(methods, options, where[0], _command("timing", methods, options))
            return
        for name in EXPERIMENTS if args.experiment == "all" else [args.experiment]:
            _run(name, methods, options, *where)
    except UsdehazeError as error:
        sys.exit(f"validation.paper: {error}")


def _run(name: str, methods: list[str] | None, options: Options, results: Path, figures: Path) -> None:
    experiment = EXPERIMENTS[name]
    names = wanted(experiment, methods)
    command = _command(name, methods, options)
    records = list(study(name, experiment, names, options))
    if options.beside:
        name, experiment = name + options.beside, replace(experiment, title=f"{experiment.title}, NCSNv2")
    done = report.merged(figures / f"{name}.json", records, command)
    n = max((len(r.get("figures", {})) for r in done), default=0)
    if n:
        report.sheet(options.work / "sheets" / f"{name}.png", measured(experiment, "test", min(n, SHOWN)), done)
    report.write_section(results, name, report.section(name, experiment, done))
    report.write_figures(figures / f"{name}.json", name, done)
    print("\n".join(report.table(experiment, done)))


def _command(name: str, methods: list[str] | None, options: Options) -> str:
    """The command that gives these figures, but for folders: all options that are not what they are by default."""
    plain, budget = Options(options.work), options.budget
    words = [f"python -m validation.paper {name}"]
    if methods:
        counted = [f"{m}={options.of_method[m]}" if m in options.of_method else m for m in methods]
        words.append("--methods " + " ".join(map(shlex.quote, counted)))
    words += [f"--images {options.images}"] if options.images and not budget.tiny else []
    words += [f"--network {options.network}"] if options.network != plain.network and not budget.tiny else []
    words += ["--signal-prior S.safetensors"] if options.signal_prior else []
    words += ["--noise-prior N.safetensors"] if options.noise_prior else []
    words += ["--posterior P.safetensors"] if options.posterior else []
    words += ["--no-lpips"] if not options.lpips else []
    words += [f"--device {options.device}"] if options.device.type != "cpu" else []
    if budget.tiny:
        return " ".join([*words, f"--quick --seed {options.seed}"])
    words += [f"--prior-steps {options.prior_steps}"] if options.prior_steps != plain.prior_steps else []
    words += [f"--train-steps {budget.train_steps}"] if budget.train_steps != TRAIN_STEPS else []
    words += [f"--restarts {budget.restarts}"] if budget.restarts != RESTARTS else []
    return " ".join([*words, f"--steps {options.steps} --seed {options.seed}"])


def _counted(parser: argparse.ArgumentParser, word: str) -> tuple[str, int | None]:
    """``name`` or ``name=N``."""
    name, _, n = word.partition("=")
    if n and not (n.isdecimal() and int(n)):
        parser.error(f"--methods {word}: {n} is no number of images")
    return name, int(n) if n else None


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value


if __name__ == "__main__":
    main()
