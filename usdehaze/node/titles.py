"""Names of DICOM application entities, and the library that speaks to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from usdehaze.errors import UsdehazeError
from usdehaze.optional import needed

MAX_TITLE = 16  # characters, PS3.5 table 6.2-1


def pynetdicom() -> Any:
    """The library of the extra ``node``.

    Raises:
        UsdehazeError: it is not installed.
    """
    needed("pynetdicom.sop_class", "node")
    return needed("pynetdicom", "node")


@dataclass(frozen=True)
class Peer:
    """An application entity to send to."""

    title: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.title}@{self.host}:{self.port}"

    @staticmethod
    def parse(text: str) -> Peer:
        """From ``TITLE@HOST:PORT``.

        Raises:
            UsdehazeError: it is nothing of the kind.
        """
        title, at, place = text.partition("@")
        host, colon, port = place.rpartition(":")
        if not (at and colon and host and port.isdecimal() and 0 < int(port) < 65536):
            raise UsdehazeError(f"{text!r} is no destination; expected TITLE@HOST:PORT")
        return Peer(check_title(title), host.strip("[]"), int(port))


def check_title(title: str) -> str:
    """An AE title as PS3.5 allows it.

    Raises:
        UsdehazeError: it is not.
    """
    title = title.strip()
    if not title or len(title) > MAX_TITLE or not title.isascii() or not title.isprintable() or "\\" in title:
        raise UsdehazeError(f"{title!r} is no AE title; expected 1 to {MAX_TITLE} letters, digits and signs but \\")
    return title
