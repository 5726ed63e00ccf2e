"""Whether a result that stands was made as the next one would be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from usdehaze.io.reading import Reading
from usdehaze.provenance import FIELDS, in_words, plain

NO_MATTER = {"own_settings", "evaluations", "device", "engine"}  # told by the others, or worth the last bits alone


def wanted_of(reading: Reading) -> dict[str, Any]:
    """What the reading options decide, by the names of a result's attributes; only what they say."""
    said = {
        "source_dataset": reading.dataset,
        "source_units": reading.units,
        "dynamic_range_db": reading.dynamic_range_db,
        "first_frame": 0 if reading.frames is None else reading.frames.indices(2**31)[0],
    }
    return {name: value for name, value in said.items() if value is not None}


def made_otherwise(result: Path, wanted: Mapping[str, Any]) -> str:
    """How a result differs from what is wanted, in words; "" where it does not.

    Args:
        result: file of a result.
        wanted: settings, networks and the like, by the names of a result's attributes.

    Raises:
        InputError: the file cannot be read.
    """
    from usdehaze.io.hdf5.access import attributes, open_h5

    with open_h5(result) as file:
        stored = {name: plain(value) for name, value in attributes(file, result).items()}
    told = []
    for field in FIELDS:
        if field.name not in wanted or field.name in NO_MATTER:
            continue
        now, then = plain(wanted[field.name]), stored.get(field.name)
        if now != then and not (now is None and then is None):
            told.append(f"{field.key} {in_words(then) or 'none'}, now {in_words(now) or 'none'}")
    return "; ".join(told)
