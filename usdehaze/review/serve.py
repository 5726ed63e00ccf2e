"""The review page served to this machine alone, so that regions drawn on it are saved beside the result."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io.detect import beside_result
from usdehaze.plain_text import one_line
from usdehaze.validation.evaluate import write_json
from usdehaze.validation.regions import FAINT, ROLES

LOOPBACK = "127.0.0.1"
MAX_BODY_BYTES = 4 * 10**6
TIMEOUT_S = 30.0


def default_regions_path(result_path: str | os.PathLike[str]) -> Path:
    """``STEM.rois.json`` beside ``STEM.dehazed.h5``, where ``--roi FOLDER`` looks for it."""
    return beside_result(result_path, ".rois.json")


def parse_drawn(body: bytes, shape: tuple[int, int]) -> dict[str, Any]:
    """The regions that a page sends, in the form of the contract and nothing else.

    Args:
        body: JSON.
        shape: ``(H, W)`` of the frame.

    Raises:
        ValueError: it holds no such regions; the message says why.
    """
    try:
        entries = json.loads(body)["regions"]
        regions = [_region(entry, shape) for entry in entries]
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError("found no list of named polygons with a role, inside the frame") from error
    if not regions:
        raise ValueError("found no region")
    return {"regions": regions}


def _region(entry: dict[str, Any], shape: tuple[int, int]) -> dict[str, Any]:
    """Raises ValueError, KeyError or TypeError for what is no region."""
    name, role, frames = str(entry["name"]), entry["role"], entry.get("frames")
    polygon = [[float(x), float(y)] for x, y in entry["polygon"]]
    inside = all(-0.5 <= x <= shape[1] - 0.5 and -0.5 <= y <= shape[0] - 0.5 for x, y in polygon)
    if role not in (*ROLES, FAINT) or len(polygon) < 3 or not inside:
        raise ValueError
    if frames is not None and not (frames and all(type(frame) is int and frame >= 0 for frame in frames)):
        raise ValueError
    return {"name": name, "role": role, **({} if frames is None else {"frames": frames}), "polygon": polygon}


@dataclass(frozen=True)
class Review:
    """What is served.

    Attributes:
        page: the HTML file.
        regions: the JSON file that regions are saved to; replaced by every save.
        result: the result that they belong to: who may not read it may not read them.
        shape: ``(H, W)`` of its frames.
        token: the secret part of the address.
    """

    page: Path
    regions: Path
    result: Path
    shape: tuple[int, int]
    token: str


class ReviewServer(ThreadingHTTPServer):
    """Answers on the loopback address alone, and only whoever knows the random token of the address.

    Args:
        page, regions, result, shape: see `Review`.
        port: of the loopback address; 0 takes a free one.
        saved: called with the file after every save.

    Raises:
        InputError: the port cannot be had.
    """

    daemon_threads = True

    def __init__(
        self,
        page: Path,
        regions: Path,
        result: Path,
        shape: tuple[int, int],
        port: int = 0,
        saved: Callable[[Path], None] | None = None,
    ) -> None:
        self.review = Review(page, regions, result, shape, secrets.token_urlsafe(24))
        try:
            super().__init__((LOOPBACK, port), partial(_Handler, self.review, saved))
        except OSError as error:
            found = f"port {port} of {LOOPBACK} cannot be had ({error.strerror})"
            raise InputError(result, found, advice="choose another --port, or 0 for a free one") from error

    @property
    def address(self) -> str:
        """The page's URL, token and all."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.review.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    """``GET /TOKEN/`` is the page, ``POST /TOKEN/regions`` saves; everything else is not found."""

    timeout = TIMEOUT_S

    def __init__(self, review: Review, saved: Callable[[Path], None] | None, *args: Any) -> None:
        self.review, self.saved = review, saved
        super().__init__(*args)

    def do_GET(self) -> None:
        if not self._asked_for(""):
            return self._say(HTTPStatus.NOT_FOUND, "not found")
        with self.review.page.open("rb") as file:
            self._head(HTTPStatus.OK, "text/html; charset=utf-8", os.fstat(file.fileno()).st_size)
            shutil.copyfileobj(file, self.wfile)
        return None

    def do_POST(self) -> None:
        origin = f"http://{self._host()}"
        if not self._asked_for("regions") or self.headers.get("Origin", origin) != origin:
            return self._say(HTTPStatus.NOT_FOUND, "not found")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return self._say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Not saved: too large.")
        try:
            document = parse_drawn(self.rfile.read(int(length)), self.review.shape)
            write_json(self.review.regions, document, [self.review.result])
        except ValueError as error:
            return self._say(HTTPStatus.BAD_REQUEST, f"Not saved: {error}.")
        except UsdehazeError as error:
            return self._say(HTTPStatus.INTERNAL_SERVER_ERROR, one_line(f"Not saved: {error}."))
        if self.saved is not None:
            self.saved(self.review.regions)
        n = len(document["regions"])
        return self._say(HTTPStatus.OK, one_line(f"{n} region{'s' * (n != 1)} saved: {self.review.regions.name}"))

    def _host(self) -> str:
        return f"{LOOPBACK}:{self.server.server_port}"  # type: ignore[attr-defined]

    def _asked_for(self, name: str) -> bool:
        """Whether the address is the one given out; another Host is another site whose name was bent to this one."""
        wanted = f"/{self.review.token}/{name}".encode()
        known = secrets.compare_digest(self.path.encode("latin-1", "replace"), wanted)
        return known and self.headers.get("Host") == self._host()

    def _say(self, status: HTTPStatus, text: str) -> None:
        body = text.encode()
        self._head(status, "text/plain; charset=utf-8", len(body))
        self.wfile.write(body)

    def _head(self, status: HTTPStatus, kind: str, length: int) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(length)),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
        ):
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the address holds the token."""

    def version_string(self) -> str:
        return "usdehaze"
