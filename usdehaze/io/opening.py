"""Opening a scan, whatever kind of file it is."""

from __future__ import annotations

import os

from usdehaze.cine import Cine
from usdehaze.errors import InputError
from usdehaze.io.detect import kind_of
from usdehaze.io.h5 import check_memory
from usdehaze.io.hdf5 import Hdf5Scan
from usdehaze.io.scan import Scan


def open_scan(
    path: str | os.PathLike[str],
    *,
    dataset: str | None = None,
    axes: str | None = None,
    dynamic_range_db: float | None = None,
    frames: slice | None = None,
    units: str | None = None,
) -> Scan:
    """Opens a scan; its frames are read a few at a time.

    Args:
        path: the file.
        dataset, axes, units: for HDF5 files, see `usdehaze.io.hdf5.Hdf5Scan`.
        dynamic_range_db: dB between full scale and the floor; by default what the file says, else 60.
        frames: which frames, as a slice without a step; all by default.

    Raises:
        InputError: the file is missing, of a kind that is not read, or holds no usable frames.

    Example:
        >>> with open_scan("scan.h5") as scan:  # doctest: +SKIP
        ...     for cine in scan.chunks(16):
        ...         print(cine.source.first_frame, cine.frames.shape)
    """
    kind = kind_of(path)
    if kind == "HDF5":
        return Hdf5Scan(path, dataset, axes, dynamic_range_db, frames, units)
    if kind not in ("DICOM", "image", "images", "MetaImage"):
        raise InputError(path, f"is no scan ({kind})", "an HDF5 or DICOM file, a MetaImage, or images")
    if dataset or axes:
        raise InputError(path, f"has no datasets ({kind})", "no --dataset and no --axes")
    if kind == "DICOM":
        if units:
            raise InputError(path, f"units {units!r}", "no --units: DICOM images hold log-compressed grey levels")
        from usdehaze.io.dicom import open_dicom

        return open_dicom(path, frames=frames, dynamic_range_db=dynamic_range_db)
    from usdehaze.io.images import ImageScan

    return ImageScan(path, dynamic_range_db, frames, units)


def open_cine(
    path: str | os.PathLike[str],
    *,
    dataset: str | None = None,
    axes: str | None = None,
    dynamic_range_db: float | None = None,
    frames: slice | None = None,
    units: str | None = None,
) -> Cine:
    """Opens a scan and reads its frames into memory: see `open_scan`.

    Raises:
        InputError: the file is missing, of a kind that is not read, or holds no usable frames; or too many at once.

    Example:
        >>> cine = open_cine("scan.h5", frames=slice(0, 30))  # doctest: +SKIP
    """
    scan = open_scan(path, dataset=dataset, axes=axes, dynamic_range_db=dynamic_range_db, frames=frames, units=units)
    with scan:
        check_memory((scan.n_frames, *scan.shape), path)
        return scan.read()
