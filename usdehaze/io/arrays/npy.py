"""NumPy's ``.npy``: one array, read where it lies."""

from __future__ import annotations

import mmap
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from usdehaze.errors import InputError
from usdehaze.io.arrays.dataset import ArrayDataset
from usdehaze.io.decoding import decoding
from usdehaze.io.hdf5.layouts.axes import frames_of
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.stored_scan import StoredScan


class NpyScan(StoredScan):
    """Frames in a ``.npy`` file."""

    def _open(self) -> StoredCine:
        with open(self.path, "rb") as file:
            array = mapped_array(file, self.path)
        if self.reading.dataset:
            raise InputError(self.path, f"no dataset {self.reading.dataset!r}", "no --dataset: a .npy holds one array")
        return frames_of(ArrayDataset("", array), self.path, "NumPy array", self.reading.axes)

    def _errors(self) -> AbstractContextManager[None]:
        return decoding(self.path, "a NumPy array")


def read_npy_header(file: BinaryIO, path: object) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether the first axis runs fastest, and type of the array that ``file`` stands before.

    Raises:
        InputError: Python objects, or a version of the format that there is not.
    """
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise InputError(path, f"is a NumPy array of format {version[0]}.{version[1]}", "format 1.0 or 2.0")
    shape, fortran, dtype = readers[version](file)
    if dtype.hasobject:
        raise InputError(path, "holds Python objects, which are not unpickled", "an array of numbers")
    return shape, fortran, dtype


def mapped_array(file: BinaryIO, path: Path | str) -> np.ndarray:
    """The array that ``file`` stands before, read from the file as its values are asked for.

    Raises:
        InputError: see `read_npy_header`; also one that is empty, or larger than the file.
    """
    shape, fortran, dtype = read_npy_header(file, path)
    start = file.tell()
    count = 1
    for side in shape:
        count *= int(side)
    if count < 1:
        raise InputError(path, f"holds an empty array, shape {shape}", "frames (T, H, W) or (H, W)")
    file.seek(0, 2)
    if start + count * dtype.itemsize > file.tell():
        raise InputError(path, f"declares {count * dtype.itemsize} bytes but stores {file.tell() - start}")
    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # lives as long as the array
    return np.frombuffer(content, dtype, count, start).reshape(shape, order="F" if fortran else "C")
