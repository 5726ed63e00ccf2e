"""Hand-overs between threads that hold one thing, never a queue."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

_Thing = TypeVar("_Thing")


class Newest(Generic[_Thing]):
    """From one thread to one other: what was not taken yet is replaced by what is newer, and counts as dropped.

    Args:
        every: who puts waits until the last thing was taken, and nothing is dropped.

    Attributes:
        came, dropped: how many so far.
    """

    def __init__(self, every: bool = False) -> None:
        self.every, self.came, self.dropped = every, 0, 0
        self._changed = threading.Condition()
        self._thing: _Thing | None = None
        self._closed = False
        self._error: BaseException | None = None

    def put(self, thing: _Thing, missed: int = 0) -> None:
        """Hands over a thing; ``missed`` were left out before it."""
        with self._changed:
            while self.every and self._thing is not None and not self._closed:
                self._changed.wait()
            self.came += 1 + missed
            self.dropped += missed + (self._thing is not None or self._closed)
            if not self._closed:
                self._thing = thing
            self._changed.notify_all()

    def take(self, timeout_s: float) -> _Thing | None:
        """The newest thing, waited for; None where none came.

        Raises:
            BaseException: what `close` was given, once nothing is left to take.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._thing is not None or self._closed, timeout_s)
            thing, self._thing = self._thing, None
            if thing is None and self._error is not None:
                error, self._error = self._error, None
                raise error
            self._changed.notify_all()
            return thing

    @property
    def counts(self) -> tuple[int, int]:
        """How many came and were dropped, both at one moment."""
        with self._changed:
            return self.came, self.dropped

    @property
    def over(self) -> bool:
        """Nothing is left, no error either, and nothing comes any more."""
        with self._changed:
            return self._closed and self._thing is None and self._error is None

    def restart(self, thing: _Thing) -> None:
        """Counts anew, from what is there; where nothing newer is, from this thing."""
        with self._changed:
            self._thing = thing if self._thing is None else self._thing
            self.came, self.dropped = 1, 0
            self._changed.notify_all()

    def close(self, error: BaseException | None = None) -> None:
        """Nothing more comes, perhaps because of an error. What is there can still be taken."""
        with self._changed:
            self._closed, self._error = True, self._error or error
            self._changed.notify_all()

    def discard(self) -> None:
        """Nothing more is wanted: what is there counts as dropped."""
        with self._changed:
            self._closed, self._error = True, None
            self.dropped += self._thing is not None
            self._thing = None
            self._changed.notify_all()


class Latest(Generic[_Thing]):
    """From one thread to any number of others, each of which sees what is newest when it looks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._number, self._closed = 0, False
        self._thing: _Thing | None = None

    def set(self, thing: _Thing) -> None:
        """Something newer."""
        with self._changed:
            self._number, self._thing = self._number + 1, thing
            self._changed.notify_all()

    def wait(self, seen: int, timeout_s: float) -> tuple[int, _Thing] | None:
        """Number and thing, once it is another than number ``seen``; None where none came, or none comes any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._number != seen or self._closed, timeout_s)
            if self._number == seen or self._thing is None:
                return None
            return self._number, self._thing

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Nothing more comes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
