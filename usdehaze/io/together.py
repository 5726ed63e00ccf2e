"""Files that appear together: their names are given back to back, and a run that dies in between is finished later.

While a set gets its names, a list of them, ``.FIRST.set``, lies beside its first file: JSON, temporary name to name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from usdehaze.errors import InputError
from usdehaze.io.atomic import PART, PartFile, busy, part_name, short, sync, writing
from usdehaze.stopping import uninterrupted

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MAX_LIST = 2**16  # bytes


def prepare(parts: Sequence[PartFile]) -> None:
    """Makes sure that all files are safe on disk and may have their names, and lists them.

    Raises:
        InputError: one may not; nothing is listed then.
    """
    for part in parts:
        part.prepare()
    if len(parts) > 1:
        listed = _list_of(parts[0].target)
        with writing(listed):
            try:
                with open(listed, "w", encoding="utf-8") as file:
                    json.dump({part.path.name: part.target.name for part in parts}, file)
                sync(listed)
            except BaseException:
                listed.unlink(missing_ok=True)
                raise


def commit(parts: Sequence[PartFile]) -> None:
    """Gives prepared files their names; signals to stop wait until all have one.

    Raises:
        InputError: the system refuses a name; `finish` may be more lucky later.
    """
    try:
        with uninterrupted():
            for part in parts:
                with writing(part.target):
                    os.replace(part.path, part.target)
            _done(parts[0].target)
    finally:
        for part in parts:
            part.release()


def finish(first: Path) -> list[Path]:
    """Gives their names to files that a run completed and was killed while naming; tells which they are.

    Args:
        first: the first file of the set.

    Raises:
        InputError: that run is still at it, or the system refuses a name.
    """
    if not os.path.isfile(_list_of(first)):
        return []
    pairs = _listed(first)
    with ExitStack() as stack, uninterrupted():
        left = [(part, target) for part, target in pairs if part.is_file() and not part.is_symlink()]
        for part, target in left:
            stack.enter_context(_locked(part, target))
        for part, target in left:
            with writing(target):
                os.replace(part, target)
        _done(first)
    return [target for _, target in pairs]


def remove_left_overs(targets: Iterable[Path]) -> list[Path]:
    """Removes part files that killed runs left behind of any of these files; tells which.

    Those that another run is writing stay, and all of them where the file system has no locks to tell. Folders, which
    may be very large, are not listed.
    """
    removed = []
    for part in map(part_name, targets):
        with suppress(OSError, InputError), _locked(part, part, certainly=True):
            part.unlink()
            removed.append(part)
    return removed


def _list_of(first: Path) -> Path:
    return first.with_name(f".{short(first.name)}.set")


def _done(first: Path) -> None:
    with writing(first):
        sync(first.parent)
        _list_of(first).unlink(missing_ok=True)


def _listed(first: Path) -> list[tuple[Path, Path]]:
    """Temporary and final path of every file in the list; empty for one that was cut off: nothing was named yet."""
    try:
        with open(_list_of(first), "rb") as file:
            names = json.loads(file.read(MAX_LIST))
        pairs = [(str(part), str(target)) for part, target in names.items()]
    except (OSError, ValueError, AttributeError, RecursionError):
        return []
    plain = all(Path(name).name == name for pair in pairs for name in pair)
    if not plain or not all(p.startswith(".") and p.endswith(PART) and not t.startswith(".") for p, t in pairs):
        return []
    return [(first.with_name(part), first.with_name(target)) for part, target in pairs]


@contextmanager
def _locked(part: Path, target: Path, certainly: bool = False) -> Iterator[None]:
    """Holds the lock of a part file.

    Raises:
        InputError: another run has it; with ``certainly`` also where there are no locks to be had.
    """
    if fcntl is None:
        if certainly:
            raise busy(target)
        yield
        return
    with writing(target):
        handle = os.open(part, os.O_RDWR | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if certainly or isinstance(error, BlockingIOError):
                raise busy(target) from error
        yield
    finally:
        os.close(handle)
