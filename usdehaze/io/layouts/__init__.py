"""What an HDF5 file can look like: one recogniser per layout, tried in order, the most specific first.

A new layout is a module here with a function ``recognise(file, path, dataset) -> Found | None``, added to `LAYOUTS`.
"""

from __future__ import annotations

from collections.abc import Callable

import h5py

from usdehaze.io.layouts import own, plain
from usdehaze.io.layouts.found import Found

Recogniser = Callable[[h5py.File, object, "str | None"], "Found | None"]

LAYOUTS: tuple[Recogniser, ...] = (own.recognise_result, own.recognise_simulation, plain.recognise)

__all__ = ["LAYOUTS", "Found", "Recogniser"]
