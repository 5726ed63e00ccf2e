"""Files of zea and of its forerunner usbmd.

Current: attribute ``zea_version``, a group for each product, ``data/<product>/values`` with ``coordinates`` (x, y, z in
m), or the same under ``tracks/track_k/``. Legacy: datasets ``data/<product>`` beside a group ``scan``. Frames first,
then depth, then width; ``beamformed_data`` ends with 1 channel (RF) or 2 (I/Q).
"""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.hdf5.access import attribute, get_dataset, get_group, small_array, small_text
from usdehaze.io.hdf5.layouts.axes import frames_of
from usdehaze.io.hdf5.layouts.blocks import BlockReader
from usdehaze.io.hdf5.layouts.pixel_positions import with_geometry
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import TIMES_UNUSED, StoredCine, from_rf

PRODUCTS = ("image", "image_polar", "image_sc", "envelope_data", "beamformed_data")
_CHANNEL_DATA = ("raw_data", "aligned_data")
_MAX_TRACKS = 64


def recognise(file: h5py.File, path: object, reading: Reading) -> StoredCine | None:
    """The first product that is an image, in the order of `PRODUCTS`, or the one named by ``dataset``."""
    version = attribute(file, "zea_version")
    roots = _roots(file)
    if not roots or reading.axes or not (version or _is_legacy(file)):
        return None
    layout = f"zea {version}" if version else "zea (usbmd, legacy)"
    if reading.dataset is not None:
        root, _, rest = reading.dataset.strip("/").partition("data/")
        product = rest.removesuffix("/values")
        if root.strip("/") not in roots or product not in (get_group(file, _data(root.strip("/"))) or ()):
            return None
        return _product(file, path, root.strip("/"), product, layout)
    for product in PRODUCTS:
        holding = [root for root in roots if product in (get_group(file, _data(root)) or ())]
        if holding:
            cine = _product(file, path, holding[0], product, layout)
            if len(holding) > 1:
                note = f"{holding[0]} of {len(holding)} tracks with {product} taken."
                cine = replace(cine, assumptions=(*cine.assumptions, note))
            return cine
    if any(product in (get_group(file, _data(root)) or ()) for root in roots for product in _CHANNEL_DATA):
        raise InputError(
            path,
            f"holds channel data only ({layout})",
            "an image, an envelope or beamformed data",
            "beamform it first, for instance with zea's own pipeline",
        )
    return None


def _roots(file: h5py.File) -> list[str]:
    """Groups that hold a group ``data``: the file itself, or its tracks."""
    tracks = [f"tracks/track_{k}" for k in range(_MAX_TRACKS)]
    return [root for root in ("", *tracks) if get_group(file, _data(root)) is not None]


def _data(root: str) -> str:
    return f"{root}/data".lstrip("/")


def _is_legacy(file: h5py.File) -> bool:
    data = get_group(file, "data")
    known = {*PRODUCTS, *_CHANNEL_DATA}
    return data is not None and get_group(file, "scan") is not None and any(name in data for name in known)


def _product(file: h5py.File, path: object, root: str, product: str, layout: str) -> StoredCine:
    name = f"{_data(root)}/{product}"
    group = get_group(file, name)
    if group is not None:
        name += "/values"
    stored = get_dataset(file, name, path)
    cine = _beamformed(stored, path, layout) if product == "beamformed_data" else _image(stored, path, layout)
    if product == "envelope_data":
        cine = replace(cine, units="envelope")
    elif product != "beamformed_data" and cine.dtype == np.uint8:
        cine = replace(cine, units="8-bit")
    elif product != "beamformed_data" and group is not None and small_text(group, "unit").lower() == "db":
        cine = replace(cine, units="dB", dynamic_range_db=_span(group, path))
    times = _timestamps(group, path, cine.shape[0]) if group is not None else None
    if times is None:
        times = _frame_times(file, root, path, cine.shape[0])
    cine = replace(cine, frame_times_s=times)
    if times is None and group is not None and "timestamps" in group:
        cine = replace(cine, assumptions=(*cine.assumptions, TIMES_UNUSED))
    positions = None if group is None else small_array(group, "coordinates", path)
    if positions is None:
        return cine
    if positions.ndim == 4:  # one grid a frame
        positions = positions[0]
    if positions.shape != (*cine.shape[1:], 3):
        note = f"Coordinates of shape {positions.shape} do not fit the frames and were not used."
        return replace(cine, assumptions=(*cine.assumptions, note))
    return with_geometry(cine, positions[..., 0], positions[..., 2])


