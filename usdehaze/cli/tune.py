"""``usdehaze tune``: a preset from a handful of frames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdehaze.cli.group import Console, common_options, complain, console_of
from usdehaze.cli.options import (
    PATH,
    SEED,
    check_model,
    check_regions,
    model_options,
    reading_options,
    region_options,
    take_reading,
)
from usdehaze.cli.progress import step_progress

if TYPE_CHECKING:
    from usdehaze.tuning import Example, Tuned


@click.command()
@click.argument("scans", nargs=-1, required=True, metavar="SCAN...")
@click.option("-o", "--out", required=True, type=PATH, metavar="PRESET.yaml", help="The preset.")
@click.option("--roi", metavar="FILE|DIR", help="Regions of tissue and haze, in any form that validate reads.")
@region_options
@click.option("--frames", "n_frames", type=click.IntRange(1, 1000), default=5, show_default=True, help="To tune on.")
@click.option("--trials", type=click.IntRange(1, 100_000), default=40, show_default=True, help="Settings to try.")
@click.option("--max-steps", type=click.IntRange(1, 100_000), help="Most sampling steps; the preset's by default.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the search and of the random streams.")
@model_options
@reading_options
@click.option("--overwrite", is_flag=True, help="Replace a preset that exists.")
@common_options
@click.pass_context
def tune(
    ctx: click.Context,
    scans: tuple[str, ...],
    out: Path,
    roi: str | None,
    labels: str | None,
    margin_px: float | None,
    n_frames: int,
    trials: int,
    max_steps: int | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Finds caution, steps and strength (of a rule also lambda and kappa) on a few frames, for process --config.

    For SCANs of usdehaze simulate, whose true tissue is known, those of the best PSNR; with --roi, for any SCAN, those
    of the best gCNR between its regions that leave tissue as it was. A SCAN may be a folder; the frames are spread over
    all of them.
    """
    if roi == "auto":
        raise click.UsageError("--roi auto finds regions by brightness, which nothing can be tuned on; draw them")
    check_regions(roi, labels, margin_px)
    check_model(options)
    reading, console = take_reading(options), console_of(ctx)
    from usdehaze.io import list_scans
    from usdehaze.io.atomic import atomic, check_target
    from usdehaze.tuning import find_examples, preset_text, require_optuna
    from usdehaze.validation.regions import labels_and_margin

    require_optuna()
    check_target(out, overwrite, [] if roi is None else [roi])
    paths = list_scans(scans)
    if out.resolve() in [path.resolve() for path in paths]:
        raise click.UsageError(f"{out} is a scan; choose another -o")
    examples = find_examples(paths, n_frames, roi, *labels_and_margin(labels, margin_px), reading)
    tuned = _search(console, examples, trials, max_steps, options)
    names = ("posterior", "tissue_prior", "haze_prior")
    priors = {name.replace("_", "-"): str(p) for name in names if (p := options[name]) is not None}
    with atomic(out, overwrite) as part:
        part.write_text(preset_text(tuned, examples, trials, priors), encoding="utf-8")
    _tell(console, out, tuned, examples)


def _search(
    console: Console, examples: list[Example], trials: int, max_steps: int | None, options: dict[str, Any]
) -> Tuned:
    from usdehaze.dehazing.dehazer import Dehazer
    from usdehaze.tuning import goal_of
    from usdehaze.tuning import tune as search

    dehazer = Dehazer.from_pretrained(**options)
    with step_progress("tuning", trials, console.quiet, f"best {goal_of(examples).name}") as progress:
        return search(dehazer, examples, trials, max_steps, progress)


def _tell(console: Console, out: Path, tuned: Tuned, examples: list[Example]) -> None:
    from usdehaze.tuning import goal_of

    start, best, n = tuned.start, tuned.best, len(examples)
    console.say(
        f"{out} ({goal_of(examples).name}: {start.quality:.3f} -> {best.quality:.3f} on {n} frames, "
        f"network passes a frame: {start.evaluations:g} -> {best.evaluations:g})"
    )
    if not console.quiet:
        complain(f"{out} is a fit to {n} frames, not a test: measure it on others before you trust it")
