"""A result file, read one frame at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

from usdehaze.cine import Cine, Geometry, Source
from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import open_file, text
from usdehaze.io.hdf5.geometry_group import read_frame_times, read_geometry
from usdehaze.io.hdf5.layouts.own import RESULT_FORMAT, check_version, read_dynamic_range
from usdehaze.io.result import finite, frame_datasets, plain_attributes

_REQUIRED, _OPTIONAL = ("input", "tissue", "haze"), "tissue_std"


@dataclass(frozen=True)
class OpenResult:
    """An open result file.

    Attributes:
        path: the file.
        shape: ``(T, H, W)``.
        geometry, dynamic_range_db: as in `usdehaze.cine.Cine`.
        frame_times_s: ``(T,)`` s, or None.
        attrs: root attributes, as plain Python values.
        has_std: whether there is a deviation over posterior samples.
    """

    path: str | os.PathLike[str]
    shape: tuple[int, int, int]
    geometry: Geometry
    dynamic_range_db: float
    frame_times_s: np.ndarray | None
    attrs: dict[str, Any]
    has_std: bool
    _datasets: dict[str, h5py.Dataset] = field(repr=False)

    @property
    def first_frame(self) -> int:
        """Index in the source of frame 0."""
        return int(self.attrs.get("first_frame", 0))

    def read(self, name: str, frame: int) -> np.ndarray:
        """One frame of "input", "tissue", "haze" or "tissue_std", ``(H, W)`` float32 dB.

        Raises:
            InputError: it holds values that are not finite.
        """
        return finite(self._datasets[name][frame], name, self.path)

    def input_cine(self) -> Cine:
        """All frames of the input, in memory."""
        source = Source(name=os.path.basename(self.path), first_frame=self.first_frame)
        frames = np.stack([self.read("input", frame) for frame in range(self.shape[0])])
        try:
            return Cine(frames, self.geometry, self.dynamic_range_db, self.frame_times_s, source)
        except ValueError as error:
            raise InputError(self.path, str(error)) from error


@contextmanager
def open_result(path: str | os.PathLike[str]) -> Iterator[OpenResult]:
    """Opens a result file without reading its frames.

    Raises:
        InputError: it is not a result, or it does not hold what a result must hold.
    """
    with open_file(path) as file:
        if text(file.attrs.get("format", "")) != RESULT_FORMAT:
            raise InputError(path, "is not a result", "a file written by usdehaze process (STEM.dehazed.h5)")
        check_version(file, path)
        datasets = frame_datasets(file, path, _REQUIRED, (_OPTIONAL,))
        shape = datasets["input"].shape
        yield OpenResult(
            path,
            shape,
            read_geometry(file, path),
            read_dynamic_range(file, path),
            read_frame_times(file, path, shape[0]),
            plain_attributes(file),
            _OPTIONAL in datasets,
            datasets,
        )
