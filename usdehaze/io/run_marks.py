"""The text in a file that says which run made it."""

from __future__ import annotations

import re
import zlib
from contextlib import suppress
from pathlib import Path

MARK = "usdehaze-run:"
_LOOKED_THROUGH, _PIECE = 2**20, 2**16  # bytes from the beginning of a file
_DEFLATED = b"1.2.840.10008.1.2.1.99"  # transfer syntax of DICOM, told in the first 1024 bytes
_PIXEL_DATA = b"\xe0\x7f\x10\x00"  # DICOM's tag, behind which no text follows


def start_of(path: Path) -> bytes:
    """The part of a file that such a text lies in; nothing of one that cannot be read."""
    start = b""
    try:
        with open(path, "rb") as file:
            while len(start) < _LOOKED_THROUGH and (piece := file.read(_PIECE)):
                start += piece
                if _PIXEL_DATA in piece:
                    break
    except OSError:
        return b""
    if _DEFLATED in start[:1024]:
        data_set = 144 + int.from_bytes(start[140:144], "little")  # behind group 2, which says its length
        with suppress(zlib.error):
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(start[data_set:], _LOOKED_THROUGH)
    return start


def marked_run(start: bytes) -> str | None:
    """The run that a text in ``start`` names, the last of several: what a file was made of may name its own first."""
    found = re.findall(MARK.encode() + rb"([0-9a-f]{32})", start)
    return found[-1].decode() if found else None
