"""Frame times in HDF5: attributes of the frames and of the groups around them, and datasets beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import h5py
import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import attribute, attribute_value, get_dataset, get_group, members, small_array, text
from usdehaze.io.stored_cine import StoredCine
from usdehaze.io.times_beside import tells_times, times_of

MOST_MEMBERS = 50  # of a group, or attributes, that are looked through


def with_times(cine: StoredCine, file: h5py.File, path: object) -> StoredCine:
    """Frames of a layout that says nothing of times, with those that names around them tell."""
    times_s, notes = times_of(_beside(file, cine.dataset, cine.shape[0], path), cine.shape[0])
    return replace(cine, frame_times_s=times_s, assumptions=(*cine.assumptions, *notes))


def _beside(file: h5py.File, name: str, n_frames: int, path: object) -> Iterator[tuple[str, np.ndarray, str]]:
    """Name, values and unit of what may tell times, in the group of a dataset and in those around it."""
    yield from _attributes(get_dataset(file, name, path))
    parts = name.split("/")[:-1]
    for depth in range(len(parts), -1, -1):
        group = get_group(file, "/".join(parts[:depth])) if depth else file["/"]
        if group is None:
            continue
        for member in filter(tells_times, members(group, path) if len(group) <= MOST_MEMBERS else ()):
            values, unit = None, ""
            # stored in a way that is not read: the frames are, all the same
            with suppress(InputError, KeyError, TypeError, ValueError):
                node = group[member] if isinstance(group.get(member, getlink=True), h5py.HardLink) else None
                if isinstance(node, h5py.Dataset) and node.size in (1, n_frames):
                    values = small_array(group, member, path)
                    unit = attribute(node, "units") or attribute(node, "unit")
            if values is not None:
                yield member, values, unit
        yield from _attributes(group)


def _attributes(node: h5py.Group | h5py.Dataset) -> Iterator[tuple[str, np.ndarray, str]]:
    if len(node.attrs) > MOST_MEMBERS:
        return
    for name in filter(tells_times, node.attrs):
        with suppress(OSError, TypeError, ValueError):  # no number, or a type that is not known
            value = attribute_value(node, name)
            is_number = np.asarray(value).dtype.kind in "uif"
            yield name, np.asarray(value if is_number else text(value), np.float64), ""
