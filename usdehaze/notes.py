"""Notes: what was found out, assumed or left out on the way from a file to its frames, one sentence each.

A note is a `str`. One on a guess, which the user can decide, is a `Guess`. They are kept in
`usdehaze.cine.Source.assumptions` and from there reach the user: ``info`` and ``process`` print them, results, review
pages and derived DICOM images keep them.
"""

from __future__ import annotations

from collections.abc import Iterable

from usdehaze.errors import InputError


class Guess(str):
    """A note on a guess that decides values.

    Attributes:
        settle: what decides it instead, for instance "--units".
    """

    settle: str

    def __new__(cls, sentence: str, settle: str) -> Guess:
        note = super().__new__(cls, sentence)
        note.settle = settle
        return note

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # pickled with what settles it
        return str(self), self.settle


def in_full(note: str) -> str:
    """A note as it is told, with what decides a guess."""
    return f"{note} Decide with {note.settle}." if isinstance(note, Guess) else note


def refuse_guesses(notes: Iterable[str], path: object) -> None:
    """What ``--strict`` does: refuses a scan of which anything had to be guessed.

    Raises:
        InputError: a note is a `Guess`.
    """
    guesses = [note for note in notes if isinstance(note, Guess)]
    if guesses:
        told = "; ".join(f"{guess.rstrip('.')} (decide with {guess.settle})" for guess in guesses)
        raise InputError(path, f"not read, as --strict allows no guess: {told}")
