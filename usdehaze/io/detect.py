"""What a file is, by its content, and which scans a folder holds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from usdehaze.errors import InputError

RESULT_SUFFIX = ".dehazed.h5"
ZEA_SUFFIX = ".dehazed.zea.hdf5"
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def kind_of(path: str | os.PathLike[str]) -> str:
    """What a file is, by its content: "HDF5", "DICOM", "empty" or "unknown content".

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    path = Path(path)
    try:
        if not path.exists():
            raise InputError(path, "no such file")
        if path.is_dir():
            raise InputError(path, "is a folder, not a scan", "a scan, or on the command line a folder of scans")
        if not path.is_file():
            raise InputError(path, "is not a regular file")
        size = path.stat().st_size
        with open(path, "rb") as file:
            if file.read(132)[128:] == b"DICM":
                return "DICOM"
            offset = 0  # the signature follows a user block of 0, 512, 1024, ... bytes
            while offset + 8 <= size and offset <= 2**20:
                file.seek(offset)
                if file.read(8) == _HDF5_SIGNATURE:
                    return "HDF5"
                offset = max(512, 2 * offset)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(path, f"cannot be read ({reason})") from error
    return "unknown content" if size else "empty"


def sha256_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a whole file, hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def list_scans(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Files as given, folders replaced by every scan in them: recursive, sorted, hidden files and results left out.

    A file given by name is kept whatever it is, and so is a folder without scans: reading it will say what is wrong.
    """
    scans: list[Path] = []
    for path in map(Path, paths):
        scans.extend((path.is_dir() and list(_scans_in(path))) or [path])
    return scans


def _scans_in(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(names):
            if name.startswith(".") or name.endswith((RESULT_SUFFIX, ZEA_SUFFIX)):
                continue
            path = Path(parent, name)
            try:
                is_scan = kind_of(path) == "HDF5"
            except InputError:  # a dangling link, a socket: not a scan
                is_scan = False
            if is_scan:
                yield path
