"""NumPy's ``.npy``: one array, read where it lies."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from usdehaze.errors import InputError
from usdehaze.io.arrays.dataset import ArrayDataset
from usdehaze.io.decoding import decoding
from usdehaze.io.hdf5.layouts.axes import frames_of
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.stored_scan import StoredScan

_PIECE_BYTES = 2**24


class NpyScan(StoredScan):
    """Frames in a ``.npy`` file."""

    _file: Any = None

    def _open(self) -> StoredCine:
        self._file = open(self.path, "rb")
        array = array_in(self._file, self.path)
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


def array_in(file: BinaryIO, path: Path | str) -> FileArray:
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
    return FileArray(file, start, shape, fortran, dtype, path)


class FileArray:
    """An array in a file that is never mapped into memory: one that is cut off while it is read would end the process.

    Args:
        file: where it lies, from byte ``start``.
        shape, dtype: of it.
        fortran: the first axis runs fastest.
        path: for messages.
    """

    def __init__(
        self, file: BinaryIO, start: int, shape: tuple[int, ...], fortran: bool, dtype: np.dtype, path: Path | str
    ) -> None:
        self.file, self.start, self.shape, self.dtype, self.path = file, start, shape, dtype, path
        self.ndim, self.size, self._fortran = len(shape), int(np.prod(shape, dtype=object)), fortran

    def __getitem__(self, part: Any) -> np.ndarray:
        parts = (*part, *[slice(None)] * (self.ndim - len(part)))
        if self._fortran:  # the last axis runs fastest in what is the other way round
            return self._read(self.start, self.shape[::-1], parts[::-1]).T
        return self._read(self.start, self.shape, parts)

    def _read(self, start: int, shape: tuple[int, ...], parts: tuple[Any, ...]) -> np.ndarray:
        """Part of an array whose last axis runs fastest; no more is read at once than `_PIECE_BYTES`."""
        count = int(np.prod(shape, dtype=object))
        if count * self.dtype.itemsize <= _PIECE_BYTES or not shape:
            self.file.seek(start)
            values = np.fromfile(self.file, self.dtype, count)
            if len(values) < count:
                raise InputError(self.path, "was cut off while it was read")
            return values.reshape(shape)[parts]
        each, first = count // shape[0] * self.dtype.itemsize, parts[0]
        if not isinstance(first, slice):
            return self._read(start + first * each, shape[1:], parts[1:])
        rows = range(*first.indices(shape[0]))
        return np.stack([self._read(start + row * each, shape[1:], parts[1:]) for row in rows])
