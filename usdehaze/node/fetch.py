"""Studies from a DICOMweb server: QIDO-RS to list their ultrasound images, WADO-RS to get them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io.dicom.header import words
from usdehaze.io.dicom.modes import is_secondary
from usdehaze.node.destinations import reason_of, web_client
from usdehaze.node.receive import ULTRASOUND
from usdehaze.quiet import quiet

_CLASS, _TYPE, _SERIES, _INSTANCE = "00080016", "00080008", "0020000E", "00080018"
_ORDER = ("00200011", "00200013")  # Series Number, Instance Number


@quiet()
def fetch_study(url: str, uid: str, folder: Path, first: int = 1) -> list[Path]:
    """Fetches the ultrasound images of a study that were not made from others.

    Args:
        url: of the service, such as ``http://localhost:8042/dicom-web``.
        uid: Study Instance UID (0020,000D).
        folder: where the files go, numbered in the order of series and instance.
        first: number of the first.

    Raises:
        UsdehazeError: no server, no such study, or no ultrasound in it.
    """
    if not uid or len(uid) > 64 or not all(part.isdecimal() for part in uid.split(".")):
        raise UsdehazeError(f"{uid}: no Study Instance UID; expected digits and dots")
    client = web_client(url)
    try:
        found = _all_instances(client, uid)
    except Exception as error:  # of requests, or of the server: their text may quote what it holds
        raise _unanswered(url, error) from None
    found = [item for item in found if _value(item, _CLASS) in ULTRASOUND and not is_secondary(_values(item, _TYPE))]
    if not found:
        raise InputError(url, "has no ultrasound image in that study", advice="look for the study in the archive")
    found.sort(key=lambda item: [_number(item, tag) for tag in _ORDER])
    paths = []
    for number, item in enumerate(found, first):
        try:
            image = client.retrieve_instance(uid, _value(item, _SERIES), _value(item, _INSTANCE))
        except Exception as error:
            raise _unanswered(url, error) from None
        if is_secondary(words(image, "ImageType")):  # servers need not tell when they list
            continue
        paths.append(folder / f"dicomweb-{number:03d}.dcm")
        image.save_as(paths[-1], enforce_file_format=True)
    return paths


def _all_instances(client: Any, uid: str) -> list[dict[str, Any]]:
    """What a server tells of the instances of a study, of which it may list only so many at once (PS3.18 8.3.4.4)."""
    found: dict[str, dict[str, Any]] = {}
    while True:
        page = client.search_for_instances(uid, fields=[_CLASS, *_ORDER, _TYPE], offset=len(found))
        more = {_value(item, _INSTANCE): item for item in page}
        if found.keys() >= more.keys():  # none, or a server that begins anew
            return list(found.values())
        found |= more


def _values(item: dict[str, Any], tag: str) -> list[str]:
    return [*map(str, item.get(tag, {}).get("Value") or [""])]


def _number(item: dict[str, Any], tag: str) -> float:
    """0 where the server tells none."""
    try:
        return float(_value(item, tag))
    except ValueError:
        return 0.0


def _value(item: dict[str, Any], tag: str) -> str:
    return _values(item, tag)[0]


def _unanswered(url: str, error: Exception) -> UsdehazeError:
    return UsdehazeError(f"{url}: no answer to be used ({reason_of(error)})")
