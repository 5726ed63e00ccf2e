"""What the bytes of the pixel data say where the attributes about them are missing or wrong.

The attributes hold as long as the bytes fit them. Where they do not, the layout that the bytes do fit is taken, and a
sentence says so.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import numpy as np
from pydicom import uid
from pydicom.uid import UID

from usdehaze.errors import InputError
from usdehaze.io.dicom.codecs import J2K_SYNTAXES, JPEG_SYNTAXES, PixelFormat
from usdehaze.io.dicom.header import Header
from usdehaze.io.dicom.jpeg import j2k_size, parse_jpeg
from usdehaze.io.hdf5.layouts.resemblance import COLOUR_SHARE, shared_levels
from usdehaze.io.picture import GREY_SPREAD
from usdehaze.notes import Guess

NEUTRAL, NEUTRAL_SPREAD = 128, 10  # chroma of grey, of 255
BY_FILE = "attributes that fit the pixel data"
PLAINLY = 0.1  # share of the pixels, by which one reading must be better than another
PARTIAL_BLACK, BLACK_SHARE = 16, 0.05
MUCH_SMOOTHER = 0.9  # rows of the true layout differ by less than this times those of another one


@dataclass(frozen=True)
class Layout:
    """How many frames of which pixels there are.

    Attributes:
        pixel_format: of the frames.
        n_frames: in the file.
        notes: where the attributes say otherwise, one sentence each.
        gap: bytes of padding after each frame that is not compressed.
    """

    pixel_format: PixelFormat
    n_frames: int
    notes: tuple[str, ...] = ()
    gap: int = 0


def native_layout(header: Header, declared: PixelFormat, said: int | None, path: object) -> Layout:
    """Layout of pixel data that are not compressed, by their length.

    Args:
        header: of the file.
        declared: what the attributes say of a frame.
        said: Number of Frames; None where it is missing.
        path: for messages.

    Raises:
        InputError: subsampled chroma in an odd number of columns, or a length, that no layout explains.
    """
    length = header.pixel_length or 0
    quarter = 3 * declared.rows * declared.columns // 2 * (said or 1)
    if declared.photometric.endswith("_420") and 0 <= length - quarter <= 1:
        raise InputError(path, "chroma of every fourth pixel in pixel data that are not compressed", "a film, or RGB")

    def fits(pixel_format: PixelFormat, n_frames: int) -> bool:
        left = length - n_frames * pixel_format.frame_bytes
        return 0 <= left <= 1 or _pads_each(pixel_format, n_frames, left)  # even length: PS3.5 7.1

    def layout(pixel_format: PixelFormat, n_frames: int, *notes: str) -> Layout:
        padded = _pads_each(pixel_format, n_frames, length - n_frames * pixel_format.frame_bytes)
        return Layout(pixel_format, n_frames, (*notes, *([gap_note(1)] if padded else [])), int(padded))

    expected = 1 if said is None else said
    if fits(declared, expected) and not (declared.subsampled and declared.columns % 2):
        return layout(declared, expected)
    others = _others(declared)
    found = [(other, expected) for other in others if fits(other, expected)]
    for other in (declared, *others):
        size = other.frame_bytes
        found += [(other, n) for n in sorted({length // size, length // (size + 1)}) if n > expected and fits(other, n)]
    if declared.subsampled and declared.columns % 2:
        found = [(f, n) for f, n in found if not f.subsampled or f.rows * f.columns % 2 == 0 or f.padded]
        if not found:
            odd = f"{declared.photometric} with an odd number of columns ({declared.columns})"
            raise InputError(path, odd, "an even number, or Pixel Data of 3 bytes a pixel")
    found = [(f, n) for f, n in found if f == declared or _may_be(f, declared, header)]
    if not found:
        return _with_padding(header, declared, said, path)
    best, n_frames = _smoothest(found, header) if len(found) > 1 else found[0]
    notes = []
    if n_frames != said and n_frames > 1:
        notes.append(count_note(said, n_frames))
    if best != declared:
        note = f"{_words(declared)} in the attributes, but the length of the pixel data is that of {_words(best)}."
        notes.append(Guess(note, BY_FILE))
    return layout(best, n_frames, *notes)


def _pads_each(pixel_format: PixelFormat, n_frames: int, left: int) -> bool:
    """Whether bytes left over are one after each of several frames of odd size."""
    return left == n_frames > 1 and pixel_format.frame_bytes % 2 == 1


def _with_padding(header: Header, declared: PixelFormat, said: int | None, path: object) -> Layout:
    """Layout of pixel data with some bytes more than whole frames, fewer than one a row or column of each frame.

    Raises:
        InputError: there are more, or nothing shows whether they follow each frame or the last one.
    """
    length, size = header.pixel_length or 0, declared.frame_bytes
    n_frames = max(said or 1, length // size)
    left = length - n_frames * size
    if left < 0:
        return Layout(declared, n_frames)  # the reader of frames will say how much is missing
    notes, gap = [count_note(said, n_frames)] if n_frames > (said or 1) else [], left // n_frames
    known = left < n_frames * min(declared.rows, declared.columns) * declared.bits_allocated // 8
    if known and n_frames > 1 and left % n_frames == 0 and (size + gap) % 2 == 0:
        first, at_end, after_each = (_frame_at(i * (n_frames - 1), declared, header) for i in (0, size, size + gap))
        if min(len(at_end), len(after_each)) < size:
            raise InputError(path, f"the file ends within frame {n_frames - 1}", advice="the file is cut off")
        changes = [float(np.abs(last - first).mean()) for last in (at_end, after_each)]
        if changes[1] < MUCH_SMOOTHER * changes[0]:
            return Layout(declared, n_frames, (*notes, gap_note(gap)), gap)
        known = changes[0] <= MUCH_SMOOTHER * changes[1]
    if not known:
        expected = f"{n_frames * size} bytes for {n_frames} frames of {size} bytes"
        advice = "Rows, Columns, bits or Number of Frames may be wrong: write the file again as DICOM"
        raise InputError(path, f"pixel data of {length} bytes", expected, advice)
    return Layout(declared, n_frames, tuple(notes))


def gap_note(gap: int) -> Guess:
    """That frames are padded one by one."""
    return Guess(f"Each frame is followed by padding (bytes: {gap}).", BY_FILE)


def count_note(said: int | None, n_frames: int) -> Guess:
    """That Number of Frames is missing or too small, and how many there are."""
    missing = "is missing" if said is None else f"says {said}"
    return Guess(f"Number of Frames {missing}: the pixel data hold {n_frames} frames.", BY_FILE)


def _words(pixel_format: PixelFormat) -> str:
    bits = f" of {pixel_format.bits_allocated} bits" if pixel_format.bits_allocated > 8 else ""
    if pixel_format.samples == 1:
        return f"grey pixels{bits}"
    chroma = "subsampled chroma" if pixel_format.subsampled else "3 samples a pixel"
    return f"{pixel_format.photometric.removesuffix('_422')} with {chroma}{bits}"


def _others(declared: PixelFormat) -> list[PixelFormat]:
    """Layouts that files turn out to have beside the declared one, by bytes a pixel."""
    if declared.samples == 1:
        others = []
        if declared.photometric != "PALETTE COLOR" and declared.bits_allocated == 8:
            others.append(replace(declared, photometric="RGB", samples=3, planar=0))
        if declared.bits_stored <= 8:
            others.append(replace(declared, bits_allocated=24 - declared.bits_allocated))
        return others
    if declared.bits_allocated != 8:
        return []
    grey = replace(declared, photometric="MONOCHROME2", samples=1, planar=0)
    if not declared.subsampled:
        family = "YBR_FULL" if declared.photometric == "RGB" else declared.photometric.removesuffix("_420")
        pairs = replace(declared, photometric=f"{family}_422", planar=0)
        return [grey, *([] if declared.columns % 2 else [pairs])]
    whole = replace(declared, photometric=declared.photometric.removesuffix("_422"))
    if declared.columns % 2:
        return [whole, declared, replace(declared, padded=True), grey]
    return [whole, grey]


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
    header.file.seek(header.pixel_start + layout.n_frames // 2 * (declared.frame_bytes + layout.gap))
    data = np.frombuffer(header.file.read(declared.frame_bytes), np.uint8)
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


def is_full_range(luma: np.ndarray) -> bool:
    """Whether luma ``(H, W)`` uint8 that is labelled as one of 16 to 235 (YBR_PARTIAL) has a black of its own below."""
    return float(np.mean(luma < PARTIAL_BLACK // 2)) > BLACK_SHARE


def _frame_at(offset: int, pixel_format: PixelFormat, header: Header) -> np.ndarray:
    """Its bytes."""
    header.file.seek(header.pixel_start + offset)
    return np.frombuffer(header.file.read(pixel_format.frame_bytes), np.uint8).astype(np.int16)


def _may_be(pixel_format: PixelFormat, declared: PixelFormat, header: Header) -> bool:
    """False where grey pixels would be read as colours or words, though the bytes are neither."""
    if declared.samples > 1 or len(data := _frame_at(0, pixel_format, header)) < pixel_format.frame_bytes:
        return True
    if pixel_format.samples == 3:
        lit = data.reshape(-1, 3)[data.reshape(-1, 3).max(axis=1) > GREY_SPREAD]
        return bool(np.mean(np.ptp(lit, axis=1) <= GREY_SPREAD) > 0.8)
    high = 0 if header.transfer_syntax == uid.ExplicitVRBigEndian else 1
    return pixel_format.bits_allocated == 8 or not data[high::2].any()


def _smoothest(found: list[tuple[PixelFormat, int]], header: Header) -> tuple[PixelFormat, int]:
    """The layout under which neighbouring rows are most alike; the first of those that are nearly so."""
    roughness = []
    for pixel_format, _ in found:
        data = _frame_at(0, pixel_format, header)
        pitch = max(pixel_format.frame_bytes // pixel_format.rows, 1)
        step = np.abs(data[pitch:] - data[:-pitch])
        roughness.append(float(step.mean()) if step.size else np.inf)
    likeliest = found[0], roughness[0]
    for layout, rough in zip(found[1:], roughness[1:], strict=True):
        if rough < MUCH_SMOOTHER * likeliest[1]:
            likeliest = layout, rough
    return likeliest[0]


def stream_layout(stream: bytes, declared: PixelFormat, syntax: UID) -> tuple[PixelFormat, UID, tuple[str, ...]]:
    """What a compressed frame says of itself: its pixels, and the transfer syntax that it is of; and notes."""
    family, size, pixel_format = syntax, None, declared
    notes: list[str] = []
    try:
        if stream.startswith(b"\xff\xd8"):
            info = parse_jpeg(stream)
            size = info.components, info.precision
            if info.ycbcr is not None and info.components == 3 and info.ycbcr != declared.photometric.startswith("YBR"):
                found = "YCbCr" if info.ycbcr else "RGB"
                notes.append(f"Photometric Interpretation says {declared.photometric}, but the frames are {found}.")
            if info.is_jpeg_ls != (syntax in uid.JPEGLSTransferSyntaxes):
                family = uid.JPEGLSLossless if info.is_jpeg_ls else uid.JPEGBaseline8Bit
        elif stream.startswith((b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  ")):
            size = j2k_size(stream)[2:4]
            family = syntax if syntax in J2K_SYNTAXES else uid.JPEG2000
    except (ValueError, IndexError, struct.error):  # the decoder will say what is wrong with it
        return declared, syntax, ()
    if size is None or syntax not in JPEG_SYNTAXES | J2K_SYNTAXES | {*uid.JPEGLSTransferSyntaxes, uid.RLELossless}:
        return declared, syntax, ()
    if family != syntax:
        notes.append(f"The transfer syntax says {syntax.name}, but the frames are {_FAMILIES[family]} streams.")
    components, precision = size
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
