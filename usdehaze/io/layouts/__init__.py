"""What an HDF5 file can look like: one recogniser per layout, tried in order, the most specific first.

A new layout is a module here with a function ``recognise(file, path, dataset, axes) -> Found | None``, added to
`LAYOUTS`.
"""

from __future__ import annotations

from collections.abc import Callable

import h5py

from usdehaze.io.layouts import channel, own, pairs, plain, uff, zea
from usdehaze.io.layouts.found import Found

Recogniser = Callable[[h5py.File, object, "str | None", "str | None"], "Found | None"]

LAYOUTS: tuple[Recogniser, ...] = (
    own.recognise_result,
    own.recognise_simulation,
    zea.recognise,
    uff.recognise,
    channel.recognise,
    pairs.recognise,
    plain.recognise,
)

__all__ = ["LAYOUTS", "Found", "Recogniser", "recognise"]


def recognise(file: h5py.File, path: object, dataset: str | None, axes: str | None) -> Found:
    """The frames in a file.

    Raises:
        InputError: no layout fits, or one that does finds the file wanting.
    """
    return next(filter(None, (layout(file, path, dataset, axes) for layout in LAYOUTS)))
