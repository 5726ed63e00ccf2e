"""HDF5 file -> Cine."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from usdehaze.cine import Cartesian, Cine, Geometry, Source
from usdehaze.errors import InputError
from usdehaze.io.h5 import check_memory, open_file
from usdehaze.io.layouts import LAYOUTS, Found
from usdehaze.io.units import Scale, find_scale

SECTOR_FRAMES = 64  # that the sector finder looks at, spread over the dataset
SECTOR_BYTES = 2**30  # that these frames may fill


def read_hdf5(
    path: str | os.PathLike[str],
    dataset: str | None = None,
    dynamic_range_db: float | None = None,
    frames: slice | None = None,
    units: str | None = None,
) -> Cine:
    """Reads a scan from an HDF5 file.

    Args:
        path: the file.
        dataset: path of the dataset inside it; needed only where several could be the frames.
        dynamic_range_db: dB between full scale and the floor; by default what the file says, else 60.
        frames: which frames, as a slice without a step; all by default.
        units: what the stored values are, where the guess of `usdehaze.io.units` is wrong:
            "dB", "8-bit", "grey", "envelope" or "I/Q".

    Returns:
        Frames ``(T, H, W)`` float32 in dB, with their geometry: the file's own, else a sector found in the image, else
        a rectangle. What had to be assumed is in ``cine.source.assumptions``.

    Raises:
        InputError: anything in the file that stands in the way, in one line.
    """
    with open_file(path) as file:
        found = next(filter(None, (recognise(file, path, dataset) for recognise in LAYOUTS)))
        first, stop = _selection(frames, found.shape[0], path)
        check_memory((stop - first, *found.shape[1:]), path)
        scale = find_scale(found, dynamic_range_db, units, path)
        frames_db = _read(found, scale, first, stop, path)
        geometry, assumptions = found.geometry, scale.assumptions
        if geometry is None:
            geometry, note = _look_for_sector(found, scale, frames_db)
            assumptions += (note,)
    times = None if found.frame_times_s is None else found.frame_times_s[first:stop]
    source = Source(
        name=Path(path).name,
        sha256=sha256_of(path),
        dataset=found.dataset,
        layout=found.layout,
        units=scale.units,
        assumptions=assumptions,
        first_frame=first,
    )
    try:
        return Cine(frames_db, geometry, scale.dynamic_range_db, times, source)
    except ValueError as error:
        raise InputError(path, str(error)) from error


def sha256_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a whole file, hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _selection(frames: slice | None, n_frames: int, path: object) -> tuple[int, int]:
    """First frame, and one past the last."""
    if frames is None:
        return 0, n_frames
    if frames.step not in (None, 1):
        raise InputError(path, f"frames with a step of {frames.step}", "consecutive frames")
    first, stop, _ = frames.indices(n_frames)
    if first >= stop:
        asked = f"{'' if frames.start is None else frames.start}:{'' if frames.stop is None else frames.stop}"
        raise InputError(path, f"no frame in {asked}", f"frames within 0:{n_frames}")
    return first, stop


def _read(found: Found, scale: Scale, first: int, stop: int, path: object) -> np.ndarray:
    """Frames ``first`` to ``stop - 1`` as ``(T, H, W)`` float32 dB, each of them checked."""
    frames_db = np.empty((stop - first, *found.shape[1:]), dtype=np.float32)
    for index in range(first, stop):
        stored = found.read(index)
        usable = np.isfinite(stored)
        if scale.units == "dB":
            usable |= np.isneginf(stored)  # log of a zero echo: the floor
        if not usable.all():
            bad = stored.size - int(np.count_nonzero(usable))
            raise InputError(
                path,
                f"frame {index} of dataset {found.dataset!r} has {bad} values that are not numbers (NaN or infinite)",
                advice="leave it out with --frames",
            )
        frame = scale.to_db(stored)
        if frame.min() == frame.max():
            raise InputError(
                path,
                f"frame {index} of dataset {found.dataset!r} is constant ({frame.flat[0]:g} dB everywhere)",
                "frames with an image in them",
                "leave it out with --frames",
            )
        frames_db[index - first] = frame
    return frames_db


def _look_for_sector(found: Found, scale: Scale, frames_db: np.ndarray) -> tuple[Geometry, str]:
    """Geometry of frames about which the file says nothing, and the sentence that says so.

    Looks at frames from all over the dataset, so that the sector does not depend on which of them are processed.
    """
    from usdehaze.geometry import find_sector

    n_frames = found.shape[0]
    most = min(SECTOR_FRAMES, n_frames, max(1, SECTOR_BYTES // frames_db[0].nbytes))
    if len(frames_db) != n_frames or n_frames > most:
        chosen = np.linspace(0, n_frames - 1, most).round().astype(int)
        floor = -np.inf if scale.units == "dB" else 0
        stored = (found.read(int(index)) for index in chosen)
        frames_db = np.stack([scale.to_db(np.where(np.isfinite(frame), frame, floor)) for frame in stored])
    sector = find_sector(frames_db, -scale.dynamic_range_db)
    if sector is None:
        return Cartesian(), "No geometry in the file and no sector found: the frames are taken as a rectangle."
    return (
        Cartesian(sector=sector, found_by="sector finder"),
        "No geometry in the file: the sector was found in the image, pixels taken as square.",
    )
