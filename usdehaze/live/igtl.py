"""OpenIGTLink, which 3D Slicer and PLUS speak: images in from a server, images out to whoever connects.

Messages are packed and unpacked by pyigtl. Connections are our own: nothing is queued, and a broken one is one line.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from usdehaze.errors import InputError
from usdehaze.geometry.sector import FRAMES_USED
from usdehaze.io.dicom.colour import luma
from usdehaze.io.picture import Picture
from usdehaze.io.reading import Reading
from usdehaze.live.newest import Latest
from usdehaze.live.screen import MOST_VIEWERS, TICK_S, Shown, listens
from usdehaze.live.stream import Frame, Frames, FrameSource, Sent, Stream, found_in
from usdehaze.loopback import LOOPBACK
from usdehaze.optional import needed
from usdehaze.plain_text import brief

SCHEME, PORT = "igtl://", 18944
EXTRA = "igtl"
HEADER_BYTES = 58
MOST_BYTES = 2**26  # of a message
PATIENCE_S = 5.0  # to connect, and for the rest of a message that has begun
AGAIN_S = 0.5  # until the next try to connect


class Gone(Exception):
    """The connection has ended."""


class IgtlSource(FrameSource):
    """The images of one device of an OpenIGTLink server: the one that is named, else the first that comes.

    A connection that breaks is made again. Colours become their luma, and what is coloured stays as it is.

    Args:
        name: "igtl://HOST[:PORT][/DEVICE]".
        reading: what the images leave unsaid.
        tell: told of connections that break.

    Raises:
        InputError: no such name.
        UsdehazeError: pyigtl is not installed.
    """

    first_frames = FRAMES_USED

    def __init__(self, name: str, reading: Reading, tell: Callable[[str], None]) -> None:
        self._messages = needed("pyigtl", EXTRA).messages
        self.name, self._reading, self._tell = name, reading, tell
        self._address, self._device = address_of(name)
        self._spacing_m: tuple[float, float] | None = None  # of the frame that came last
        self._found_m: tuple[float, float] | None = None  # of those that the fan was found in, until another is told
        self._missed, self._told = 0, False  # images since the last frame that could not be used; whether any was told

    def frames(self, every: bool, stop: Event) -> Frames:
        connection = self._connect()
        while not stop.is_set():
            try:
                with connection:
                    while not stop.is_set():
                        frame = self._receive(connection, stop)
                        if frame is not None:
                            yield frame
            except (OSError, Gone) as error:
                if not stop.is_set():
                    self._tell(f"{self.name}: the connection broke ({_reason(error)}); trying again")
            while not stop.wait(AGAIN_S):
                try:
                    connection = self._connect()
                except InputError:
                    continue
                self._tell(f"{self.name}: connected again")
                break

    def _connect(self) -> socket.socket:
        try:
            connection = socket.create_connection(self._address, PATIENCE_S)
        except OSError as error:
            found = f"no OpenIGTLink server answers there ({_reason(error)})"
            raise InputError(self.name, found, advice="start it, or name another: igtl://HOST:PORT") from error
        connection.settimeout(TICK_S)
        return connection

    def _receive(self, connection: socket.socket, stop: Event) -> Frame | None:
        """The next message, if it is an image of the device."""
        header = _read(connection, HEADER_BYTES, stop, patient=True)
        try:
            fields = self._messages.MessageBase.parse_header(bytes(header))
        except ValueError as error:  # names that are no text
            raise InputError(self.name, "sends what is no OpenIGTLink") from error
        size, device = fields["body_size"], fields["device_name"]
        if size > MOST_BYTES:
            raise InputError(self.name, f"sends a message of {size} bytes", f"at most {MOST_BYTES}")
        body, came_s = _read(connection, size, stop), time.monotonic()
        if fields["message_type"] != "IMAGE" or self._device not in ("", device):
            return None
        image = self._messages.ImageMessage()
        try:
            image.unpack(fields, bytes(body))
            frame = self._frame(image, came_s)
        except (ValueError, KeyError, IndexError, TypeError, NotImplementedError, struct.error) as error:
            if not self._told:
                self._tell(f"{self.name}: sends images that cannot be used ({_reason(error)})")
            self._missed, self._told = self._missed + 1, True
            return None
        self._missed = 0
        if self._found_m and self._spacing_m and not np.allclose(self._found_m, self._spacing_m, rtol=0.01, atol=0):
            self._found_m = None
            self._tell(f"{self.name}: pixels are of another size now, the depth has changed; start again")
        if not self._device:
            self._device = device
            self._tell(f"{self.name}: frames are those of {brief(device)!r}")
        return frame

    def _frame(self, image: Any, came_s: float) -> Frame:
        values = image.image
        if values.shape[0] != 1 or (values.ndim == 4 and values.shape[3] not in (3, 4)):
            raise ValueError(f"it has the shape {values.shape}, not one slice")
        values = values[0].astype(values.dtype.newbyteorder("="))
        sent = Sent(image.ijk_to_world_matrix, image.timestamp, image.world_coordinate_system)
        across, down = np.linalg.norm(sent.matrix[:3, :2], axis=0)
        known = across > 0 and down > 0 and not across == down == 1  # 1 mm is what is sent where nothing is known
        self._spacing_m = (float(down) / 1000, float(across) / 1000) if known else None
        if values.ndim == 2:
            return Frame(came_s, values, missed=self._missed, sent=sent)
        if values.dtype != np.uint8:
            raise ValueError(f"its colours are {values.dtype}, not bytes")
        grey = luma(values[..., :3])
        return Frame(came_s, grey, lambda: Picture(grey, values[..., :3]), missed=self._missed, sent=sent)

    def stream(self, first: list[Frame]) -> Stream:
        self._found_m = self._spacing_m
        return found_in(first, self.name, self._reading, "OpenIGTLink", self._spacing_m)


def address_of(name: str) -> tuple[tuple[str, int], str]:
    """Host, port and device ("" for any) of "igtl://HOST[:PORT][/DEVICE]".

    Raises:
        InputError: it is none.
    """
    try:
        parts = urlsplit(name)
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        host, port = None, 0
    if not host:
        raise InputError(name, "names no server", f"igtl://HOST:PORT; port {PORT} by default")
    return (host, port), parts.path.strip("/")


def _read(connection: socket.socket, size: int, stop: Event, patient: bool = False) -> bytearray:
    """So many bytes; who is ``patient`` waits for the first of them as long as it takes.

    Raises:
        Gone: the connection has ended, or the rest does not come, or no more is wanted.
    """
    data = bytearray(size)
    view, done, last_s = memoryview(data), 0, time.monotonic()
    while done < size:
        try:
            n_bytes = connection.recv_into(view[done:])
        except TimeoutError:
            if stop.is_set():
                raise Gone("no more is wanted") from None
            if time.monotonic() - last_s > PATIENCE_S and not (patient and done == 0):
                raise Gone("the rest of a message did not come") from None
            continue
        if n_bytes == 0:
            raise Gone("the other side has ended it")
        done, last_s = done + n_bytes, time.monotonic()
    return data


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__


class IgtlScreen:
    """An OpenIGTLink server on the loopback address: images "usdehaze_tissue" and "usdehaze_haze" to who connects.

    They have the place and the time of the images that came in by OpenIGTLink; of other sources the pixel spacing, and
    the time at which the frame was here.

    Args:
        port: of the loopback address; 0 takes a free one.

    Attributes:
        port: the one taken.

    Raises:
        InputError: the port cannot be had.
        UsdehazeError: pyigtl is not installed.
    """

    def __init__(self, port: int) -> None:
        self._messages = needed("pyigtl", EXTRA).messages
        self._latest = Latest[Shown]()
        try:
            self._server = socket.create_server((LOOPBACK, port))
        except OSError as error:
            found = f"port {port} of {LOOPBACK} cannot be had ({_reason(error)})"
            raise InputError("OpenIGTLink", found, advice="choose another --igtl, or 0 for a free one") from error
        self.port = int(self._server.getsockname()[1])
        self._places = threading.BoundedSemaphore(MOST_VIEWERS)
        self._server.settimeout(TICK_S)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def show(self, shown: Shown) -> None:
        self._latest.set(shown)

    def close(self) -> None:
        self._latest.close()
        self._thread.join()

    def _accept(self) -> None:
        while not self._latest.closed:
            try:
                connection, _ = self._server.accept()
            except OSError:  # nobody for a while, or gone already
                continue
            if self._places.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                connection.close()
        self._server.close()

    def _serve(self, connection: socket.socket) -> None:
        """Sends what is newest, again and again, until nobody listens any more."""
        seen = 0
        try:
            with suppress(OSError), connection:
                connection.settimeout(PATIENCE_S)
                while not self._latest.closed and listens(connection):
                    newer = self._latest.wait(seen, TICK_S)
                    if newer is not None:
                        seen, shown = newer
                        for estimate in ("tissue", "haze"):
                            connection.sendall(self._packed(shown, estimate))
        finally:
            self._places.release()

    def _packed(self, shown: Shown, estimate: str) -> bytes:
        sent, ago_s = shown.frame.sent, time.monotonic() - shown.frame.came_s
        message = self._messages.ImageMessage(
            shown.picture(estimate)[None],
            ijk_to_world_matrix=shown.matrix,
            world_coordinate_system=None if sent is None else sent.world,
            timestamp=time.time() - ago_s if sent is None else sent.timestamp_s,
            device_name=f"usdehaze_{estimate}",
        )
        return bytes(message.pack())
