"""Which way an image lies, as the lengths of arrays beside it tell that are named after its axes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod

from usdehaze.io.stored_cine import StoredCine, turned

BY_LENGTHS = ", by the lengths of the axes beside them"
_DOWN = {"z", "depth", "depths", "axial", "r", "radius", "range"}
_ACROSS = {"x", "lateral", "theta", "angle", "angles", "azimuth"}
_MORE = {"axis", "axes", "grid", "vector", "coordinates", "coords", "m", "mm", "cm", "rad", "deg"}  # of such names


def tells_axis(name: str) -> bool:
    """Whether something of this name may be an axis of an image."""
    return _word(name) in _DOWN | _ACROSS


def along_axes(cine: StoredCine, shapes: Mapping[str, tuple[int, ...]]) -> StoredCine:
    """Frames whose rows and columns were guessed, turned where depths beside them are as many as their columns, and
    places across as many as their rows: `x` is 128 long and `z` 500, say, of an image of 128 x 500.

    Args:
        cine: the frames.
        shapes: of arrays beside them, by name or path.
    """
    down, across = (
        {prod(shape) for name, shape in shapes.items() if _word(name) in words and 1 < prod(shape) == max(shape)}
        for words in (_DOWN, _ACROSS)
    )
    _, height, width = cine.shape
    if not cine.guessed_axes or height == width or (down, across) != ({width}, {height}):
        return cine
    order = cine.guessed_axes.translate(str.maketrans("HW", "WH"))
    return replace(turned(cine), guessed_axes=order, axes_because=BY_LENGTHS)


def _word(name: str) -> str:
    """The last part of a path as one word in lower case, without what it says besides."""
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name.rpartition("/")[2]).lower().split("_")
    return "".join(words[:1] + [word for word in words[1:] if word not in _MORE])
