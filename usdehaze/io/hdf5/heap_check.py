"""Looks over the global heaps of an HDF5 file, where its texts of variable length lie, before the library does.

The HDF5 library goes round in circles for ever in a heap whose free space claims a size of 0. The layout is that of
section III.E of the HDF5 file format specification: "GCOL", version 1, size, then objects of a 16-byte head each.
"""

from __future__ import annotations

import mmap
import os
import struct

from usdehaze.errors import InputError

_HEAD = 16  # bytes before the first object, and before the value of each
_SMALLEST = 4096


def check_heaps(path: str | os.PathLike[str]) -> None:
    """Refuses a file with a heap that does not add up.

    Raises:
        InputError: there is one.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(b"GCOL\1\0\0\0")
        while at >= 0:
            (size,) = struct.unpack_from("<Q", content, at + 8) if at + _HEAD <= len(content) else (0,)
            if _SMALLEST <= size <= len(content) - at and not _adds_up(content, at, size):
                raise InputError(path, f"has a damaged heap at byte {at}", advice="the file may be cut off or damaged")
            at = content.find(b"GCOL\1\0\0\0", at + 4)


def _adds_up(content: mmap.mmap, start: int, size: int) -> bool:
    """Whether every object, and the free space (number 0), moves on and stays inside."""
    at = _HEAD
    while at + _HEAD <= size:
        number, _, value_size = struct.unpack_from("<HH4xQ", content, start + at)
        needed = value_size if number == 0 else _HEAD + -(-value_size // 8) * 8
        if not _HEAD <= needed <= size - at:
            return False
        at += needed
    return True
