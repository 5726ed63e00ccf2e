"""``usdehaze info``: what is in a file."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdehaze.cli.group import DONE, SOME_FAILED, common_options, console_of
from usdehaze.cli.options import reading_options, take_reading
from usdehaze.cli.plan import tell_left_out
from usdehaze.notes import in_full
from usdehaze.plain_text import brief

if TYPE_CHECKING:
    import numpy as np

    from usdehaze.cine import Cartesian, Geometry
    from usdehaze.io import Reading, Scan

_PARALLEL_RAD = 1e-3  # a fan that is narrower than this is a linear array's rectangle


@click.command()
@click.argument("file")
@reading_options
@common_options
@click.pass_context
def info(ctx: click.Context, file: str, **options: Any) -> None:
    """What is in FILE: layout, frames, size, geometry, dynamic range, frame rate, and what has to be assumed.

    FILE may be a folder: every scan in it.
    """
    from usdehaze.io.detect import look_in

    console, failed, reading = console_of(ctx), 0, take_reading(options)
    found = look_in(file)
    tell_left_out(console, [found])
    for lost in found.lost.values():
        console.report(lost)
        failed += 1
    for scan in found.scans:
        try:
            lines = describe_file(scan, reading)
        except Exception as error:
            console.report(error, scan)
            failed += 1
            continue
        console.say(str(scan))
        for label, value in lines:
            console.say(f"  {label + ':':<15}{value}")
    if os.path.isdir(file):
        console.say(f"{len(found.scans) + len(found.lost)} scans, {failed} of them unreadable")
    ctx.exit(SOME_FAILED if failed else DONE)


def describe_file(path: Path, reading: Reading) -> list[tuple[str, str]]:
    """Label and value of every line about one scan, or one result of usdehaze.

    Every frame is read once, so that what is described here can be processed.
    """
    from usdehaze.io import RESULT_SUFFIX, open_scan

    if reading.dataset is None and path.name.endswith(RESULT_SUFFIX):
        return _describe_result(path)
    with open_scan(path, reading) as scan:
        for _ in scan.chunks(1):
            pass
        return [("layout", scan.source.layout), ("dataset", brief(scan.source.dataset)), *_lines(scan)]


def _describe_result(path: Path) -> list[tuple[str, str]]:
    from usdehaze.io import open_result
    from usdehaze.provenance import describe

    with open_result(path) as stored:
        for frame in range(stored.cine.n_frames):
            for frames in filter(None, (stored.input, stored.tissue, stored.haze, stored.std)):
                frames[frame]  # reads and checks
        source = stored.cine.source
        told = (*describe(stored.settings, "setting"), *describe(stored.settings, "network"))
        made_with = [*((f.name, brief(words)) for f, words in told), ("created", brief(stored.created or "unknown"))]
        made_from = [("layout", "usdehaze result"), ("made from", f"{brief(source.name)}, {brief(source.dataset)}")]
        return [*made_from, *_lines(stored.cine), *made_with]


def _lines(scan: Scan) -> list[tuple[str, str]]:
    height, width = scan.shape
    return [
        ("frames", str(scan.n_frames)),
        ("size", f"{height} x {width} (rows x columns)"),
        *_geometry_lines(scan.geometry),
        ("dynamic range", f"{scan.dynamic_range_db:g} dB"),
        ("frame rate", _frame_rate(scan.frame_times_s)),
        ("units", brief(scan.source.units)),
        *(("assumption", in_full(note)) for note in scan.source.assumptions),
    ]


def _geometry_lines(geometry: Geometry) -> list[tuple[str, str]]:
    from usdehaze.cine import Polar

    if isinstance(geometry, Polar):
        depths, angles = geometry.depths_m, geometry.angles_rad
        fan = f"{1000 * depths[0]:.4g} to {1000 * depths[-1]:.4g} mm, {_degrees(angles[0])} to {_degrees(angles[-1])}"
        return [("geometry", f"polar, {fan}")]
    lines = []
    sector = geometry.sector
    if sector is None:
        lines.append(("geometry", "rectangle, no sector"))
    elif sector.angle_max - sector.angle_min < _PARALLEL_RAD:
        top, bottom = ((sector.apex_y + r) / sector.aspect for r in (sector.r_min, sector.r_max))
        half_width = sector.r_max * math.tan(sector.angle_max)
        columns = f"columns {math.ceil(sector.apex_x - half_width)} to {math.floor(sector.apex_x + half_width)}"
        where = f"rows {math.ceil(top)} to {math.floor(bottom)}, {columns}"
        lines.append(("geometry", f"rectangle ({geometry.found_by}): {where}{_more(geometry)}"))
    else:
        lines += [
            ("geometry", f"scan-converted sector ({geometry.found_by}){_more(geometry)}"),
            ("apex", f"column {sector.apex_x:.1f}, row {sector.apex_y / sector.aspect:.1f}"),
            ("opening", f"{_degrees(sector.angle_min)} to {_degrees(sector.angle_max)}"),
            ("radii", f"{sector.r_min:.1f} to {sector.r_max:.1f} columns from the apex"),
        ]
    if geometry.spacing_m is not None:
        row, column = geometry.spacing_m
        lines.append(("pixel spacing", f"{1000 * row:.4g} x {1000 * column:.4g} mm (row x column)"))
    return lines


def _more(geometry: Cartesian) -> str:
    """What else is to be said of the images on the screen."""
    below = ", probe at the bottom" if geometry.sector is not None and geometry.sector.aspect < 0 else ""
    return below + (f", the largest of {len(geometry.others) + 1} images" if geometry.others else "")


def _degrees(angle_rad: float) -> str:
    return f"{math.degrees(angle_rad):.1f} degrees"


def _frame_rate(times: np.ndarray | None) -> str:
    if times is None or len(times) < 2 or not times[-1] > times[0]:
        return "not in the file"
    return f"{(len(times) - 1) / (times[-1] - times[0]):.4g} frames/s"
