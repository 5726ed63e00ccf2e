"""Files in and out: what a file is, scans into `Cine`, results to disk."""

from __future__ import annotations

import os

from usdehaze.cine import Cine
from usdehaze.errors import InputError
from usdehaze.io.detect import RESULT_SUFFIX, kind_of, list_scans
from usdehaze.io.hdf5 import read_hdf5
from usdehaze.io.result import StoredResult, StoredTruth, read_result, read_truth, write_result, write_simulation

__all__ = [
    "RESULT_SUFFIX",
    "StoredResult",
    "StoredTruth",
    "kind_of",
    "list_scans",
    "open_cine",
    "read_hdf5",
    "read_result",
    "read_truth",
    "write_result",
    "write_simulation",
]


def open_cine(
    path: str | os.PathLike[str],
    *,
    dataset: str | None = None,
    dynamic_range_db: float | None = None,
    frames: slice | None = None,
    units: str | None = None,
) -> Cine:
    """Opens a scan, whatever kind of file it is.

    See `usdehaze.io.hdf5.read_hdf5` for the arguments.

    Raises:
        InputError: the file is missing, of a kind that is not read, or holds no usable frames.

    Example:
        >>> cine = open_cine("scan.h5", frames=slice(0, 30))  # doctest: +SKIP
    """
    if kind_of(path) == "DICOM":
        raise InputError(path, "is a DICOM file, which is not read yet", "an HDF5 file")
    return read_hdf5(path, dataset, dynamic_range_db, frames, units)
