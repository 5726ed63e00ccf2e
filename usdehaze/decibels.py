"""From echoes to decibels and back: envelope, log compression, grey levels, power.

Everywhere in usdehaze 0 dB is full scale and the floor is ``-dynamic_range_db``.
"""

from __future__ import annotations

import numpy as np


def envelope(iq: np.ndarray) -> np.ndarray:
    """Magnitude of beamformed I/Q.

    Args:
        iq: complex, any shape, any linear unit.

    Returns:
        Real, same shape and unit, >= 0; float32 for complex64, float64 for complex128.
    """
    return np.abs(iq)


def log_compress(amplitude: np.ndarray, dynamic_range_db: float, reference: float | None = None) -> np.ndarray:
    """``20 log10(amplitude / reference)``, clipped to ``[-dynamic_range_db, 0]``.

    Args:
        amplitude: envelope, >= 0, any shape.
        dynamic_range_db: > 0.
        reference: amplitude at 0 dB; the largest one by default.

    Returns:
        float32 dB, same shape. An amplitude of 0 becomes the floor.

    Raises:
        ValueError: the reference is not positive, as for an amplitude that is 0 everywhere.
    """
    amplitude = np.asarray(amplitude)
    reference = float(amplitude.max()) if reference is None else float(reference)
    if not reference > 0:
        raise ValueError(f"the reference amplitude must be positive, found {reference:g}")
    floor = 10 ** (-dynamic_range_db / 20)
    values = np.empty(amplitude.shape)  # the only copy in double precision: frames may be large
    np.divide(amplitude, reference, out=values, dtype=np.float64)
    np.clip(values, floor, 1.0, out=values)
    np.log10(values, out=values)
    values *= 20
    return np.clip(values, -dynamic_range_db, 0, out=values).astype(np.float32)


def decompress(frames_db: np.ndarray) -> np.ndarray:
    """Amplitude relative to full scale, ``10^(dB / 20)``: float64 in (0, 1] for dB <= 0."""
    return np.power(10.0, np.asarray(frames_db, dtype=np.float64) / 20)


def grey_to_db(grey: np.ndarray, dynamic_range_db: float, full_scale: float = 255.0) -> np.ndarray:
    """Grey levels of a log-compressed image to dB: 0 is the floor, ``full_scale`` is 0 dB.

    Returns:
        float32 dB in ``[-dynamic_range_db, 0]``, same shape.
    """
    share = np.asarray(grey, dtype=np.float64) / full_scale
    return np.clip((share - 1.0) * dynamic_range_db, -dynamic_range_db, 0).astype(np.float32)


def db_to_grey(frames_db: np.ndarray, dynamic_range_db: float) -> np.ndarray:
    """dB to 8-bit grey levels, rounded to the nearest: uint8, ``grey_to_db`` undone exactly."""
    share = np.clip(np.asarray(frames_db, dtype=np.float64) / dynamic_range_db + 1.0, 0.0, 1.0)
    return np.rint(share * 255.0).astype(np.uint8)


def power_to_db(power: np.ndarray) -> np.ndarray:
    """``10 log10(power)``, float64; a power of 0 becomes ``-inf`` without a warning."""
    with np.errstate(divide="ignore"):
        return 10 * np.log10(np.asarray(power, dtype=np.float64))


def db_to_power(decibels: np.ndarray) -> np.ndarray:
    """Power relative to full scale, ``10^(dB / 10)``, float64; ``-inf`` becomes 0."""
    return np.power(10.0, np.asarray(decibels, dtype=np.float64) / 10)
