"""Channel data, known by where they lie in the files of PICMUS, PyBF, CUBDL and others: to be beamformed first."""

from __future__ import annotations

from collections.abc import Iterable

import h5py

from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import get_group
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine

NAMES = {"channel_data", "rf_data", "rfdata", "raw_data", "aligned_data", "rcvdata", "rf_lines", "rf"}


def recognise(file: h5py.File, path: object, reading: Reading) -> StoredCine | None:
    """Nothing that could be read: finds PICMUS's channel data, whose names do not say what they are.

    Raises:
        InputError: that is what the file holds.
    """
    group = get_group(file, "US/US_DATASET0000")
    if reading.dataset is None and group is not None and "probe_geometry" in group and "data" in group:
        raise refusal(path, "PICMUS")
    return None


def is_channel_data(name: str) -> bool:
    """Whether a part of the name of a dataset says so."""
    return any(part.lower() in NAMES for part in name.split("/"))


def layout_of(names: Iterable[str]) -> str:
    """What to call a file with channel data under these names."""
    names = set(names)
    if any(name.startswith("data/rf_data/frame_") for name in names):
        return "PyBF"
    return "CUBDL" if "channel_data" in names else "in " + ", ".join(sorted(names)[:3])


def refusal(path: object, layout: str) -> InputError:
    """What to tell about a file of channel data."""
    return InputError(
        path,
        f"holds channel data ({layout})",
        "log-compressed frames, an envelope or beamformed I/Q",
        "beamform it first; if it is beamformed, name the dataset with --dataset",
    )
