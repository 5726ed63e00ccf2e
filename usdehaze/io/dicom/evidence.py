"""What the bytes of the pixel data say where the attributes about them are missing or wrong.

The attributes hold as long as the bytes fit them. Where they do not, the layout that the bytes do fit is taken, and a
sentence says so.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from pydicom import uid
from pydicom.uid import UID

from usdehaze.io.dicom.codecs import J2K_SYNTAXES, JPEG_SYNTAXES, OTHER_SYNTAXES, PixelFormat
from usdehaze.io.dicom.header import Header
from usdehaze.io.dicom.jpeg import j2k_size, parse_jpeg
from usdehaze.io.dicom.native import BY_FILE, Layout
from usdehaze.io.hdf5.layouts.resemblance import COLOUR_SHARE, shared_levels
from usdehaze.io.picture import GREY_SPREAD
from usdehaze.notes import Guess

NEUTRAL, NEUTRAL_SPREAD = 128, 10  # chroma of grey, of 255
MUCH_SMOOTHER = 0.8  # rows of the true size differ by less than this times those of another one
PLAINLY = 0.1  # share of the pixels, by which one reading must be better than another
PARTIAL_BLACK, BLACK_SHARE = 16, 0.05


def true_bits(layout: Layout, words: np.ndarray) -> Layout:
    """The layout with High Bit as the bytes have it, where it leaves out bits below those of the value.

    Args:
        layout: what else is known of them.
        words: a frame, with all of its bits.
    """
    declared, stored = layout.pixel_format, layout.pixel_format.bits_stored
    is_in_word = 0 < declared.shift <= declared.bits_allocated - stored
    if is_in_word and not ((words & 2**declared.shift - 1).any() and words.max() < 2**stored):
        return layout
    note = Guess(f"High Bit says {declared.high_bit}, but the values are in the lowest {stored} bits.", BY_FILE)
    return replace(layout, pixel_format=replace(declared, high_bit=stored - 1), notes=(*layout.notes, note))


def true_planes(header: Header, layout: Layout) -> Layout:
    """The layout with Planar Configuration as the bytes have it: in grey or tinted pictures a colour tells the others.

    Args:
        header: of a file whose pixel data are not compressed.
        layout: what else is known of them.
    """
    declared = layout.pixel_format
    if declared.samples != 3 or declared.bits_allocated != 8 or declared.subsampled:
        return layout
    data = _middle_frame(header, layout)
    if len(data) < declared.frame_bytes:
        return layout
    size = declared.rows, declared.columns
    by_pixel, by_plane = data.reshape(*size, 3).transpose(2, 0, 1), data.reshape(3, *size)
    shares = [shared_levels(channels, GREY_SPREAD / 255) for channels in (by_pixel, by_plane)]
    said, other = shares[declared.planar], shares[1 - declared.planar]
    if other < COLOUR_SHARE or other <= said + PLAINLY:
        return layout
    stored = "plane after plane" if declared.planar == 0 else "pixel after pixel"
    note = Guess(f"Planar Configuration says {declared.planar}, but the colours are stored {stored}.", BY_FILE)
    return replace(layout, pixel_format=replace(declared, planar=1 - declared.planar), notes=(*layout.notes, note))


def true_shape(layout: Layout, find_plane: Callable[[], np.ndarray]) -> Layout:
    """The layout with Rows and Columns exchanged, where only so a frame is black down its sides, and much smoother.

    Args:
        layout: what else is known of the frames, whose bytes do not tell their size.
        find_plane: reads ``(rows * columns,)``, one sample of every pixel of a frame, as stored; of another length
            where it is not known, which tells nothing. Of square frames nothing is read.
    """
    declared = layout.pixel_format
    if declared.rows == declared.columns:
        return layout
    plane = find_plane()
    if plane.size != declared.rows * declared.columns:
        return layout
    sizes = (declared.rows, declared.columns), (declared.columns, declared.rows)
    said, other = (plane.reshape(size) for size in sizes)
    rough, smooth = (float(np.abs(np.diff(picture.astype(np.int32), axis=0)).mean()) for picture in (said, other))
    if not said[:, [0, -1]].any() or other[:, [0, -1]].any() or smooth > MUCH_SMOOTHER * rough:
        return layout
    exchanged, note = _exchanged(declared)
    return replace(layout, pixel_format=exchanged, notes=(*layout.notes, note))


def stored_plane(header: Header, layout: Layout) -> np.ndarray:
    """The first sample of every pixel of a frame that is not compressed; nothing of subsampled chroma."""
    declared, data = layout.pixel_format, _middle_frame(header, layout)
    if declared.subsampled or len(data) < declared.frame_bytes:
        return np.empty(0, np.uint8)
    order = ">" if header.transfer_syntax == uid.ExplicitVRBigEndian else "<"
    words = data.view(f"{order}u{declared.bits_allocated // 8}")
    return words[: words.size // declared.samples] if declared.planar else words[:: declared.samples]


def _exchanged(declared: PixelFormat) -> tuple[PixelFormat, Guess]:
    """Frames whose Rows are those of the attributes' Columns, and a note."""
    rows, columns = declared.columns, declared.rows
    note = f"The attributes say {columns} rows of {rows} pixels, but the pixels are {rows} rows of {columns}."
    return replace(declared, rows=rows, columns=columns), Guess(note, BY_FILE)


