"""Command line ``usdehaze``. Importing it loads click alone: each command imports what it needs when it runs."""

from __future__ import annotations

import click

from usdehaze.cli.archive import archive
from usdehaze.cli.export import export
from usdehaze.cli.group import UsdehazeGroup, common_options, echo
from usdehaze.cli.info import info
from usdehaze.cli.live import live
from usdehaze.cli.node import node
from usdehaze.cli.process import process
from usdehaze.cli.regions import regions
from usdehaze.cli.review import review
from usdehaze.cli.simulate import simulate
from usdehaze.cli.study import study
from usdehaze.cli.train import train
from usdehaze.cli.tune import tune
from usdehaze.cli.validate import validate
from usdehaze.cli.verify import verify


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        import usdehaze

        echo(f"usdehaze {usdehaze.__version__}")
        ctx.exit()


@click.group("usdehaze", cls=UsdehazeGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Version.")
@common_options
def main() -> None:
    """Takes the haze off ultrasound cines: splits every frame into tissue and haze.

    Exit codes: 0 done, 1 some inputs failed, 2 wrong usage. Not a medical device.
    """


COMMANDS = (
    archive, export, info, live, node, process, regions, review, simulate, study, train, tune, validate, verify,
)  # fmt: skip
for command in COMMANDS:
    main.add_command(command)
