"""Which scans a folder holds, what the files made from them are called, and a scan's hash."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from usdehaze.budget import file_sha256
from usdehaze.choices import PREVIEW_KINDS
from usdehaze.errors import InputError
from usdehaze.io.formats import (
    DICOM,
    NO_KIND,
    SCAN_SUFFIXES,
    SUFFIXES,
    FileFormat,
    format_of,
    is_left_out,
    is_mask,
    look_at,
    parts_of,
)

_Scan = TypeVar("_Scan", bound=Hashable)
RESULT_SUFFIX = ".dehazed.h5"
REVIEW_SUFFIX = ".review.html"
ZEA_SUFFIX = ".dehazed.zea.hdf5"
DICOM_SUFFIX = ".dehazed.dcm"
DICOM_HAZE_SUFFIX = ".dehazed.haze.dcm"
PREVIEW_SUFFIXES = tuple(f".dehazed.{kind}" for kind in PREVIEW_KINDS)
RESULT_SUFFIXES = (RESULT_SUFFIX, ZEA_SUFFIX, DICOM_SUFFIX, DICOM_HAZE_SUFFIX, *PREVIEW_SUFFIXES)


def sha256_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file, hex; of a scan of several files, such as a folder of images, of their hashes and names."""
    parts = parts_of(path)
    if parts == [Path(path)]:
        return file_sha256(parts[0])
    digest = hashlib.sha256()
    for part in parts:
        digest.update(os.fsencode(f"{file_sha256(part)}  {part.name}\n"))
    return digest.hexdigest()


@dataclass(frozen=True)
class Found:
    """What lies under a name: in a file or a folder.

    Attributes:
        scans: see `list_scans`; none where those that there are are lost.
        lost: what keeps scans from being found: links that lead nowhere, what cannot be read, files that are called
            scans and are none.
        own: DICOM images that usdehaze made, though in folders their names do not say so.
        foreign: files of kinds that are known and not read, with the kind, masks of scans, and images beside scans.
    """

    scans: list[Path] = field(default_factory=list)
    lost: dict[Path, InputError] = field(default_factory=dict)
    own: list[Path] = field(default_factory=list)
    foreign: dict[Path, str] = field(default_factory=dict)


def list_scans(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Files as given, folders replaced by every scan in them: recursive, sorted, hidden files and results left out.

    Derived DICOM images of our own count as results whatever they are called now. A mask, named so after a scan beside
    it, is none.

    Links are followed, into each folder once. A folder with images but no other scan directly in it is itself a scan. A
    file given by name is kept whatever it is, and so is a folder without scans: reading it will say what is wrong. A
    DICOMDIR given by name stands for the ultrasound images that it lists.
    """
    return [scan for path in map(Path, paths) for scan in look_in(path).scans or [path]]


def list_results(paths: Iterable[str | os.PathLike[str]], lost: dict[Path, InputError] | None = None) -> list[Path]:
    """Files as given, folders replaced by every result in them, each once, as `list_scans` finds scans.

    Folders that cannot be read are put into ``lost``.
    """
    results: list[Path] = []
    for path in map(Path, paths):
        if not os.path.isdir(path):
            results.append(path)
            continue
        inside: dict[str, Path] = {}  # by where they really are
        for parent, names in _folders(path, {} if lost is None else lost):
            for result in (parent / name for name in names if name.endswith(RESULT_SUFFIX)):
                real = os.path.realpath(result)
                inside[real] = inside.get(real, result) if result.is_symlink() else result
        results += inside.values()
    return results


def lost_in(paths: Iterable[str | os.PathLike[str]]) -> dict[Path, InputError]:
    """What keeps scans in these folders from being found, see `Found`."""
    return {lost: error for path in paths for lost, error in look_in(path).lost.items()}


def look_in(path: str | os.PathLike[str]) -> Found:
    """What lies under a name, see `list_scans`; every file is looked at once."""
    path, found = Path(path), Found()
    if os.path.isdir(path):
        for parent, names in _folders(path, found.lost):
            _sort(parent, names, found)
        found.lost.pop(path, None)  # reading it will say so
    else:
        for scan in _listed(path):
            (found.own if is_own_image(scan) else found.scans).append(scan)
    if not found.scans and not found.lost:
        found.scans.append(path)
    return found


def _sort(parent: Path, names: list[str], found: Found) -> None:
    """Puts the files of a folder where they belong."""
    scans, images, no_images = list[Path](), list[Path](), dict[Path, InputError]()
    for path in (parent / name for name in names):
        if why := _unreadable(path):
            found.lost[path] = InputError(path, why)
        if why or path.name.endswith(RESULT_SUFFIXES):
            continue
        try:
            known, kind = look_at(path)
        except InputError as error:
            if path.is_file():  # no socket, no pipe
                found.lost[path] = error
            continue
        if known is DICOM and not known.is_alone(path):
            found.own.append(path)
        elif known is not None:
            if _is_alone(known, path) and is_mask(path):
                found.foreign[path] = "named as the mask of another"
            elif _is_alone(known, path):
                scans.append(path)
            elif known.open_image is not None and not is_left_out(path.name) and not is_mask(path):
                images.append(path)
        elif path.name.lower().endswith(SCAN_SUFFIXES):
            found.lost[path] = _misnamed(path, f"is no scan ({kind})")
        elif path.name.lower().endswith(tuple(SUFFIXES)):
            no_images[path] = _misnamed(path, f"is no image ({kind})")
        elif kind not in NO_KIND:
            found.foreign[path] = kind
    found.scans.extend(scans or [parent] * bool(images))
    if scans:
        found.foreign.update(dict.fromkeys(images, "an image beside scans, not in a folder of its own"))
    if not (scans or images):  # one stands for all of them
        found.lost.update(list(no_images.items())[:1])


def _unreadable(path: Path) -> str:
    """Why a file cannot be read; "" where it can, or is no file."""
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        nowhere = isinstance(error, FileNotFoundError) or error.errno == errno.ELOOP
        return "is a link that leads nowhere" if nowhere else f"cannot be read ({error.strerror})"
    return "cannot be read (no permission)" if regular and not os.access(path, os.R_OK) else ""


def _misnamed(path: Path, found: str) -> InputError:
    return InputError(path, found, "one, as its name says", "mend it, or take it away")


def is_own_image(path: Path) -> bool:
    """Whether a file is a DICOM image that usdehaze made."""
    try:
        return format_of(path) is DICOM and not DICOM.is_alone(path)
    except InputError:  # a dangling link, a socket, a folder of other things
        return False


def stem_of(scan: Path) -> str:
    """What the files made from a scan begin with: its name without the suffixes of a format; a folder's whole name."""
    return scan.resolve().name if os.path.isdir(scan) else stem_of_name(scan.name)


def stem_of_name(name: str) -> str:
    """A file's name without the suffixes of a format.

    What follows the last dot is no suffix as such: DICOM files are often named by their UID.
    """
    ending = next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), "")
    return name[: -len(ending)] if 0 < len(ending) < len(name) else name


