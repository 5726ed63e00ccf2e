"""Where live results are seen, on loopback: a page with Motion JPEG, and OpenIGTLink, which also brings frames in."""

import http.client
import io
import json
import socket
import threading
import time

import numpy as np
import pytest
from _live import dimmed
from _scans import fan_frames
from PIL import Image

from usdehaze.cine import Cartesian, Cine, Polar
from usdehaze.decibels import db_to_grey
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io.reading import Reading
from usdehaze.live import igtl, open_source
from usdehaze.live.igtl import IgtlScreen, IgtlSource, address_of
from usdehaze.live.screen import Shown
from usdehaze.live.stream import Frame, Sent
from usdehaze.live.web import WebScreen, page
from usdehaze.preview import picture_of

FRAMES = fan_frames(6, 64, 80, seed=5)


def shown(index, sent=None, spacing_m=None):
    frames_db = (FRAMES[index : index + 1] / np.float32(255) - 1) * 60
    result = dimmed(Cine(frames_db, Cartesian(spacing_m)))
    return Shown(result, Frame(time.monotonic(), FRAMES[index], sent=sent))


# the page


@pytest.fixture
def web():
    web = WebScreen(0, False, lambda: "all is well")
    yield web
    web.close()


def ask(web, name, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", int(web.address.split(":")[2].split("/")[0]), timeout=20)
    connection.request("GET", "/" + web.address.split("/")[3] + "/" + name, headers=headers)
    return connection.getresponse()


def test_the_page_may_speak_to_its_server_alone_and_needs_its_token(web):
    answer = ask(web, "")
    text = answer.read().decode()
    assert web.address.startswith("http://127.0.0.1:") and answer.status == 200 and text == page()
    assert "default-src 'none'; img-src 'self';" in text and "connect-src 'self'" in text and "{{" not in text
    assert ask(web, "", Host="evil.example").status == ask(web, "other").status == 404
    token = web.address.split("/")[3]
    web.address = web.address.replace(token, token[::-1])
    assert {ask(web, name).status for name in ("", "stream", "status")} == {404}


def test_pictures_are_the_newest_and_whole_when_they_arrive(web):
    assert json.loads(ask(web, "status").read()) == {"line": "all is well", "age_s": None}
    for index in (0, 1):
        web.show(shown(index))
    stream = ask(web, "stream")
    assert stream.headers["Content-Type"] == "multipart/x-mixed-replace; boundary=usdehaze-frame"
    assert stream.readline() == b"--usdehaze-frame\r\n"
    for index in (1, 4):
        if index == 4:
            web.show(shown(index))
        while b"Content-Length" not in (line := stream.readline()):
            pass
        assert stream.readline() == b"\r\n"
        picture = np.asarray(Image.open(io.BytesIO(stream.read(int(line.split()[1])))))
        assert stream.readline() == b"\r\n" and stream.readline() == b"--usdehaze-frame\r\n"  # it is over now
        assert np.abs(picture - picture_of(shown(index).result, 0).astype(float)).mean() < 3
    assert 0 <= json.loads(ask(web, "status").read())["age_s"] < 20


def test_who_has_gone_makes_room_while_no_frame_comes(web):
    web.show(shown(0))
    for _ in range(6):  # more than may look on at once
        for _ in range(200):
            stream = ask(web, "stream")
            if stream.status == 200:
                break
            time.sleep(0.05)
        assert stream.status == 200 and stream.readline()
        stream.close()


def test_a_port_that_is_taken_is_one_line(web):
    port = int(web.address.split(":")[2].split("/")[0])
    with pytest.raises(InputError, match=f"port {port} of 127.0.0.1 cannot be had"):
        WebScreen(port, False, str)


# OpenIGTLink


@pytest.fixture
def pyigtl():
    return pytest.importorskip("pyigtl", reason="the extra igtl is not installed")


class Server:
    """Sends each who connects its part of the messages, then ends the connection; the last one stays."""

    def __init__(self, *parts):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.name = f"igtl://127.0.0.1:{self.socket.getsockname()[1]}"
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._serve, args=(parts,), daemon=True)
        self.thread.start()

    def _serve(self, parts):
        for part in parts:
            connection, _ = self.socket.accept()
            with connection:
                connection.sendall(part)
                if part is parts[-1]:
                    self.done.wait(30)
        self.socket.close()


def packed(pyigtl, image, name="Image", **more):
    return pyigtl.ImageMessage(image, device_name=name, timestamp=1000.5, **more).pack()


def test_images_of_one_device_come_in_with_place_time_and_colour(pyigtl, monkeypatch):
    monkeypatch.setattr(igtl, "AGAIN_S", 0.01)
    colour = np.repeat(FRAMES[1][None, ..., None], 3, axis=3)
    colour[0, 10:20, 30:40] = 200, 30, 20
    bad = bytearray(packed(pyigtl, FRAMES[2][None]))
    bad[58 + 3] = 99  # a scalar type that there is not
    volume = packed(pyigtl, FRAMES[:3])
    text = pyigtl.StringMessage("hello", device_name="Image").pack()
    matrix = np.diag([0.5, 0.25, 1, 1])
    first = packed(pyigtl, FRAMES[0][None], ijk_to_world_matrix=matrix, world_coordinate_system="ras")
    server = Server(
        b"".join([text, first, packed(pyigtl, FRAMES[5][None], "Other"), packed(pyigtl, colour)])[:-9],  # cut off
        b"".join([bytes(bad), volume, packed(pyigtl, colour)]),
    )
    said, stop = [], threading.Event()
    source = open_source(server.name, Reading(), said.append)
    frames = source.frames(False, stop)
    frame = next(frames)
    assert (frame.values == FRAMES[0]).all() and frame.picture is None
    assert np.array_equal(frame.sent.matrix, matrix) and frame.sent.timestamp_s == pytest.approx(1000.5)
    assert frame.sent.world == "ras"
    stream = source.stream([frame])
    assert stream.geometry.spacing_m == (0.00025, 0.0005) and stream.path.name == server.name.split("/")[2]
    frame = next(frames)
    assert frame.missed == 2 and (frame.values[20:] == FRAMES[1][20:]).all()
    expected = np.ones((64, 80), bool)
    expected[10:20, 30:40] = False
    assert np.array_equal(stream.cine_of(frame).tissue_mask[0], expected)
    assert frame.values[15, 35] == round(0.299 * 200 + 0.587 * 30 + 0.114 * 20)
    stop.set()
    assert list(frames) == []
    server.done.set()
    assert "frames are those of 'Image'" in said[0] and "the connection broke" in said[1]
    assert "connected again" in said[2] and "images that cannot be used" in said[3] and len(said) == 4


