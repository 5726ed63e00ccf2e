"""Budget: what reading one file may cost beside the frames that are asked for, whatever kind of file it is.

=================  ==========================================================================================
memory             512 MiB
objects            one for each 16 KiB of that: groups, datasets, attributes, pages, regions; 32,768
bytes decoded      four times the memory: what is inflated on the way to the frames; 2 GiB
seconds of CPU     one for each 100 MiB of memory and for each 100 MB of the file itself; 5 and more
=================  ==========================================================================================

`max_memory` (``--max-memory``) raises all of them. A reader says `spend` before it spends; `spending` is what adds up.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from usdehaze.errors import InputError

MAX_MEMORY = 512 * 2**20
OBJECT_BYTES = 2**14
DECODED = 4
MEMORY_A_SECOND, FILE_BYTES_A_SECOND = 100 * 2**20, 10**8
MAX_TEXT = 2**24
ADVICE = "a file that is sound is read with --max-memory GB"

_memory: ContextVar[int] = ContextVar("memory", default=MAX_MEMORY)
_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


class Budget:
    """What is left for one file.

    Args:
        path: the file, whose size gives time.
        extra: bytes of memory on top, for what grows with frames that are in memory already.
    """

    def __init__(self, path: object, extra: int = 0) -> None:
        self.path, most = path, _memory.get()
        self.most_memory, self.most_objects, self.most_decoded = most + extra, most // OBJECT_BYTES, DECODED * most
        self.memory, self.objects, self.decoded = self.most_memory, self.most_objects, self.most_decoded
        self.seconds = most / MEMORY_A_SECOND + _size(path) / FILE_BYTES_A_SECOND
        self._began = time.thread_time()

    def spend(self, path: object, memory: int = 0, objects: int = 0, decoded: int = 0) -> None:
        """See the function `spend`."""
        self.memory -= memory
        self.objects -= objects
        self.decoded -= decoded
        if self.memory < 0:
            found, most = "needs more memory than its frames", f"{self.most_memory / 2**20:.4g} MiB beside them"
        elif self.objects < 0:
            found, most = "holds more objects than a scan has", f"at most {self.most_objects}"
        elif self.decoded < 0:
            found, most = "inflates to more than a scan has", f"at most {self.most_decoded / 2**30:.3g} GiB"
        elif time.thread_time() - self._began > self.seconds:
            found, most = "takes too long to look through", f"at most {self.seconds:.3g} s"
        else:
            return
        raise InputError(path or self.path, found, most, ADVICE)


def spend(path: object, memory: int = 0, objects: int = 0, decoded: int = 0) -> None:
    """Takes from the budget of the file that is being read, before it is spent; a look at the clock where it is called
    without amounts. Outside of `spending` each call is measured against a whole budget.

    Args:
        path: for the message; "" for the file whose budget it is.
        memory: bytes to be set aside and kept.
        objects: things to be read, see the table.
        decoded: bytes inflated or decoded on the way to the frames.

    Raises:
        InputError: there is not so much left.
    """
    (_current.get() or Budget(path)).spend(path, memory, objects, decoded)


@contextmanager
def spending(path: object, extra: int = 0) -> Iterator[None]:
    """One budget for all that is spent inside the block, by readers of other files too; the outermost block counts.

    Args:
        path, extra: see `Budget`.
    """
    if _current.get() is not None:
        yield
        return
    token = _current.set(Budget(path, extra))
    try:
        yield
    finally:
        _current.reset(token)


def most_memory() -> int:
    """Bytes of memory of a whole budget."""
    return _memory.get()


@contextmanager
def max_memory(n_bytes: int) -> Iterator[None]:
    """Inside the block budgets are made for so much memory, and grow with it."""
    token = _memory.set(n_bytes)
    try:
        yield
    finally:
        _memory.reset(token)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuses pipes, devices and folders, which may never end.

    Raises:
        InputError: it is one, or it is not there.
    """
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from error
    if not regular:
        raise InputError(path, "is not a regular file")


def read_text(path: str | os.PathLike[str], most: int = MAX_TEXT) -> str:
    """A text file, UTF-8 with or without a byte order mark.

    Args:
        path: the file.
        most: bytes of it.

    Raises:
        InputError: it is no regular file, larger, or cannot be read.
        UnicodeDecodeError: it is no text.
    """
    check_regular(path)
    size = _size(path)
    if size > most:
        raise InputError(path, f"is {size / 1e6:.3g} MB of text", f"at most {most / 1e6:.3g} MB")
    spend(path, memory=8 * size)  # as text, and as the lists and numbers that it becomes
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from error


def file_sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes, in hexadecimal; of however large a file in little memory."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _size(path: object) -> int:
    try:
        return os.stat(path).st_size if isinstance(path, str | os.PathLike) else 0
    except (OSError, ValueError):
        return 0
