"""pydicom kept quiet: what it warns of and logs may quote a patient's attributes."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_users = 0
_before = True


@contextmanager
def quiet() -> Iterator[None]:
    """Inside the block nothing of pydicom reaches the warnings or the log, whichever thread it runs in."""
    global _users, _before
    logger = logging.getLogger("pydicom")
    with _lock:
        if _users == 0:
            _before, logger.propagate = logger.propagate, False
        _users += 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                logger.propagate = _before
