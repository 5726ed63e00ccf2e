"""Result files ``STEM.dehazed.h5`` and simulation files: written whole or not at all, read back checked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

import usdehaze
from usdehaze.cine import Cine, Source
from usdehaze.errors import InputError
from usdehaze.io.atomic import atomic
from usdehaze.io.geometry_group import read_frame_times, read_geometry, write_geometry
from usdehaze.io.h5 import check_memory, get_dataset, open_h5, reading, text
from usdehaze.io.h5_output import Hdf5Output
from usdehaze.io.layouts.own import (
    FORMAT_VERSION,
    RESULT_FORMAT,
    SIMULATION_FORMAT,
    check_version,
    read_dynamic_range,
)
from usdehaze.io.scan import CineScan, Scan
from usdehaze.io.sink import Sink
from usdehaze.provenance import attributes_of, plain, settings_in, source_in
from usdehaze.result import Result

if TYPE_CHECKING:
    from usdehaze.simulate import SimulatedCine


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
            file.attrs.update(file_attributes(result))
            write_geometry(file, self.scan.geometry, self.scan.frame_times_s)
            for name in arrays:
                create_frames(file, name, (self.scan.n_frames, *self.scan.shape))
        for name, array in arrays.items():
            self._output.file[name][self.n_done : self.n_done + len(array)] = array
        self._output.check()

    def _close(self, complete: bool) -> None:
        if self._output is not None:
            self._output.close()


def file_attributes(result: Result) -> dict[str, Any]:
    """The root attributes of a result's file: what it says about itself, and which format that is in."""
    created = result.created or datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {**result.attrs, "format": RESULT_FORMAT, "format_version": FORMAT_VERSION, "created": created}


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


class StoredFrames:
    """Frames ``(T, H, W)`` float32 dB of an open file: ``frames[t]`` and ``frames[a:b]`` read just these, checked.

    Raises:
        InputError: from an index, where a value is not finite or the file is damaged.
    """

    def __init__(self, dataset: h5py.Dataset, path: str | os.PathLike[str]) -> None:
        self._dataset, self._path = dataset, path
        self.shape: tuple[int, int, int] = dataset.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int | slice) -> np.ndarray:
        with reading(self._path):
            frames_db = self._dataset[index]
        if not np.isfinite(frames_db).all():
            name = self._dataset.name.strip("/")
            raise InputError(self._path, f"dataset {name!r} holds values that are not numbers", "finite dB")
        return frames_db


class StoredCine(Scan):
    """The input of an open result: a scan, whose frames also go by the name that they have in a `Cine`.

    Attributes:
        frames: ``(T, H, W)`` dB, read as they are asked for.
    """

    def __init__(self, file: h5py.File, frames: StoredFrames, source: Source, path: str | os.PathLike[str]) -> None:
        self.path, self.frames, self.source = Path(path), frames, source
        self.n_frames, self.shape = frames.shape[0], frames.shape[1:]
        self.geometry, self.dynamic_range_db = read_geometry(file, path), read_dynamic_range(file, path)
        self.frame_times_s = read_frame_times(file, path, self.n_frames)

    def read_db(self, start: int, stop: int) -> np.ndarray:
        return self.frames[start:stop]

    def close(self) -> None:
        pass  # the file is not its own