def test_a_depth_that_changes_is_told_once(pyigtl):
    sent = [(0.2, 0.2), (0.2, 0.2), (0.3, 0.3), (0.3, 0.3), (0.2, 0.2)]
    matrices = [np.diag([across, down, 1, 1]) for across, down in sent]
    server = Server(b"".join(packed(pyigtl, FRAMES[:1], ijk_to_world_matrix=matrix) for matrix in matrices))
    said, stop = [], threading.Event()
    source = IgtlSource(server.name, Reading(), said.append)
    frames = source.frames(False, stop)
    source.stream([next(frames)])
    told = []
    for _ in sent[1:]:
        next(frames)
        told.append(len([line for line in said if "pixels are of another size now" in line]))
    assert told == [0, 1, 1, 1]
    stop.set()
    assert list(frames) == []
    server.done.set()


def test_what_is_no_openigtlink_and_what_is_too_large_are_one_line(pyigtl):
    header = packed(pyigtl, FRAMES[:1])[:42] + (2**40).to_bytes(8, "big") + bytes(8)
    for sent, expected in ((b"HTTP/1.1 \xff\xfe" * 9, "no OpenIGTLink"), (header, f"a message of {2**40} bytes")):
        server = Server(sent)
        with pytest.raises(InputError, match=expected):
            next(IgtlSource(server.name, Reading(), print).frames(False, threading.Event()))
        server.done.set()


def test_where_no_server_answers_and_where_the_package_is_missing(pyigtl, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    source = IgtlSource(f"igtl://127.0.0.1:{port}", Reading(), print)
    with pytest.raises(InputError, match="no OpenIGTLink server answers there"):
        next(source.frames(False, threading.Event()))
    assert address_of("igtl://plus.local/Image_Reference") == (("plus.local", 18944), "Image_Reference")
    for name in ("igtl://", "igtl://host:port"):
        with pytest.raises(InputError, match="names no server"):
            address_of(name)
    monkeypatch.setitem(__import__("sys").modules, "pyigtl", None)
    with pytest.raises(UsdehazeError, match=r"pip install \"usdehaze\[igtl\]\""):
        IgtlScreen(0)


@pytest.mark.parametrize("world", ["ras", "lps"])
def test_tissue_and_haze_go_out_to_who_connects_where_and_when_the_image_was(pyigtl, world):
    screen = IgtlScreen(0)
    client = pyigtl.OpenIGTLinkClient("127.0.0.1", screen.port)
    matrix = np.diag([0.5, 0.25, 1, 1])
    screen.show(shown(2, Sent(matrix, 1000.5, world)))
    tissue, haze = (client.wait_for_message(f"usdehaze_{name}", timeout=20) for name in ("tissue", "haze"))
    client.stop()
    result = shown(2).result
    for message, estimate in ((tissue, result.tissue), (haze, result.haze)):
        assert np.array_equal(message.image, db_to_grey(estimate, 60))
        assert np.allclose(message.ijk_to_world_matrix, matrix) and message.timestamp == pytest.approx(1000.5)
        assert message.world_coordinate_system == world
    screen.close()


def test_a_polar_cine_goes_out_with_the_spacing_of_the_fan_that_is_made_of_it():
    polar = Polar(np.linspace(0.01, 0.11, 64), np.linspace(-0.6, 0.6, 80))
    frames_db = (FRAMES[:1] / np.float32(255) - 1) * 60
    out = Shown(dimmed(Cine(frames_db, polar)), Frame(time.monotonic(), FRAMES[0]))
    height, width = out.picture("tissue").shape
    across_mm, down_mm = out.matrix[0, 0], out.matrix[1, 1]
    assert (height - 1) * down_mm == pytest.approx(110 - 10 * np.cos(0.6))
    assert (width - 1) * across_mm == pytest.approx(2 * 110 * np.sin(0.6), abs=across_mm)


def test_who_connects_late_sees_the_newest_alone_and_spacing_of_other_sources_is_told(pyigtl):
    screen = IgtlScreen(0)
    for index in range(4):
        screen.show(shown(index, spacing_m=(0.00025, 0.0005)))
    stop = threading.Event()
    frames = IgtlSource(f"igtl://127.0.0.1:{screen.port}/usdehaze_tissue", Reading(), print).frames(False, stop)
    frame = next(frames)
    assert np.array_equal(frame.values, db_to_grey(shown(3).result.tissue[0], 60))
    assert np.allclose(frame.sent.matrix, np.diag([0.5, 0.25, 1, 1])) and abs(frame.sent.timestamp_s - time.time()) < 20
    stop.set()
    assert list(frames) == []
    screen.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", screen.port), 1)
