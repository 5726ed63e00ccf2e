"""What an HDF5 file can look like: one recogniser per layout, tried in order, the most specific first.

To add a layout: a module with a function ``recognise(file, path, reading) -> StoredCine | None``, and a line here in
`LAYOUTS`.
"""

from __future__ import annotations

from collections.abc import Callable

import h5py

from usdehaze.io.hdf5.layouts import channel, itk, own, pairs, picmus, plain, uff, zea
from usdehaze.io.reading import Reading
from usdehaze.io.stored_cine import StoredCine

Recogniser = Callable[[h5py.File, object, Reading], StoredCine | None]

LAYOUTS: list[Recogniser] = [
    own.recognise_result,
    own.recognise_simulation,
    zea.recognise,
    uff.recognise,
    itk.recognise,
    picmus.recognise,
    channel.recognise,
    pairs.recognise,
    plain.recognise,
]

__all__ = ["LAYOUTS", "Recogniser", "recognise"]


def recognise(file: h5py.File, path: object, reading: Reading) -> StoredCine:
    """The frames in a file.

    Raises:
        InputError: no layout fits, or one that does finds the file wanting.
    """
    return next(filter(None, (layout(file, path, reading) for layout in LAYOUTS)))
