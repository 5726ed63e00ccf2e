"""Regions as polygons in a JSON file, in pixels or in physical units."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.budget import read_text, spend
from usdehaze.cine import Geometry, positions_m
from usdehaze.errors import InputError
from usdehaze.validation.regions.model import FAINT, ROLES, PackedMasks, Region

NAMES = ("name", "role", "frames", "polygon", "units")  # of what a region has
UNITS = {"px": None, "mm": 1e-3, "m": 1.0}  # metres a unit


def read_polygons(
    path: Path, shape: tuple[int, int, int], source: tuple[int, int], geometry: Geometry | None
) -> list[Region]:
    """The regions of a JSON file, but for those of frames that the cine leaves out of its source.

    The form is that of `usdehaze.validation.regions.reading`.

    Args:
        path: the file.
        shape: ``(T, H, W)`` of the cine.
        source: index in the source of the cine's first frame, and how many frames the source has, 0 where that is not
            known.
        geometry: of the cine, for polygons in physical units.

    Raises:
        InputError: one line that says what is wrong with which region.
    """
    try:
        document = json.loads(read_text(path), object_hook=compact)
    except UnicodeDecodeError:
        raise InputError(path, "neither JSON, PNG, HDF5, NIfTI nor DICOM", "a file of regions") from None
    except json.JSONDecodeError as error:
        found = f"not valid JSON (line {error.lineno}, column {error.colno}: {error.msg})"
        raise InputError(path, found, '{"regions": [...]}') from None
    except (RecursionError, ValueError):  # lists in lists in lists; numbers of thousands of digits
        raise InputError(path, "JSON that holds no regions", '{"regions": [...]}') from None
    entries = document.get("regions") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InputError(path, "no list of regions", '{"regions": [{"name", "role", "frames", "polygon"}, ...]}')
    _check_names(path, "it", document, ("regions", "units"))
    units = document.get("units", "px")
    first, n_source = source
    known = range(n_source) if n_source else range(first, first + shape[0])
    regions = [_region(path, entry, index, shape, first, known, geometry, units) for index, entry in enumerate(entries)]
    if not any(region.frames for region in regions):
        last = first + shape[0] - 1
        raise InputError(path, f"no region in frames {first} to {last}", "some in the frames of the result")
    return [region for region in regions if region.frames]


def compact(entry: dict[str, Any]) -> dict[str, Any]:
    """An object of a file of regions, its polygon as an array ``(N, 2)`` where it can be: a tenth of the memory."""
    if isinstance(entry.get("polygon"), list):
        with suppress(TypeError, ValueError, OverflowError):
            corners = np.asarray(entry["polygon"], dtype=np.float64)
            if corners.ndim == 2:
                entry["polygon"] = corners
    return entry


def polygon_mask(polygon: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Pixels whose centre lies inside a polygon, by the even-odd rule.

    Each edge owns the half-open interval of rows from its upper end (included) to its lower one (excluded), so a
    rectangle covers exactly as many pixels as its area and two polygons that share an edge never share a pixel.

    Args:
        polygon: ``(N, 2)`` corners ``(x, y)`` in pixels, closed implicitly.
        shape: ``(H, W)``.

    Returns:
        bool ``(H, W)``.
    """
    rows, columns = np.indices(shape, dtype=np.float64)
    return points_inside(polygon, columns, rows)


