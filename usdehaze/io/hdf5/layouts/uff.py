"""USTB's ultrasound file format (UFF): groups whose attribute ``class`` is ``uff.beamformed_data``.

``data`` is a dataset, or a group of ``real`` and ``imag``, of pixels x channels x waves x frames as MATLAB counts;
files written by MATLAB have the axes the other way round. ``scan`` holds the two axes of a linear or a sector scan,
and often the position ``x``, ``z`` of every pixel, which says in which order the pixels lie; else depth runs fastest.
"""

from __future__ import annotations

import h5py
import numpy as np

from usdehaze.budget import spend
from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import attribute, get_dataset, get_group, members, small_array, small_line
from usdehaze.io.hdf5.layouts.blocks import BlockReader, value_type
from usdehaze.io.hdf5.layouts.pixel_positions import with_geometry
from usdehaze.io.limits import check_frame
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine, from_rf

_MAX_ORIGINS = 4096


def recognise(file: h5py.File, path: object, reading: Reading) -> StoredCine | None:
    """The only beamformed data in the file, or those named by ``dataset``."""
    objects = _objects(file, path, reading.dataset)
    beamformed = [name for name, kind in objects.items() if kind == "uff.beamformed_data"]
    if reading.dataset is not None:
        wanted = reading.dataset.strip("/") + "/"
        beamformed = [name for name in beamformed if wanted.startswith(name + "/")]
    if not beamformed or reading.axes:
        if reading.dataset is None and "uff.channel_data" in objects.values():
            raise InputError(
                path,
                "holds channel data only (USTB UFF)",
                "a group of class uff.beamformed_data",
                "beamform it first, for instance with USTB",
            )
        return None
    if len(beamformed) > 1:
        raise InputError(
            path,
            f"{len(beamformed)} sets of beamformed data: {', '.join(beamformed)}",
            advice="pick one with --dataset",
        )
    return _read(file, path, beamformed[0])


def _objects(file: h5py.File, path: object, dataset: str | None) -> dict[str, str]:
    """Class of every UFF object at the top of the file, or one group below for arrays of objects; where a dataset is
    named, of its own alone."""
    objects: dict[str, str] = {}
    for name in members(file, path) if dataset is None else [dataset.strip("/").partition("/")[0]]:
        spend(path)
        group = get_group(file, name)
        if group is None or not (kind := attribute(group, "class")).startswith("uff."):
            continue
        parts = [] if "data" in group else members(group, path)
        groups = {f"{name}/{part}": get_group(group, part) for part in parts}
        inside = {n: attribute(g, "class") for n, g in groups.items() if g is not None}
        inside = {n: c for n, c in inside.items() if c == kind}
        objects |= inside or {name: kind}
    return objects