@dataclass(frozen=True)
class OpenResult:
    """An open result file: what a `Result` has, under the same names, with frames that are read as they are asked for.

    ``result.tissue[t]``, ``result.cine.frames[t]`` and the like are ``(H, W)`` float32 dB, slices of them
    ``(n, H, W)``.

    Attributes:
        path: the file.
        cine, tissue, haze, std, settings, interval, usdehaze_version, created: see `Result`.
    """

    path: str | os.PathLike[str]
    cine: StoredCine
    tissue: StoredFrames
    haze: StoredFrames
    std: StoredFrames | None
    settings: dict[str, Any]
    usdehaze_version: str
    created: str | None
    interval: None = None

    @property
    def input(self) -> StoredFrames:
        """The frames that were dehazed, ``(T, H, W)`` float32 dB."""
        return self.cine.frames

    @property
    def attrs(self) -> dict[str, Any]:
        """See `Result.attrs`."""
        cine = self.cine
        return attributes_of(self.settings, cine.source, cine.dynamic_range_db, self.usdehaze_version, self.created)

    def read(self, start: int = 0, stop: int | None = None) -> Result:
        """Frames ``start`` to ``stop - 1`` (all by default), in memory.

        Raises:
            InputError: they do not fit, or hold values that are not finite.
        """
        stop = self.cine.n_frames if stop is None else stop
        check_memory((stop - start, *self.cine.shape), self.path)
        part = slice(start, stop)
        return Result(
            self.cine.read(start, stop),
            self.tissue[part],
            self.haze[part],
            None if self.std is None else self.std[part],
            self.settings,
            usdehaze_version=self.usdehaze_version,
            created=self.created,
        )


@contextmanager
def open_result(path: str | os.PathLike[str]) -> Iterator[OpenResult]:
    """Opens a result file without reading its frames.

    Raises:
        InputError: it is not one, or it does not hold what a result must hold.
    """
    with open_h5(path) as file:
        with reading(path):
            datasets = _own_datasets(file, path, RESULT_FORMAT, ("input", "tissue", "haze"), ("tissue_std",))
            frames = {name: StoredFrames(dataset, path) for name, dataset in datasets.items()}
            attributes = {name: plain(value) for name, value in file.attrs.items()}
            cine = StoredCine(file, frames["input"], source_in(attributes), path)
        yield OpenResult(
            path,
            cine,
            frames["tissue"],
            frames["haze"],
            frames.get("tissue_std"),
            settings_in(attributes),
            str(attributes.get("usdehaze_version", "")),
            attributes.get("created"),
        )


def read_result(path: str | os.PathLike[str]) -> Result:
    """Reads a result file as a whole.

    Raises:
        InputError: it is not one, or it does not hold what a result must hold.
    """
    with open_result(path) as result:
        return result.read()


def read_truth(path: str | os.PathLike[str]) -> StoredTruth:
    """Reads a simulation file.

    Raises:
        InputError: it is not one, or it does not hold what a simulation must hold.
    """
    with open_h5(path) as file:
        with reading(path):
            datasets = _own_datasets(file, path, SIMULATION_FORMAT, ("hazy", "tissue", "haze"))
            hazy, tissue, haze = (StoredFrames(dataset, path) for dataset in datasets.values())
            source = Source(name=os.path.basename(path), layout="usdehaze simulation")
            cine, seed = StoredCine(file, hazy, source, path), int(file.attrs.get("seed", 0))
        check_memory(hazy.shape, path)
        return StoredTruth(cine.read(), tissue[:], haze[:], seed)


def _own_datasets(
    file: h5py.File, path: object, expected: str, names: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, h5py.Dataset]:
    """Datasets of one of our own files, none of them read yet, all of one shape ``(T, H, W)`` and float32.

    Raises:
        InputError: a file of another format or version; a dataset that is missing, or of another shape or type.
    """
    if text(file.attrs.get("format", "")) != expected:
        made_by = {RESULT_FORMAT: "usdehaze process", SIMULATION_FORMAT: "usdehaze simulate"}[expected]
        raise InputError(path, f"is not a {expected} file", f"a file written by {made_by}")
    check_version(file, path)
    datasets: dict[str, h5py.Dataset] = {}
    for name in (*names, *(n for n in optional if n in file)):
        dataset = get_dataset(file, name, path)
        shape = datasets[names[0]].shape if datasets else dataset.shape
        if dataset.ndim != 3 or dataset.shape != shape or dataset.dtype != np.float32:
            wanted = f"{shape} float32" if datasets else "(T, H, W) float32"
            raise InputError(path, f"dataset {name!r} is {dataset.shape} {dataset.dtype}", wanted)
        datasets[name] = dataset
    return datasets
