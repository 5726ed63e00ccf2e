"""What is to be doubted of a result: a digest that does not fit, and values that no dehazing gives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from usdehaze.cine import Cartesian, Polar
from usdehaze.io.detect import REVIEW_SUFFIX, files_beside
from usdehaze.io.digest import ATTRIBUTE, digest_of
from usdehaze.io.hdf5.access import attribute, hdf5_errors, open_h5
from usdehaze.io.limits import DEEPEST_M, SPACINGS_M
from usdehaze.io.result import OpenResult, expected_for, open_result
from usdehaze.io.runs import of_several_runs, run_of

TOLERANCE_DB = 1e-3
DYNAMIC_RANGES_DB = (10.0, 200.0)


def doubts_of(path: str | os.PathLike[str]) -> list[str]:
    """A sentence for everything about a result file that cannot be as dehazing left it; none where all is well.

    Every frame is read once.

    Raises:
        InputError: the file is no result, or damaged.
    """
    with open_h5(path, expected_for(path)) as file, hdf5_errors(path):
        stored = attribute(file, ATTRIBUTE)
        fits = stored == digest_of(file, path)
    found = []
    if not stored:
        found.append("It has no digest: it was made by an older usdehaze, or the digest was taken away.")
    elif not fits:
        found.append("Its digest does not fit: it has been changed since it was written.")
    with open_result(path) as result:
        found += _absurd(result)
        found += _out_of_order(result)
    path = Path(path).absolute()
    runs = of_several_runs(p for p in files_beside(path) if not p.name.endswith(REVIEW_SUFFIX))
    return found + _of_another_run([p for p, run in runs.items() if run != runs.get(path)])


def companions_of(path: str | os.PathLike[str]) -> list[Path]:
    """The files beside a result that are made with it, as far as they are there: zea, DICOM, previews, review page."""
    path = Path(path)
    return [p for p in files_beside(path) if p.name != path.name and p.is_file()]


def doubts_of_companions(path: str | os.PathLike[str]) -> list[str]:
    """A sentence for companions of a result that are of another run, or do not say of which."""
    own, runs = run_of(Path(path)), {p: run_of(p) for p in companions_of(path)}
    silent = sorted(p.name for p, run in runs.items() if run is None)
    told = [f"Which run made {', '.join(silent)} is not said there."] if silent else []
    return _of_another_run([p for p, run in runs.items() if run not in (None, own)]) + told


def _of_another_run(files: list[Path]) -> list[str]:
    return [f"Of another run are {', '.join(sorted(p.name for p in files))}."] if files else []


def _absurd(result: OpenResult) -> Iterator[str]:
    """Values of frames and numbers that cannot be."""
    span = result.cine.dynamic_range_db
    low, high = DYNAMIC_RANGES_DB
    if not low <= span <= high:
        yield f"Its dynamic range is {span:g} dB."
    images = {"input": result.input, "tissue": result.tissue, "haze": result.haze}
    outside, brighter, negative = set(), 0, 0
    for index in range(result.cine.n_frames):
        frames = {name: image[index] for name, image in images.items()}
        outside |= {name for name, db in frames.items() if db.min() < -span - TOLERANCE_DB or db.max() > TOLERANCE_DB}
        brighter += int(np.count_nonzero(frames["tissue"] > frames["input"] + TOLERANCE_DB))
        if result.std is not None:
            negative += int(np.count_nonzero(result.std[index] < 0))
    for name in sorted(outside):
        yield f"Its {name} has values outside -{span:g} to 0 dB."
    if brighter:
        yield f"Its tissue is brighter than its input in {brighter} pixels: dehazing only darkens."
    if negative:
        yield f"Its deviation is negative in {negative} pixels."
    for name, lowest in (("steps", 1), ("samples", 1), ("seed", 0), ("caution", 0), ("strength", 0)):
        value = result.settings.get(name, lowest)
        most = 1 if name in ("caution", "strength") else np.inf
        if not isinstance(value, int | float) or not lowest <= value <= most:
            yield f"Its {name} cannot be."


def _out_of_order(result: OpenResult) -> Iterator[str]:
    """Times that fall, and geometry that no probe has."""
    times, geometry = result.cine.frame_times_s, result.cine.geometry
    if times is not None and not (np.isfinite(times).all() and (np.diff(times) >= 0).all()):
        yield "Its frame times fall."
    spacings: tuple[float, ...] = ()
    if isinstance(geometry, Polar):
        spacings = tuple(np.diff(geometry.depths_m))
        first, last = geometry.depths_m[[0, -1]]
        if not 0 <= first <= last <= DEEPEST_M or np.abs(geometry.angles_rad).max() > np.pi:
            yield "Its depths or angles are those of no probe."
    elif isinstance(geometry, Cartesian) and geometry.spacing_m is not None:
        spacings = geometry.spacing_m
    if not all(SPACINGS_M[0] <= spacing <= SPACINGS_M[1] for spacing in spacings):
        yield f"Its pixels are not between {1e3 * SPACINGS_M[0]:g} and {1e3 * SPACINGS_M[1]:g} mm apart."
