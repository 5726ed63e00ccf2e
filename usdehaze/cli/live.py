"""``usdehaze live``: dehaze frames as they come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Timer
from typing import TYPE_CHECKING, Any

import click

from usdehaze.cli.group import Console, common_options, console_of
from usdehaze.cli.options import (
    PATH,
    Number,
    check_model,
    model_options,
    reading_options,
    removal_options,
    take_reading,
)
from usdehaze.notes import in_full
from usdehaze.stopping import ending

if TYPE_CHECKING:
    from usdehaze.io import Sink
    from usdehaze.live.figures import Figures
    from usdehaze.live.stream import Stream

RESULT, FILM = ".h5", ".mp4"  # how names of files end
STATUS_S = 1.0


@click.command(context_settings={"default_map": {"preset": "preview"}})
@click.argument("source", metavar="SOURCE")
@click.option(
    "-o",
    "--out",
    "outs",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="Write a result, NAME.dehazed.h5, or a film of input, tissue and haze, NAME.mp4; in the end.",
)
@click.option("--web", is_flag=True, help="Show input, tissue and haze on a page for this machine alone.")
@click.option("--port", type=click.IntRange(0, 65535), help="Of --web; a free one by default.")
@click.option(
    "--igtl",
    "igtl_port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Be an OpenIGTLink server for this machine, at PORT; 0 takes a free one.",
)
@click.option("--every-frame", is_flag=True, help="Drop none: the source has to wait, and latency has no bound.")
@click.option("--seconds", type=Number(0.001, 1e7), metavar="S", help="End after so long; else on Ctrl-C or SIGTERM.")
@click.option("--status", is_flag=True, help="Print rate and latency every second.")
@model_options
@removal_options
@reading_options
@click.option("--with-screen", is_flag=True, help="Page and film: show the screen around the images, names and all.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@common_options
@click.pass_context
def live(
    ctx: click.Context,
    source: str,
    outs: tuple[Path, ...],
    web: bool,
    port: int | None,
    igtl_port: int | None,
    every_frame: bool,
    seconds: float | None,
    status: bool,
    with_screen: bool,
    overwrite: bool,
    **options: Any,
) -> None:
    """Dehazes frames as they come from SOURCE: those that cannot be kept up with are dropped, never queued.

    SOURCE is a folder that images are written to, a video device (/dev/video0, avfoundation:0, dshow:video=NAME), an
    OpenIGTLink server (igtl://HOST:PORT, or igtl://HOST:PORT/DEVICE), or any scan, which is played at its own rate.

    The fan is found in the first frames: start again when depth or sector have changed. See docs/live.md.
    """
    _check(outs, web, port, igtl_port, overwrite)
    check_model(options)
    console, reading = console_of(ctx), take_reading(options)
    if every_frame and seconds is None and source.startswith("igtl://"):
        console.note("--every-frame: what is not kept up with waits in the network, and latency grows")
    from usdehaze.dehazing.dehazer import Dehazer
    from usdehaze.live import open_source, run
    from usdehaze.live.igtl import IgtlScreen
    from usdehaze.live.screen import Screen
    from usdehaze.live.web import WebScreen

    frames = open_source(source, reading, console.note)
    dehazer = Dehazer.from_pretrained(**options, batch_size=1)
    watch = _Watch(console, status)
    screens: list[Screen] = []
    if web:
        screens.append(page := WebScreen(port or 0, with_screen, lambda: watch.line))
        ctx.call_on_close(page.close)
        click.echo(f"{page.address} until the stream ends")
    if igtl_port is not None:
        screens.append(server := IgtlScreen(igtl_port))
        ctx.call_on_close(server.close)
        console.say(f"OpenIGTLink at 127.0.0.1:{server.port}")

    def begun(stream: Stream) -> None:
        for note in stream.source.assumptions:
            console.note(f"{source}: {in_full(note)}")

    with ending() as ended, _limit(ended, seconds):
        figures = run(
            frames,
            dehazer.dehaze,
            ended,
            screens=screens,
            files=lambda stream: _files(outs, stream, overwrite, with_screen),
            every=every_frame,
            begun=begun,
            watch=watch,
        )
    made = f" -> {', '.join(map(str, outs))}" if outs else ""
    console.say(f"{source}{made} ({figures.line()})")


def _check(outs: tuple[Path, ...], web: bool, port: int | None, igtl_port: int | None, overwrite: bool) -> None:
    """Raises what stands in the way before anything is loaded."""
    from usdehaze.io.atomic import check_target
    from usdehaze.preview import check_kind

    if not (outs or web or igtl_port is not None):
        raise click.UsageError("nowhere to put what is made; name -o FILE, --web or --igtl PORT")
    if port is not None and not web:
        raise click.UsageError("--port belongs to --web")
    if len({out.resolve() for out in outs}) < len(outs):
        raise click.UsageError("-o names a file twice")
    for out in outs:
        if out.suffix not in (RESULT, FILM):
            raise click.UsageError(f"{out}: expected a name that ends in {RESULT} or {FILM}")
        check_target(out, overwrite)
    if any(out.suffix == FILM for out in outs):
        check_kind("mp4")


def _files(outs: tuple[Path, ...], stream: Stream, overwrite: bool, with_screen: bool) -> list[Sink]:
    """What to write, results first."""
    from usdehaze.live.files import LiveFilm, LiveResult

    results = [LiveResult(out, stream, overwrite) for out in outs if out.suffix == RESULT]
    return [*results, *(LiveFilm(out, stream, overwrite, with_screen) for out in outs if out.suffix == FILM)]


class _Watch:
    """Keeps the figures of now, and prints those of every second where they are asked for."""

    def __init__(self, console: Console, told: bool) -> None:
        self.console, self.told, self.line = console, told, ""
        self._before: Figures | None = None
        self._next_s = time.monotonic() + STATUS_S

    def __call__(self, figures: Figures) -> None:
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + STATUS_S
        now = figures if self._before is None else figures.since(self._before)
        self._before, self.line = figures, now.line()
        if self.told:
            self.console.note(self.line)


@contextmanager
def _limit(ended: Event, seconds: float | None) -> Iterator[None]:
    """Ends the stream after so long."""
    timer = Timer(seconds, ended.set) if seconds is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
