"""``usdehaze verify``: whether results are as they were written, and what lies beside them belongs to them."""

from __future__ import annotations

from pathlib import Path

import click

from usdehaze.cli.group import DONE, SOME_FAILED, common_options, complain, console_of, results_in
from usdehaze.cli.options import PATH


@click.command()
@click.argument("results", nargs=-1, required=True, type=PATH, metavar="RESULT...")
@common_options
@click.pass_context
def verify(ctx: click.Context, results: tuple[Path, ...]) -> None:
    """Says whether every RESULT is as it was written: its digest, and values that no dehazing gives.

    Its DICOM, zea, preview and review files must be of the run that made it. A RESULT may be a folder: every result in
    it. The digest shows that a result has been changed, not by whom; of the files beside it nothing but their run is
    looked at.
    """
    from usdehaze.io.doubts import companions_of, doubts_of, doubts_of_companions

    console = console_of(ctx)
    paths, failed = results_in(console, results)
    for path in paths:
        try:
            doubts = list(dict.fromkeys([*doubts_of(path), *doubts_of_companions(path)]))
        except Exception as error:
            console.report(error, path)
            failed += 1
            continue
        for doubt in doubts:
            complain(f"{path}: {doubt}")
        failed += bool(doubts)
        if not doubts:
            beside = [companion.name for companion in companions_of(path)]
            console.say(f"{path}: as it was written" + (f"; of its run are {', '.join(beside)}" if beside else ""))
    ctx.exit(SOME_FAILED if failed else DONE)