def _read(file: h5py.File, path: object, name: str) -> StoredCine:
    depths, across, x_m, z_m = _grid(file, path, name)
    split = get_group(file, f"{name}/data") is not None
    stored = [get_dataset(file, f"{name}/data/{part}", path) for part in ("real", "imag")] if split else []
    stored = stored or [get_dataset(file, f"{name}/data", path)]
    if any(d.shape != stored[0].shape or (split and d.dtype.kind != "f") for d in stored):
        shapes = ", ".join(f"{d.shape} {d.dtype}" for d in stored)
        raise InputError(path, f"{name}/data holds {shapes}", "a real and an imaginary part of one shape")
    n_pixels = len(depths) * len(across)
    frame_axis, n_frames = _frame_axis(stored[0], n_pixels, path)
    depth_fastest = _depth_fastest(file, path, name, (len(depths), len(across)), x_m, z_m)
    readers = [BlockReader(dataset, frame_axis) for dataset in stored]

    def read(index: int) -> np.ndarray:
        parts = [reader(index).reshape(-1) for reader in readers]
        pixels = parts[0] + 1j * parts[1] if split else parts[0]
        if depth_fastest:
            return pixels.reshape(len(across), len(depths)).T
        return pixels.reshape(len(depths), len(across))

    plain = value_type(stored[0].dtype)
    dtype = np.result_type(plain, np.complex64) if split else plain
    cine = StoredCine("USTB UFF", f"{name}/data", (n_frames, len(depths), len(across)), dtype, read)
    if dtype.kind == "f":
        first = read(n_frames // 2)
        if (first < 0).any() and (first > 0).any():
            cine = from_rf(cine)
    return with_geometry(cine, x_m, z_m)


def _grid(file: h5py.File, path: object, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Depth axis, the axis across, and position x and z of every pixel ``(H, W)``, m."""
    scan = get_group(file, f"{name}/scan")
    if scan is None:
        raise InputError(path, f"{name} has no scan", "a linear or a sector scan that says where the pixels are")
    x_axis, z_axis = (small_line(scan, part, path) for part in ("x_axis", "z_axis"))
    if x_axis is not None and z_axis is not None:
        check_frame((len(z_axis), len(x_axis)), path)
        x_m, z_m = np.meshgrid(x_axis, z_axis)
        return z_axis, x_axis, x_m, z_m
    azimuth, depth = (small_line(scan, part, path) for part in ("azimuth_axis", "depth_axis"))
    if azimuth is None or depth is None:
        kind = attribute(scan, "class") or "no class"
        raise InputError(path, f"{name}/scan ({kind}) has no axes", "x_axis and z_axis, or azimuth_axis and depth_axis")
    if (elevation := small_line(scan, "elevation_axis", path)) is not None and len(elevation) > 1:
        raise InputError(path, f"{name}/scan is a volume", "a 2-D scan")
    check_frame((len(depth), len(azimuth)), path)
    x_0, z_0 = _origins(scan, path, len(azimuth))
    x_m = x_0 + depth[:, None] * np.sin(azimuth)
    z_m = z_0 + depth[:, None] * np.cos(azimuth)
    return depth, azimuth, x_m, z_m


def _origins(scan: h5py.Group, path: object, n_lines: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the scan lines start: x and z, m, one for all of them or one for each."""
    origin = get_group(scan, "origin") or get_group(scan, "apex")
    if origin is None:
        return np.zeros(1), np.zeros(1)
    parts = [get_group(origin, part) for part in members(origin, path)[:_MAX_ORIGINS]]
    points = [part for part in parts if part is not None] or [origin]
    if len(points) not in (1, n_lines):
        raise InputError(path, f"{len(points)} origins for {n_lines} scan lines", "one origin, or one for each line")
    polar = {part: np.array([_number(p, part, path) for p in points]) for part in ("distance", "azimuth", "elevation")}
    reach = polar["distance"] * np.cos(polar["elevation"])
    return reach * np.sin(polar["azimuth"]), reach * np.cos(polar["azimuth"])


def _number(group: h5py.Group, name: str, path: object) -> float:
    value = small_array(group, name, path)
    return 0.0 if value is None or value.size != 1 or not np.isfinite(value) else float(value)


def _frame_axis(dataset: h5py.Dataset, n_pixels: int, path: object) -> tuple[int | None, int]:
    """Axis of the frames, None where there is one frame alone, and their number."""
    shape = dataset.shape
    ends = [axis for axis in (0, dataset.ndim - 1) if shape[axis : axis + 1] == (n_pixels,)]
    others = [axis for axis in range(dataset.ndim) if shape[axis] > 1]
    if not ends:
        raise InputError(path, f"{dataset.name} has shape {shape}", f"{n_pixels} pixels, as its scan says")
    pixels = ends[0]
    others = [axis for axis in others if axis != pixels]
    frames = dataset.ndim - 1 - pixels
    if not others:
        return None, 1
    if others != [frames]:
        raise InputError(
            path, f"{dataset.name} has shape {shape}: channels or waves apart", "one image a frame", "compound it first"
        )
    return frames, shape[frames]


def _depth_fastest(
    file: h5py.File, path: object, name: str, shape: tuple[int, int], x_m: np.ndarray, z_m: np.ndarray
) -> bool:
    """Whether the depth runs fastest along the pixels; decided by their stored positions where there are any."""
    x, z = (small_array(file, f"{name}/scan/{part}", path) for part in ("x", "z"))
    if x is None or z is None or x.size != x_m.size or z.size != x_m.size:
        return True
    off = [
        np.abs(x.reshape(-1) - x_order).max() + np.abs(z.reshape(-1) - z_order).max()
        for x_order, z_order in ((x_m.reshape(-1), z_m.reshape(-1)), (x_m.T.reshape(-1), z_m.T.reshape(-1)))
    ]
    return bool(off[1] <= off[0])
