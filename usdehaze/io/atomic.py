"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from usdehaze.errors import InputError


def check_target(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Finds out before long work whether ``path`` can be written afterwards.

    Raises:
        InputError: it exists and ``overwrite`` is False, it is a folder, or its folder cannot be written.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError(path, "is a folder", "the name of a file")
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


@contextmanager
def atomic(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """Yields a temporary name in the folder of ``path``; moved into place at the end, removed when anything fails.

    Missing folders are made. Works for whatever interrupts the block, Ctrl-C included; a killed process leaves at most
    a hidden ``.part`` file, never a half-written file under the final name.

    Raises:
        InputError: see `check_target`; also a full disk and every other error of the operating system.
    """
    path = Path(path)
    check_target(path, overwrite)
    part = path.parent / f".{path.name[:200]}.{secrets.token_hex(4)}.part"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        _sync(part)
        check_target(path, overwrite)
        os.replace(part, path)
        _sync(path.parent)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(path, f"cannot be written ({error.strerror or str(error).splitlines()[0]})")
