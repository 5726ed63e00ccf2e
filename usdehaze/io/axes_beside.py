"""Which way an image lies, as the lengths of arrays beside it tell that are named after its axes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import permutations
from math import prod

BY_LENGTHS = ", by the lengths of the axes beside them"
_DOWN = {"z", "depth", "depths", "axial", "r", "radius", "range"}
_ACROSS = {"x", "lat", "lateral", "theta", "angle", "angles", "azimuth"}
_MORE = {"axis", "axes", "grid", "vector", "coordinates", "coords", "m", "mm", "cm", "rad", "deg"}  # of such names


def tells_axis(name: str) -> bool:
    """Whether something of this name may be an axis of an image."""
    return _word(name) in _DOWN | _ACROSS


def by_lengths(
    order: dict[str, int], shape: tuple[int, ...], beside: Mapping[str, tuple[int, ...]], certain: str = ""
) -> dict[str, int]:
    """Axes of an image or a cine as they were guessed, with rows along the axis that is as long as depths beside them,
    and columns along the one that is as long as places across: `x` is 128 long and `z` 500, say, of 128 x 500 x 40.

    Args:
        order: axis of each letter of "THWC", as guessed.
        shape: of the array.
        beside: shapes of arrays beside it, by name or path.
        certain: letters whose axes are no guess.
    """
    down, across = (
        {prod(shape) for name, shape in beside.items() if _word(name) in words and 1 < prod(shape) == max(shape)}
        for words in (_DOWN, _ACROSS)
    )
    free = [letter for letter in "HWT" if letter in order and letter not in certain]
    if not order or len(down) != 1 or len(across) != 1 or down == across:
        return order
    for others in permutations(free):
        told = order | {letter: order[other] for letter, other in zip(free, others, strict=True)}
        if {shape[told["H"]]} == down and {shape[told["W"]]} == across:
            return told
    return order


def _word(name: str) -> str:
    """The last part of a path as one word in lower case, without what it says besides."""
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name.rpartition("/")[2]).lower().split("_")
    return "".join(words[:1] + [word for word in words[1:] if word not in _MORE])
