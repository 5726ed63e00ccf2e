"""Errors a user can act on: one line each, shown without a traceback by the command line."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from usdehaze.plain_text import capped


class UsdehazeError(Exception):
    """Something the user can mend. ``str(error)`` is one line: what is wrong with what, and what to do."""


class InputError(UsdehazeError):
    """An input that cannot be used.

    Args:
        name: the file (or array) at fault, as the user named it.
        found: what was found there. Never the value of a patient's attribute.
        expected: what would have worked.
        advice: what to do about it, if there is more to say.
    """

    def __init__(self, name: object, found: str, expected: str = "", advice: str = "") -> None:
        text = f"{name}: {capped(found)}"
        if expected:
            text += f"; expected {capped(expected)}"
        if advice:
            text += f"; {capped(advice)}"
        super().__init__(" ".join(text.split()))

    def __reduce__(self) -> tuple[Callable[..., InputError], tuple[type[InputError], str]]:
        return _rebuilt, (type(self), str(self))


def foreign(error: BaseException) -> str:
    """What is known of an error that is not ours: its kind and where it arose. Its text may quote a file."""
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__} ({error.strerror})"
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__ + (f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "")


def _rebuilt(kind: type[InputError], text: str) -> InputError:
    """Unpickles an error that a worker process raised."""
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    return error
