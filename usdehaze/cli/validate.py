"""``usdehaze validate``: metrics on results, or the truth-known benchmark."""

from __future__ import annotations

from pathlib import Path

import click

from usdehaze.cli.group import SOME_FAILED, common_options, console_of, echo, results_in
from usdehaze.cli.options import PATH, check_regions, region_options


@click.command()
@click.argument("results", nargs=-1, type=PATH, metavar="[RESULT.h5...]")
@click.option("--gcnr", is_flag=True, help="Generalised contrast-to-noise ratio and its companions.")
@click.option(
    "--gcnr-bins", type=click.IntRange(2, 100_000), metavar="N", help="Fixed bins; equiprobable bins by default."
)
@click.option(
    "--roi",
    type=PATH,
    metavar="FILE|DIR|auto",
    help="Regions of interest: JSON polygons, label PNG, NIfTI or HDF5 (FILE.h5:DATASET), DICOM SEG; a folder with one "
    "for each scan; or auto, found by brightness in the input and marked as such.",
)
@region_options
@click.option(
    "--truth",
    type=PATH,
    metavar="FILE|DIR",
    help="Simulation that RESULT was made of: adds errors against its truth.",
)
@click.option("--json", "json_path", type=PATH, metavar="FILE", help="Write every figure, with its estimator.")
@click.option("--report", type=PATH, metavar="DIR", help="Write JSON, CSV, panels and a PDF to DIR.")
@click.option(
    "--with-screen", is_flag=True, help="--report: show the screen around the images, where names may be written."
)
@click.option(
    "--sr",
    type=PATH,
    metavar="FILE.dcm",
    help="Write the figures of the one RESULT as a DICOM structured report (extra report), in the study of its source.",
)
@click.option("--source", type=PATH, metavar="FILE", help="--sr: the DICOM image of RESULT, where it is not beside it.")
@common_options
@click.pass_context
def validate(
    ctx: click.Context,
    results: tuple[Path, ...],
    gcnr: bool,
    gcnr_bins: int | None,
    roi: Path | None,
    labels: str | None,
    margin_px: float | None,
    truth: Path | None,
    json_path: Path | None,
    report: Path | None,
    with_screen: bool,
    sr: Path | None,
    source: Path | None,
) -> None:
    """Metrics on RESULT files or folders; without any, the built-in truth-known benchmark of what is installed."""
    from usdehaze.validation.command import run

    if not results and (roi, labels, margin_px, truth) != (None, None, None, None):
        raise click.UsageError("--roi, --labels, --margin and --truth need a RESULT; the benchmark has its own.")
    check_regions(roi, labels, margin_px)
    console, lost = console_of(ctx), 0
    found: list[Path] = []
    if results:
        found, lost = results_in(console, results)
    if sr is not None and len(found) != 1:
        raise click.UsageError("--sr is about one RESULT: a report belongs to one study.")
    if source is not None and sr is None:
        raise click.UsageError("--source belongs to --sr.")
    code = run(
        found, gcnr, gcnr_bins, roi, json_path, report, console.quiet, echo, labels, margin_px, truth, with_screen,
        sr, source,
    )  # fmt: skip
    ctx.exit(SOME_FAILED if lost else code)
