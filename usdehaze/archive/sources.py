"""Which scans an archive holds, as they are listed: nothing of a remote one is read."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath

from usdehaze.archive.store import Found, Store, is_remote
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io.detect import RESULT_SUFFIXES, distinct_stems, list_scans, stem_of, stem_of_name
from usdehaze.io.formats import IMAGE, META_IMAGE, SUFFIXES, parts_of

MANIFEST = ".parquet"  # of the parts of a manifest, where results lie beside the scans
_OTHER = re.compile(r"\.[a-z][a-z0-9]{0,5}$")  # a suffix of what is no scan; those of DICOM files are often numbers


@dataclass(frozen=True)
class Source:
    """A scan of an archive.

    Attributes:
        uri: absolute path, or URI.
        size: bytes of all its files.
        stamp: changes where the scan changes.
        folder: of its results, below the destination; "" for the destination itself.
        stem: that the names of its results begin with.
        images: of a remote folder of images the names in it.
    """

    uri: str
    size: int
    stamp: str
    folder: str
    stem: str
    images: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the URI."""
        return self.uri.rpartition("/")[2]

    def to_json(self) -> str:
        """As text that `from_json` reads."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Source:
        """The source that `to_json` wrote."""
        values = json.loads(text)
        return Source(**{**values, "images": tuple(values["images"])})


def list_sources(names: Iterable[str], scans: Mapping[str, Sequence[Path]] | None = None) -> list[Source]:
    """Every scan under these paths and URIs, each once; results are named as ``usdehaze process -o`` names them.

    Under a path a scan is what `usdehaze.io.detect.list_scans` finds, by its content. Under a URI names decide: files
    with the suffix of a format, without a suffix, or with one that does not begin with a letter (beside images those
    that are DICOM: a README may lie there, too); a folder with nothing but images is one scan.

    Args:
        names: paths and URIs.
        scans: under some of the paths, where they are known: absolute paths.

    Raises:
        InputError: a URI that cannot be listed.
        UsdehazeError: two scans would write one file.
    """
    found: dict[str, tuple[Source, tuple[str, str, str]]] = {}
    for name in names:
        if is_remote(name):
            under = _under_uri(name)
        else:
            top = Path(os.path.abspath(name))
            under = _under_path(top, (scans or {}).get(name) or list_scans([top]))
        for source, naming in under:
            found.setdefault(source.uri, (source, naming))
    stems = distinct_stems({uri: naming for uri, (_, naming) in found.items()})
    writers: dict[tuple[str, str], str] = {}
    sources = []
    for uri, (source, _) in found.items():
        other = writers.setdefault((source.folder, stems[uri]), uri)
        if other != uri:
            raise UsdehazeError(f"{uri} and {other} would write one file; give each a --out of its own")
        sources.append(replace(source, stem=stems[uri]))
    return sources


def look(scan: Path) -> tuple[int, str]:
    """Size and stamp of a scan on this machine.

    Raises:
        InputError: it cannot be looked at.
    """
    try:
        several = scan.is_dir() or scan.suffix.lower() in META_IMAGE.suffixes
        status = [part.stat() for part in (parts_of(scan) if several else [scan])]
    except OSError as error:
        raise InputError(scan, f"cannot be read ({error.strerror})") from error
    changed = [f"{s.st_mtime_ns}" for s in status]
    return sum(s.st_size for s in status), _of_all(changed) if several else changed[0]


def _of_all(stamps: Sequence[str]) -> str:
    """One stamp for several files: changes with any of theirs, also with one that another file's is later than."""
    return f"{hashlib.sha256(' '.join(stamps).encode()).hexdigest()[:16]}/{len(stamps)}"


def _under_path(top: Path, scans: Sequence[Path]) -> Iterator[tuple[Source, tuple[str, str, str]]]:
    root = top if top.is_dir() else top.parent
    for scan in scans:
        folder = scan.parent.relative_to(root).as_posix() if scan != top else ""
        try:
            size, stamp = look(scan)
        except InputError:  # reading it will say what is wrong
            size, stamp = 0, ""
        stem = stem_of(scan)
        naming = str(scan.parent.resolve()), stem, stem if scan.is_dir() else scan.name
        yield Source(str(scan), size, stamp, "" if folder == "." else folder, stem), naming


def _under_uri(uri: str) -> Iterator[tuple[Source, tuple[str, str, str]]]:
    store = Store(uri)
    folders: dict[str, list[Found]] = {}
    for file in store.found():
        path = PurePosixPath(file.name or store.uri.rpartition("/")[2])
        if not any(part.startswith(".") for part in path.parts) and (not file.name or _may_be_scan(path.name)):
            folders.setdefault("/".join(path.parts[:-1]), []).append(file)
    for folder, files in folders.items():
        scans = [file for file in files if not file.name or not _is_image(file.name)]
        if len(scans) < len(files):
            scans = [file for file in scans if _has_suffix(file.name) or _may_be_dicom(store, file.name)]
            files = [file for file in files if _is_image(file.name)]
        for file in scans:
            whole = store.name_of(file.name).rpartition("/")[2]
            stem = stem_of_name(whole)
            naming = f"{store.uri}/{folder}", stem, whole
            yield Source(store.name_of(file.name), file.size, file.stamp, folder, stem), naming
        if not scans:
            at = store.name_of(folder)
            stem, size = at.rpartition("/")[2], sum(file.size for file in files)
            stamp = _of_all([file.stamp for file in files])
            images = tuple(PurePosixPath(file.name).name for file in files)
            above = "/".join(folder.split("/")[:-1])
            yield Source(at, size, stamp, above, stem, images), (f"{store.uri}/{above}", stem, stem)


def _may_be_scan(name: str) -> bool:
    name = name.lower()
    if name.endswith((*RESULT_SUFFIXES, MANIFEST)) or name == "dicomdir":
        return False
    return _has_suffix(name) or not _OTHER.search(name)


def _may_be_dicom(store: Store, name: str) -> bool:
    try:
        return store.start(name, 132).endswith(b"DICM")
    except InputError:  # fetching it will say what is wrong
        return True


def _has_suffix(name: str) -> bool:
    """Whether a name ends as those of a format do."""
    return name.lower().endswith(tuple(SUFFIXES))


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE.suffixes)
