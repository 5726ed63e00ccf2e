"""Pages served to this machine alone, and to whoever knows the random token of their address."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from usdehaze.errors import InputError

LOOPBACK = "127.0.0.1"
TIMEOUT_S = 30.0


class LoopbackServer(ThreadingHTTPServer):
    """Answers on the loopback address alone.

    Args:
        handler: makes the `LoopbackHandler` of a connection.
        port: of the loopback address; 0 takes a free one.
        name: of what is served, for messages.

    Attributes:
        token: the secret part of the address.

    Raises:
        InputError: the port cannot be had.
    """

    daemon_threads = True

    def __init__(self, handler: Callable[..., LoopbackHandler], port: int, name: object) -> None:
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((LOOPBACK, port), handler)
        except OSError as error:
            found = f"port {port} of {LOOPBACK} cannot be had ({error.strerror})"
            raise InputError(name, found, advice="choose another --port, or 0 for a free one") from error

    @property
    def address(self) -> str:
        """The URL, token and all."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no news."""


class LoopbackHandler(BaseHTTPRequestHandler):
    """What the answers of a `LoopbackServer` have in common."""

    timeout = TIMEOUT_S
    server: LoopbackServer

    @property
    def host(self) -> str:
        """The only name that the server goes by."""
        return f"{LOOPBACK}:{self.server.server_port}"

    def asked_for(self, name: str) -> bool:
        """Whether the address is the one given out; another Host is another site whose name was bent to this one."""
        wanted = f"/{self.server.token}/{name}".encode()
        known = secrets.compare_digest(self.path.encode("latin-1", "replace"), wanted)
        return known and self.headers.get("Host") == self.host

    def say(self, status: HTTPStatus, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        """Answers with a text."""
        body = text.encode()
        self.head(status, kind, len(body))
        self.wfile.write(body)

    def head(self, status: HTTPStatus, kind: str, length: int | None) -> None:
        """Begins an answer; one without a length goes on until the connection ends."""
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            *([] if length is None else [("Content-Length", str(length))]),
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
