"""The newest result as a page served to this machine alone: input, tissue and haze side by side, as Motion JPEG."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from PIL import Image

from usdehaze.live.newest import Latest
from usdehaze.live.screen import MOST_VIEWERS, TICK_S, Shown, listens
from usdehaze.loopback import LoopbackHandler, LoopbackServer
from usdehaze.page_policy import page_policy
from usdehaze.preview import picture_of

BOUNDARY = "usdehaze-frame"
QUALITY = 90


class WebScreen:
    """Serves the page, ``/TOKEN/``, its pictures, ``/TOKEN/stream``, and figures, ``/TOKEN/status``.

    Args:
        port: of the loopback address; 0 takes a free one.
        with_screen: show what lies around the images, names perhaps; it is black by default.
        line: the figures of now, in words.

    Attributes:
        address: the page's URL, token and all.

    Raises:
        InputError: the port cannot be had.
    """

    def __init__(self, port: int, with_screen: bool, line: Callable[[], str]) -> None:
        self.with_screen, self.line = with_screen, line
        self.latest = Latest[Shown]()
        self.came_s: float | None = None
        self.places = threading.BoundedSemaphore(MOST_VIEWERS)
        self._server = LoopbackServer(partial(_Handler, self), port, "live")
        self.address = self._server.address
        threading.Thread(target=self._server.serve_forever, args=(TICK_S,), daemon=True).start()

    def show(self, shown: Shown) -> None:
        self.came_s = shown.frame.came_s
        self.latest.set(shown)

    def status(self) -> dict[str, Any]:
        """Figures, and how long ago the frame on show came, s; None before the first."""
        return {"line": self.line(), "age_s": None if self.came_s is None else time.monotonic() - self.came_s}

    def close(self) -> None:
        self.latest.close()
        self._server.shutdown()
        self._server.server_close()


def page() -> str:
    """The page."""
    text = {name: files("usdehaze.live").joinpath(f"page.{name}").read_text("utf-8") for name in ("html", "css", "js")}
    policy = page_policy(text["css"], text["js"], served=True, images="'self'")
    made = text["html"].replace("{{policy}}", policy)
    return made.replace("{{css}}", text["css"]).replace("{{js}}", text["js"])


class _Handler(LoopbackHandler):
    def __init__(self, screen: WebScreen, *args: Any) -> None:
        self.screen = screen
        super().__init__(*args)

    def do_GET(self) -> None:
        if self.asked_for(""):
            self.say(HTTPStatus.OK, page(), "text/html; charset=utf-8")
        elif self.asked_for("status"):
            self.say(HTTPStatus.OK, json.dumps(self.screen.status()), "application/json")
        elif not self.asked_for("stream"):
            self.say(HTTPStatus.NOT_FOUND, "not found")
        elif not self.screen.places.acquire(blocking=False):
            self.say(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_VIEWERS} look on already")
        else:
            try:
                self._stream()
            finally:
                self.screen.places.release()

    def _stream(self) -> None:
        """Pictures, the newest each time; who looks on slowly sees fewer."""
        self.head(HTTPStatus.OK, f"multipart/x-mixed-replace; boundary={BOUNDARY}", None)
        self.wfile.write(f"--{BOUNDARY}\r\n".encode())
        seen = 0
        while not self.screen.latest.closed and listens(self.connection):
            newer = self.screen.latest.wait(seen, TICK_S)
            if newer is None:
                continue
            seen, shown = newer
            body = io.BytesIO()
            Image.fromarray(picture_of(shown.result, 0, self.screen.with_screen)).save(body, "JPEG", quality=QUALITY)
            head = f"Content-Type: image/jpeg\r\nContent-Length: {body.tell()}\r\n\r\n"
            # the next boundary comes at once: browsers show a picture when they have seen its end
            self.wfile.write(head.encode() + body.getvalue() + f"\r\n--{BOUNDARY}\r\n".encode())
