"""HDF5 files to write, on disks that may be full."""

from __future__ import annotations

import errno
import os
import tempfile

import h5py

from usdehaze.io.hdf5.access import with_small_cache


class Hdf5Output:
    """A new HDF5 file, whose errors of the operating system come from `check` and `close` alone.

    The HDF5 library does not recover from a write that fails: it cannot close the file any more and takes the process
    down with it in the end. So it writes through a file that swallows everything after the first error, and remembers
    that one.

    Args:
        path: the file.
        reserve: bytes that are set aside beside it, and given back where the disk is full, so that it can be completed.

    Attributes:
        file: the file, open for writing.

    Raises:
        OSError: there is no room even for the reserve.
    """

    def __init__(self, path: str | os.PathLike[str], reserve: int = 0) -> None:
        self._guard = _Guard(path, reserve)
        self.file = with_small_cache(h5py.File(self._guard, "w"))

    @property
    def full(self) -> OSError | None:
        """A full disk that was met; what was written since then lies in the reserve, and there is little left."""
        return self._guard.full

    def check(self) -> None:
        """Raises the first error that was met, once everything so far is written.

        Raises:
            OSError: a full disk and the like.
        """
        if self.file:
            self.file.flush()
        if self._guard.error is not None:
            raise self._guard.error

    def close(self) -> None:
        """Completes the file; may be called again.

        Raises:
            OSError: see `check`.
        """
        self.file.close()
        self._guard.close()
        self.check()


class _Guard:
    """What h5py asks of a file object; ``error`` is the first one met, ``full`` the one that the reserve was for."""

    def __init__(self, path: str | os.PathLike[str], reserve: int) -> None:
        self.error: OSError | None = None
        self.full: OSError | None = None
        self._file = open(path, "w+b", buffering=0)
        self._reserve = tempfile.TemporaryFile(dir=os.path.dirname(path) or ".", buffering=0) if reserve else None
        try:
            left = memoryview(os.urandom(reserve))  # which no file system stores in less
            while self._reserve is not None and left:
                left = left[self._reserve.write(left) :]
        except OSError:
            self.close()
            raise

    def write(self, values: memoryview) -> int:
        left = memoryview(values).cast("B")
        while self.error is None and left:
            try:
                left = left[self._file.write(left) :]
            except OSError as error:
                self._met(error)
        return len(values)

    def _met(self, error: OSError) -> None:
        """Makes room on a disk that is full, once; any other error stays."""
        if self._reserve is not None and error.errno in (errno.ENOSPC, errno.EDQUOT):
            self._reserve.close()
            self._reserve, self.full = None, error
        else:
            self.error = error

    def read(self, size: int) -> bytes:
        return (self._file.read(size) or b"").ljust(size, b"\0")  # zeros for what was never written

    def truncate(self, size: int) -> int:
        if self.error is None:
            try:
                self._file.truncate(size)
            except OSError as error:
                self.error = error
        return size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        pass  # nothing is held back

    def close(self) -> None:
        for file in (self._file, self._reserve):
            try:
                if file is not None:
                    file.close()
            except OSError as error:
                self.error = self.error or error
