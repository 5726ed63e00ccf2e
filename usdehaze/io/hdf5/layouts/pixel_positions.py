"""Pixel positions -> geometry: is it a fan before scan conversion, or a rectangle?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from usdehaze.cine import Geometry, Polar
from usdehaze.io.stored_cine import StoredCine, moved

TOLERANCE = 0.05  # pixels


def with_geometry(cine: StoredCine, x_m: np.ndarray, z_m: np.ndarray) -> StoredCine:
    """Frames with the geometry of their grid; turned round where depth or angle falls instead of rising.

    Args:
        cine: frames ``(H, W)``.
        x_m, z_m: ``(H, W)`` position of every pixel, m; z points into the body.

    Returns:
        ``cine`` with Polar geometry, with the spacing and origin of a rectangle, or, where the positions fit neither,
        with a sentence that says so.
    """
    if not (np.isfinite(x_m).all() and np.isfinite(z_m).all()):
        return _unplaced(cine)
    as_stored = cine
    x_m, z_m, down, right = _ascending(x_m, z_m)
    if down < 0 or right < 0:
        cine = moved(cine, lambda values: values[::down, ::right])
    axes = _steady(z_m, x_m)
    if axes is not None:
        steps, across = (np.diff(axis) for axis in axes)
        if not all(np.abs(s - s.mean()).max() <= 0.02 * s.mean() for s in (steps, across)):
            return _unplaced(as_stored)
        spacing_m, origin_m = (float(steps.mean()), float(across.mean())), (float(axes[0][0]), float(axes[1][0]))
        return replace(cine, spacing_m=spacing_m, origin_m=origin_m)
    geometry = _fan(x_m, z_m)
    return _unplaced(as_stored) if geometry is None else replace(cine, geometry=geometry)


def _unplaced(cine: StoredCine) -> StoredCine:
    note = "Pixel positions in the file fit neither a fan nor an even rectangle and were not used."
    return replace(cine, assumptions=(*cine.assumptions, note))


def _ascending(x_m: np.ndarray, z_m: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Positions with depth growing along the rows and x along the columns, and the steps (1 or -1) that did it."""
    rows = 1 if z_m[-1].mean() >= z_m[0].mean() else -1
    columns = 1 if x_m[:, -1].mean() >= x_m[:, 0].mean() else -1
    return x_m[::rows, ::columns], z_m[::rows, ::columns], rows, columns


def _steady(by_row: np.ndarray, by_column: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The two axes of quantities that change along the rows alone and along the columns alone; None where they do not.

    Both must rise, and stay within `TOLERANCE` pixels of the same value across.
    """
    rows, columns = np.median(by_row, axis=1), np.median(by_column, axis=0)
    if np.any(np.diff(rows) <= 0) or np.any(np.diff(columns) <= 0):
        return None
    off_row, off_column = np.abs(by_row - rows[:, None]).max(), np.abs(by_column - columns[None]).max()
    if off_row > TOLERANCE * np.diff(rows).mean() or off_column > TOLERANCE * np.diff(columns).mean():
        return None
    return rows, columns


def _fan(x_m: np.ndarray, z_m: np.ndarray) -> Geometry | None:
    """Depths from the apex and angles, the apex being where the columns' lines meet."""
    d_x, d_z = x_m[-1] - x_m[0], z_m[-1] - z_m[0]
    length = np.hypot(d_x, d_z)
    if np.any(length == 0):
        return None
    # a line's distance from a point (x, z) is (x - x0) d_z - (z - z0) d_x over its length: least squares for the point
    normal = np.stack([d_z, -d_x], axis=1) / length[:, None]
    offset = normal[:, 0] * x_m[0] + normal[:, 1] * z_m[0]
    apex, _, rank, _ = np.linalg.lstsq(normal, offset, rcond=1e-6)
    if rank < 2:
        return None
    radius, angle = np.hypot(x_m - apex[0], z_m - apex[1]), np.arctan2(x_m - apex[0], z_m - apex[1])
    axes = _steady(radius[1:], angle[1:])  # without the first row, which may be the apex itself and have no angle
    if axes is None:
        return None
    first = np.median(radius[0])
    if np.abs(radius[0] - first).max() > TOLERANCE * np.diff(axes[0]).mean() or first >= axes[0][0]:
        return None
    return Polar(np.concatenate([[first], axes[0]]), axes[1])