def naming_of(scan: Path) -> tuple[Path, str, str]:
    """Folder, stem and whole name of a scan, as `distinct_stems` wants them."""
    stem = stem_of(scan)
    return scan.parent.resolve(), stem, stem if os.path.isdir(scan) else scan.name


def distinct_stems(names: Mapping[_Scan, tuple[Hashable, str, str]]) -> dict[_Scan, str]:
    """A stem for each scan: where several in a folder share one, those that can take their whole names for it do.

    Args:
        names: folder, stem and whole name of each scan; the whole name of a folder is its stem.
    """
    stems = {scan: stem for scan, (_, stem, _) in names.items()}
    while True:
        shared = Counter((folder, stems[scan]) for scan, (folder, _, _) in names.items())
        clashes = {
            scan: whole
            for scan, (folder, _, whole) in names.items()
            if shared[folder, stems[scan]] > 1 and stems[scan] != whole
        }
        if not clashes:
            return stems
        stems |= clashes


def beside_result(result: str | os.PathLike[str], suffix: str) -> Path:
    """``STEM`` and the suffix beside a result ``STEM.dehazed.h5``; of another name, its own without its last suffix."""
    path = Path(result)
    stem = path.name.removesuffix(RESULT_SUFFIX) if path.name.endswith(RESULT_SUFFIX) else path.stem
    return path.parent / (stem + suffix)  # also of ".", which has no name


def files_beside(result: Path) -> list[Path]:
    """Every file that may be made with a result ``STEM.dehazed.h5``, whether it is there or not; itself first."""
    stem = result.name.removesuffix(RESULT_SUFFIX)
    return [result.with_name(stem + suffix) for suffix in (*RESULT_SUFFIXES, REVIEW_SUFFIX)]


def _listed(path: Path) -> list[Path]:
    """The scans that a file lists; none of most files."""
    try:
        found = format_of(path)
        return found.scans_listed(path) if found is not None else []
    except InputError:  # reading it will say what is wrong
        return []


def _folders(folder: Path, lost: dict[Path, InputError]) -> Iterator[tuple[Path, list[str]]]:
    """Folders in a folder, it included, with the names of the files in each; nothing hidden, and each folder once.

    Those that cannot be read are put into ``lost``. Folders that are links come last, so that a scan which can be
    reached without a link has the name of that way.
    """

    def unreadable(error: OSError) -> None:
        lost[Path(error.filename)] = InputError(error.filename, f"cannot be read ({error.strerror})")

    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        top, linked = waiting.pop(0), []
        for parent, folders, names in os.walk(top, onerror=unreadable):
            try:
                about = os.stat(parent)
            except OSError as error:  # gone in the meantime
                unreadable(error)
                continue
            new = (about.st_dev, about.st_ino) not in seen
            seen.add((about.st_dev, about.st_ino))
            inside = sorted(f for f in folders if new and not f.startswith("."))
            linked += [path for f in inside if (path := Path(parent, f)).is_symlink()]
            folders[:] = [f for f in inside if not Path(parent, f).is_symlink()]
            if new:
                yield Path(parent), sorted(n for n in names if not n.startswith("."))
        waiting += linked


def _is_alone(known: FileFormat, path: Path) -> bool:
    """Whether a file of a known format is a scan by itself, not an image among others."""
    try:
        return known.is_alone(path)
    except InputError:  # damaged: opening it will say so
        return True
