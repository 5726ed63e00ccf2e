"""NIfTI, plain or gzipped, in one file: columns (``x``) fastest, then rows (``y``), then frames, as CAMUS has it.

The fifth axis holds the components of vectors where the intent says so: ITK writes colour this way, others as RGB24.
"""

from __future__ import annotations

import gzip
import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.arrays.dataset import check_array
from usdehaze.io.decoding import decoding
from usdehaze.io.hdf5.layouts.axes import frames_of, third_axis
from usdehaze.io.limits import MIN_SIDE, MOST_DEFLATED, check_frame
from usdehaze.io.stored_cine import TIMES_WITHOUT_UNIT, StoredCine
from usdehaze.io.stored_scan import StoredScan

_MAX_OFFSET = 2**24  # bytes of header and extensions before the values
_METRES = {"meter": 1.0, "mm": 1e-3, "micron": 1e-6}
_SECONDS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}
_TIME, _COMPONENT = 3, 4  # axes
_VECTORS = {1005, 1006, 1007, 1008, 1009, 2003, 2004}  # intents: matrices, displacements, vectors, RGB, RGBA
_COLOURS = {1007, 2003, 2004}


class NiftiScan(StoredScan):
    """Frames in a ``.nii`` or ``.nii.gz`` file, with its pixel spacing and, where it has a time axis, frame times.

    ``--axes`` names the axes slowest first, ``THW`` by default. The affine is not used: it places patients,
    not probes.
    """

    _file: Any = None

    def _open(self) -> StoredCine:
        if self.reading.dataset:
            raise InputError(self.path, f"no dataset {self.reading.dataset!r}", "no --dataset: a NIfTI holds one array")
        with open(self.path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        self._file = gzip.open(self.path) if packed else open(self.path, "rb")
        header = _header(self._file)
        values = _Values(self._file, header, packed, self.path)
        pixels = values.long[: len(values.long) - values.has_colours]
        letters = (self.reading.axes or "C" * values.has_colours + "THW"[-len(pixels) :]).upper()
        guessed = "" if self.reading.axes else letters
        letters += "C" * values.is_rgb  # which the file does say
        cine = frames_of(values, self.path, "NIfTI", letters)
        notes = cine.assumptions
        if len(pixels) == 3 and not self.reading.axes and pixels[2] != _TIME:
            notes += (third_axis(cine, self.path, "--axes"),)
        times, told = _frame_times(header, cine.shape[0]) if pixels[2:] == [_TIME] else (None, ())
        spacing_m = _spacing(header, [values.long[::-1][letters.index(letter)] for letter in "HW"])
        notes += told
        return replace(cine, spacing_m=spacing_m, frame_times_s=times, assumptions=notes, guessed_axes=guessed)

    def _errors(self) -> AbstractContextManager[None]:
        return decoding(self.path, "NIfTI")


class _Values:
    """The values as a dataset of the HDF5 layouts, axes the other way round: the slowest first.

    Attributes:
        long: axes longer than one, as the file counts them.
        has_colours: the last of them is that of colours.
        is_rgb: each value is a colour; its components are an axis of the dataset that the file does not count.
    """

    name, chunks = "", None
    attrs: ClassVar[dict[str, str]] = {}

    def __init__(self, file: Any, header: Any, packed: bool, path: Path) -> None:
        from nibabel.arrayproxy import ArrayProxy

        sides = tuple(map(int, header.get_data_shape()))
        self.long = [axis for axis, side in enumerate(sides) if side != 1]
        stored, intent = header.get_data_dtype(), int(header["intent_code"])
        self.is_rgb = stored.names is not None  # RGB24 or RGBA32, as dcm2niix has it
        components = sides[_COMPONENT] if intent in _VECTORS and len(sides) > _COMPONENT else 1
        self.has_colours = components in (3, 4) and intent in _COLOURS and stored.kind in "ui"
        if components > 1 and not self.has_colours:
            found = f"holds {components} components a pixel ({stored}), as its intent code {intent} says"
            raise InputError(path, found, "one value a pixel, or 3 or 4 whole numbers of a colour")
        if (
            len(self.long) - self.has_colours not in (2, 3)
            or min(sides) < 1
            or min(sides[axis] for axis in self.long[:2]) < MIN_SIDE
        ):
            raise InputError(path, f"holds an array of shape {sides}", "columns x rows, or columns x rows x frames")
        check_frame((sides[self.long[1]], sides[self.long[0]]), path)
        if not 0 <= header.get_data_offset() <= _MAX_OFFSET:
            raise InputError(path, f"has {header.get_data_offset()} bytes before its values", f"at most {_MAX_OFFSET}")
        check_array(sides, stored, path.stat().st_size, MOST_DEFLATED if packed else 1, path)
        self._values = ArrayProxy(file, header)
        scaled = (self._values.slope, self._values.inter) != (1, 0)
        self.shape, self.dtype = sides[::-1], np.dtype(np.float64) if scaled else stored
        if stored.names is not None:
            self.shape, self.dtype = (*self.shape, len(stored.names)), np.dtype(np.uint8)
        self.ndim, self.size = len(self.shape), int(np.prod(self.shape, dtype=object))

    def __getitem__(self, part: Any) -> np.ndarray:
        if self.is_rgb:
            *part, component = part or [slice(None)] * self.ndim
            colours = np.asarray(self._values[tuple(part[::-1])]).T
            return np.stack([colours[name] for name in colours.dtype.names], axis=-1)[..., component]
        return np.asarray(self._values[part[::-1]] if part else self._values).T


def _spacing(header: Any, axes: list[int]) -> tuple[float, float] | None:
    """Pitch along these axes in m; None where it is not set."""
    zooms = [float(header.get_zooms()[axis]) for axis in axes]
    if zooms == [1.0, 1.0] or not all(np.isfinite(zoom) and zoom > 0 for zoom in zooms):
        return None
    metres = _METRES.get(header.get_xyzt_units()[0], 1e-3)
    return zooms[0] * metres, zooms[1] * metres


def _frame_times(header: Any, n_frames: int) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Times in s, None where they are not set, and a sentence where they have no unit; 1 is as nibabel leaves them."""
    step, unit = float(header.get_zooms()[_TIME]), _SECONDS.get(header.get_xyzt_units()[1], 0.0)
    if not (np.isfinite(step) and step > 0):
        return None, ()
    return (step * unit * np.arange(n_frames), ()) if unit else (None, (TIMES_WITHOUT_UNIT,) if step != 1 else ())


def _header(file: Any) -> Any:
    """The header, without the extensions that follow it."""
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    start = file.read(4)
    kind = Nifti1Header if 348 in (int.from_bytes(start, "little"), int.from_bytes(start, "big")) else Nifti2Header
    with quiet_nibabel():
        return kind(start + file.read(kind.template_dtype.itemsize - 4))


@contextmanager
def quiet_nibabel() -> Iterator[None]:
    """Inside the block nibabel logs nothing of what this thread does: it mends small faults of headers, and says so."""
    logger, thread = logging.getLogger("nibabel.global"), threading.get_ident()

    def is_of_another(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(is_of_another)
    try:
        yield
    finally:
        logger.removeFilter(is_of_another)
