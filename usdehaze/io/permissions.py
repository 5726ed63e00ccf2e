"""Who may read what is written: nobody who may not read what it was made from."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_EVERYBODY = 0o666


class Permissions:
    """Permissions of a new file: those of the file that it replaces, else as far as all of its sources have them.

    Attributes:
        most: mode to create it with; the system's own limits (umask) come on top.
    """

    def __init__(self, target: Path, sources: Iterable[str | os.PathLike[str]]) -> None:
        self._kept: os.stat_result | None = None
        with suppress(OSError):
            self._kept = target.stat()
        self.most, self._groups = _EVERYBODY, set()
        if self._kept is not None:
            self.most = 0o600 | stat.S_IMODE(self._kept.st_mode) & _EVERYBODY
            return
        for found in _files(sources):
            self.most &= found.st_mode | 0o600  # whoever writes it reads it
            if found.st_mode & 0o060 != (found.st_mode & 0o006) << 3:
                self._groups.add(found.st_gid)

    def limit(self, handle: int) -> None:
        """Takes from an open file, which may be older, what it must not have."""
        if hasattr(os, "fchmod"):
            mode = stat.S_IMODE(os.fstat(handle).st_mode)
            if mode & ~self.most:
                os.fchmod(handle, mode & self.most)

    def give(self, path: Path) -> None:
        """Gives the finished file what it is to have."""
        if os.name == "nt":
            return
        if self._kept is not None:
            with suppress(OSError):  # of a group that one is not in
                os.chown(path, -1, self._kept.st_gid)
            os.chmod(path, stat.S_IMODE(self._kept.st_mode) & 0o777)
            return
        made = path.stat()
        mode = stat.S_IMODE(made.st_mode) & self.most
        if self._groups - {made.st_gid}:  # what a source's group may, another group may not
            mode &= ~0o060 | (mode & 0o006) << 3
        os.chmod(path, mode)


def _files(sources: Iterable[str | os.PathLike[str]]) -> Iterable[os.stat_result]:
    """Status of every source: of a folder and of the files directly in it."""
    for source in sources:
        with suppress(OSError):
            found = os.stat(source)
            yield found
            if stat.S_ISDIR(found.st_mode):
                with os.scandir(source) as entries:
                    yield from [entry.stat() for entry in entries if entry.is_file()]
