"""HDF5 as ITK, SimpleITK and Slicer write it: ``ITKImage/0/VoxelData`` with its spacing beside it.

``VoxelData`` has the slowest axis first, and components, where there are several, last; ``Spacing`` has
``x`` first, in mm. Origin and directions place patients, not probes, and are not used.
"""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import get_dataset, get_group, small_line
from usdehaze.io.hdf5.layouts.axes import frames_of, third_axis
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine

_IMAGE = "ITKImage/0"


def recognise(file: h5py.File, path: object, reading: Reading) -> StoredCine | None:
    """The image, unless another dataset is named."""
    group, name = get_group(file, _IMAGE), f"{_IMAGE}/VoxelData"
    if group is None or "VoxelData" not in group or (reading.dataset or name).strip("/") != name:
        return None
    voxels = get_dataset(file, name, path)
    sides = small_line(group, "Dimension", path)
    n_axes = voxels.ndim if sides is None else len(sides)
    if n_axes not in (2, 3, 4) or (sides is not None and tuple(sides[::-1]) != voxels.shape[:n_axes]):
        raise InputError(path, f"VoxelData has shape {voxels.shape}", "the Dimension beside it, of 2 to 4 axes")
    long = [axis for axis in range(n_axes) if voxels.shape[axis] > 1]
    if len(long) not in (2, 3):
        raise InputError(path, f"VoxelData has shape {voxels.shape}: a volume over time", "width x height x frames")
    letters = (reading.axes or "THW"[-len(long) :] + "C" * (voxels.ndim > n_axes)).upper()
    cine = frames_of(voxels, path, "ITK HDF5", letters)
    if not reading.axes:
        notes = (third_axis(cine, path, "--axes"),) if len(long) == 3 else ()
        cine = replace(cine, assumptions=(*cine.assumptions, *notes), guessed_axes=letters)
    spacing = small_line(group, "Spacing", path)
    if spacing is None or len(spacing) != n_axes or not np.isfinite(spacing).all():
        return cine
    by_letter = dict(zip(letters, (float(spacing[::-1][axis]) for axis in long), strict=False))
    row_mm, column_mm = by_letter.get("H", 0.0), by_letter.get("W", 0.0)
    if min(row_mm, column_mm) <= 0 or (row_mm, column_mm) == (1, 1):  # 1 is as ITK leaves it
        return cine
    return replace(cine, spacing_m=(row_mm / 1000, column_mm / 1000))
