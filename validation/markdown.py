"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def head(title: str, names: Iterable[str]) -> list[str]:
    """First two lines of a table."""
    names = [*names]
    return [row(title, names), "|" + "---|" * (len(names) + 1)]


def row(label: str, cells: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join([label, *cells])} |"


def mean(values: Sequence[float], digits: int) -> str:
    """Mean of what there is; empty where there is nothing."""
    return f"{np.mean(values):.{digits}f}" if values else ""