def points_inside(polygon: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Bool in the shape of ``x`` and ``y``: points inside a polygon ``(N, 2)``, by the rule of :func:`polygon_mask`."""
    (left, top), (right, bottom) = polygon.min(axis=0), polygon.max(axis=0)
    near = (x >= left) & (x <= right) & (y >= top) & (y <= bottom)
    x, y = x[near], y[near]
    odd = np.zeros(x.shape, dtype=bool)
    for (x0, y0), (x1, y1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        spend("")
        if y0 != y1:
            level = (y >= min(y0, y1)) & (y < max(y0, y1))
            odd ^= level & (x >= x0 + (y - y0) * (x1 - x0) / (y1 - y0))  # toggles everything right of the edge
    inside = np.zeros(near.shape, dtype=bool)
    inside[near] = odd
    return inside


def _region(
    path: Path,
    entry: Any,
    index: int,
    shape: tuple[int, int, int],
    first_frame: int,
    source: range,
    geometry: Geometry | None,
    units: object,
) -> Region:
    """One entry of the file, checked; ``units`` hold where it names none itself."""
    if not isinstance(entry, dict):
        raise InputError(path, f"region {index} is not an object", '{"name", "role", "frames", "polygon"}')
    name = str(entry.get("name", index))
    label = f'region "{name[:80]}"'
    _check_names(path, label, entry)
    role = entry.get("role")
    if role not in (*ROLES, FAINT):
        raise InputError(path, f"{label} has the role {json.dumps(role)[:80]}", '"tissue", "haze" or "faint"')
    frames = _frames(path, label, entry.get("frames"), shape[0], first_frame, source)
    polygon = _corners(path, label, entry.get("polygon"))
    spend(path, memory=shape[1] * shape[2] if frames else 0, objects=1)
    if not frames:
        return Region(name, role, PackedMasks([], shape[1:]), frames)
    units = entry.get("units", units)
    if not isinstance(units, str) or units not in UNITS:
        raise InputError(path, f"{label} has units {json.dumps(units)[:80]}", '"px" (the default), "mm" or "m"')
    metres, cut = UNITS[units], False
    if metres is None:
        mask = _pixel_mask(path, label, polygon, shape[1:])
    else:
        known = None if geometry is None else positions_m(geometry, shape[1:])
        if known is None:
            found = f"{label} is in physical units, but the scan has no pixel spacing"
            raise InputError(path, found, 'a polygon in "px"')
        mask = points_inside(polygon * metres, *known)
        cut = _reaches_beyond(polygon * metres, known)
    if not mask.any():
        raise InputError(path, f"{label} holds no pixel centre", "a polygon around at least one pixel")
    return Region(name, role, PackedMasks([mask], shape[1:]), frames, cut)


def _reaches_beyond(polygon: np.ndarray, known: tuple[np.ndarray, np.ndarray]) -> bool:
    """Whether corners ``(N, 2)`` lie more than a pixel outside the rectangle round pixels at x and z ``(H, W)``."""
    steps = (np.ptp(axis) / max(1, n - 1) for axis, n in zip(known, known[0].shape[::-1], strict=True))
    limits = [(axis.min() - step, axis.max() + step) for axis, step in zip(known, steps, strict=True)]
    return any(bool(((at < low) | (at > high)).any()) for at, (low, high) in zip(polygon.T, limits, strict=True))


def _check_names(path: Path, where: str, given: dict[str, Any], names: tuple[str, ...] = NAMES) -> None:
    """Refuses names that are meant for ours, and would be passed over: "frame", "Units"."""
    for key in given:
        meant = next((name for name in names if key.lower().rstrip("s") == name.rstrip("s")), key)
        if key != meant:
            raise InputError(path, f'{where} has "{key}"', f'"{meant}"')


def _frames(
    path: Path, label: str, frames: Any, n_frames: int, first_frame: int, source: range
) -> frozenset[int] | range:
    """Frames of the cine (counted from 0) that a region names as the source counts them; all where it names none."""
    if frames is None:
        return range(n_frames)
    if not isinstance(frames, list) or not frames or not all(type(t) is int for t in frames):
        found = f"{label} has frames {json.dumps(frames)[:80]}"
        raise InputError(path, found, "a list of frame indices such as [0, 1]")
    for t in frames:
        if t not in source:
            expected = f"{source.start} to {source.stop - 1}, the frames that there are"
            raise InputError(path, f"{label} names frame {t}", expected)
    return frozenset(t - first_frame for t in frames if 0 <= t - first_frame < n_frames)


def _corners(path: Path, label: str, polygon: Any) -> np.ndarray:
    """``(N, 2)`` finite corners, at least three."""
    try:
        corners = np.asarray(polygon, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        corners = np.empty(0)
    if corners.ndim != 2 or corners.shape[1] != 2 or not np.isfinite(corners).all():
        raise InputError(path, f"{label} has no usable polygon", "a list of points [[x, y], ...]")
    if len(corners) < 3:
        raise InputError(path, f"{label} has a polygon of {len(corners)} points", "at least 3")
    return corners


def _pixel_mask(path: Path, label: str, polygon: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    height, width = shape
    outside = ((polygon < -0.5) | (polygon > np.array([width, height]) - 0.5)).any(axis=1)
    if outside.any():
        x, y = polygon[outside][0]
        expected = f"x from 0 to {width - 1} and y from 0 to {height - 1}"
        raise InputError(path, f"{label} has the point ({x:g}, {y:g}) outside the frame", expected)
    return polygon_mask(polygon, shape)
