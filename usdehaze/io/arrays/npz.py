"""NumPy's ``.npz``: several arrays in a zip archive. The one with the frames is unpacked into a temporary file."""

from __future__ import annotations

import tempfile
import zipfile
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from usdehaze.budget import spend
from usdehaze.errors import InputError
from usdehaze.io.arrays.dataset import ArrayDataset, check_array
from usdehaze.io.arrays.npy import array_in, read_npy_header
from usdehaze.io.decoding import decoding
from usdehaze.io.hdf5.layouts.axes import frame_shaped, frames_of
from usdehaze.io.hdf5.layouts.blocks import is_numeric
from usdehaze.io.hdf5.layouts.plain import choose
from usdehaze.io.limits import MOST_DEFLATED
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.stored_scan import StoredScan
from usdehaze.io.times_beside import around, times_of

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the two that NumPy writes
_BLOCK = 2**20


class NpzScan(StoredScan):
    """Frames in a ``.npz`` file: the array that ``--dataset`` names, or the only one that could be frames."""

    _file: Any = None

    def _open(self) -> StoredCine:
        with zipfile.ZipFile(self.path) as archive:
            members = self._members(archive)
            shapes = {name: f"{shape} {dtype}" for name, (shape, dtype) in members.items()}
            frames = {
                n: shapes[n] for n, (shape, dtype) in members.items() if is_numeric(dtype) and frame_shaped(shape)
            }
            others = {name: shapes[name] for name in members if name not in frames}
            name, notes = self.reading.dataset, tuple[str, ...]()
            if name is None:
                name, notes = choose(frames, others, self.path, {n: shape for n, (shape, _) in members.items()})
            if name not in members:
                raise InputError(self.path, f"no array {name!r}", f"one of {', '.join(shapes)}")
            self._file = tempfile.TemporaryFile()
            with archive.open(f"{name}.npy") as member:
                while block := member.read(_BLOCK):
                    self._file.write(block)
            self._file.seek(0)
            array = array_in(self._file, self.path)
            sizes = {n: shape for n, (shape, dtype) in members.items() if dtype.kind in "uif"}
            cine = frames_of(ArrayDataset(name, array), self.path, "NumPy archive", self.reading.axes, sizes)
            times_s, told = times_of(
                ((n, _small(archive, n), "") for n in around(name, sizes, cine.shape[0])), cine.shape[0]
            )
        return replace(cine, assumptions=(*notes, *cine.assumptions, *told), frame_times_s=times_s)

    def _members(self, archive: zipfile.ZipFile) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and type of every array by its name; Python objects are left out."""
        infos = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        spend(self.path, objects=len(infos))
        members = {}
        for info in infos:
            if info.compress_type not in _METHODS or info.flag_bits & 1:
                raise InputError(self.path, "is compressed or encrypted as NumPy does not", "a file of numpy.savez")
            with archive.open(info) as file:
                try:
                    shape, _, dtype = read_npy_header(file, self.path)  # type: ignore[arg-type]
                except InputError:
                    continue
            check_array(shape, dtype, info.compress_size, MOST_DEFLATED, self.path)
            if info.file_size > max(info.compress_size, 1) * MOST_DEFLATED:
                raise InputError(self.path, f"declares {info.file_size} bytes but stores {info.compress_size}")
            members[info.filename.removesuffix(".npy")] = (shape, dtype)
        return members

    def _errors(self) -> AbstractContextManager[None]:
        return decoding(self.path, "a NumPy archive")


def _small(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """A small array of numbers."""
    with archive.open(f"{name}.npy") as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))
