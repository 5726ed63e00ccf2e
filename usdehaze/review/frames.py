"""Frames of a page: 8-bit levels, predicted from their neighbours, deflated, base64.

Every plane of a frame is ``(H, W)`` uint8. Input, haze and deviation are levels of ``dynamic_range_db / 255`` dB; the
tissue goes as what was removed, in the same levels, which is smooth and therefore small. ``frames.js`` undoes it
exactly.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np

from usdehaze.decibels import db_to_grey

LEVELS = 255


def planes_of(
    input_db: np.ndarray,
    tissue_db: np.ndarray,
    haze_db: np.ndarray | None,
    std_db: np.ndarray | None,
    dynamic_range_db: float,
) -> dict[str, np.ndarray]:
    """Planes of one frame.

    Args:
        input_db, tissue_db: ``(H, W)`` dB, 0 dB = full scale.
        haze_db: the same, or None.
        std_db: ``(H, W)`` dB, >= 0, or None.
        dynamic_range_db: dB between level 255 and level 0.

    Returns:
        ``input``, ``removed`` (input level minus tissue level, modulo 256) and, where given, ``haze`` and ``std``.
    """
    levels = db_to_grey(input_db, dynamic_range_db)
    planes = {"input": levels, "removed": levels - db_to_grey(tissue_db, dynamic_range_db)}
    if haze_db is not None:
        planes["haze"] = db_to_grey(haze_db, dynamic_range_db)
    if std_db is not None:
        planes["std"] = np.rint(np.clip(std_db / dynamic_range_db, 0, 1) * LEVELS).astype(np.uint8)
    return planes


def residual(plane: np.ndarray) -> np.ndarray:
    """What the mean of the left and the upper neighbour (0 beyond the edge) does not say of a pixel, modulo 256."""
    left, up = np.zeros(plane.shape, np.uint16), np.zeros(plane.shape, np.uint16)
    left[:, 1:] = plane[:, :-1]
    up[1:] = plane[:-1]
    return plane - ((left + up) >> 1).astype(np.uint8)


def pack(planes: list[np.ndarray]) -> str:
    """Planes of one frame, one after the other, as base64 of raw deflate."""
    # Z_FILTERED: residuals of speckle hold next to no repeated strings, and Huffman codes say the rest.
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_FILTERED)
    packed = b"".join(deflate.compress(residual(plane).tobytes()) for plane in planes) + deflate.flush()
    return base64.b64encode(packed).decode("ascii")
