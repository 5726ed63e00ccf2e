"""Simulation files: a hazy cine with its true tissue and haze."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import usdehaze
from usdehaze.budget import spending
from usdehaze.cine import Cine, Source
from usdehaze.io.atomic import atomic
from usdehaze.io.h5_output import Hdf5Output
from usdehaze.io.hdf5.access import attribute, hdf5_errors, open_h5
from usdehaze.io.hdf5.geometry_group import write_geometry
from usdehaze.io.hdf5.layouts.own import FORMAT_VERSION, SIMULATION_FORMAT
from usdehaze.io.limits import check_memory
from usdehaze.io.own_files import LazyCine, LazyFrames, create_frames, own_datasets, write_frames
from usdehaze.stopping import uninterrupted

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
    with atomic(path, overwrite) as part, uninterrupted(), closing(Hdf5Output(part)) as output:
        output.file.attrs.update(attributes)
        write_geometry(output.file, simulated.geometry, simulated.frame_times_s)
        for name, array in arrays.items():
            write_frames(create_frames(output.file, name, array.shape), 0, array)


def read_truth(path: str | os.PathLike[str]) -> StoredTruth:
    """Reads a simulation file.

    Raises:
        InputError: it is not one, or it does not hold what a simulation must hold.
    """
    with open_h5(path) as file:
        with spending(path), hdf5_errors(path):
            datasets = own_datasets(file, path, SIMULATION_FORMAT, ("hazy", "tissue", "haze"))
            hazy, tissue, haze = (LazyFrames(dataset, path) for dataset in datasets.values())
            source = Source(name=os.path.basename(path), layout="usdehaze simulation")
            cine, seed = LazyCine(file, hazy, source, path), attribute(file, "seed")
        check_memory(hazy.shape, path, 3)
        return StoredTruth(cine.read(), tissue[:], haze[:], int(seed) if seed.isdecimal() else 0)
