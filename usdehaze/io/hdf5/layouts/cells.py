"""MATLAB cell arrays of frames, or structure arrays with one in a field of each: datasets of references to frames."""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import attribute, check_storage
from usdehaze.io.hdf5.layouts.axes import frame_shaped, frames_of
from usdehaze.io.hdf5.layouts.blocks import is_numeric
from usdehaze.io.stored_cine import StoredCine

MAX_CELLS = 100_000


def is_cell(dataset: h5py.Dataset) -> bool:
    """Whether a dataset is a cell array, or a field of a structure array, whose first cell could be a frame."""
    if h5py.check_ref_dtype(dataset.dtype) is not h5py.Reference:
        return False
    if not in_structures(dataset) and attribute(dataset, "MATLAB_class") != "cell":
        return False
    if not dataset.shape or not 0 < dataset.size <= MAX_CELLS:
        return False
    first = _cell(dataset, 0)
    return first is not None and is_numeric(first.dtype) and frame_shaped(first.shape)


def in_structures(dataset: h5py.Dataset) -> bool:
    """Whether a dataset of references is a field of a structure array."""
    return "MATLAB_class" not in dataset.attrs and attribute(dataset.parent, "MATLAB_class") == "struct"


def cells_of(file: h5py.File, dataset: h5py.Dataset, path: object, axes: str | None) -> StoredCine:
    """The cells as the frames of a cine, or the cine that lies in the only one.

    Raises:
        InputError: a cell that is no frame, or not of the first one's shape.
    """
    name = str(dataset.name).lstrip("/")
    first = frames_of(_checked(dataset, 0, path), path, "MATLAB cell array", axes)
    if dataset.size == 1:  # as Verasonics keeps the frames of its only buffer
        return replace(first, dataset=name)
    if first.shape[0] != 1:
        found, advice = f"cells of {name!r} hold {first.shape[0]} frames each", "save one of them as a variable"
        raise InputError(path, found, "one frame a cell", advice)

    def frame(index: int) -> StoredCine:
        cell = frames_of(_checked(dataset, index, path), path, first.layout, axes)
        if cell.shape != first.shape or cell.dtype != first.dtype:
            found = f"cell {index} of {name!r} is {cell.shape[1:]} {cell.dtype}"
            raise InputError(path, found, f"{first.shape[1:]} {first.dtype} as in the first")
        return cell

    return replace(
        first,
        dataset=name,
        shape=(int(dataset.size), *first.shape[1:]),
        read=lambda index: frame(index).read(0),
        picture=first.picture and (lambda index: frame(index).picture_of(0)),
    )


def _checked(dataset: h5py.Dataset, index: int, path: object) -> h5py.Dataset:
    cell = _cell(dataset, index)
    if cell is None:
        raise InputError(path, f"cell {index} of {dataset.name!r} is no array", "one frame a cell")
    check_storage(cell, path)
    return cell


def _cell(dataset: h5py.Dataset, index: int) -> h5py.Dataset | None:
    # axes the other way round: the cells of MATLAB's first axis lie along the last
    reference = dataset[np.unravel_index(index, dataset.shape)]
    cell = dataset.file[reference] if reference else None
    return cell if isinstance(cell, h5py.Dataset) and cell.shape else None
