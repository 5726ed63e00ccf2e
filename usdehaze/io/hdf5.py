"""HDF5 file -> Scan."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

import h5py

from usdehaze.io.found_scan import FoundScan
from usdehaze.io.h5 import open_h5, reading
from usdehaze.io.layouts import Found, recognise


class Hdf5Scan(FoundScan):
    """Frames in an HDF5 file.

    Args:
        path: the file.
        dataset: path of the dataset inside it; needed only where several could be the frames.
        axes: one letter for each dimension of the dataset as it is stored, longer than one: T, H, W and C for colour
            channels; needed only where the guess of `usdehaze.io.layouts.axes` is wrong.
        dynamic_range_db, frames, units: see `usdehaze.io.found_scan.FoundScan`.

    Raises:
        InputError: anything in the file that stands in the way, in one line.
    """

    _file: h5py.File | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        dataset: str | None = None,
        axes: str | None = None,
        dynamic_range_db: float | None = None,
        frames: slice | None = None,
        units: str | None = None,
    ) -> None:
        self._dataset, self._axes = dataset, axes
        super().__init__(path, dynamic_range_db, frames, units)

    def _open(self) -> Found:
        self._file = open_h5(self.path)
        return recognise(self._file, self.path, self._dataset, self._axes)

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self.path)
