"""File names in any encoding."""

from __future__ import annotations

import os


def readable(name: str) -> str:
    """A file name as text that can be stored and shown: bytes that are no UTF-8 as ``\\xNN``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
