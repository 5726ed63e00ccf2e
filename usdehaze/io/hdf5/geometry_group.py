"""Geometry and frame times inside usdehaze's own HDF5 files; what is written comes back bit for bit.

Group ``geometry``, attribute ``kind``:

- "polar": datasets ``depths_m (H,)`` and ``angles_rad (W,)``;
- "cartesian": attributes ``origin_m (z, x)``, ``found_by``, where known ``spacing_m (row, column)``; with a sector the
  group ``geometry/sector`` whose attributes are the fields of `usdehaze.cine.Sector`; those of further images on the
  screen are rows of the dataset ``geometry/others (N, 7)``, in the same order.

Dataset ``frame_times_s (T,)`` on the root, where the times are known.
"""

from __future__ import annotations

from dataclasses import astuple, fields

import h5py
import numpy as np

from usdehaze.budget import spend
from usdehaze.cine import Cartesian, Geometry, Polar, Sector
from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import attribute, attribute_value, get_dataset


def write_geometry(file: h5py.File, geometry: Geometry, frame_times_s: np.ndarray | None) -> None:
    """Writes the group ``geometry`` and, where known, ``frame_times_s``."""
    group = file.create_group("geometry")
    if isinstance(geometry, Polar):
        group.attrs["kind"] = "polar"
        group.create_dataset("depths_m", data=geometry.depths_m)
        group.create_dataset("angles_rad", data=geometry.angles_rad)
    else:
        group.attrs["kind"] = "cartesian"
        group.attrs["origin_m"] = geometry.origin_m
        group.attrs["found_by"] = geometry.found_by
        if geometry.spacing_m is not None:
            group.attrs["spacing_m"] = geometry.spacing_m
        if geometry.sector is not None:
            sector = group.create_group("sector")
            for field in fields(Sector):
                sector.attrs[field.name] = float(getattr(geometry.sector, field.name))
        if geometry.others:
            group.create_dataset("others", data=[astuple(other) for other in geometry.others], dtype=np.float64)
    if frame_times_s is not None:
        file.create_dataset("frame_times_s", data=np.asarray(frame_times_s, dtype=np.float64))


def read_geometry(file: h5py.File, path: object) -> Geometry:
    """Reads the group ``geometry``.

    Raises:
        InputError: it is missing or not as `write_geometry` writes it.
    """
    try:
        if not isinstance(file.get("geometry", getlink=True), h5py.HardLink):
            raise ValueError("the group is missing")
        group = file["geometry"]
        kind = attribute(group, "kind")
        if kind == "polar":
            return _checked(path, Polar(*(_axis(file, f"geometry/{n}", path) for n in ("depths_m", "angles_rad"))))
        if kind != "cartesian":
            raise ValueError(f"unknown kind {kind!r}")
        sector = None
        if isinstance(group.get("sector", getlink=True), h5py.HardLink):
            values = {field.name: attribute_value(group["sector"], field.name) for field in fields(Sector)}
            sector = _sector(path, **{name: float(value) for name, value in values.items()})
        spacing_m = _pair(attribute_value(group, "spacing_m")) if "spacing_m" in group.attrs else None
        others: tuple[Sector, ...] = ()
        if "others" in group:
            rows = get_dataset(file, "geometry/others", path)[()]
            others = tuple(_sector(path, *(float(value) for value in row)) for row in rows)
        origin_m = _pair(attribute_value(group, "origin_m"))
        return _checked(path, Cartesian(spacing_m, origin_m, sector, attribute(group, "found_by"), others))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        reason = type(error).__name__  # its words may quote what lies there
        raise InputError(path, f"group geometry cannot be used ({reason})", advice="write the file again") from None


def _sector(path: object, *values: float, **named: float) -> Sector:
    """A sector of numbers, which a message may tell."""
    try:
        return Sector(*values, **named)
    except ValueError as error:
        found = f"group geometry cannot be used ({error})"
        raise InputError(path, found, advice="write the file again") from None


def _checked(path: object, geometry: Geometry) -> Geometry:
    """A geometry that can be; what it lacks is told as of sectors."""
    try:
        geometry.check()
    except ValueError as error:
        found = f"group geometry cannot be used ({error})"
        raise InputError(path, found, advice="write the file again") from None
    return geometry


def read_frame_times(file: h5py.File, path: object, n_frames: int) -> np.ndarray | None:
    """``frame_times_s`` ``(T,)`` float64 in s, or None where the file has none."""
    if "frame_times_s" not in file:
        return None
    times = get_dataset(file, "frame_times_s", path)
    if times.shape != (n_frames,) or times.dtype.kind != "f":
        raise InputError(path, f"frame_times_s has shape {times.shape} {times.dtype}", f"({n_frames},) float64")
    spend(path, memory=8 * n_frames)
    return times[()]


def _axis(file: h5py.File, name: str, path: object) -> np.ndarray:
    axis = get_dataset(file, name, path)
    spend(path, memory=4 * 8 * axis.size)
    return axis[()]


def _pair(value: object) -> tuple[float, float]:
    first, second = (float(v) for v in np.asarray(value).reshape(-1))
    return first, second
