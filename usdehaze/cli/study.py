"""``usdehaze study``: reader studies, made and scored."""

from __future__ import annotations

from pathlib import Path

import click

from usdehaze.cli.group import DONE, SOME_FAILED, common_options, console_of, results_in
from usdehaze.cli.options import PATH, SEED, FrameRange


@click.group()
def study() -> None:
    """Reader studies: results before and after, blinded, for people to judge."""


@study.command()
@click.argument("results", nargs=-1, required=True, type=PATH, metavar="RESULT.h5...")
@click.option("-o", "--out", type=PATH, required=True, metavar="DIR", help="Folder for the pages and the key.")
@click.option("--readers", "n_readers", type=click.IntRange(1, 99), default=3, show_default=True, metavar="N")
@click.option("--seed", type=SEED, default=0, show_default=True, metavar="N", help="Of the randomisation.")
@click.option("--frames", type=FrameRange(), metavar="0:30", help="Frames of each result; the first 16 by default.")
@click.option("--with-screen", is_flag=True, help="Show the screen around the images, where names may be written.")
@click.option("--overwrite", is_flag=True, help="Replace a study that exists.")
@common_options
@click.pass_context
def make(
    ctx: click.Context,
    results: tuple[Path, ...],
    out: Path,
    n_readers: int,
    seed: int,
    frames: slice | None,
    with_screen: bool,
    overwrite: bool,
) -> None:
    """Makes one page a reader, DIR/reader-NN.html, and the key, DIR/study.json, which no reader should see."""
    from usdehaze.study import make_study

    found, lost = results_in(console_of(ctx), results)
    made = make_study(found, out, n_readers, seed, frames=frames, with_screen=with_screen, overwrite=overwrite)
    console_of(ctx).say(f"{out}: {len(made.readers)} pages of {len(made.cases)} pairs; answers go to {out / 'answers'}")
    ctx.exit(SOME_FAILED if lost else DONE)


@study.command()
@click.argument("folder", type=PATH, metavar="DIR")
@click.option("-o", "--out", type=PATH, metavar="DIR", help="Folder for scores and plots; DIR/scores by default.")
@click.option("--seed", type=SEED, default=0, show_default=True, metavar="N", help="Of the bootstrap.")
@common_options
@click.pass_context
def score(ctx: click.Context, folder: Path, out: Path | None, seed: int) -> None:
    """Scores the answers in DIR/answers: intervals over readers and cases, tests, agreement, plots."""
    from usdehaze.study import score_study
    from usdehaze.study.report import table, write_report

    console = console_of(ctx)
    scores = score_study(folder, seed)
    written = write_report(out or folder / "scores", scores, [folder / "study.json"])
    for line in table(scores):
        console.say(line)
    console.say(f"written: {', '.join(map(str, written))}")
