"""Whether a source is still the one that was read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from usdehaze.errors import InputError
from usdehaze.io.formats import images_in

ADVICE = "process it again once nothing writes to it any more"


@dataclass(frozen=True)
class Fingerprint:
    """Size, time of the last change and identity of a file, or of each image in a folder.

    Attributes:
        path: the file or folder.
        files: name of each file to (bytes, ns since 1970, device, inode).
    """

    path: Path
    files: dict[str, tuple[int, int, int, int]]

    @staticmethod
    def of(path: Path) -> Fingerprint:
        """As it is now; without files where it cannot be looked at."""
        try:
            paths = images_in(path) if path.is_dir() else [path]
            return Fingerprint(path, {p.name: _look(p) for p in paths})
        except (OSError, InputError):
            return Fingerprint(path, {})

    def check(self) -> None:
        """Refuses a source that is another by now.

        Raises:
            InputError: it was changed, replaced, cut off or removed; says what happened.
        """
        now = Fingerprint.of(self.path).files
        if now == self.files:
            return
        folder = len(self.files) > 1 or len(now) > 1
        if added := sorted(now.keys() - self.files.keys()):
            raise self._error(f"{added[0]} was added to it while it was read")
        for name, before in self.files.items():
            subject = f"{name} in it" if folder else ""
            if name not in now:
                raise self._error(f"{subject} was removed while it was read")
            if now[name][2:] != before[2:]:
                raise self._error(f"{subject} was replaced by another file while it was read")
            if now[name][0] != before[0]:
                sizes = f"{before[0]} bytes then, {now[name][0]} now"
                raise self._error(f"{subject} changed while it was read ({sizes})")
            if now[name] != before:
                raise self._error(f"{subject} changed while it was read")

    def _error(self, happened: str) -> InputError:
        return InputError(self.path, happened.strip(), advice=ADVICE)


def _look(path: Path) -> tuple[int, int, int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino
