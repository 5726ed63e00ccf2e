"""Store: files under a folder of this machine, in an object store, or wherever else fsspec and pyarrow reach."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usdehaze.errors import InputError, UsdehazeError, foreign
from usdehaze.io.atomic import PART, atomic, short
from usdehaze.optional import needed

EXTRA = "archive"
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "obs", "cos"})
_STAMPS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "modified", "created")


def is_remote(name: str) -> bool:
    """Whether a name is a URI, whose files are fetched and put back; other names are paths, read where they are."""
    return "://" in name


@dataclass(frozen=True)
class Found:
    """A file in a store.

    Attributes:
        name: below the store's URI, with "/" between folders; "" where the URI is the file itself.
        size: bytes.
        stamp: changes where the file changes: what the store tells of it, its ETag before the time of its last change.
    """

    name: str
    size: int
    stamp: str


class Store:
    """Files under a URI, or under a folder of this machine.

    An object store shows an object once it is whole; elsewhere a file is put under a temporary name and moved.

    Args:
        uri: ``s3://bucket/folder``, ``gs://``, ``abfs://``, any other that fsspec knows, or a path.

    Raises:
        UsdehazeError: fsspec, or the package for this kind of URI, is not installed.
        InputError: from all methods, where the store refuses; names the file.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self.local = None if is_remote(uri) else Path(uri)
        self.files, self.path = _filesystem(uri)
        protocols = [self.files.protocol] if isinstance(self.files.protocol, str) else self.files.protocol
        self.moves = not OBJECT_STORES & {uri.partition("://")[0], *protocols}

    def name_of(self, name: str) -> str:
        """The URI of a file in the store."""
        return f"{self.uri}/{name}" if name else self.uri

    def found(self) -> Iterator[Found]:
        """Every file, in order of name, without the empty objects that stand for folders in an object store."""
        with self._telling("", "listed"):
            entries: dict[str, dict[str, Any]] = self.files.find(self.path, detail=True)
        if not entries:
            raise InputError(self.uri, "no such file or folder, or an empty one")
        root = str(self.files._strip_protocol(self.path)).rstrip("/")
        folders = {path.rstrip("/").rpartition("/")[0] for path in entries}
        for path in sorted(entries):
            about = entries[path]
            if not about.get("size") and (path.endswith("/") or path in folders):
                continue
            stamp = next((str(about[key]) for key in _STAMPS if about.get(key)), "")
            yield Found(path.removeprefix(root).lstrip("/"), int(about.get("size") or 0), stamp)

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        with self._telling(name, "looked at"):
            return bool(self.files.isfile(self._at(name)))

    def start(self, name: str, n_bytes: int) -> bytes:
        """The first bytes of a file."""
        with self._telling(name, "read"):
            return bytes(self.files.cat_file(self._at(name), start=0, end=n_bytes))

    def names(self, folder: str) -> list[str]:
        """Names of the files directly in a folder; none where there is no such folder."""
        with self._telling(folder, "listed"):
            try:
                entries = self.files.ls(self._at(folder), detail=True)
            except FileNotFoundError:
                return []
        return [str(e["name"]).rstrip("/").rpartition("/")[2] for e in entries if e["type"] == "file"]

    def fetch(self, name: str, to: Path) -> None:
        """Copies a file to this machine."""
        with self._telling(name, "fetched"):
            self.files.get_file(self._at(name), str(to))

    def put(self, file: Path, name: str) -> None:
        """Copies a file of this machine into the store; it appears whole, and replaces what was there."""
        with self._telling(name, "written"):
            target = self._at(name)
            if not self.moves:
                self.files.put_file(str(file), target)
                return
            folder, _, last = target.rpartition("/")
            self.files.makedirs(folder, exist_ok=True)
            part = f"{folder}/.{short(last)}.{secrets.token_hex(4)}{PART}"
            try:
                self.files.put_file(str(file), part)
                self.files.mv(part, target)
            except BaseException:
                with suppress(Exception):
                    self.files.rm_file(part)
                raise

    def write(self, name: str, content: bytes) -> None:
        """Makes a file that appears whole."""
        if self.local is not None:
            with atomic(self.local / name, overwrite=True) as part:
                part.write_bytes(content)
            return
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix="usdehaze-") as folder:
            file = Path(folder, "content")
            file.write_bytes(content)
            self.put(file, name)

    def _at(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}" if name else self.path

    @contextmanager
    def _telling(self, name: str, what: str) -> Iterator[None]:
        """Whatever a store's client raises as an `InputError`; of its text nothing: it may hold keys."""
        try:
            yield
        except UsdehazeError:
            raise
        except Exception as error:
            raise InputError(self.name_of(name), f"cannot be {what} ({foreign(error)})") from error


def _filesystem(uri: str) -> tuple[Any, str]:
    """The fsspec filesystem of a URI and the path in it; pyarrow's own where fsspec lacks the store's package."""
    if re.match(r"[^/]+://[^/@]*:[^/@]*@", uri):
        raise UsdehazeError("a URI with a password would end up in the manifest; leave it to the store's configuration")
    core = needed("fsspec.core", EXTRA)
    try:
        files, path = core.url_to_fs(uri)
        return files, str(path)
    except ImportError as lacking:
        arrow, wrapper = needed("pyarrow.fs", EXTRA), needed("fsspec.implementations.arrow", EXTRA)
        try:
            files, path = arrow.FileSystem.from_uri(uri)
            return wrapper.ArrowFSWrapper(files), str(path)
        except Exception as error:
            raise UsdehazeError(f"{uri}: cannot be reached: {' '.join(str(lacking).split())}") from error
    except ValueError as error:
        raise InputError(uri, "no kind of place that fsspec knows", "a path, s3://, gs://, abfs://, ...") from error
