"""The text in a file that says which run made it."""

from __future__ import annotations

import re
from pathlib import Path

MARK = "usdehaze-run:"
_LOOKED_THROUGH = 2**20  # bytes from the beginning of a file


def start_of(path: Path) -> bytes:
    """The part of a file that such a text lies in; nothing of one that cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(_LOOKED_THROUGH)
    except OSError:
        return b""


def marked_run(start: bytes) -> str | None:
    """The run that a text in ``start`` names, the last of several: what a file was made of may name its own first."""
    found = re.findall(MARK.encode() + rb"([0-9a-f]{32})", start)
    return found[-1].decode() if found else None
