"""Result files ``STEM.dehazed.h5`` and simulation files: written whole or not at all, read back checked."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

import usdehaze
from usdehaze.cine import Cine, Source
from usdehaze.errors import InputError
from usdehaze.io.atomic import atomic
from usdehaze.io.h5_output import Hdf5Output
from usdehaze.io.hdf5.access import get_dataset, open_file, text
from usdehaze.io.hdf5.geometry_group import read_frame_times, read_geometry, write_geometry
from usdehaze.io.hdf5.layouts.own import (
    FORMAT_VERSION,
    RESULT_FORMAT,
    SIMULATION_FORMAT,
    check_version,
    read_dynamic_range,
)
from usdehaze.io.limits import check_memory
from usdehaze.io.scan import CineScan, Scan
from usdehaze.io.sink import Sink

if TYPE_CHECKING:
    from usdehaze.result import Result
    from usdehaze.simulate import SimulatedCine

_SOURCE_ATTRIBUTES = {
    "source_name": "name",
    "source_sha256": "sha256",
    "source_dataset": "dataset",
    "source_layout": "layout",
    "source_units": "units",
}


@dataclass(frozen=True)
class StoredResult:
    """A result read from disk.

    Attributes:
        cine: the input, with geometry, frame times and source as they were when it was processed.
        tissue, haze: ``(T, H, W)`` float32 dB.
        std: ``(T, H, W)`` float32 dB, or None for a single posterior sample.
        attrs: the root attributes: preset, guidance, steps, seed, priors, versions, source_name, ...
    """

    cine: Cine
    tissue: np.ndarray
    haze: np.ndarray
    std: np.ndarray | None
    attrs: dict[str, Any]

    @property
    def input(self) -> np.ndarray:
        """The frames that were processed, ``(T, H, W)`` float32 dB."""
        return self.cine.frames

    @property
    def dynamic_range_db(self) -> float:
        """dB between full scale and the floor."""
        return self.cine.dynamic_range_db


@dataclass(frozen=True)
class StoredTruth:
    """A simulation read from disk.

    Attributes:
        cine: the hazy frames.
        tissue, haze: ``(T, H, W)`` float32 dB, the truth.
        seed: what the simulator was seeded with.
    """

    cine: Cine
    tissue: np.ndarray
    haze: np.ndarray
    seed: int


class ResultWriter(Sink):
    """Writes a result file in the format of the design's contract, a few frames at a time.

    Datasets ``tissue``, ``haze``, ``input``, with several samples also ``tissue_std``: ``(T, H, W)`` float32 dB on the
    input's own grid, one chunk a frame, gzip. Root attributes say where it came from and how it was made.
    """

    _output: Hdf5Output | None = None

    def _append(self, result: Result) -> None:
        arrays = {"tissue": result.tissue, "haze": result.haze, "input": result.cine.frames}
        if result.std is not None:
            arrays["tissue_std"] = result.std
        for name, array in arrays.items():
            if array.shape != result.cine.frames.shape:
                raise ValueError(f"{name} has shape {array.shape}, the input {result.cine.frames.shape}")
        if self._output is None:
            self._output = Hdf5Output(self.part.path)
            file = self._output.file
            file.attrs.update(provenance(self.scan, result.settings))
            write_geometry(file, self.scan.geometry, self.scan.frame_times_s)
            for name in arrays:
                create_frames(file, name, (self.scan.n_frames, *self.scan.shape))
        for name, array in arrays.items():
            self._output.file[name][self.n_done : self.n_done + len(array)] = array
        self._output.check()

    def _close(self, complete: bool) -> None:
        if self._output is not None:
            self._output.close()


def provenance(scan: Scan, settings: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a result: where the frames came from and how they were dehazed."""
    source = scan.source
    return {
        **{key: value for key, value in settings.items() if value is not None},
        "format": RESULT_FORMAT,
        "format_version": FORMAT_VERSION,
        "usdehaze_version": usdehaze.__version__,
        "dynamic_range_db": float(scan.dynamic_range_db),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "assumptions": "\n".join(source.assumptions),
        "first_frame": source.first_frame,
        **{name: getattr(source, field) for name, field in _SOURCE_ATTRIBUTES.items()},
    }


def write_result(path: str | os.PathLike[str], result: Result, overwrite: bool = False) -> None:
    """Writes a result that is in memory: see `ResultWriter`.

    Raises:
        InputError: the file exists and ``overwrite`` is False, or it cannot be written.
    """
    with ResultWriter(path, CineScan(result.cine), overwrite) as writer:
        writer.append(result)


