"""Looks over the global heaps of an HDF5 file, where its texts of variable length lie, before the library does.

The HDF5 library goes round in circles for ever in a heap whose free space claims a size of 0. The layout is that of
section III.E of the HDF5 file format specification: "GCOL", version 1, size, then objects of a 16-byte head each.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

from usdehaze.budget import spend
from usdehaze.errors import InputError

_SIGNATURE = b"GCOL\1\0\0\0"
_HEAD = 16  # bytes before the first object, and before the value of each
_SMALLEST = 4096
_BLOCK = 2**20  # bytes searched at once
_STEPS = 16  # objects of a heap inside another that count as one


def check_heaps(path: str | os.PathLike[str]) -> None:
    """Refuses a file with a heap that does not add up.

    Raises:
        InputError: there is one, or heaps inside each other without end.
    """
    with open(path, "rb") as file:
        length, checked = os.fstat(file.fileno()).st_size, 0
        for at in _signatures(file):
            spend(path)
            size = _heap_size(file, at)
            if not _SMALLEST <= size <= length - at:
                continue
            n_objects = _count(file, at, size, path)
            if n_objects is None:
                raise InputError(path, f"has a damaged heap at byte {at}", advice="the file may be cut off or damaged")
            if at < checked:
                spend(path, objects=1 + n_objects // _STEPS)
            checked = max(checked, at + size)


def _signatures(file: BinaryIO) -> Iterator[int]:
    """Where heaps may begin."""
    start, kept = 0, b""
    while True:
        file.seek(start + len(kept))
        block = kept + file.read(_BLOCK)
        if len(block) < len(_SIGNATURE):
            return
        at = block.find(_SIGNATURE)
        while at >= 0:
            yield start + at
            at = block.find(_SIGNATURE, at + 4)
        if len(block) == len(kept):
            return
        kept = block[1 - len(_SIGNATURE) :]
        start += len(block) - len(kept)


def _heap_size(file: BinaryIO, start: int) -> int:
    file.seek(start + len(_SIGNATURE))
    size = file.read(8)
    return int.from_bytes(size, "little") if len(size) == 8 else 0


def _count(file: BinaryIO, start: int, size: int, path: object) -> int | None:
    """Objects in a heap; None where one of them, or the free space (number 0), does not move on or leads outside."""
    at, n_objects = _HEAD, 0
    while at + _HEAD <= size:
        file.seek(start + at)
        head = file.read(_HEAD)
        if len(head) < _HEAD:
            return None
        number, _, value_size = struct.unpack("<HH4xQ", head)
        needed = value_size if number == 0 else _HEAD + -(-value_size // 8) * 8
        if not _HEAD <= needed <= size - at:
            return None
        at, n_objects = at + needed, n_objects + 1
        if n_objects % 2**14 == 0:
            spend(path)
    return n_objects
