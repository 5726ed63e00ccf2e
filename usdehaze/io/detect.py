"""Which scans a folder holds, what the files made from them are called, and a scan's hash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from usdehaze.errors import InputError
from usdehaze.io.formats import format_of, images_in

RESULT_SUFFIX = ".dehazed.h5"
REVIEW_SUFFIX = ".review.html"
ZEA_SUFFIX = ".dehazed.zea.hdf5"
DICOM_SUFFIX = ".dehazed.dcm"
DICOM_HAZE_SUFFIX = ".dehazed.haze.dcm"
RESULT_SUFFIXES = (RESULT_SUFFIX, ZEA_SUFFIX, DICOM_SUFFIX, DICOM_HAZE_SUFFIX)


def sha256_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a whole file, hex; for a folder, of its images' hashes and names."""
    digest = hashlib.sha256()
    if os.path.isdir(path):
        for image in images_in(path):
            digest.update(f"{sha256_of(image)}  {image.name}\n".encode())
        return digest.hexdigest()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def list_scans(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Files as given, folders replaced by every scan in them: recursive, sorted, hidden files and results left out.

    A folder with images but no other scan directly in it is itself a scan. A file given by name is kept whatever it is,
    and so is a folder without scans: reading it will say what is wrong.
    """
    scans: list[Path] = []
    for path in map(Path, paths):
        scans.extend((path.is_dir() and list(_scans_in(path))) or [path])
    return scans


def _scans_in(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        names = sorted(n for n in names if not n.startswith(".") and not n.endswith(RESULT_SUFFIXES))
        scans = [path for name in names if _is_scan(path := Path(parent, name))]
        yield from scans or filter(_is_scan, [Path(parent)])


def _is_scan(path: Path) -> bool:
    """Whether a file or folder is a scan by itself, not an image among others."""
    try:
        found = format_of(path)
        return found is not None and found.is_alone(path)
    except InputError:  # a dangling link, a socket, a folder of other things
        return False