def write_simulation(path: str | os.PathLike[str], simulated: SimulatedCine, overwrite: bool = False) -> None:
    """Writes a simulated cine and its truth: datasets ``hazy``, ``tissue``, ``haze``, ``(T, H, W)`` float32 dB.

    Raises:
        InputError: the file exists and ``overwrite`` is False, or it cannot be written.
    """
    arrays = {"hazy": simulated.hazy, "tissue": simulated.tissue, "haze": simulated.haze}
    attributes = {
        "format": SIMULATION_FORMAT,
        "format_version": FORMAT_VERSION,
        "usdehaze_version": usdehaze.__version__,
        "dynamic_range_db": float(simulated.dynamic_range_db),
        "seed": simulated.seed,
    }
    with atomic(path, overwrite) as part, closing(Hdf5Output(part)) as output:
        output.file.attrs.update(attributes)
        write_geometry(output.file, simulated.geometry, simulated.frame_times_s)
        for name, array in arrays.items():
            create_frames(output.file, name, array.shape)[...] = array


def create_frames(file: h5py.File, name: str, shape: tuple[int, int, int]) -> h5py.Dataset:
    """A dataset for frames ``(T, H, W)`` in dB that every HDF5 reader opens: one chunk a frame, gzip."""
    dataset = file.create_dataset(
        name, shape, np.float32, chunks=(1, *shape[1:]), compression="gzip", compression_opts=4, shuffle=True
    )
    dataset.attrs["units"] = "dB"
    return dataset


def read_result(path: str | os.PathLike[str]) -> StoredResult:
    """Reads a result file.

    Raises:
        InputError: it is not one, or it does not hold what a result must hold.
    """
    with open_file(path) as file:
        arrays = _read(file, path, RESULT_FORMAT, ("input", "tissue", "haze"), ("tissue_std",))
        attrs = plain_attributes(file)
        known = {field: str(attrs.get(name, "")) for name, field in _SOURCE_ATTRIBUTES.items()}
        assumptions = tuple(filter(None, str(attrs.get("assumptions", "")).split("\n")))
        source = Source(**known, assumptions=assumptions, first_frame=int(attrs.get("first_frame", 0)))
        cine = _cine(file, path, arrays["input"], source)
    return StoredResult(cine, arrays["tissue"], arrays["haze"], arrays.get("tissue_std"), attrs)


def read_truth(path: str | os.PathLike[str]) -> StoredTruth:
    """Reads a simulation file.

    Raises:
        InputError: it is not one, or it does not hold what a simulation must hold.
    """
    with open_file(path) as file:
        arrays = _read(file, path, SIMULATION_FORMAT, ("hazy", "tissue", "haze"))
        cine = _cine(file, path, arrays["hazy"], Source(name=os.path.basename(path), layout="usdehaze simulation"))
        return StoredTruth(cine, arrays["tissue"], arrays["haze"], int(file.attrs.get("seed", 0)))


def _read(
    file: h5py.File, path: object, expected: str, names: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """Frames of one of our own files, all of one shape ``(T, H, W)``, float32 and finite."""
    if text(file.attrs.get("format", "")) != expected:
        made_by = {RESULT_FORMAT: "usdehaze process", SIMULATION_FORMAT: "usdehaze simulate"}[expected]
        raise InputError(path, f"is not a {expected} file", f"a file written by {made_by}")
    check_version(file, path)
    arrays: dict[str, np.ndarray] = {}
    for name, dataset in frame_datasets(file, path, names, optional).items():
        check_memory(dataset.shape, path)
        arrays[name] = finite(dataset[()], name, path)
    return arrays


def frame_datasets(
    file: h5py.File, path: object, names: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, h5py.Dataset]:
    """Datasets of one of our own files, none of them read yet, all of one shape ``(T, H, W)`` and float32.

    Raises:
        InputError: one is missing, or of another shape or type.
    """
    datasets: dict[str, h5py.Dataset] = {}
    for name in (*names, *(n for n in optional if n in file)):
        dataset = get_dataset(file, name, path)
        shape = datasets[names[0]].shape if datasets else dataset.shape
        if dataset.ndim != 3 or dataset.shape != shape or dataset.dtype != np.float32:
            wanted = f"{shape} float32" if datasets else "(T, H, W) float32"
            raise InputError(path, f"dataset {name!r} is {dataset.shape} {dataset.dtype}", wanted)
        datasets[name] = dataset
    return datasets


def finite(frames_db: np.ndarray, name: str, path: object) -> np.ndarray:
    """The very frames, where every value is finite.

    Raises:
        InputError: else.
    """
    if not np.isfinite(frames_db).all():
        raise InputError(path, f"dataset {name!r} holds values that are not numbers", "finite dB")
    return frames_db


def _cine(file: h5py.File, path: object, frames: np.ndarray, source: Source) -> Cine:
    times = read_frame_times(file, path, len(frames))
    try:
        return Cine(frames, read_geometry(file, path), read_dynamic_range(file, path), times, source)
    except ValueError as error:
        raise InputError(path, str(error)) from error


def plain_attributes(file: h5py.File) -> dict[str, Any]:
    """The root attributes as plain Python values."""
    return {key: _plain(value) for key, value in file.attrs.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.item() if isinstance(value, np.generic) else value
