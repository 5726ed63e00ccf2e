"""HDF5 file -> Scan."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

import h5py

from usdehaze.io.hdf5.access import hdf5_errors, open_h5
from usdehaze.io.hdf5.layouts import recognise
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.stored_scan import StoredScan


class Hdf5Scan(StoredScan):
    """Frames in an HDF5 file, in one of the `usdehaze.io.hdf5.layouts.LAYOUTS`."""

    _file: h5py.File | None = None

    def _open(self) -> StoredCine:
        self._file = open_h5(self.path)
        stored = recognise(self._file, self.path, self.reading)
        if self._file.swmr_mode:
            note = "The file is open for writing elsewhere: read as it stood."
            stored = replace(stored, assumptions=(*stored.assumptions, note))
        return stored

    def _errors(self) -> AbstractContextManager[None]:
        return hdf5_errors(self.path)
