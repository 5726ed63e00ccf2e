"""Which run made a file: every file of a set says so, and a set put together of several is noticed.

A run is known by what decides its values (source, frames, settings, networks, version), so that two runs that give the
same files count as one. HDF5 files have the attribute ``run``, others the text ``usdehaze-run:`` and 32 hex digits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from usdehaze.io.run_marks import MARK, marked_run, start_of
from usdehaze.io.scan import Scan

if TYPE_CHECKING:
    from usdehaze.result import Result

ATTRIBUTE = "run"


def run_id(scan: Scan, result: Result) -> str:
    """32 hex digits for all that decides what a result holds.

    Args:
        scan: the source, with the frames of the whole run.
        result: of any of its frames.
    """
    source = scan.source
    values = {
        **{name: value for name, value in result.settings.items() if value is not None},  # as files keep them
        "version": result.usdehaze_version,
        "source": [source.sha256, source.dataset, source.units, *filter(None, [source.options])],
        "frames": [source.first_frame, scan.n_frames, *scan.shape],
        "dynamic_range_db": float(scan.dynamic_range_db),
    }
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:32]


def mark(scan: Scan, result: Result) -> str:
    """The text that says which run made a file."""
    return MARK + run_id(scan, result)


def run_of(path: Path) -> str | None:
    """The run that made a file; None where it does not say."""
    start = start_of(path)
    return _of_hdf5(path) if start.startswith(b"\x89HDF") else marked_run(start)


def of_several_runs(paths: Iterable[Path]) -> dict[Path, str]:
    """Files that exist with the run that made each, where these are not all the same; else none."""
    runs = {path: run for path in paths if path.is_file() and (run := run_of(path)) is not None}
    return runs if len(set(runs.values())) > 1 else {}


def _of_hdf5(path: Path) -> str | None:
    from usdehaze.errors import InputError
    from usdehaze.io.hdf5.access import attribute, get_group, open_file

    try:
        with open_file(path) as file:
            group = file if ATTRIBUTE in file.attrs else get_group(file, "custom")
            return None if group is None else attribute(group, ATTRIBUTE) or None
    except InputError:
        return None
