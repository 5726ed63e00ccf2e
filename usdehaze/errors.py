"""Errors a user can act on: one line each, shown without a traceback by the command line."""

from __future__ import annotations

from collections.abc import Callable


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
        text = f"{name}: {found}"
        if expected:
            text += f"; expected {expected}"
        if advice:
            text += f"; {advice}"
        super().__init__(" ".join(text.split()))

    def __reduce__(self) -> tuple[Callable[..., InputError], tuple[type[InputError], str]]:
        return _rebuilt, (type(self), str(self))


def _rebuilt(kind: type[InputError], text: str) -> InputError:
    """Unpickles an error that a worker process raised."""
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    return error
