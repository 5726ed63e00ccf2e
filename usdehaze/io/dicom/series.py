"""How a derived series is told from its source and from other derived ones in the list of an archive."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any

from pydicom.charset import convert_encodings
from pydicom.dataset import Dataset

from usdehaze.errors import InputError
from usdehaze.io.dicom.header import whole_number, word, words

MOST_CHARACTERS = 64  # of a value of VR LO
OF_THE_MACHINE = {"device", "engine", "precision", "evaluations"}  # settings that do not tell series apart
HOW_CHARACTERS = 44  # of these, at most, for how the series was made


@dataclass(frozen=True)
class Product:
    """What a series shows.

    Attributes:
        description: beginning of Series Description.
        derivation: beginning of Derivation Description.
        code: ``(value, scheme, meaning)`` for Derivation Code Sequence.
        number: added to Series Number.
    """

    description: str
    derivation: str
    code: tuple[str, str, str]
    number: int


PRODUCTS = {
    "tissue": Product(
        "Haze removed",
        "Ultrasound with its haze removed",
        ("113062", "DCM", "Pixel by pixel subtraction"),
        1,
    ),
    "haze": Product(
        "Haze estimate",
        "Estimate of the haze in ultrasound",
        ("HAZE", "99USDEHAZE", "Haze estimate"),
        2,
    ),
}


def series_description(source: Dataset, product: Product, settings: dict[str, Any]) -> str:
    """What the series shows, the preset, the settings that are not the preset's, and the source's description."""
    preset, own = str(settings.get("preset", "no preset")), str(settings.get("own_settings", ""))
    ways = [f"{preset}, {own}", f"{preset}, own settings"] if own else [preset]
    tellings = [f"{product.description} (usdehaze {way})" for way in ways]
    told = next((telling for telling in tellings if len(telling) <= HOW_CHARACTERS), tellings[-1])[:MOST_CHARACTERS]
    before = _encodable(source, word(source, "SeriesDescription"))
    return f"{told}: {before}"[:MOST_CHARACTERS].strip() if before else told


def series_number(source: Dataset, product: Product, settings: dict[str, Any]) -> int | None:
    """1000 times the source's Series Number, plus a number of three digits made from preset, settings and networks."""
    told = {name: value for name, value in settings.items() if name not in OF_THE_MACHINE}
    how = zlib.crc32(json.dumps(told, sort_keys=True, default=str).encode())
    try:
        number = 1000 * whole_number(source, "SeriesNumber", "", 0) + 2 * (how % 450) + product.number
    except InputError:
        return None
    return number if 0 <= number < 2**31 else None


def _encodable(source: Dataset, text: str) -> str:
    """The text where the file's own character set can hold it, else ""."""
    try:
        text.encode("ascii" if text.isascii() else convert_encodings(words(source, "SpecificCharacterSet"))[0])
        return text
    except (UnicodeError, LookupError, ValueError, IndexError):
        return ""
