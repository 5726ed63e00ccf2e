"""Beamformed I/Q as two datasets of one shape beside each other, and CUBDL's beamformed data.

CUBDL keeps ``beamformed_Idata`` and ``beamformed_Qdata``, or a complex ``beamformed_data``, beside its channel data,
lines before depth: ``(W, H)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import h5py
import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import get_dataset, get_group, members, walk
from usdehaze.io.hdf5.layouts.axes import frame_shaped, frames_of
from usdehaze.io.hdf5.layouts.blocks import plain
from usdehaze.io.hdf5.layouts.packing import unpacked
from usdehaze.io.hdf5.layouts.plain import axes_beside, images_beside
from usdehaze.io.hdf5.layouts.times import with_times
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine

_CUBDL = ("beamformed_idata", "beamformed_qdata")
_NAMES = (_CUBDL, ("idata", "qdata"), ("i", "q"), ("real", "imag"), ("re", "im"))
_CHANNEL = "channel_data"


def recognise(file: h5py.File, path: object, reading: Reading) -> StoredCine | None:
    """The only pair, or the one that ``dataset`` names a half of; or CUBDL's beamformed data."""
    dataset, axes = reading.dataset, reading.axes
    datasets = walk(file, path)[0] if dataset is None else _beside(file, dataset.strip("/"))
    pairs = [pair for pair in _pairs(datasets) if dataset is None or dataset.strip("/") in pair]
    if len(pairs) == 1:
        if dataset is None and (others := images_beside(file, path, pairs[0])):
            found = f"{' and '.join(pairs[0])} could be the frames as I/Q, and so could others: {others}"
            raise InputError(path, found, advice="pick one with --dataset")
        real, imaginary = (get_dataset(file, name, path) for name in pairs[0])
        cubdl = pairs[0][0].rpartition("/")[2].lower() == _CUBDL[0]
        layout = "CUBDL beamformed I/Q" if cubdl else "I/Q in two datasets"
        order = axes or (_lines_first(real) if cubdl else None)
        cine = joined(real, imaginary, path, layout, order, {} if cubdl else axes_beside(file, real, path))
        cine = with_times(cine, file, path)
        return _noted(cine) if cubdl and not axes else cine
    if len(pairs) > 1:
        listed = ", ".join(f"{real} and {imaginary}" for real, imaginary in pairs[:8])
        raise InputError(path, f"{len(pairs)} pairs of I/Q: {listed}", advice="pick one with --dataset")
    wanted = dataset.strip("/") if dataset else "beamformed_data"
    if _CHANNEL in datasets and wanted == "beamformed_data" and wanted in datasets:
        stored = get_dataset(file, wanted, path)
        cine = frames_of(stored, path, "CUBDL beamformed data", axes or _lines_first(stored))
        return cine if axes else _noted(cine)
    return None


def _beside(file: h5py.File, name: str) -> dict[str, h5py.Dataset]:
    """The dataset called ``name`` and those in the same group that a pair is made with."""
    parent, _, last = name.rpartition("/")
    group = get_group(file, parent) if parent else file
    if group is None:
        return {}
    partners = {part for pair in _NAMES if last.lower() in pair for part in pair} | {_CHANNEL, last.lower()}
    found = {}
    for part in members(group, file.filename):
        if part.lower() in partners and isinstance(group.get(part, getlink=True), h5py.HardLink):
            if isinstance(group[part], h5py.Dataset):
                found[f"{parent}/{part}".lstrip("/")] = group[part]
    return found


def _pairs(datasets: dict[str, h5py.Dataset]) -> list[tuple[str, str]]:
    """Names of datasets that belong together: in one group, of one shape, with the names of two parts."""
    lower = {name.lower(): name for name in datasets}
    found = []
    for name in lower:
        group, _, last = name.rpartition("/")
        other = dict(_NAMES).get(last)
        partner = lower.get(f"{group}/{other}" if group else str(other)) if other else None
        if partner is None:
            continue
        real, imaginary = datasets[lower[name]], datasets[partner]
        if real.shape == imaginary.shape and real.dtype.kind == imaginary.dtype.kind and real.dtype.kind in "if":
            if real.shape and frame_shaped(real.shape):
                found.append((lower[name], partner))
    return found


def _lines_first(dataset: h5py.Dataset) -> str:
    return "TWH" if sum(side > 1 for side in dataset.shape) == 3 else "WH"


def _noted(cine: StoredCine) -> StoredCine:
    return replace(cine, assumptions=(*cine.assumptions, "Axes taken as lines before depth, as in CUBDL's files."))


class _Pair:
    """A dataset of I/Q whose real and imaginary parts are stored in two, of one shape; in all else the former."""

    def __init__(self, real: Any, imaginary: Any) -> None:
        self._parts, self.dtype = (real, imaginary), np.result_type(real.dtype, imaginary.dtype, np.complex64)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parts[0], name)

    def __getitem__(self, part: Any) -> np.ndarray:
        real, imaginary = (plain(stored[part]) for stored in self._parts)
        return (real + 1j * imaginary).astype(self.dtype, copy=False)


def joined(
    real: h5py.Dataset,
    imaginary: h5py.Dataset,
    path: object,
    layout: str,
    axes: str | None,
    beside: Mapping[str, tuple[int, ...]] | None = None,
) -> StoredCine:
    """Frames of I/Q from its real and its imaginary part, see `frames_of`."""
    (real, notes), (imaginary, others) = (unpacked(part, path) for part in (real, imaginary))
    pair: Any = _Pair(real, imaginary)
    cine = frames_of(pair, path, layout, axes, beside)
    return replace(cine, assumptions=(*dict.fromkeys(notes + others), *cine.assumptions))
