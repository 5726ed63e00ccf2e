"""HDF5 as ITK, SimpleITK and Slicer write it: ``ITKImage/0/VoxelData`` with its spacing beside it.

``VoxelData`` has the slowest axis first, and components, where there are several, last; ``Spacing`` has
``x`` first, in mm. Origin and directions place patients, not probes, and are not used.
"""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import get_dataset, get_group, small_array
from usdehaze.io.hdf5.layouts.axes import frames_of
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine

_IMAGE = "ITKImage/0"


def recognise(file: h5py.File, path: object, reading: Reading) -> StoredCine | None:
    """The image, unless another dataset is named or its axes are."""
    group = get_group(file, _IMAGE)
    named = reading.dataset is None or reading.dataset.strip("/") == f"{_IMAGE}/VoxelData"
    if group is None or "VoxelData" not in group or not named or reading.axes:
        return None
    voxels = get_dataset(file, f"{_IMAGE}/VoxelData", path)
    sides = _numbers(group, "Dimension", path)
    n_axes = voxels.ndim if sides is None else len(sides)
    if n_axes not in (2, 3, 4) or (sides is not None and tuple(sides[::-1]) != voxels.shape[:n_axes]):
        raise InputError(path, f"VoxelData has shape {voxels.shape}", "the Dimension beside it, of 2 to 4 axes")
    long = [axis for axis in range(n_axes - 2) if voxels.shape[axis] > 1]
    if len(long) > 1:
        raise InputError(path, f"VoxelData has shape {voxels.shape}: a volume over time", "width x height x frames")
    cine = frames_of(voxels, path, "ITK HDF5", "T" * len(long) + "HW" + "C" * (voxels.ndim > n_axes))
    if long:
        cine = replace(cine, assumptions=(*cine.assumptions, "The third axis taken as frames."))
    spacing = _numbers(group, "Spacing", path)
    if spacing is None or len(spacing) < 2 or not (np.isfinite(spacing).all() and min(spacing[:2]) > 0):
        return cine
    if list(spacing[:2]) == [1, 1]:  # as ITK leaves it
        return cine
    x_mm, y_mm = (float(value) for value in spacing[:2])
    return replace(cine, spacing_m=(y_mm / 1000, x_mm / 1000))


def _numbers(group: h5py.Group, name: str, path: object) -> np.ndarray | None:
    values = small_array(group, name, path)
    return None if values is None else np.atleast_1d(values).reshape(-1)
