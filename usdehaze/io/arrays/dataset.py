"""An array that stands where the HDF5 layouts expect a dataset, so that their rules for axes hold for it as well."""

from __future__ import annotations

from typing import Any

import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.limits import MAX_FRAMES_BYTES


class ArrayDataset:
    """What `usdehaze.io.hdf5.layouts.axes` asks of a dataset.

    Args:
        name: of the array in its file; "" where the file holds no other.
        array: numeric, of any shape; may lie in a file.
        matlab: the axes are the other way round, as MATLAB stores them.
        dtype: of the values, where the array holds them in a smaller type.
    """

    chunks = None

    def __init__(self, name: str, array: Any, matlab: bool = False, dtype: np.dtype | None = None) -> None:
        self.name, self.array = name, array
        self.shape, self.dtype, self.ndim, self.size = array.shape, dtype or array.dtype, array.ndim, array.size
        self.attrs = {"MATLAB_class": array.dtype.name} if matlab else {}

    def __getitem__(self, part: Any) -> np.ndarray:
        return np.asarray(self.array[part], self.dtype)


def check_array(shape: tuple[int, ...], dtype: np.dtype, stored: int, most_compressed: int, path: object) -> int:
    """Size in bytes of an array, of which a header alone has been read.

    Args:
        shape, dtype: as declared.
        stored: bytes in the file.
        most_compressed: what its compression can reach; 1 where there is none.
        path: for the message.

    Raises:
        InputError: the file is too small to hold it, or it is larger than any scan.
    """
    declared = dtype.itemsize
    for side in shape:
        declared *= int(side)
    if declared < 0 or declared > min(stored * most_compressed, MAX_FRAMES_BYTES):
        raise InputError(
            path,
            f"declares {declared / 1e9:.3g} GB but stores {stored / 1e9:.3g} GB",
            f"an array that it holds, of at most {MAX_FRAMES_BYTES / 1e9:.3g} GB",
        )
    return declared
