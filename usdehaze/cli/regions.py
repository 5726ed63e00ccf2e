"""``usdehaze regions``: regions of interest in another form."""

from __future__ import annotations

from pathlib import Path

import click

from usdehaze.cli.group import common_options, complain, console_of
from usdehaze.cli.options import PATH, check_regions, region_options


@click.command()
@click.argument("result", type=PATH, metavar="RESULT.h5")
@click.option(
    "--roi", type=PATH, required=True, metavar="FILE|DIR|auto", help="Regions, in any form that validate reads."
)
@region_options
@click.option("-o", "--out", type=PATH, required=True, metavar="FILE", help="The file to write: .dcm, .png or .h5.")
@click.option("--source", type=PATH, metavar="FILE", help=".dcm: the DICOM image of RESULT, where it is not beside it.")
@click.option("--overwrite", is_flag=True, help="Replace a file that exists.")
@common_options
@click.pass_context
def regions(
    ctx: click.Context,
    result: Path,
    roi: Path,
    labels: str | None,
    margin_px: float | None,
    out: Path,
    source: Path | None,
    overwrite: bool,
) -> None:
    """Writes the regions of RESULT as a DICOM Segmentation in the study of its source (.dcm; extra report), or as a
    label image (.png, .h5): 255 tissue, 128 haze, 64 faint."""
    from usdehaze.validation.regions.writing import write_regions

    check_regions(roi, labels, margin_px)
    write_regions(out, result, roi, labels, margin_px, source, overwrite)
    console = console_of(ctx)
    console.say(f"{roi} -> {out}")
    if str(roi) == "auto" and not console.quiet:
        complain(f"{out}: regions that nobody drew; figures of it will not say so, and gCNR is high by construction")
