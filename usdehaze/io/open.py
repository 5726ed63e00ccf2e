"""Opening a scan, whatever its file format is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from usdehaze.cine import Cine
from usdehaze.errors import InputError
from usdehaze.io.formats import EXPECTED, format_of, kind_of
from usdehaze.io.limits import check_memory
from usdehaze.io.reading import Reading, ReadingOptions, with_options
from usdehaze.io.scan import Scan

if TYPE_CHECKING:
    from typing_extensions import Unpack


def open_scan(path: str | os.PathLike[str], reading: Reading | None = None, **options: Unpack[ReadingOptions]) -> Scan:
    """Opens a scan; its frames are read a few at a time.

    Args:
        path: the file, or a folder of images.
        reading: which frames to read, and what the file leaves unsaid.
        options: fields of `usdehaze.io.Reading` as keywords, ``dataset``, ``axes``, ``units``, ``dynamic_range_db`` and
            ``frames``; they go before those of ``reading``.

    Raises:
        InputError: the file is missing, of a format that is not read, or holds no usable frames.

    Example:
        >>> with open_scan("scan.h5") as scan:  # doctest: +SKIP
        ...     for cine in scan.chunks(16):
        ...         print(cine.source.first_frame, cine.frames.shape)
    """
    path = Path(path)
    found = format_of(path)
    if found is None:
        raise InputError(path, f"is no scan ({kind_of(path)})", EXPECTED)
    reading = with_options(reading, path, **options)
    found.check_reading(reading, path)
    return found.open_scan(path, reading)


def open_cine(path: str | os.PathLike[str], reading: Reading | None = None, **options: Unpack[ReadingOptions]) -> Cine:
    """Opens a scan and reads its frames into memory: see `open_scan`.

    Raises:
        InputError: the file is missing, of a format that is not read, or holds no usable frames; or too many at once.

    Example:
        >>> cine = open_cine("scan.h5", frames=slice(0, 30))  # doctest: +SKIP
    """
    with open_scan(path, reading, **options) as scan:
        check_memory((scan.n_frames, *scan.shape), path)
        return scan.read()
