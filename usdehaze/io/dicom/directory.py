"""DICOMDIR, the table of contents of a medium: the ultrasound images that it lists (PS3.3 F.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pydicom
from pydicom.dataset import Dataset

from usdehaze.errors import InputError
from usdehaze.io.dicom.header import (
    CAPTURE_CLASSES,
    LARGEST_ELEMENT,
    ULTRASOUND_CLASSES,
    items,
    unreadable,
    word,
    words,
)
from usdehaze.quiet import quiet

LARGEST_DIRECTORY = 2**26  # bytes


def images_listed(path: Path) -> list[Path]:
    """Files of ultrasound images and secondary captures, in the order of the table.

    Raises:
        InputError: it cannot be read, lists none, or lists files that are not there.
    """
    if path.stat().st_size > LARGEST_DIRECTORY:
        raise InputError(path, "is a DICOMDIR of more than 64 MiB", "the folder of the images themselves")
    try:
        with quiet():
            records = items(pydicom.dcmread(path, defer_size=LARGEST_ELEMENT), "DirectoryRecordSequence")
            named = [words(record, "ReferencedFileID") for record in records if _is_ultrasound(record)]
    except InputError:
        raise
    except Exception as error:  # pydicom's own words may quote what it stumbled over
        raise unreadable(path, type(error).__name__) from None
    found = [_file(path.parent, parts) for parts in named if parts]
    if not found:
        raise InputError(path, "is a DICOMDIR that lists no ultrasound image", "one with an image or a capture")
    return list(dict.fromkeys(found))


def refuse(path: Path, *_: Any) -> NoReturn:
    """What to tell who would read a DICOMDIR as a scan.

    Raises:
        InputError: always.
    """
    n_images = len(images_listed(path))
    raise InputError(path, f"is a DICOMDIR that lists {n_images} scans", "one of them, or its folder")


def _is_ultrasound(record: Dataset) -> bool:
    kind = word(record, "ReferencedSOPClassUIDInFile")
    return kind in ULTRASOUND_CLASSES or kind in CAPTURE_CLASSES


def _file(folder: Path, parts: list[str]) -> Path:
    """The file with these components, whose names some media have in lower case; as written where there is none.

    Components that lead out of the folder lead nowhere.
    """
    at = folder
    for part in parts:
        name = part if part not in ("", ".", "..") and "/" not in part and "\\" not in part else "not-a-name"
        at = next((at / other for other in (name, name.lower()) if (at / other).exists()), at / name)
    return at
