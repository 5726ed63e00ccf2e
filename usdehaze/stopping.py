"""Ctrl-C, SIGTERM, a terminal that is closed: every command ends in one line, with nothing half-written left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
TOLD = "stopped"
PATIENCE_S = 3.0  # that cleaning up may take before another signal ends it

_asked: list[int] = []


class Stopped(KeyboardInterrupt):
    """Somebody asked for the end.

    Args:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


def check() -> None:
    """Raises what a library may have swallowed.

    Raises:
        Stopped: a signal came.
    """
    if _asked:
        raise Stopped(_asked[0])


def at_once(number: int, _: FrameType | None = None) -> None:
    """Ends the process with one line, whatever it is doing."""
    with suppress(OSError):  # of a terminal that is closed
        os.write(2, f"usdehaze: {TOLD}\n".encode())
    os._exit(128 + number)


def _signals() -> tuple[signal.Signals, ...]:
    """What asks for the end; that the terminal was closed does not under nohup."""
    closed: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none
    heeded = closed is not None and signal.getsignal(closed) is not signal.SIG_IGN
    return (*SIGNALS, closed) if closed is not None and heeded else SIGNALS


@contextmanager
def _heard(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside the block signals go to ``handle``; threads but the main one have none."""
    before = {}
    try:
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, handle) for number in _signals()}
        yield
    finally:
        _restore(before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals to stop that come inside the block act when it is over."""
    came: list[int] = []
    try:
        with _heard(lambda number, _: came.append(number)):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextmanager
def ending() -> Iterator[threading.Event]:
    """Yields an event that the first signal sets, for work without an end of its own; the next one stops as ever."""
    asked, before = threading.Event(), {number: signal.getsignal(number) for number in _signals()}

    def handle(number: int, frame: FrameType | None) -> None:
        asked.set()
        _restore(before)

    with _heard(handle):
        yield asked


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside the block the first signal raises `Stopped`; another ends the process where that has come to nothing."""
    since = 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal since
        if getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False):
            at_once(number)  # an exception within its import ends the process with a dump
        if not _asked:
            _asked.append(number)
            since = time.monotonic()
            raise Stopped(number)
        if time.monotonic() - since > PATIENCE_S:  # some senders repeat themselves at once
            at_once(number)

    def tell(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, Stopped):
            hook(unraisable)

    _asked.clear()
    hook, sys.unraisablehook = sys.unraisablehook, tell
    try:
        with _heard(handle):
            yield
    finally:
        sys.unraisablehook = hook
        _asked.clear()


def _restore(before: dict[signal.Signals, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
