"""PICMUS's reconstructed images: ``US/US_DATASET0000`` with ``data/real``, ``data/imag`` and the axes of their scan.

MATLAB wrote them with the axes the other way round, ``T W H``: the last one runs along the depth.
"""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np

from usdehaze.io.hdf5.access import get_dataset, get_group, small_array
from usdehaze.io.hdf5.layouts.pairs import joined
from usdehaze.io.hdf5.layouts.pixel_positions import with_geometry
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine

GROUP = "US/US_DATASET0000"
_PARTS = f"{GROUP}/data/real", f"{GROUP}/data/imag"


def recognise(file: h5py.File, path: object, reading: Reading) -> StoredCine | None:
    """The image, unless its pixels are not those of its scan, or another dataset or other axes are named."""
    group, data = get_group(file, GROUP), get_group(file, f"{GROUP}/data")
    if group is None or data is None or "real" not in data or "imag" not in data or reading.axes:
        return None
    if reading.dataset is not None and reading.dataset.strip("/") not in _PARTS:
        return None
    x_m, z_m = (small_array(group, f"scan/{axis}_axis", path) for axis in "xz")
    if x_m is None or z_m is None or "probe_geometry" in group:
        return None
    parts = [get_dataset(file, name, path) for name in _PARTS]
    shape = parts[0].shape
    if shape != parts[1].shape or shape[-2:] != (x_m.size, z_m.size) or len(shape) > 3:
        return None
    order = "WH" if sum(side > 1 for side in shape) == 2 else "TWH"
    cine = joined(parts[0], parts[1], path, "PICMUS image", order)
    note = "Axes taken as lines before depth, as in PICMUS's files."
    return with_geometry(replace(cine, assumptions=(*cine.assumptions, note)), *np.meshgrid(x_m, z_m))
