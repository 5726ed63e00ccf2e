"""MAT-files of versions 5 to 7 (those of 7.3 are HDF5), read by scipy.

Numeric arrays anywhere in the file, in structures and cells too; a cell array of frames is a cine, and so is a
structure array with one in a field of each. MATLAB's axes are ``H W T``. It stores whole numbers of any class in the
fewest bytes that hold them: the class says what they are.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.arrays.dataset import ArrayDataset, check_array
from usdehaze.io.decoding import decoding
from usdehaze.io.hdf5.layouts.axes import frame_shaped, frames_of
from usdehaze.io.hdf5.layouts.blocks import is_numeric
from usdehaze.io.hdf5.layouts.plain import choose
from usdehaze.io.limits import MAX_FRAMES_BYTES, MIN_SIDE, MOST_DEFLATED
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.stored_scan import StoredScan
from usdehaze.io.times_beside import around, tells_times, times_of
from usdehaze.quiet import quiet

_NUMBERS = {*"uint8 int8 uint16 int16 uint32 int32 uint64 int64 single double".split()}  # as NumPy calls them, too
_CONTAINERS = {"struct", "cell"}
_MATRIX, _COMPRESSED = 14, 15  # types of elements
_MAX_DEPTH = 8  # of structures in structures
_MAX_ARRAYS = 100_000


class MatlabScan(StoredScan):
    """Frames in a MAT-file: the array that ``--dataset`` names (``structure/field``), or the only one that could be.

    ``--axes`` names the axes as MATLAB counts them.
    """

    def _open(self) -> StoredCine:
        from scipy.io import loadmat, whosmat

        check_elements(self.path)
        wanted = self.reading.dataset
        variables = {name: (tuple(map(int, shape)), kind) for name, shape, kind in whosmat(str(self.path))}
        arrays: dict[str, np.ndarray] = {}
        shapes = {}
        for name, (shape, kind) in variables.items():
            if kind in _NUMBERS:
                shapes[name] = (shape, f"{shape} {kind}")
        containers = [name for name, (_, kind) in variables.items() if kind in _CONTAINERS]
        if wanted is not None:
            containers = [name for name in containers if name == wanted.partition("/")[0]]
        elif any(frame_shaped(shape[::-1]) for shape, _ in shapes.values()):
            containers = []  # structures beside frames hold what belongs to them
        if containers:
            arrays = _arrays_in(self.path, containers, wanted or "")
        shapes |= {name: (a.shape, f"{a.shape} {a.dtype}") for name, a in arrays.items()}
        frames = {name: words for name, (shape, words) in shapes.items() if frame_shaped(shape[::-1])}
        others = {name: words for name, (_, words) in shapes.items() if name not in frames}
        sizes = {name: shape for name, (shape, _) in shapes.items()}
        notes: tuple[str, ...] = ()
        if wanted is None:
            wanted, notes = choose(frames, others, self.path, sizes)
        if wanted not in shapes:
            raise InputError(self.path, f"no array {wanted!r}", f"one of {', '.join(list(shapes)[:8])}")
        if wanted not in arrays:
            arrays[wanted] = loadmat(str(self.path), variable_names=[wanted])[wanted]
        array, axes = arrays[wanted].T, self.reading.axes and self.reading.axes[::-1]
        declared = variables.get(wanted, ((), ""))[1]
        dtype = np.dtype(declared) if declared in _NUMBERS and array.dtype.kind != "c" else None
        dataset: Any = ArrayDataset(wanted, array, matlab=True, dtype=dtype)
        beside = {n: s for n, s in sizes.items() if n.rpartition("/")[0] == wanted.rpartition("/")[0]}
        cine = frames_of(dataset, self.path, "MAT-file", axes, beside)

        def numbers(name: str) -> np.ndarray:
            return arrays[name] if name in arrays else loadmat(str(self.path), variable_names=[name])[name]

        times_s, told = times_of(((n, numbers(n), "") for n in around(wanted, sizes, cine.shape[0])), cine.shape[0])
        notes = (*notes, *cine.assumptions, *told)
        return replace(cine, assumptions=notes, guessed_axes=cine.guessed_axes[::-1], frame_times_s=times_s)

    def _errors(self) -> AbstractContextManager[None]:
        return decoding(self.path, "a MAT-file")


def check_elements(path: Any) -> None:
    """Refuses a file whose variables declare more than they store, before any of them is read.

    Raises:
        InputError: there is one, or they do not fill the file.
    """
    with open(path, "rb") as file:
        order = "little" if file.read(128)[126:] == b"IM" else "big"
        size, at = path.stat().st_size, 128
        while at + 8 <= size:
            file.seek(at)
            tag = file.read(8 + 1024)
            kind, length = int.from_bytes(tag[:4], order), int.from_bytes(tag[4:8], order)  # type: ignore[arg-type]
            if kind not in (_MATRIX, _COMPRESSED) or at + 8 + length > size:
                raise InputError(path, f"has a damaged variable at byte {at}", advice="the file may be cut off")
            if kind == _COMPRESSED:
                inner = zlib.decompressobj().decompress(tag[8:], 8)
                declared = int.from_bytes(inner[4:8], order)  # type: ignore[arg-type]
                check_array((declared,), np.dtype(np.uint8), length, MOST_DEFLATED, path)
            at += 8 + length


def _arrays_in(path: Any, containers: list[str], wanted: str) -> dict[str, np.ndarray]:
    """Every numeric array in some structures and cell arrays, of the class that it declares.

    Fields of structure arrays are taken together unless that of one is wanted (``structure/2/field``).
    """
    from scipy.io import loadmat

    def read(as_declared: bool) -> dict[str, np.ndarray]:
        loaded = loadmat(str(path), variable_names=containers, simplify_cells=True, mat_dtype=as_declared)
        return {n: array for name in containers for n, array in _arrays(name, loaded[name], 0, wanted)}

    arrays = read(False)
    if all(array.dtype.kind in "fc" for array in arrays.values()):
        return arrays
    if (needed := 8 * sum(array.size for array in arrays.values())) > MAX_FRAMES_BYTES:
        found = f"holds structures of {needed / 1e9:.3g} GB in double precision"
        raise InputError(path, found, f"at most {MAX_FRAMES_BYTES / 1e9:.3g} GB", "save the frames as a variable")
    iq = {name: array for name, array in arrays.items() if array.dtype.kind == "c"}
    del arrays
    with quiet():  # as declared, complex numbers lose their imaginary part
        return read(True) | iq


def _arrays(name: str, value: Any, depth: int, wanted: str) -> Iterator[tuple[str, np.ndarray]]:
    """Every numeric array in a structure or a cell array, by its name; cells of one shape are frames of one array."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, np.ndarray) and is_numeric(value.dtype):
        yield name, value
    elif isinstance(value, dict):
        for field, inner in value.items():
            yield from _arrays(f"{name}/{field}", inner, depth + 1, wanted)
    elif isinstance(value, list | np.ndarray):
        cells = list(value.flat) if isinstance(value, np.ndarray) else value
        kinds = {(c.shape, c.dtype) if isinstance(c, np.ndarray) else type(c) for c in cells[:_MAX_ARRAYS]}
        if len(kinds) == 1 and len(cells) > 1 and _is_frame(cells[0]):
            yield name, np.stack(cells, axis=-1)
            return
        one = re.match(re.escape(name) + r"/\d+/", wanted)
        cines = _cines(cells) if kinds == {dict} and 1 < len(cells) <= _MAX_ARRAYS and not one else {}
        for field, cine in cines.items():
            yield f"{name}/{field}", cine
        for index, inner in enumerate(cells[:_MAX_ARRAYS]):
            rest = {field: inner[field] for field in inner if field not in cines} if cines else inner
            yield from _arrays(f"{name}/{index + 1}", rest, depth + 1, wanted)
    elif isinstance(value, int | float) and tells_times(name.rpartition("/")[2]):
        yield name, np.array([value])


def _is_frame(value: Any) -> bool:
    """Whether a value is an array of numbers that is not more than one frame; that of one line counts."""
    if not isinstance(value, np.ndarray) or not is_numeric(value.dtype):
        return False
    long = [side for side in value.shape if side != 1]
    return len(long) <= 2 or (len(long) == 3 and long[2] in (3, 4))


def _cines(structures: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Fields of a structure array that hold one frame each, as MATLAB's movies do, by their names."""
    cines = {}
    for field, first in structures[0].items():
        if not _is_frame(first) or first.ndim < 2 or min(first.shape[:2]) < MIN_SIDE:
            continue
        found = [structure.get(field) for structure in structures]
        alike = [f for f in found if isinstance(f, np.ndarray) and (f.shape, f.dtype) == (first.shape, first.dtype)]
        if len(alike) == len(found):
            cines[field] = np.stack(alike, axis=-1)
    return cines
