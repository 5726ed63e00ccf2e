"""Which real scans may be looked at while tuning, and which are kept for final figures."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from usdehaze.errors import InputError

SHARES = ("tuning", "held-out")
SHUFFLE_SEED = 6


def split_names(names: Sequence[str], seen: Sequence[str] = (), shown: Sequence[str] = ()) -> dict[str, list[str]]:
    """A third for tuning, the rest held out.

    Args:
        names: of the scans of one set; their order does not matter.
        seen: those that were measured before there was a split; they are for tuning.
        shown: those that the simulator was drawn after; they are for tuning beyond the third.
    """
    shuffled = sorted(names)
    random.Random(SHUFFLE_SEED).shuffle(shuffled)
    order = [*seen, *(name for name in shuffled if name not in seen)]
    third = len(order) // 3
    tuning = [*order[:third], *(name for name in shown if name not in order[:third])]
    return {"tuning": tuning, "held-out": [name for name in order if name not in tuning]}


def read_patients(path: Path, share: str) -> dict[str, list[str]]:
    """Names of the scans of each set that are in a share.

    Args:
        path: the list, JSON: ``{set: {"tuning": [name, ...], "held-out": [name, ...]}}``.
        share: one of `SHARES`.

    Raises:
        InputError: a file that is no such list.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {name: list(shares[share]) for name, shares in stored.items() if isinstance(shares, dict)}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise InputError(
            path, f"not a list of patients ({type(error).__name__})", f"names by set and {share}"
        ) from error
