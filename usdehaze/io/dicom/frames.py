"""Where each frame's bytes lie in the pixel data, so that one can be read without the others."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import BinaryIO

from pydicom.dataset import Dataset
from pydicom.encaps import parse_basic_offsets, parse_fragments

from usdehaze.errors import InputError
from usdehaze.io.dicom.header import Header, unreadable
from usdehaze.quiet import quiet

IMAGE_SIGNATURES = (b"\xff\xd8\xff", b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  ", b"\xff\x0a", b"\0\0\0\x0cJXL ")
Span = tuple[int, int]  # offset in the file, bytes
ReadFrame = Callable[[int], bytes]  # index in the file -> the frame's bytes as stored


def frames_held(header: Header, path: object) -> int:
    """How many frames encapsulated pixel data hold: entries of an offset table, or fragments that begin a stream.

    Raises:
        InputError: the encapsulation is damaged, or the file ends too early.
    """
    spans, offsets, first_item = fragments(header, path)
    relative = {start - 8 - first_item for start, _ in spans}
    for table in (_extended_offsets(header.attributes), offsets):
        if len(table) > 1 and _is_table(table, relative):
            return len(table)
    return sum(_begins_image(header.file, *span) for span in spans)


def frame_reader(header: Header, n_frames: int, frame_bytes: int, path: object, gap: int = 0) -> ReadFrame:
    """A function that reads the stored bytes of one frame.

    Args:
        header: of the file.
        n_frames: Number of Frames.
        frame_bytes: size of a frame that is not compressed.
        path: for messages.
        gap: bytes of padding after such a frame.

    Raises:
        InputError: the pixel data hold fewer frames than declared, or are cut off.
    """
    if header.pixel_length is None:
        spans = _encapsulated(header, n_frames, path)

        def spans_of(index: int) -> list[Span]:
            return spans[index]

    else:
        held = min(header.pixel_length, os.fstat(header.file.fileno()).st_size - header.pixel_start)
        if held < n_frames * (frame_bytes + gap) - gap:
            raise InputError(
                path,
                f"pixel data of {held} bytes",
                f"{n_frames * frame_bytes} bytes for {n_frames} frames of {frame_bytes} bytes",
                "the file may be cut off",
            )

        def spans_of(index: int) -> list[Span]:
            return [(header.pixel_start + index * (frame_bytes + gap), frame_bytes)]

    def read(index: int) -> bytes:
        return b"".join(_at(header.file, *span) for span in spans_of(index))

    return read


def fragments(header: Header, path: object) -> tuple[list[Span], list[int], int]:
    """Every fragment of encapsulated pixel data, the Basic Offset Table, and where its offsets count from (PS3.5 A.4).

    Raises:
        InputError: the encapsulation is damaged, or the file ends too early.
    """
    file, size = header.file, os.fstat(header.file.fileno()).st_size
    file.seek(header.pixel_start)
    try:
        with quiet():
            offsets = parse_basic_offsets(file)
            first_item = file.tell()
            _, starts = parse_fragments(file)
    except (ValueError, EOFError, OSError, struct.error):
        raise unreadable(path, "its compressed pixel data are damaged") from None
    spans: list[Span] = []
    for start in starts:
        file.seek(start + 4)
        (length,) = struct.unpack("<L", file.read(4))
        if start + 8 + length > size:
            raise InputError(path, f"the file ends within frame {len(spans)} or so", advice="the file is cut off")
        spans.append((start + 8, length))
    return spans, offsets, first_item


def _encapsulated(header: Header, n_frames: int, path: object) -> list[list[Span]]:
    """Fragments of each frame."""
    spans, offsets, first_item = fragments(header, path)
    extended = _extended_offsets(header.attributes)
    relative = [start - 8 - first_item for start, _ in spans]
    for table in (extended, offsets):
        if len(table) == n_frames and _is_table(table, set(relative)):
            place = {offset: i for i, offset in enumerate(relative)}
            firsts = [*(place[offset] for offset in table), len(spans)]
            return [spans[a:b] for a, b in pairwise(firsts)]
    if n_frames == 1 and spans:
        return [spans]
    if len(spans) > n_frames:
        ends = [i + 1 for i, span in enumerate(spans) if _ends_image(header.file, *span)]
        if len(ends) == n_frames:
            return [spans[a:b] for a, b in pairwise([0, *ends])]
        starts = [i for i, span in enumerate(spans) if _begins_image(header.file, *span)]
        if len(starts) == n_frames and starts[0] == 0:
            return [spans[a:b] for a, b in pairwise([*starts, len(spans)])]
    if len(spans) != n_frames:
        raise InputError(path, f"{len(spans)} compressed fragments", f"{n_frames} frames as Number of Frames says")
    return [[span] for span in spans]


def _is_table(table: list[int], starts: set[int]) -> bool:
    """Whether offsets of frames rise from 0 and are those of fragments."""
    return table[0] == 0 and sorted(set(table)) == table and set(table) <= starts


def _begins_image(file: BinaryIO, start: int, length: int) -> bool:
    """True for a fragment that begins like a JPEG, JPEG-LS, JPEG 2000 or JPEG XL stream, or with a header of RLE."""
    head = _at(file, start, min(length, 12))
    if head.startswith(IMAGE_SIGNATURES):
        return True
    return len(head) >= 8 and 1 <= int.from_bytes(head[:4], "little") <= 15 and head[4:8] == b"\x40\0\0\0"


def _ends_image(file: BinaryIO, start: int, length: int) -> bool:
    """True for a fragment with the marker that ends a JPEG or JPEG 2000 image, but for some padding."""
    tail = min(length, 10)
    return b"\xff\xd9" in _at(file, start + length - tail, tail)


def _extended_offsets(attributes: Dataset) -> list[int]:
    table = None
    with quiet(), suppress(Exception):  # whatever pydicom makes of a broken one
        table = attributes.get("ExtendedOffsetTable")
    if not isinstance(table, bytes) or len(table) % 8:
        return []
    return list(struct.unpack(f"<{len(table) // 8}Q", table))


def _at(file: BinaryIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    return file.read(length)
