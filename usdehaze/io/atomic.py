"""Files that appear whole or not at all, each written by one run at a time."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from usdehaze.errors import InputError
from usdehaze.io.permissions import Permissions
from usdehaze.stopping import uninterrupted

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PART = ".part"
MAX_NAME = 200  # bytes of a name that something is added to


def check_target(path: str | os.PathLike[str], overwrite: bool, sources: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Finds out before long work whether ``path`` can be written afterwards.

    Raises:
        InputError: it exists and ``overwrite`` is False, it is one of the ``sources`` that it will be made from, it is
            a folder or a device, or its folder cannot be written.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError(path, "is a folder", "the name of a file")
        if path.exists() and not path.is_file():
            raise InputError(path, "is a device or a pipe", "the name of a file")
        if path.resolve() in {Path(source).resolve() for source in sources}:
            raise InputError(path, "would be replaced, and is what it is made from", "another name")
        if path.exists() and not overwrite:
            raise InputError(path, "exists already", advice="replace it with --overwrite")
        folder = path.absolute().parent
        while not os.path.lexists(folder):
            folder = folder.parent
    except OSError as error:
        raise _unwritable(path, error) from error
    if not folder.is_dir():
        raise InputError(path, f"cannot be written ({folder} is not a folder)")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(path, f"cannot be written (no permission to write in {folder})")


def check_same_kind(path: str | os.PathLike[str], mark: bytes) -> None:
    """Finds out before long work whether ``path`` is of another kind than what will replace it without being asked.

    A shell that puts names in place of a pattern, as in ``--json *.h5``, names a file that nobody meant.

    Args:
        path: that will be written; may be there, and may be empty.
        mark: that the first kilobyte of such files holds.

    Raises:
        InputError: it is there, and is another.
    """
    try:
        with open(path, "rb") as file:
            start = file.read(1024)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(Path(path), error) from error
    if start and mark not in start:
        raise InputError(path, "is there, and is of another kind", "another name", "remove it if it may be replaced")


class PartFile:
    """The hidden file ``.NAME.part`` beside ``path`` that becomes it in the end; locked against other runs.

    Missing folders are made. A killed process leaves the part file behind, never a half-written file under the final
    name; the lock dies with the process, so that the next run takes the part file over. Where the file system cannot
    lock, the part file has a name of its own for every run.

    A file that is replaced leaves its permissions to the new one. Else whoever may not read every one of the sources
    may not read what is made from them either.

    Args:
        target: the final name.
        overwrite: replace a file that exists.
        sources: files and folders that it is made from; those that are not there are passed over.

    Attributes:
        target: the final name.
        path: where to write meanwhile.

    Raises:
        InputError: see `check_target`; and where another run is writing the same file.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        overwrite: bool = False,
        sources: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        self.target, self.overwrite = Path(target), overwrite
        sources = list(sources)
        check_target(self.target, overwrite, sources)
        self._permissions = Permissions(self.target, sources)
        self.path = part_name(self.target)
        self._made: list[Path] = []
        self._lock: int | None = None
        try:
            with writing(self.target):
                self._make_folders()
                self._lock = self._claim()
        except InputError:
            self._remove_folders()
            raise

    def commit(self) -> None:
        """Moves the file into place, safe on disk."""
        self.prepare()
        with uninterrupted(), writing(self.target):
            os.replace(self.path, self.target)
            sync(self.target.parent)
        self.release()

    def prepare(self) -> None:
        """Makes sure that the file is safe on disk and may have its name."""
        with writing(self.target):
            self._permissions.give(self.path)
            sync(self.path)
            check_target(self.target, self.overwrite)

    def discard(self) -> None:
        """Removes the file, and the folders that were made for it where nothing else is in them."""
        with suppress(OSError):
            self.path.unlink()
        self.release()
        self._remove_folders()

    def _make_folders(self) -> None:
        for folder in reversed([self.target.parent, *self.target.parent.parents]):
            if not folder.exists():
                folder.mkdir(exist_ok=True)
                self._made.append(folder)

    def _remove_folders(self) -> None:
        for folder in reversed(self._made):
            with suppress(OSError):
                folder.rmdir()

    def _claim(self) -> int | None:
        """File descriptor that holds the lock, or None where there is no lock to be had."""
        while fcntl is not None:
            try:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, self._permissions.most)
            except PermissionError:
                if not self.path.exists():
                    raise
                break  # left behind by another user
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self.path.exists() and os.path.samestat(os.fstat(handle), self.path.stat()):
                    os.ftruncate(handle, 0)
                    self._permissions.limit(handle)
                    return handle
                os.close(handle)  # the run that had it moved it into place between the two calls
            except BlockingIOError as error:
                os.close(handle)
                raise busy(self.target) from error
            except OSError:  # a file system without locks
                empty = os.fstat(handle).st_size == 0
                os.close(handle)
                if empty:
                    self.path.unlink(missing_ok=True)
                break
        self.path = part_name(self.target, f".{secrets.token_hex(4)}")
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, self._permissions.most))
        return None

    def release(self) -> None:
        """Lets go of the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def part_name(target: Path, own: str = "") -> Path:
    """Name of the part file of ``target``; with ``own`` in it where every run has one of its own."""
    return target.with_name(f".{short(target.name)}{own}{PART}")


def short(name: str) -> str:
    """The name, or where it is too long for one with something added, its beginning and its hash."""
    encoded = os.fsencode(name)
    if len(encoded) <= MAX_NAME:
        return name
    return encoded[: MAX_NAME - 20].decode(errors="ignore") + "-" + hashlib.sha256(encoded).hexdigest()[:16]


def busy(target: Path) -> InputError:
    """What to say of a file that another run is writing."""
    return InputError(target, "is being written by another run", advice="wait for it, or write elsewhere with -o")


@contextmanager
def atomic(
    path: str | os.PathLike[str], overwrite: bool = False, sources: Iterable[str | os.PathLike[str]] = ()
) -> Iterator[Path]:
    """Yields a temporary name in the folder of ``path``; moved into place at the end, removed when anything fails.

    Raises:
        InputError: see `PartFile`; also a full disk and every other error of the operating system.
    """
    part = PartFile(path, overwrite, sources)
    try:
        with writing(part.target):
            yield part.path
        part.commit()
    except BaseException:
        part.discard()
        raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an error of the operating system, met while ``path`` is written, into an `InputError`."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are safe on disk."""
    folder = path.is_dir()
    if folder and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        if not (folder and error.errno in (errno.EINVAL, errno.ENOTSUP, errno.EBADF)):  # some network mounts cannot
            raise
    finally:
        os.close(handle)


def _unwritable(path: Path, error: OSError) -> InputError:
    reason = error.strerror
    if reason is None:  # the HDF5 library puts the number into its message
        number = re.search(r"errno = (\d+)", str(error))
        reason = os.strerror(int(number[1])) if number else (str(error).splitlines() or ["unknown reason"])[0]
    return InputError(path, f"cannot be written ({reason})")
