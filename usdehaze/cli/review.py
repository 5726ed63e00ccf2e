"""``usdehaze review``: the page on which a result is judged."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from usdehaze.cli.group import common_options, complain, console_of
from usdehaze.cli.options import FrameRange, region_options
from usdehaze.cli.progress import frame_progress

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("result", type=_PATH, metavar="RESULT.h5")
@click.option("-o", "--out", type=_PATH, metavar="PAGE.html", help="The page; STEM.review.html beside the result.")
@click.option(
    "--roi",
    metavar="FILE|auto",
    help="Regions of interest, in any form that validate reads; or auto, found by brightness and marked as such.",
)
@region_options
@click.option("--frames", type=FrameRange(), metavar="0:30", help="Range of the result's frames; all by default.")
@click.option("--show-source-name", is_flag=True, help="Print the source's file name, which may name a patient.")
@click.option("--with-screen", is_flag=True, help="Show the screen around the images, where names may be written.")
@click.option("--open/--no-open", "open_page", default=True, help="Open the page where there is a browser (default).")
@click.option("--overwrite", is_flag=True, help="Replace a page that exists.")
@common_options
@click.pass_context
def review(
    ctx: click.Context,
    result: Path,
    out: Path | None,
    roi: str | None,
    labels: str | None,
    margin_px: float | None,
    frames: slice | None,
    show_source_name: bool,
    with_screen: bool,
    open_page: bool,
    overwrite: bool,
) -> None:
    """Makes one self-contained HTML page of RESULT: pictures, figures, provenance and limits; opens it."""
    from usdehaze.review import build_review, default_page_path

    console = console_of(ctx)
    target = out or default_page_path(result)
    with frame_progress(result.name, 0, console.quiet) as progress:
        page = build_review(
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
        )
    console.say(f"{page} ({page.stat().st_size / 1e6:.1f} MB)")
    if open_page and _has_browser():
        import webbrowser

        webbrowser.open(page.absolute().as_uri())


def _has_browser() -> bool:
    """Whether somebody sits at a terminal of a machine with a screen."""
    if not sys.stdout.isatty():
        return False
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
