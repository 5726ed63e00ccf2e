"""The review page served to this machine alone, so that regions drawn on it are saved beside the result."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import Any

from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io.detect import beside_result
from usdehaze.loopback import LoopbackHandler, LoopbackServer
from usdehaze.plain_text import one_line
from usdehaze.validation.evaluate import write_json
from usdehaze.validation.regions import FAINT, ROLES

MAX_BODY_BYTES = 4 * 10**6


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
        regions: the JSON file that regions are saved to; replaced by every save, but not where it is another's.
        result: the result that they belong to: who may not read it may not read them.
        shape: ``(H, W)`` of its frames.
    """

    page: Path
    regions: Path
    result: Path
    shape: tuple[int, int]


class ReviewServer(LoopbackServer):
    """Serves the page of a review.

    Args:
        page, regions, result, shape: see `Review`.
        port: of the loopback address; 0 takes a free one.
        saved: called with the file after every save.

    Raises:
        InputError: the port cannot be had.
    """

    def __init__(
        self,
        page: Path,
        regions: Path,
        result: Path,
        shape: tuple[int, int],
        port: int = 0,
        saved: Callable[[Path], None] | None = None,
    ) -> None:
        self.review, self.saved = Review(page, regions, result, shape), saved
        self._known, self._lock = _state_of(regions), Lock()
        super().__init__(partial(_Handler, self.review, self.save), port, result)

    def save(self, document: dict[str, Any]) -> None:
        """Replaces the regions, unless somebody else did so since they were last known.

        Raises:
            UsdehazeError: somebody did, or they cannot be written.
        """
        regions = self.review.regions
        with self._lock:
            if _state_of(regions) not in (None, self._known):
                found = "was changed by somebody else meanwhile"
                raise InputError(regions.name, found, advice="move it away to save these")
            write_json(regions, document, [self.review.result])
            self._known = _state_of(regions)
        if self.saved is not None:
            self.saved(regions)


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """Tells one file of this name from another; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


class _Handler(LoopbackHandler):
    """``GET /TOKEN/`` is the page, ``POST /TOKEN/regions`` saves; everything else is not found."""

    def __init__(self, review: Review, save: Callable[[dict[str, Any]], None], *args: Any) -> None:
        self.review, self.save = review, save
        super().__init__(*args)

    def do_GET(self) -> None:
        if not self.asked_for(""):
            return self.say(HTTPStatus.NOT_FOUND, "not found")
        with self.review.page.open("rb") as file:
            self.head(HTTPStatus.OK, "text/html; charset=utf-8", os.fstat(file.fileno()).st_size)
            shutil.copyfileobj(file, self.wfile)
        return None

    def do_POST(self) -> None:
        origin = f"http://{self.host}"
        if not self.asked_for("regions") or self.headers.get("Origin", origin) != origin:
            return self.say(HTTPStatus.NOT_FOUND, "not found")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return self.say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Not saved: too large.")
        try:
            document = parse_drawn(self.rfile.read(int(length)), self.review.shape)
            self.save(document)
        except ValueError as error:
            return self.say(HTTPStatus.BAD_REQUEST, f"Not saved: {error}.")
        except UsdehazeError as error:
            return self.say(HTTPStatus.INTERNAL_SERVER_ERROR, one_line(f"Not saved: {error}."))
        n = len(document["regions"])
        return self.say(HTTPStatus.OK, one_line(f"{n} region{'s' * (n != 1)} saved: {self.review.regions.name}"))
