"""What a JPEG, JPEG-LS or JPEG 2000 stream says of itself (ITU-T T.81 B.1, T.87 C.2, T.800 A.5.1); a JPEG XL's size."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_FRAME_MARKERS = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC} | {0xF7}
_JPEG_LS_FRAME = 0xF7
_APP0, _APP14, _START_OF_SCAN = 0xE0, 0xEE, 0xDA
_XL_RATIOS = {1: (1, 1), 2: (12, 10), 3: (4, 3), 4: (3, 2), 5: (16, 9), 6: (5, 4), 7: (2, 1)}
_ADOBE_NO_TRANSFORM = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"


@dataclass(frozen=True)
class JpegInfo:
    """A stream's frame header.

    Attributes:
        precision: bits a sample.
        rows, columns, components: of the frame.
        ycbcr: True or False where the stream says that its three components are YCbCr or RGB, None where it does not.
            Chroma alone is subsampled: components of several sizes are YCbCr, whatever else is said.
        is_jpeg_ls: whether it is a JPEG-LS stream.
    """

    precision: int
    rows: int
    columns: int
    components: int
    ycbcr: bool | None
    is_jpeg_ls: bool = False


def parse_jpeg(stream: bytes) -> JpegInfo:
    """Reads the markers up to the frame header.

    Raises:
        ValueError: it is no JPEG stream, or has no frame header.
    """
    ycbcr: bool | None = None
    for marker, start, end in _segments(stream):
        payload = stream[start + 4 : end]
        if marker == _APP0 and payload.startswith(b"JFIF"):
            ycbcr = True
        elif marker == _APP14 and payload.startswith(b"Adobe") and len(payload) >= 12 and ycbcr is None:
            ycbcr = payload[11] == 1
        elif marker in _FRAME_MARKERS and len(payload) >= 6:
            precision, rows, columns, components = struct.unpack(">BHHB", payload[:6])
            if payload[6::3] in (b"RGB", b"rgb"):
                ycbcr = False
            if components == 3 and len({*payload[7::3]}) > 1:
                ycbcr = True
            return JpegInfo(precision, rows, columns, components, ycbcr, marker == _JPEG_LS_FRAME)
    raise ValueError("no frame header")


def with_raw_components(stream: bytes) -> bytes:
    """The stream, relabelled so that decoders hand out its three components without a change of colour space."""
    kept, last = [stream[:2], _ADOBE_NO_TRANSFORM], 2
    for marker, start, end in _segments(stream):
        if marker not in (_APP0, _APP14):
            kept.append(stream[start:end])
        last = end
    return b"".join(kept) + stream[last:]


def jpeg_xl_size(stream: bytes) -> tuple[int, int]:
    """Rows and columns in the size header of a JPEG XL codestream, bare or in a container (ISO/IEC 18181-1, 18181-2).

    Raises:
        ValueError: there is none.
    """
    start = 0
    if not stream.startswith(b"\xff\x0a"):
        box, size = (b"jxlc", 4) if b"jxlc" in stream[:4096] else (b"jxlp", 8)
        start = stream.index(box, 0, 4096) + size
    if stream[start : start + 2] != b"\xff\x0a":
        raise ValueError("no JPEG XL codestream")
    bits, at = int.from_bytes(stream[start + 2 : start + 14], "little"), 0

    def take(n: int) -> int:
        nonlocal at
        at += n
        return bits >> (at - n) & (1 << n) - 1

    small = take(1)

    def side() -> int:
        return 8 * (take(5) + 1) if small else take((9, 13, 18, 30)[take(2)]) + 1

    rows, ratio = side(), take(3)
    if ratio == 0:
        return rows, side()
    over, under = _XL_RATIOS[ratio]
    return rows, rows * over // under


def j2k_size(stream: bytes) -> tuple[int, int, int, int, bool]:
    """Rows, columns, components, bits a sample and whether they are signed, in a JPEG 2000 codestream's SIZ segment.

    Raises:
        ValueError: there is none.
    """
    at = stream.index(b"\xff\x4f\xff\x51")
    try:
        right, bottom, left, top = struct.unpack(">4L", stream[at + 8 : at + 24])
        components, precision = struct.unpack(">HB", stream[at + 40 : at + 43])
    except struct.error:
        raise ValueError("a SIZ segment that is cut off") from None
    return bottom - top, right - left, components, (precision & 0x7F) + 1, precision > 0x7F


def _segments(stream: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, start and end of every segment up to the header of the first scan, that one included."""
    if stream[:2] != b"\xff\xd8":
        raise ValueError("not a JPEG stream")
    at = 2
    while at + 4 <= len(stream) and stream[at] == 0xFF:
        marker = stream[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        (length,) = struct.unpack(">H", stream[at + 2 : at + 4])
        if length < 2:
            raise ValueError("a marker segment without a length")
        yield marker, at, at + 2 + length
        at += 2 + length
        if marker == _START_OF_SCAN:
            return
