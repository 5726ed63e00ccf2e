"""Result files ``STEM.dehazed.h5``: written whole or not at all, read back checked, as a whole or frame by frame."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from usdehaze.budget import spending
from usdehaze.io.detect import RESULT_SUFFIX, stem_of_name
from usdehaze.io.digest import ATTRIBUTE as ATTRIBUTE_OF_DIGEST
from usdehaze.io.digest import Content, digest_of
from usdehaze.io.h5_output import Hdf5Output
from usdehaze.io.hdf5.access import attributes, hdf5_errors, open_h5
from usdehaze.io.hdf5.geometry_group import write_geometry
from usdehaze.io.hdf5.layouts.own import FORMAT_VERSION, RESULT_FORMAT
from usdehaze.io.limits import check_memory
from usdehaze.io.own_files import LazyCine, LazyFrames, create_frames, own_datasets, write_frames
from usdehaze.io.runs import ATTRIBUTE, run_id
from usdehaze.io.scan import CineScan
from usdehaze.io.sink import Sink
from usdehaze.provenance import attributes_of, plain, settings_in, source_attributes, source_in
from usdehaze.result import Result


class ResultWriter(Sink):
    """Writes a result file in the format of the design's contract, a few frames at a time.

    Datasets ``tissue``, ``haze``, ``input``, with several samples also ``tissue_std``: ``(T, H, W)`` float32 dB on the
    input's own grid, one chunk a frame, gzip. Root attributes say where it came from and how it was made.
    """

    _output: Hdf5Output | None = None
    _reserve = 0  # bytes, see `Hdf5Output`
    _contents: dict[str, Content]

    def _append(self, result: Result) -> None:
        arrays = {"tissue": result.tissue, "haze": result.haze, "input": result.cine.frames}
        if result.std is not None:
            arrays["tissue_std"] = result.std
        for name, array in arrays.items():
            if array.shape != result.cine.frames.shape:
                raise ValueError(f"{name} has shape {array.shape}, the input {result.cine.frames.shape}")
        if self._output is None:
            self._output = Hdf5Output(self.part.path, self._reserve)
            file = self._output.file
            file.attrs.update({**file_attributes(result), ATTRIBUTE: run_id(self.scan, result)})
            write_geometry(file, self.scan.geometry, self.scan.frame_times_s)
            for name in arrays:
                self._create(file, name)
            self._contents = {name: Content(np.dtype(np.float32)) for name in arrays}
        for name, array in arrays.items():
            dataset, n_frames = self._output.file[name], self.n_done + len(array)
            self._room_for(dataset, n_frames)
            write_frames(dataset, self.n_done, array)
            self._contents[name].add(array)
        self._output.check()

    def _create(self, file: h5py.File, name: str) -> None:
        """Makes a dataset of frames."""
        create_frames(file, name, (self.scan.n_frames, *self.scan.shape))

    def _room_for(self, dataset: h5py.Dataset, n_frames: int) -> None:
        """Makes room for so many frames."""

    def _close(self, complete: bool) -> None:
        if self._output is None:
            return
        if complete:
            self._output.file.attrs.update(source_attributes(self.scan.source))  # which learns from its frames
            self._output.check()
            known = {name: content.hexdigest() for name, content in self._contents.items()}
            self._output.file.attrs[ATTRIBUTE_OF_DIGEST] = digest_of(self._output.file, self.path, known)
        self._output.close()


def file_attributes(result: Result) -> dict[str, Any]:
    """The root attributes of a result's file: what it says about itself, and which format that is in."""
    created = result.created or now_utc().isoformat(timespec="seconds")
    return {**result.attrs, "format": RESULT_FORMAT, "format_version": FORMAT_VERSION, "created": created}


def now_utc() -> datetime:
    """The time in UTC; the one that ``SOURCE_DATE_EPOCH`` names (s since 1970), for files that come out the same."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(epoch), timezone.utc) if epoch.isdigit() else datetime.now(timezone.utc)


def write_result(path: str | os.PathLike[str], result: Result, overwrite: bool = False) -> None:
    """Writes a result that is in memory: see `ResultWriter`.

    Raises:
        InputError: the file exists and ``overwrite`` is False, or it cannot be written.
    """
    with ResultWriter(path, CineScan(result.cine), overwrite) as writer:
        writer.append(result)


@dataclass(frozen=True)
class OpenResult:
    """An open result file: what a `Result` has, under the same names, with frames that are read as they are asked for.

    ``result.tissue[t]``, ``result.cine.frames[t]`` and the like are ``(H, W)`` float32 dB, slices of them
    ``(n, H, W)``.

    Attributes:
        path: the file.
        cine, tissue, haze, std, settings, interval, usdehaze_version, created: see `Result`.
        run: that made the file, see `usdehaze.io.runs`; "" where it does not say.
    """

    path: str | os.PathLike[str]
    cine: LazyCine
    tissue: LazyFrames
    haze: LazyFrames
    std: LazyFrames | None
    settings: dict[str, Any]
    usdehaze_version: str
    created: str | None
    run: str
    interval: None = None

    @property
    def input(self) -> LazyFrames:
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
        check_memory((stop - start, *self.cine.shape), self.path, 3 if self.std is None else 4)
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


def expected_for(path: str | os.PathLike[str]) -> str:
    """What to give instead of a file that is no result: often it is the scan itself."""
    return f"a result of usdehaze process, such as {stem_of_name(Path(path).name)}{RESULT_SUFFIX}"


@contextmanager
def open_result(path: str | os.PathLike[str]) -> Iterator[OpenResult]:
    """Opens a result file without reading its frames.

    Raises:
        InputError: it is not one, or it does not hold what a result must hold.
    """
    with open_h5(path, expected_for(path)) as file:
        with spending(path), hdf5_errors(path):
            datasets = own_datasets(file, path, RESULT_FORMAT, ("input", "tissue", "haze"), ("tissue_std",))
            frames = {name: LazyFrames(dataset, path) for name, dataset in datasets.items()}
            told = {name: plain(value) for name, value in attributes(file, path).items()}
            cine = LazyCine(file, frames["input"], source_in(told), path)
        yield OpenResult(
            path,
            cine,
            frames["tissue"],
            frames["haze"],
            frames.get("tissue_std"),
            settings_in(told),
            str(told.get("usdehaze_version", "unknown")),
            told.get("created"),
            str(told.get(ATTRIBUTE, "")),
        )


def read_result(path: str | os.PathLike[str]) -> Result:
    """Reads a result file as a whole.

    Raises:
        InputError: it is not one, or it does not hold what a result must hold.
    """
    with open_result(path) as result:
        return result.read()
