"""What decoders of other makers stumble over, as one line."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from usdehaze.errors import InputError

_NO_ROOM = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))


@contextmanager
def decoding(path: object, kind: str) -> Iterator[None]:
    """Turns whatever a decoder raises for the file at ``path`` into an `InputError`; they raise what they come across.

    Args:
        path: for the message.
        kind: what it is read as, with its article: "an image".
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:  # of what is unpacked: the file itself is only read
            found = f"cannot be unpacked into {tempfile.gettempdir()} ({error.strerror})"
            raise InputError(path, found, advice="make room there, or name another folder with TMPDIR") from None
        # only the system's and PIL's own words are known not to quote the file
        words = str(error).split("\n")[0] if isinstance(error, OSError | EOFError) else ""
        reason = words or type(error).__name__
        raise InputError(path, f"cannot be read as {kind} ({reason})", advice="it may be damaged") from None
