"""Libraries kept quiet: what pydicom warns of and logs may quote a patient's attributes."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_lock = threading.Lock()
_users = 0
_silence = ExitStack()


@contextmanager
def quiet() -> Iterator[None]:
    """Inside the block no warning is heard, and nothing of pydicom reaches the log, whichever thread it runs in.

    The first thread in sets the warning filters of the process and the last one out restores them: each on its own
    would restore what another had set.
    """
    global _users
    with _lock:
        if _users == 0:
            _silence.enter_context(_silenced())
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _silence.close()


@contextmanager
def _silenced() -> Iterator[None]:
    logger = logging.getLogger("pydicom")
    before, logger.propagate = logger.propagate, False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.propagate = before
