"""Names of files and datasets, as they are told."""

from __future__ import annotations

import os


def readable(name: str) -> str:
    """A file name as text that can be stored and shown: bytes that are no UTF-8 as ``\\xNN``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def called(dataset: str) -> str:
    """What messages call a dataset by its name: "" where a file holds one array alone."""
    return f"dataset {dataset!r}" if dataset else "its array"