def _image(stored: h5py.Dataset, path: object, layout: str) -> StoredCine:
    shape = stored.shape
    if stored.ndim == 4 and shape[3] in (1, 3, 4):
        return frames_of(stored, path, layout, "THWC")
    if stored.ndim != 3:
        raise InputError(path, f"dataset {stored.name!r} has shape {shape}", "2-D frames (T, H, W)")
    return frames_of(stored, path, layout, "THW")


def _beamformed(stored: h5py.Dataset, path: object, layout: str) -> StoredCine:
    shape = stored.shape
    if stored.dtype.kind == "c" and stored.ndim == 3:
        return frames_of(stored, path, layout, "THW")
    flat = shape[:3] + shape[4:] if stored.ndim == 5 and shape[3] == 1 else shape  # (T, H, W, 1, channels)
    if len(flat) != 4 or flat[3] not in (1, 2) or stored.dtype.kind not in "if":
        raise InputError(
            path, f"dataset {stored.name!r} is {shape} {stored.dtype}", "2-D frames (T, H, W, 1 for RF or 2 for I/Q)"
        )
    reader = BlockReader(stored, 0)
    dtype = np.dtype(np.complex64 if stored.dtype.itemsize <= 4 else np.complex128)

    def read(index: int) -> np.ndarray:
        values = reader(index).reshape(flat[1:])
        return (values[..., 0] + 1j * values[..., 1]).astype(dtype)

    name = str(stored.name).lstrip("/")
    cine = StoredCine(layout, name, (shape[0], shape[1], shape[2]), dtype, read, units="I/Q")
    if flat[3] == 1:
        cine = from_rf(replace(cine, dtype=stored.dtype, read=lambda index: reader(index).reshape(flat[1:3])))
    return cine


def _span(group: h5py.Group, path: object) -> float | None:
    """Dynamic range of a map in dB that says its largest and smallest value, or None."""
    low, high = (small_array(group, name, path) for name in ("min", "max"))
    if low is None or high is None or low.size != 1 or float(high) != 0 or not 20 <= -float(low) <= 120:
        return None
    return -float(low)


def _timestamps(group: h5py.Group, path: object, n_frames: int) -> np.ndarray | None:
    times, offset = (small_array(group, name, path) for name in ("timestamps", "start_time_offset"))
    times = None if times is None else np.atleast_1d(times)
    if times is None or times.shape != (n_frames,) or not np.all(np.diff(times) > 0) or not np.isfinite(times).all():
        return None
    return times + (float(offset) if offset is not None and offset.size == 1 and np.isfinite(offset) else 0.0)


def _frame_times(file: h5py.File, root: str, path: object, n_frames: int) -> np.ndarray | None:
    """Start of every frame, s, from the time between transmits."""
    steps = small_array(file, f"{root}/scan/time_to_next_transmit".lstrip("/"), path)
    if steps is None or not np.isfinite(steps).all() or np.any(steps < 0):
        return None
    steps = steps.reshape(n_frames, -1).sum(axis=1) if steps.size % n_frames == 0 and steps.size else steps
    if steps.shape != (n_frames,) or not np.all(steps > 0):
        return None
    return np.concatenate([[0.0], np.cumsum(steps)[:-1]])
