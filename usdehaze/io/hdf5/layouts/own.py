"""Files that usdehaze itself wrote: simulations are scans like any other, results are not."""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import attribute, get_dataset
from usdehaze.io.hdf5.geometry_group import read_frame_times, read_geometry
from usdehaze.io.hdf5.layouts.axes import frames_of
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine

RESULT_FORMAT = "usdehaze-result"
SIMULATION_FORMAT = "usdehaze-simulation"
FORMAT_VERSION = 1


def recognise_result(file: h5py.File, path: object, reading: Reading) -> StoredCine | None:
    """A result of ``usdehaze process``: read only where a dataset of it is named."""
    if attribute(file, "format") != RESULT_FORMAT:
        return None
    if reading.dataset is None:
        raise InputError(
            path,
            "is a result of usdehaze, not a scan",
            advice="process the scan it came from, or take its input once more with --dataset input",
        )
    return _own(file, path, reading.dataset, reading.axes, "usdehaze result")


def recognise_simulation(file: h5py.File, path: object, reading: Reading) -> StoredCine | None:
    """A file of ``usdehaze simulate``: its hazy frames, unless another dataset is named."""
    if attribute(file, "format") != SIMULATION_FORMAT:
        return None
    return _own(file, path, reading.dataset or "hazy", reading.axes, "usdehaze simulation")


def check_version(file: h5py.File, path: object) -> None:
    """Refuses files that a later usdehaze wrote in a format this one does not know."""
    version = attribute(file, "format_version")
    if version != str(FORMAT_VERSION):
        found = f"is a {attribute(file, 'format')} file of format version {version[:40] or 'unknown'}"
        raise InputError(path, found, f"version {FORMAT_VERSION}", "read it with the usdehaze that wrote it")


def read_dynamic_range(file: h5py.File, path: object) -> float:
    """The root attribute ``dynamic_range_db``, dB."""
    stored = attribute(file, "dynamic_range_db") or "missing"
    try:
        value = float(stored)
    except ValueError:
        value = np.nan
    if not (np.isfinite(value) and value > 0):
        raise InputError(path, f"attribute dynamic_range_db is {stored[:40]}", "a positive number of dB")
    return value


def _own(file: h5py.File, path: object, dataset: str, axes: str | None, layout: str) -> StoredCine:
    check_version(file, path)
    cine = frames_of(get_dataset(file, dataset, path), path, layout, axes or "THW")
    return replace(
        cine,
        units="dB",
        dynamic_range_db=read_dynamic_range(file, path),
        geometry=read_geometry(file, path),
        frame_times_s=read_frame_times(file, path, cine.shape[0]),
    )
