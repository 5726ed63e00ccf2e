"""Values that netCDF's attributes pack: ``scale_factor``, ``add_offset``, ``_FillValue``, ``missing_value``,
``_Unsigned``.
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import attribute, attribute_value

_MISSING = ("_FillValue", "missing_value")


class Packed:
    """A dataset of numbers in the values that its attributes mean; in all else the dataset itself.

    Args:
        dataset: as stored.
        scale, offset: of the values.
        missing: stored values that stand for none; NaN here.
        dtype: what the values are stored as, whatever the file says.
    """

    def __init__(
        self, dataset: h5py.Dataset, scale: float, offset: float, missing: list[float], dtype: np.dtype
    ) -> None:
        self._dataset, self._scale, self._offset, self._missing = dataset, scale, offset, missing
        self._stored, plain = dtype, (scale, offset) == (1, 0) and not missing
        self.dtype = dtype if plain else np.dtype(np.float64)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def __getitem__(self, part: Any) -> np.ndarray:
        stored = self._dataset[part]
        with np.errstate(over="ignore", invalid="ignore"):
            values = stored.view(self._stored)
            if self.dtype == np.float64:
                values = values.astype(np.float64) * self._scale + self._offset
        return np.where(np.isin(stored, self._missing), np.nan, values) if self._missing else values


def unpacked(dataset: h5py.Dataset, path: object) -> tuple[h5py.Dataset | Packed, tuple[str, ...]]:
    """A dataset in the values that its attributes mean, and what they say, one sentence each.

    Raises:
        InputError: an attribute that says nothing.
    """
    dtype = dataset.dtype
    if dtype.kind not in "uif":
        return dataset, ()
    scale, offset = (_number(dataset, *of, path) for of in (("scale_factor", 1.0), ("add_offset", 0.0)))
    missing, notes = _missing(dataset, path), tuple[str, ...]()
    if (scale, offset) != (1, 0):
        notes += (f"Stored values scaled by {scale:g} and shifted by {offset:g}, as scale_factor and add_offset say.",)
    if missing:
        told = " and ".join(f"{value:g}" for value in missing)
        notes += (f"Stored values of {told} taken as missing, as {' or '.join(_MISSING)} says.",)
    if dtype.kind == "i" and attribute(dataset, "_Unsigned").lower() == "true":
        dtype = np.dtype(dtype.str.replace("i", "u"))
        notes += ("Stored values taken as unsigned, as _Unsigned says.",)
    return (Packed(dataset, scale, offset, missing, dtype) if notes else dataset), notes


def _number(dataset: h5py.Dataset, name: str, default: float, path: object) -> float:
    values = _numbers(dataset, name, path)
    if len(values) == 0:
        return default
    if len(values) > 1 or not np.isfinite(values[0]) or (values[0] == 0 and name == "scale_factor"):
        found = f"{len(values)} numbers" if len(values) > 1 else f"{values[0]:g}"
        raise _refusal(dataset, name, found, path)
    return float(values[0])


def _missing(dataset: h5py.Dataset, path: object) -> list[float]:
    """Stored values that stand for none. Not NaN, nor 0 of levels that have no sign: both are the floor as they are."""
    dtype, found = dataset.dtype, set[float]()
    for value in np.concatenate([_numbers(dataset, name, path) for name in _MISSING]):
        with np.errstate(over="ignore", invalid="ignore"):
            stored = float(value.astype(dtype))
        if stored == value or (dtype.kind == "f" and not np.isnan(value)):  # others are none that the type can hold
            found.add(stored)
    return sorted(found - ({0.0} if dtype.kind == "u" else set()))


def _numbers(dataset: h5py.Dataset, name: str, path: object) -> np.ndarray:
    """An attribute of real numbers, none where there is none."""
    values = np.ravel(attribute_value(dataset, name)) if name in dataset.attrs else np.empty(0)
    if values.dtype.kind not in "uif" or (len(values) == 0 and name in dataset.attrs):
        raise _refusal(dataset, name, "no number", path)
    return values.astype(np.float64)


def _refusal(dataset: h5py.Dataset, name: str, found: str, path: object) -> InputError:
    found = f"attribute {name} of dataset {str(dataset.name).lstrip('/')!r} is {found}"
    return InputError(path, found, "one finite number" + (" but 0" if name == "scale_factor" else ""), "mend it there")
