"""``usdehaze review``: the page on which a result is judged."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from usdehaze.cli.group import Console, common_options, complain, console_of
from usdehaze.cli.options import PATH, FrameRange, check_regions, region_options
from usdehaze.cli.progress import frame_progress


@click.command()
@click.argument("result", type=PATH, metavar="RESULT.h5")
@click.option("-o", "--out", type=PATH, metavar="PAGE.html", help="The page; STEM.review.html beside the result.")
@click.option(
    "--roi",
    metavar="FILE|DIR|auto",
    help="Regions of interest, in any form that validate reads; or auto, found by brightness and marked as such.",
)
@region_options
@click.option("--against", type=PATH, metavar="OTHER.h5", help="Another result of the same source, side by side.")
@click.option("--frames", type=FrameRange(), metavar="0:30", help="Range of the result's frames; all by default.")
@click.option("--show-source-name", is_flag=True, help="Print the source's file name, which may name a patient.")
@click.option("--with-screen", is_flag=True, help="Show the screen around the images, where names may be written.")
@click.option("--open/--no-open", "open_page", default=True, help="Open the page where there is a browser (default).")
@click.option("--overwrite", is_flag=True, help="Replace a page (with --serve: regions) that exists.")
@click.option("--serve", is_flag=True, help="Serve the page to this machine alone; regions are saved: STEM.rois.json.")
@click.option("--port", type=click.IntRange(0, 65535), help="Of --serve; a free one by default.")
@common_options
@click.pass_context
def review(
    ctx: click.Context,
    result: Path,
    out: Path | None,
    roi: str | None,
    labels: str | None,
    margin_px: float | None,
    against: Path | None,
    frames: slice | None,
    show_source_name: bool,
    with_screen: bool,
    open_page: bool,
    overwrite: bool,
    serve: bool,
    port: int | None,
) -> None:
    """Makes one self-contained HTML page of RESULT: pictures, figures, provenance and limits; opens it."""
    from usdehaze.review import build_review, default_page_path

    if serve and out is not None:
        raise click.UsageError("--serve keeps no page: it excludes --out")
    check_regions(roi, labels, margin_px)
    if port is not None and not serve:
        raise click.UsageError("--port belongs to --serve")
    console = console_of(ctx)

    def build(target: Path, overwrite: bool) -> Path:
        with frame_progress(result.name, 0, console.quiet) as progress:
            return build_review(
                result,
                target,
                roi,
                overwrite,
                labels=labels,
                margin_px=margin_px,
                frames=frames,
                show_source_name=show_source_name,
                with_screen=with_screen,
                progress=progress,
                tell=lambda doubt: complain(f"{result}: {doubt}"),
                served=serve,
                against=against,
            )

    if serve:
        _serve(result, build, roi, margin_px, overwrite, port or 0, open_page, console)
        return
    page = build(out or default_page_path(result), overwrite)
    console.say(f"{page} ({page.stat().st_size / 1e6:.1f} MB)")
    if open_page and _has_browser():
        _open(page.absolute().as_uri())


def _serve(
    result: Path,
    build: Callable[[Path, bool], Path],
    roi: str | None,
    margin_px: float | None,
    overwrite: bool,
    port: int,
    open_page: bool,
    console: Console,
) -> None:
    """Serves the page until the command is stopped."""
    from tempfile import TemporaryDirectory

    from usdehaze.io.atomic import check_target
    from usdehaze.io.result import open_result
    from usdehaze.review import ReviewServer, default_regions_path
    from usdehaze.review.page import drawn_polygons
    from usdehaze.validation.regions import region_file, stem_for

    regions = default_regions_path(result)
    with open_result(result) as opened:
        shape, source = opened.cine.shape, opened.cine.source
    given = None if roi is None else region_file(roi, stem_for(roi, result, source)).absolute()
    check_target(regions, overwrite or given == regions.absolute())
    with TemporaryDirectory(prefix="usdehaze-") as folder:
        page, saved = Path(folder) / "page.html", lambda path: console.say(f"{path} saved")
        with ReviewServer(page, regions, result, shape, port, saved) as server:  # knows the regions that the page shows
            build(page, False)
            if given == regions.absolute() and (margin_px or not drawn_polygons(regions)):
                check_target(regions, overwrite)  # the page has none of the regions that it would replace
            click.echo(f"{server.address} until Ctrl-C; regions are saved to {regions}")
            if open_page and _has_browser():
                _open(server.address)
            server.serve_forever()


def _open(address: str) -> None:
    import webbrowser

    webbrowser.open(address)


def _has_browser() -> bool:
    """Whether somebody sits at a terminal of a machine with a screen."""
    if not sys.stdout.isatty():
        return False
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
