"""What a file is, by its content, and which scans a folder holds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from usdehaze.errors import InputError

RESULT_SUFFIX = ".dehazed.h5"
REVIEW_SUFFIX = ".review.html"
ZEA_SUFFIX = ".dehazed.zea.hdf5"
DICOM_SUFFIX = ".dehazed.dcm"
DICOM_HAZE_SUFFIX = ".dehazed.haze.dcm"
RESULT_SUFFIXES = (RESULT_SUFFIX, ZEA_SUFFIX, DICOM_SUFFIX, DICOM_HAZE_SUFFIX)
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_IMAGE_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", b"II*\0", b"MM\0*")  # PNG, JPEG, BMP, TIFF
_DICOM_GROUPS = (b"\x02\0", b"\x08\0")  # little endian, of the first elements of a data set
_META_IMAGE_SIGNATURES = (b"ObjectType", b"NDims")


def kind_of(path: str | os.PathLike[str]) -> str:
    """What a file is, by its content: "HDF5", "DICOM", "image", "MetaImage", "empty" or "unknown content".

    A folder with images directly in it is "images".

    Raises:
        InputError: there is no such file, it cannot be read, or it is a folder without images.
    """
    path = Path(path)
    try:
        if not path.exists():
            raise InputError(path, "no such file")
        if path.is_dir():
            if images_in(path):
                return "images"
            raise InputError(path, "is a folder, not a scan", "a scan, or on the command line a folder of scans")
        if not path.is_file():
            raise InputError(path, "is not a regular file")
        size = path.stat().st_size
        with open(path, "rb") as file:
            start = file.read(132)
            if start[128:] == b"DICM":
                return "DICOM"
            if start.startswith(_META_IMAGE_SIGNATURES):
                return "MetaImage"
            if start.startswith(_IMAGE_SIGNATURES):
                return "image"
            offset = 0  # the signature follows a user block of 0, 512, 1024, ... bytes
            while offset + 8 <= size and offset <= 2**20:
                file.seek(offset)
                if file.read(8) == _HDF5_SIGNATURE:
                    return "HDF5"
                offset = max(512, 2 * offset)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(path, f"cannot be read ({reason})") from error
    if start[:2] in _DICOM_GROUPS and start[3:4] == b"\0":
        return "perhaps a DICOM data set, but without the header of a DICOM file"
    return "unknown content" if size else "empty"


def images_in(folder: str | os.PathLike[str]) -> list[Path]:
    """Images directly in a folder, without hidden files and previews; of several suffixes, those of the commonest."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(Path(folder).iterdir()):
        if not path.name.startswith(".") and ".dehazed." not in path.name and path.is_file():
            with suppress(InputError):
                if kind_of(path) in ("image", "MetaImage"):
                    kinds.setdefault(path.suffix.lower(), []).append(path)
    return max(kinds.values(), key=len, default=[])


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
        scans = [path for name in sorted(names) if _is_scan(path := Path(parent, name))]
        yield from scans
        if not scans and images_in(parent):
            yield Path(parent)


def _is_scan(path: Path) -> bool:
    """Whether a file is a scan by itself, not an image among others."""
    if path.name.startswith(".") or path.name.endswith(RESULT_SUFFIXES):
        return False
    try:
        kind = kind_of(path)
        if kind == "MetaImage":
            from usdehaze.io.metaimage import MetaImage

            return MetaImage(path).found().shape[0] > 1
    except InputError:  # a dangling link, a socket: not a scan
        return False
    if kind == "DICOM":
        from usdehaze.io.dicom.header import is_directory

        return not is_directory(path)
    return kind == "HDF5"
