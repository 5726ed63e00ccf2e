"""The text header of a MetaImage: ``Name = value`` lines, with some of its own for each frame of a PLUS sequence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np

from usdehaze.budget import spend, spending
from usdehaze.errors import InputError
from usdehaze.io.limits import MIN_SIDE, check_frame

_TYPES = {
    **{"MET_UCHAR": "u1", "MET_CHAR": "i1", "MET_USHORT": "u2", "MET_SHORT": "i2", "MET_UINT": "u4", "MET_INT": "i4"},
    **{"MET_LONG_LONG": "i8", "MET_ULONG_LONG": "u8", "MET_FLOAT": "f4", "MET_DOUBLE": "f8"},
}
_UNITS_M = {"um": 1e-6, "mm": 1e-3, "cm": 1e-2}
_HEADER_BYTES = 2**26  # of 30,000 frames with the poses of many tools
_LINE_BYTES = 2**16
_MAX_FILES = 100_000
_TIMESTAMP = re.compile(r"Seq_Frame(\d{1,9})_Timestamp")


@dataclass(frozen=True)
class Header:
    """What a header says.

    Attributes:
        sides: ``(width, height, n_frames)``.
        channels: of colour.
        dtype: as stored.
        spacing_m: ``(row, column)`` pitch; None where it is unset.
        compressed: each file is one zlib stream.
        files: with the values, in order: one for all frames, or one a frame.
        skipped: bytes before the values in each of them; -1 where they are what ends the file.
        is_sequence: says itself that the third axis is one of frames.
        times_s: of the frames, where a sequence has them.
        times_unused: it has some that are of no use.
        orientation: PLUS's two letters for where x and y point: M, U (marked side and its opposite), F, N (far, near).
    """

    sides: tuple[int, int, int]
    channels: int
    dtype: np.dtype
    spacing_m: tuple[float, float] | None
    compressed: bool
    files: tuple[Path, ...]
    skipped: int
    is_sequence: bool
    times_s: np.ndarray | None
    times_unused: bool
    orientation: str


def _is_true(fields: dict[str, str], name: str, unset: bool) -> bool:
    """A flag, whose first letter counts, as ITK reads it."""
    return fields[name][:1] in ("T", "t", "1") if name in fields else unset


def read_header(path: Path) -> Header:
    """The header of a MetaImage; of the values, nothing is looked at.

    Raises:
        InputError: it is damaged, or says something else than 2-D frames in this file or beside it.
    """
    with spending(path):  # one budget for all its lines, whoever asks
        fields, times, after, start = _lines(path)
    names = _names(path, fields["ElementDataFile"], after)
    try:
        sides = [int(side) for side in fields["DimSize"].split()]
        channels = int(fields.get("ElementNumberOfChannels", "1"))
        spacing = [float(s) for s in fields.get("ElementSpacing", fields.get("ElementSize", "1 1")).split()]
        msb = _is_true(fields, "BinaryDataByteOrderMSB", _is_true(fields, "ElementByteOrderMSB", False))
        dtype = np.dtype(_TYPES[fields["ElementType"].removesuffix("_ARRAY")]).newbyteorder(">" if msb else "<")
        skipped = int(fields.get("HeaderSize", "0"))
    except (KeyError, ValueError):
        raise InputError(path, "has a MetaImage header that cannot be used", "numbers, and a known type") from None
    if not _is_true(fields, "BinaryData", True):
        found = "a MetaImage with its values as text (BinaryData = False)"
        raise InputError(path, found, "BinaryData = True", "save it anew with ITK, 3D Slicer or PLUS")
    long = [side for side in sides[2:] if side != 1]
    if len(sides) < 2 or len(long) > 1 or min(sides) < 1 or channels not in (1, 3, 4):
        found = f"{' x '.join(map(str, sides[:6]))} pixels, {channels} channels"
        raise InputError(path, f"holds {found}", "width x height, or width x height x frames")
    if min(sides[:2]) < MIN_SIDE:
        raise InputError(path, f"frames of {sides[1]} x {sides[0]}", f"at least {MIN_SIDE} x {MIN_SIDE}")
    check_frame((sides[1], sides[0]), path)
    n_frames = long[0] if long else 1
    if len(names) not in (0, 1, n_frames):
        raise InputError(path, f"keeps {n_frames} frames in {len(names)} files", "one file, or one a frame")
    given = len(spacing) >= 2 and np.isfinite(spacing).all() and min(spacing[:2]) > 0
    given = given and spacing[:2] != [1, 1]
    unit_m = _UNITS_M.get(fields.get("DistanceUnits", ""), 1e-3)
    times_s = _times(times, n_frames)
    return Header(
        sides=(sides[0], sides[1], n_frames),
        channels=channels,
        dtype=dtype,
        spacing_m=(spacing[1] * unit_m, spacing[0] * unit_m) if given else None,
        compressed=_is_true(fields, "CompressedData", False),
        files=tuple(path.parent / name for name in names) or (path,),
        skipped=skipped if names else start,
        is_sequence=bool(times) or _kind_of_frames(fields, sides) in ("list", "time"),
        times_s=times_s,
        times_unused=bool(times) and times_s is None,
        orientation=fields.get("UltrasoundImageOrientation", "")[:2].upper(),
    )


def _kind_of_frames(fields: dict[str, str], sides: list[int]) -> str:
    """What the header says of the axis of frames: "list", "time", "domain" (space); "" where it says nothing."""
    kinds = fields.get("Kinds", "").lower().split()
    along = [kind for kind, side in zip(kinds[2:], sides[2:], strict=False) if side != 1]
    return along[0] if along else ""


def _lines(path: Path) -> tuple[dict[str, str], dict[int, float], list[str], int]:
    """Values by their names, time by frame, the lines after the header proper, and where that ends."""
    fields: dict[str, str] = {}
    times: dict[int, float] = {}
    start = 0
    with open(path, "rb") as file:
        while start < _HEADER_BYTES and (line := file.readline(_LINE_BYTES)):
            start += len(line)
            spend(path, decoded=len(line))
            name, equals, value = line.decode("utf-8", "surrogateescape").partition("=")
            name, value = name.strip(), value.strip()
            if not equals:
                break
            if (found := _TIMESTAMP.fullmatch(name)) is not None:
                times[int(found[1])] = _number(value)
            elif not name.startswith("Seq_Frame"):
                fields[name] = value
            if name == "ElementDataFile":
                listed = file.read(_LINE_BYTES * 64).splitlines()[:_MAX_FILES] if value.startswith("LIST") else []
                return fields, times, [entry.decode("utf-8", "surrogateescape").strip() for entry in listed], start
    raise InputError(path, "has no complete MetaImage header", "a line ElementDataFile")


def _names(path: Path, named: str, listed: list[str]) -> list[str]:
    """Names of the files with the values, beside the header; none where they follow it."""
    if named.upper() == "LOCAL":
        return []
    pattern = named.split()
    if named.startswith("LIST"):
        names = [name for name in listed if name]
    elif len(pattern) in (3, 4) and "%" in pattern[0]:  # img%03d.raw FIRST LAST [STEP]
        names = _numbered(path, pattern)
    else:
        names = [named]
    for name in names:
        if {PurePosixPath(name).name, PureWindowsPath(name).name} != {name} or name in ("", ".", ".."):
            raise InputError(path, "keeps its data in another file, which is not followed", "a file beside it")
        if not (path.parent / name).is_file():
            raise InputError(path, f"keeps its data in another file, {name[:80]!r}, which is not beside it")
    if not names:
        raise InputError(path, "lists no file with its data", "ElementDataFile = LOCAL, or a file beside it")
    return names


def _numbered(path: Path, pattern: list[str]) -> list[str]:
    try:
        first, last, step = (int(number) for number in (*pattern[1:], "1")[:3])
        numbers = range(first, last + 1, step)
        if len(numbers) > _MAX_FILES or not re.fullmatch(r"[^%]*%0?\d?\d?d[^%]*", pattern[0]):
            raise ValueError
        return [pattern[0] % number for number in numbers]
    except ValueError:
        raise InputError(path, "numbers its data files in a way that is not known", "img%03d.raw 1 10 1") from None


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return np.nan


def _times(times: dict[int, float], n_frames: int) -> np.ndarray | None:
    """Times that every frame has and that do not fall; None where they do, or are all the same."""
    found = np.array([times.get(index, np.nan) for index in range(n_frames)]) if times else np.array([])
    if not len(found) or not np.isfinite(found).all() or np.any(np.diff(found) < 0):
        return None
    return found if n_frames == 1 or found[-1] > found[0] else None