def _middle_frame(header: Header, layout: Layout) -> np.ndarray:
    """The bytes of a frame in the middle of pixel data that are not compressed."""
    size = layout.pixel_format.frame_bytes
    before = layout.n_frames // 2 * (size + layout.gap)
    header.file.seek(header.pixel_start + min(before, header.pixel_length or 0))  # there may be fewer than are said
    return np.frombuffer(header.file.read(size), np.uint8)


def is_full_range(luma: np.ndarray) -> bool:
    """Whether luma ``(H, W)`` uint8 that is labelled as one of 16 to 235 (YBR_PARTIAL) has a black of its own below."""
    return float(np.mean(luma < PARTIAL_BLACK // 2)) > BLACK_SHARE


def stream_layout(stream: bytes, declared: PixelFormat, syntax: UID) -> tuple[PixelFormat, UID, tuple[str, ...]]:
    """What a compressed frame says of itself: its pixels, and the transfer syntax that it is of; and notes."""
    family, size = syntax, None
    notes: list[str] = []
    try:
        if stream.startswith(b"\xff\xd8"):
            info = parse_jpeg(stream)
            size = info.rows, info.columns, info.components, info.precision
            if info.ycbcr is not None and info.components == 3 and info.ycbcr != declared.photometric.startswith("YBR"):
                found = "YCbCr" if info.ycbcr else "RGB"
                notes.append(f"Photometric Interpretation says {declared.photometric}, but the frames are {found}.")
            if syntax not in (uid.JPEGLSTransferSyntaxes if info.is_jpeg_ls else JPEG_SYNTAXES):
                family = uid.JPEGLSLossless if info.is_jpeg_ls else uid.JPEGBaseline8Bit
        elif stream.startswith((b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  ")):
            size = j2k_size(stream)[:4]
            family = syntax if syntax in J2K_SYNTAXES else uid.JPEG2000
        elif syntax == uid.RLELossless:  # a segment for each byte of a pixel
            bits = declared.bits_allocated
            size = declared.rows, declared.columns, 8 * stream[0] // bits, bits
    except (ValueError, IndexError, struct.error):  # the decoder will say what is wrong with it
        return declared, syntax, ()
    if size is None or syntax not in JPEG_SYNTAXES | OTHER_SYNTAXES:
        return declared, syntax, ()
    if family != syntax:
        notes.append(f"The transfer syntax says {syntax.name}, but the frames are {_FAMILIES[family]} streams.")
    rows, columns, components, precision = size
    if (rows, columns) == (declared.columns, declared.rows) and rows != columns:
        declared, note = _exchanged(declared)
        notes.append(note)
    pixel_format = declared
    if components != declared.samples and {components, declared.samples} == {1, 3}:
        if declared.photometric != "PALETTE COLOR":
            is_grey, colours = components == 1, "YBR_FULL" if family in JPEG_SYNTAXES else "RGB"
            pixel_format = replace(
                declared, samples=components, photometric="MONOCHROME2" if is_grey else colours, planar=0
            )
            notes.append(f"Samples per Pixel says {declared.samples}, but the frames have {components}.")
    if precision == declared.bits_allocated >= declared.bits_stored:  # whole words, the bits in them as declared
        return pixel_format, family, tuple(notes)
    allocated = max(declared.bits_allocated, 8 if precision <= 8 else 16)
    pixel_format = replace(pixel_format, bits_allocated=allocated, bits_stored=precision, high_bit=precision - 1)
    if precision != declared.bits_stored:
        notes.append(f"Bits Stored says {declared.bits_stored}, but the frames have {precision}.")
    return pixel_format, family, tuple(notes)


_FAMILIES = {uid.JPEGLSLossless: "JPEG-LS", uid.JPEGBaseline8Bit: "JPEG", uid.JPEG2000: "JPEG 2000"}


def true_colours(samples: np.ndarray, photometric: str) -> str | None:
    """The other reading of three samples, "RGB" or "YBR_FULL", where it alone makes a grey picture of them.

    Args:
        samples: ``(H, W, 3)`` uint8.
        photometric: how they are labelled.

    Returns:
        None where the label stands. It does unless most pixels are grey under the other one, and far fewer under it.
    """
    chroma = np.abs(samples[..., 1:].astype(np.int16) - NEUTRAL).max(axis=-1)
    as_ybr = float(np.mean(chroma <= NEUTRAL_SPREAD))
    as_rgb = float(np.mean(np.ptp(samples, axis=-1) <= GREY_SPREAD))
    if photometric.startswith("YBR"):
        return "RGB" if as_rgb > max(0.5, as_ybr + 0.3) else None
    return "YBR_FULL" if as_ybr > max(0.5, as_rgb + 0.3) else None
