"""Which results of earlier runs stand: all files there, made of the scan as it is now, and as the next would be."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from usdehaze.errors import InputError
from usdehaze.io.detect import sha256_of
from usdehaze.io.formats import parts_of
from usdehaze.io.hdf5.access import attribute, attributes, open_file, open_h5
from usdehaze.io.hdf5.layouts.own import RESULT_FORMAT
from usdehaze.io.own_files import own_datasets
from usdehaze.io.reading import Reading
from usdehaze.plain_text import readable
from usdehaze.provenance import FIELDS, in_words, plain

NO_MATTER = {"own_settings", "evaluations", "device", "engine"}  # told by the others, or worth the last bits alone


def made_otherwise(result: Path, wanted: Mapping[str, Any], reading: Reading | None = None) -> str:
    """How a result differs from what is wanted, in words; "" where it does not.

    Args:
        result: file of a result.
        wanted: settings, networks and the like, by the names of a result's attributes.
        reading: which frames of the source, and how they are to be read; None where any will do.

    Raises:
        InputError: the file cannot be read.
    """
    with open_h5(result) as file:
        stored = {name: plain(value) for name, value in attributes(file, result).items()}
        n_frames = len(own_datasets(file, result, RESULT_FORMAT, ("input",))["input"])
    told = [] if reading is None else _other_frames(reading, n_frames, stored)
    wanted = {**wanted, **({} if reading is None else {"source_options": reading.said})}
    for field in FIELDS:
        if field.name not in wanted or field.name in NO_MATTER:
            continue
        now, then = plain(wanted[field.name]), stored.get(field.name)
        if now != then and not (now in (None, "") and then in (None, "")):
            told.append(f"{field.key} {in_words(then) or 'none'}, now {in_words(now) or 'none'}")
    return "; ".join(told)


def _other_frames(reading: Reading, n_frames: int, stored: Mapping[str, Any]) -> list[str]:
    """In words, where other frames are asked for than a result holds, or it does not say of how many these are."""
    first, of = int(stored.get("first_frame", 0)), int(stored.get("source_frames", 0))
    asked = slice(None) if reading.frames is None else reading.frames
    if of and asked.indices(of)[:2] == (first, first + n_frames):
        return []
    now = "all" if asked == slice(None) else f"{asked.start or 0}:{'' if asked.stop is None else asked.stop}"
    return [f"frames {first}:{first + n_frames} of {of or 'an unknown number'}, now {now}"]


def standing(files: Sequence[Path], scan: Path, strict: bool = False) -> bool:
    """Whether all files made of a scan are there, and there is nothing left to do for it.

    Args:
        files: that should be there; the first is the result.
        scan: as it is now.
        strict: only the scan's hash counts; else one that was there before its result is taken for the same, and one of
            the same name that has changed may have its result made anew.

    Raises:
        InputError: the result is there, but of another scan (or, where strict, no result); or there is no such scan.
    """
    sha256 = check_owner(files[0], scan, strict).get("source_sha256")
    if not all(file.exists() for file in files):
        return False
    if strict or not sha256:
        return bool(sha256)
    made = files[0].stat().st_mtime_ns
    return all(_put_there_ns(part) <= made for part in {scan, *parts_of(scan)}) or sha256 == sha256_of(scan)


def _put_there_ns(path: Path) -> int:
    """When a file was changed, or put where it is, whose time may be older; of a folder, or was taken out of it."""
    status = path.stat()
    return max(status.st_mtime_ns, status.st_ctime_ns)


def check_owner(result: Path, scan: Path, strict: bool = False) -> dict[str, str]:
    """Refuses to replace the result of another scan, which has the same name for it.

    Args:
        result: that is to be written, and may be there.
        scan: that it is made of.
        strict: a scan of the same name, but other content, is another one, too; and what is no result stays.

    Returns:
        ``source_name`` and ``source_sha256`` of the result that is there; nothing where there is none.

    Raises:
        InputError: that is what lies there.
    """
    source = _source_of(result, strict)
    name = source.get("source_name")
    if (strict or (name and name != readable(scan.name))) and source and source["source_sha256"] != sha256_of(scan):
        advice = "write elsewhere (-o), or move it away"
        raise InputError(result, f"is the result of another scan, {name or 'unnamed'}", advice=advice)
    return source


def _source_of(result: Path, strict: bool = False) -> dict[str, str]:
    """What a result says about where it came from; nothing where there is none, or (unless strict) no sound one."""
    if not os.path.exists(result):
        return {}
    try:
        with open_file(result) as file:
            return {name: attribute(file, name) for name in ("source_name", "source_sha256")}
    except InputError:  # damaged, or no result: nothing to lose
        if strict:
            raise
        return {}
