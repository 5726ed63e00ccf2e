"""Text from elsewhere made harmless: for terminals and logs, for messages, for spreadsheets.

Names inside files, attributes and file names may hold anything: terminal commands, half a megabyte, a formula.
"""

from __future__ import annotations

import os
import re
from typing import Any

MOST, MOST_OF_PART = 80, 800  # characters of foreign text in a message, and of a part of one
_QUOTED = re.compile(r"(?<!\w)(?:'([^']*)'|\"([^\"]*)\")(?!\w)")  # no apostrophes
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def one_line(text: str) -> str:
    """One line without control characters, which become "?": everything that is printed goes through here.

    Blanks in a row become one. Quoted text, that is text from a file, is cut at `MOST` characters.
    """
    return shortened("".join(c if c.isprintable() else "?" for c in " ".join(text.split())))


def table_line(text: str) -> str:
    """As `one_line`, with blanks as they are: a line of a table."""
    return shortened("".join(c if c.isprintable() else "?" for c in text))


def shortened(text: str) -> str:
    """Whatever stands in quotes cut at `MOST` characters, with "..." for the rest."""
    return _QUOTED.sub(_cut, text)


def _cut(quoted: re.Match[str]) -> str:
    inner = quoted[1] if quoted[1] is not None else quoted[2]
    return quoted[0] if len(inner) <= MOST else f"{quoted[0][0]}{inner[:MOST]}...{quoted[0][0]}"


def capped(text: str) -> str:
    """A part of a message, whatever went into it: `shortened`, and `MOST_OF_PART` characters at most."""
    text = shortened(text)
    return text if len(text) <= MOST_OF_PART else text[:MOST_OF_PART] + "..."


def brief(value: Any) -> str:
    """Foreign text cut at `MOST` characters, on one line, for where it stands without quotes."""
    text = one_line(str(value)[: 10 * MOST])
    return text if len(text) <= MOST else text[:MOST] + "..."


def cell(value: Any) -> Any:
    """A cell of a CSV file: text that a spreadsheet would take for a formula gets an apostrophe; "" for None."""
    if value is None:
        return ""
    return "'" + value if isinstance(value, str) and value.startswith(_FORMULA) else value


def readable(name: str) -> str:
    """A file name as text that can be stored and shown: bytes that are no UTF-8 as ``\\xNN``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def called(dataset: str) -> str:
    """What messages call a dataset by its name: "" where a file holds one array alone."""
    return f"dataset {dataset!r}" if dataset else "its array"
