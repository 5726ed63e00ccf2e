"""How many frames of which pixels lie in pixel data that are not compressed, by their length.

The attributes hold as long as the length fits them. Where it does not, the layout that it does fit is taken, and a note
says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from pydicom import uid

from usdehaze.errors import InputError
from usdehaze.io.dicom.codecs import PixelFormat
from usdehaze.io.dicom.header import Header
from usdehaze.io.picture import GREY_SPREAD
from usdehaze.notes import Guess

BY_FILE = "attributes that fit the pixel data"
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
