"""Reading a dataset of frames in blocks, as plain numbers."""

from __future__ import annotations

import h5py
import numpy as np

BLOCK_BYTES = 64 * 2**20  # of stored values held by a `BlockReader`
_COMPLEX_FIELDS = ({"r", "i"}, {"re", "im"}, {"real", "imag"})


def is_complex_compound(dtype: np.dtype) -> bool:
    """True for compounds of a real and an imaginary part under their usual names."""
    return dtype.names is not None and {n.lower() for n in dtype.names} in _COMPLEX_FIELDS


def is_numeric(dtype: np.dtype) -> bool:
    """True for integers, floats, complex numbers and real/imaginary compounds."""
    return dtype.kind in "uifc" or is_complex_compound(dtype)


def value_type(dtype: np.dtype) -> np.dtype:
    """Type of the values that a `BlockReader` gives: complex for compounds, in the byte order of this machine."""
    return np.dtype(np.complex128) if dtype.names is not None else dtype.newbyteorder("=")


class BlockReader:
    """One index along an axis of a dataset after the other, read from the file in blocks.

    Where the indices of an axis lie far apart in the file, or many of them in one compressed chunk, reading them one by
    one would read the file over and over. No more than `BLOCK_BYTES` are held, or one index where that is more.

    Args:
        dataset: numeric, real/imaginary compounds included.
        axis: that the index runs along; None for a dataset that is a single frame.
    """

    def __init__(self, dataset: h5py.Dataset, axis: int | None) -> None:
        self.dataset, self.axis = dataset, axis
        self.length = 1 if axis is None else dataset.shape[axis]
        bytes_each = dataset.size // self.length * dataset.dtype.itemsize
        fitting = max(1, BLOCK_BYTES // max(1, bytes_each))
        if dataset.chunks is not None and axis is not None:
            chunk = dataset.chunks[axis]
            self.step = chunk * (fitting // chunk) if axis != 0 and fitting > chunk else min(chunk, fitting)
        else:
            self.step = 1 if axis == 0 else fitting
        self.start, self.block = -1, np.empty(0)

    def __call__(self, index: int) -> np.ndarray:
        """The values at ``index``, the axis taken out."""
        if self.axis is None:
            return plain(self.dataset[()])
        start = index // self.step * self.step
        if start != self.start:
            self.block = np.empty(0)  # let go of the old block before the new one is read
            part = [slice(None)] * self.dataset.ndim
            part[self.axis] = slice(start, min(start + self.step, self.length))
            self.block, self.start = np.moveaxis(self.dataset[tuple(part)], self.axis, 0), start
        return plain(self.block[index - start])


def plain(values: np.ndarray) -> np.ndarray:
    """Complex numbers for real/imaginary compounds, and this machine's byte order."""
    if values.dtype.names is None:
        return values.astype(value_type(values.dtype), copy=False)
    parts = {n.lower()[0]: values[n] for n in values.dtype.names}
    return parts["r"] + 1j * parts["i"]
