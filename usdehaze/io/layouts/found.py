"""What a layout recogniser hands to the reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import h5py
import numpy as np

from usdehaze.cine import Geometry
from usdehaze.errors import InputError

MIN_SIDE = 8  # pixels; thinner arrays are tables, coordinates or colour channels, not frames
_COMPLEX_FIELDS = ({"r", "i"}, {"re", "im"}, {"real", "imag"})


@dataclass(frozen=True)
class Found:
    """Frames found in a file, not read yet.

    Attributes:
        layout: name shown by ``info``.
        dataset: path of the dataset inside the file.
        shape: ``(T, H, W)``.
        dtype: of the frames that ``read`` returns; complex for I/Q.
        read: frame index -> ``(H, W)`` array of stored values.
        units: "dB", "8-bit", "grey", "envelope", "I/Q", or None where the layout does not say.
        dynamic_range_db: from the file, or None.
        geometry: from the file, or None.
        frame_times_s: ``(T,)`` s from the file, or None.
        assumptions: what the recogniser assumed, one sentence each.
    """

    layout: str
    dataset: str
    shape: tuple[int, int, int]
    dtype: np.dtype
    read: Callable[[int], np.ndarray]
    units: str | None = None
    dynamic_range_db: float | None = None
    geometry: Geometry | None = None
    frame_times_s: np.ndarray | None = None
    assumptions: tuple[str, ...] = ()


def is_complex_compound(dtype: np.dtype) -> bool:
    """True for compounds of a real and an imaginary part under their usual names."""
    return dtype.names is not None and {n.lower() for n in dtype.names} in _COMPLEX_FIELDS


def is_numeric(dtype: np.dtype) -> bool:
    """True for integers, floats, complex numbers and real/imaginary compounds."""
    return dtype.kind in "uifc" or is_complex_compound(dtype)


def frames_of(dataset: h5py.Dataset, path: object, layout: str) -> Found:
    """A 2-D ``(H, W)`` or 3-D ``(T, H, W)`` numeric dataset as `Found`.

    Raises:
        InputError: another shape, or values that are not numbers.
    """
    name = str(dataset.name).lstrip("/")
    if not is_numeric(dataset.dtype):
        raise InputError(path, f"dataset {name!r} holds {dataset.dtype}", "numbers")
    if dataset.ndim not in (2, 3) or min(dataset.shape[-2:]) < MIN_SIDE:
        advice = "colour images are not read" if dataset.shape[-1] in (3, 4) else "frames come first"
        raise InputError(path, f"dataset {name!r} has shape {dataset.shape}", "frames (T, H, W) or (H, W)", advice)
    height, width = dataset.shape[-2:]
    n_frames = dataset.shape[0] if dataset.ndim == 3 else 1

    def read(index: int) -> np.ndarray:
        frame = dataset[index] if dataset.ndim == 3 else dataset[()]
        if frame.dtype.names is None:
            return frame
        parts = {n.lower()[0]: frame[n] for n in frame.dtype.names}
        return parts["r"] + 1j * parts["i"]

    dtype = np.dtype(np.complex128) if dataset.dtype.names is not None else dataset.dtype
    return Found(layout, name, (n_frames, height, width), dtype, read)
