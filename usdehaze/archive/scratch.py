"""Scratch: a folder for what is fetched, of which nothing stays, whoever is killed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir, mkdtemp

from usdehaze.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX = "usdehaze-archive-"
_LOCK = "lock"


class Scratch:
    """A folder of one process, which holds one scan and its results at a time.

    Making one removes those of processes that are no more.

    Args:
        parent: where; the system's folder for temporary files by default.
    """

    def __init__(self, parent: str | None = None) -> None:
        self.parent = Path(parent or gettempdir())
        try:
            self.parent.mkdir(parents=True, exist_ok=True)
            sweep(self.parent)
            self.folder = Path(mkdtemp(prefix=PREFIX, dir=self.parent))
            self._lock = os.open(self.folder / f"{_LOCK}.new", os.O_RDWR | os.O_CREAT, 0o600)
            if fcntl is not None:
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                os.replace(self.folder / f"{_LOCK}.new", self.folder / _LOCK)  # from now on others look at it
        except OSError as error:
            raise InputError(self.parent, f"cannot be written ({error.strerror})") from error

    @contextmanager
    def one(self, n_bytes: int) -> Iterator[Path]:
        """An empty folder, removed in the end.

        Args:
            n_bytes: to be fetched into it.

        Raises:
            InputError: there is no room for it.
        """
        free = shutil.disk_usage(self.folder).free
        if free < n_bytes:
            raise InputError(self.parent, f"{free / 1e9:.3g} GB free", f"{n_bytes / 1e9:.3g} GB for a scan")
        with TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as folder:
            yield Path(folder)


def sweep(parent: Path) -> None:
    """Removes the folders of processes that are no more: each holds a lock in its own while it lives."""
    for lock in parent.glob(f"{PREFIX}*/{_LOCK}") if fcntl is not None else ():
        with suppress(OSError):
            handle = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(handle)
