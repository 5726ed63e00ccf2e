"""Stored bytes of one frame -> samples, for every transfer syntax that is read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image
from pydicom import uid
from pydicom.dataset import Dataset
from pydicom.pixels import get_decoder
from pydicom.uid import UID

from usdehaze.errors import InputError
from usdehaze.io.dicom.header import NATIVE_SYNTAXES, Header, whole_number, word, words
from usdehaze.io.dicom.jpeg import j2k_size, jpeg_xl_size, parse_jpeg, with_raw_components
from usdehaze.io.limits import MIN_SIDE, check_frame
from usdehaze.quiet import quiet

JPEG_XL_SYNTAXES = {f"1.2.840.10008.1.2.4.11{digit}" for digit in "012"}
JPEG_SYNTAXES = {uid.JPEGBaseline8Bit, uid.JPEGExtended12Bit, uid.JPEGLossless, uid.JPEGLosslessSV1}
ENCAPSULATED = "1.2.840.10008.1.2.1.98"  # but not compressed
J2K_SYNTAXES = {*uid.JPEG2000TransferSyntaxes}
OTHER_SYNTAXES = {*NATIVE_SYNTAXES, uid.RLELossless, *uid.JPEGLSTransferSyntaxes, *J2K_SYNTAXES}
# pylibjpeg-rle, which writes RLE, ends the program over some damaged frames
PLUGINS = {uid.RLELossless: "pydicom", **dict.fromkeys(uid.JPEGLSTransferSyntaxes, "pyjpegls")}
PLUGINS |= dict.fromkeys(J2K_SYNTAXES, "pylibjpeg")
LOSSY_SYNTAXES = {  # to Lossy Image Compression Method (0028,2114)
    uid.JPEGBaseline8Bit: "ISO_10918_1",
    uid.JPEGExtended12Bit: "ISO_10918_1",
    uid.JPEGLSNearLossless: "ISO_14495_1",
    uid.JPEG2000: "ISO_15444_1",
    uid.HTJ2K: "ISO_15444_15",
    "1.2.840.10008.1.2.4.112": "ISO_18181_1",
}
COLOURS = {
    "RGB",
    "YBR_FULL",
    "YBR_FULL_422",
    "YBR_PARTIAL_420",
    "YBR_PARTIAL_422",
    "YBR_ICT",
    "YBR_RCT",
}
GREYS = {"MONOCHROME1", "MONOCHROME2", "PALETTE COLOR"}
MAX_SIDE = 2**14


@dataclass(frozen=True)
class PixelFormat:
    """How frames are stored: the attributes of the Image Pixel module (PS3.3 C.7.6.3), checked."""

    rows: int
    columns: int
    photometric: str
    samples: int
    bits_allocated: int
    bits_stored: int
    planar: int
    pixel_vr: str
    high_bit: int = 0  # the highest of the bits stored in a word
    overlays: bool = False  # whether bits of a word that are not of the pixel's value belong to overlays
    padded: bool = False  # rows of an odd number of columns, whose chroma is shared by pairs, end in half a pair

    @property
    def shift(self) -> int:
        """Bits of a word below those of the value."""
        return self.high_bit + 1 - self.bits_stored

    @property
    def whole_words(self) -> PixelFormat:
        """The same frames, with every bit as one of the value."""
        return replace(self, bits_stored=self.bits_allocated, high_bit=self.bits_allocated - 1)

    @property
    def subsampled(self) -> bool:
        """Whether two neighbours share their chroma in a frame that is not compressed."""
        return self.photometric.endswith("_422")

    @property
    def frame_bytes(self) -> int:
        """Size of a frame that is not compressed."""
        if self.subsampled:
            return self.rows * (self.columns + self.padded) * 2 * self.bits_allocated // 8
        return self.rows * self.columns * self.samples * self.bits_allocated // 8


def read_pixel_format(header: Header, path: object) -> PixelFormat:
    """Reads and checks the Image Pixel module.

    Raises:
        InputError: an attribute is missing, or describes pixels that no ultrasound image has.
    """

    def number(keyword: str, default: int | None = None) -> int:
        return whole_number(header.attributes, keyword, path, default)

    photometric = word(header.attributes, "PhotometricInterpretation").upper()
    if not words(header.attributes, "PhotometricInterpretation"):
        raise InputError(path, "attribute PhotometricInterpretation is missing", "a DICOM image")
    samples = number("SamplesPerPixel", 1 if photometric in GREYS else 3)
    if photometric not in GREYS | COLOURS:
        raise InputError(path, "a Photometric Interpretation that is not read", ", ".join(sorted(GREYS | COLOURS)))
    if samples != (1 if photometric in GREYS else 3):
        raise InputError(path, f"{samples} samples per pixel, which does not fit {photometric}")
    bits = number("BitsAllocated")
    stored = number("BitsStored", bits)
    pixel_format = PixelFormat(
        number("Rows"),
        number("Columns"),
        photometric,
        samples,
        bits,
        stored,
        number("PlanarConfiguration", 0),
        header.pixel_vr,
        number("HighBit", stored - 1) if stored < bits else stored - 1,
        _has_overlay_bits(header.attributes),
    )
    if pixel_format.bits_allocated not in (8, 16) or not 2 <= pixel_format.bits_stored <= pixel_format.bits_allocated:
        found = f"{pixel_format.bits_stored} bits stored in {pixel_format.bits_allocated}"
        raise InputError(path, f"pixels of {found}", "2 to 8 bits in 8, or 2 to 16 in 16")
    # of colours a sign has no meaning (PS3.3 C.7.6.3.1.2)
    if photometric.startswith("MONOCHROME") and number("PixelRepresentation", 0) != 0:
        raise InputError(path, "signed pixel values", "grey levels from 0 up")
    if pixel_format.planar not in (0, 1):
        raise InputError(path, f"planar configuration {pixel_format.planar}", "0 or 1")
    rows, columns = pixel_format.rows, pixel_format.columns
    if not MIN_SIDE <= min(rows, columns) <= max(rows, columns) <= MAX_SIDE:
        raise InputError(path, f"frames of {rows} x {columns}", f"{MIN_SIDE} to {MAX_SIDE} pixels a side")
    check_frame((rows, columns), path)
    return pixel_format


Decode = Callable[[bytes, int], tuple[np.ndarray, str]]


def make_decoder(syntax: UID, pixel_format: PixelFormat, path: object) -> Decode:
    """A function from a frame's stored bytes and its index to its samples and their Photometric Interpretation.

    Samples are ``(rows, columns)`` or ``(rows, columns, 3)``, uint8 or uint16; colours stay as they are stored.

    Raises:
        InputError: a transfer syntax that is not read, or whose decoder is not installed.
    """
    if syntax == ENCAPSULATED:
        syntax = uid.ExplicitVRLittleEndian
    if syntax in JPEG_SYNTAXES:
        decode = _jpeg
    elif syntax in JPEG_XL_SYNTAXES:
        _import_imagecodecs(path, "JPEG XL")
        decode = _jpeg_xl
    elif syntax in OTHER_SYNTAXES:
        decode = _by_pydicom
    else:
        known = f" ({syntax.name})" if syntax.name != syntax else ""
        expected = "native, RLE, JPEG, JPEG-LS, JPEG 2000, JPEG XL or video"
        raise InputError(
            path, f"a transfer syntax that is not read{known}", expected, "write the file again in one of these"
        )

    def decoder(stored: bytes, index: int) -> tuple[np.ndarray, str]:
        try:
            with quiet():
                samples, photometric = decode(stored, syntax, pixel_format, path)
        except InputError:
            raise
        except Exception:
            found = f"frame {index} cannot be decoded ({syntax.name})"
            raise InputError(path, found, advice="the file may be damaged") from None
        channels = () if pixel_format.samples == 1 else (pixel_format.samples,)
        expected = (pixel_format.rows, pixel_format.columns, *channels)
        if samples.shape != expected:
            raise InputError(path, f"frame {index} decodes to {samples.shape}", f"{expected} as Rows and Columns say")
        return samples, photometric

    return decoder


def _by_pydicom(stored: bytes, syntax: UID, pixel_format: PixelFormat, path: object) -> tuple[np.ndarray, str]:
    """Native, RLE, JPEG-LS and JPEG 2000 frames."""
    if syntax in J2K_SYNTAXES:
        rows, columns, _, precision, signed = j2k_size(stored)
        _check_size((rows, columns), pixel_format, path)
        if signed or precision > 16:  # levels less half the scale, or plain ones taken as signed
            found = f"JPEG 2000 frames of {'signed ' * signed}values of {precision} bits"
            raise InputError(path, found, "unsigned ones of at most 16", "write the file again as DICOM")
    elif syntax in uid.JPEGLSTransferSyntaxes:
        info = parse_jpeg(stored)
        _check_size((info.rows, info.columns), pixel_format, path)
    if syntax in NATIVE_SYNTAXES:
        stored = stored[: pixel_format.frame_bytes]  # without the padding of a fragment
    if syntax in NATIVE_SYNTAXES and pixel_format.subsampled and pixel_format.columns % 2:
        return _odd_pairs(stored, pixel_format), pixel_format.photometric
    photometric = pixel_format.photometric.replace("YBR_PARTIAL", "YBR_FULL").removesuffix("_420")  # the same bytes
    if syntax not in NATIVE_SYNTAXES:
        photometric = photometric.removesuffix("_422")  # three whole planes
    options: dict[str, Any] = {
        "rows": pixel_format.rows,
        "columns": pixel_format.columns,
        "number_of_frames": 1,
        "samples_per_pixel": pixel_format.samples,
        "photometric_interpretation": photometric,
        "pixel_representation": 0,
        # of no meaning where the samples come by pixel (PS3.3 C.7.6.3.1.2) or from JPEG 2000 (PS3.5 8.2.4)
        "planar_configuration": 0 if pixel_format.subsampled or syntax in J2K_SYNTAXES else pixel_format.planar,
        "bits_allocated": pixel_format.bits_allocated,
        "bits_stored": pixel_format.bits_stored,
        "correct_unused_bits": False,
        "pixel_keyword": "PixelData",
        "pixel_vr": pixel_format.pixel_vr,
    }
    if syntax not in NATIVE_SYNTAXES:
        stored = struct.pack("<HHLHHL", 0xFFFE, 0xE000, 0, 0xFFFE, 0xE000, len(stored)) + stored  # one fragment
    samples, properties = get_decoder(syntax).as_array(
        stored, index=0, raw=True, decoding_plugin=PLUGINS.get(syntax, ""), **options
    )
    samples = _bits_in_use(samples, pixel_format, path)
    if pixel_format.photometric.startswith("YBR_PARTIAL"):
        return samples, pixel_format.photometric
    return samples, str(properties["photometric_interpretation"])


def _bits_in_use(words: np.ndarray, pixel_format: PixelFormat, path: object) -> np.ndarray:
    """The values in words, by Bits Stored and High Bit (PS3.5 8.1.1): the other bits may be anything.

    Raises:
        InputError: the bit above them is in use too, by no overlay: they are larger values than Bits Stored says.
    """
    bits, largest = pixel_format.bits_stored, 2**pixel_format.bits_stored - 1
    if pixel_format.shift == 0 and (bits == pixel_format.bits_allocated or words.max() <= largest):
        return words
    values = words >> pixel_format.shift
    if not pixel_format.overlays and (values >> bits & 1).any():
        found = f"pixel values of up to {int(values.max())}"
        raise InputError(path, found, f"{largest} at most as Bits Stored says", "write the file again as DICOM")
    return values & largest


def _has_overlay_bits(attributes: Dataset) -> bool:
    """Whether overlays lie in the pixel data (retired): Overlay Bit Position is not 0 in any of their 16 groups."""
    with quiet(), suppress(Exception):
        return any(
            (group, 0x0102) in attributes and attributes[group, 0x0102].value for group in range(0x6000, 0x6020, 2)
        )
    return False


def _odd_pairs(stored: bytes, pixel_format: PixelFormat) -> np.ndarray:
    """Pairs of pixels, Y Y Cb Cr, in an odd number of columns: one runs on into the next row, or is cut at its end."""
    pairs = np.frombuffer(stored, np.uint8).reshape(-1, 4)
    samples = np.empty((len(pairs), 2, 3), np.uint8)
    samples[..., 0], samples[..., 1:] = pairs[:, :2], pairs[:, None, 2:]
    rows, columns = pixel_format.rows, pixel_format.columns
    return samples.reshape(rows, columns + pixel_format.padded, 3)[:, :columns]


def _jpeg(stored: bytes, syntax: UID, pixel_format: PixelFormat, path: object) -> tuple[np.ndarray, str]:
    info = parse_jpeg(stored)
    _check_size((info.rows, info.columns), pixel_format, path)
    if info.components != pixel_format.samples:
        raise InputError(path, f"JPEG frames of {info.components} components", f"{pixel_format.samples}")
    photometric = pixel_format.photometric
    if info.components == 3:
        stored = with_raw_components(stored)
        # what the stream says of its own colours goes before what the file says of them
        photometric = {None: photometric, True: "YBR_FULL", False: "RGB"}[info.ycbcr]
        photometric = photometric if photometric == "RGB" else "YBR_FULL"
    if info.precision == 8:
        return np.asarray(Image.open(BytesIO(stored), formats=("JPEG",))), photometric
    samples = _import_imagecodecs(path, f"{info.precision}-bit JPEG").jpeg8_decode(stored)
    return _bits_in_use(samples, pixel_format, path), photometric


def _jpeg_xl(stored: bytes, syntax: UID, pixel_format: PixelFormat, path: object) -> tuple[np.ndarray, str]:
    size = jpeg_xl_size(stored)
    turned = size[::-1] == (pixel_format.rows, pixel_format.columns)  # an orientation in the stream
    _check_size(size[::-1] if turned else size, pixel_format, path)
    samples = _import_imagecodecs(path, "JPEG XL").jpegxl_decode(stored)
    return np.squeeze(samples), "RGB" if pixel_format.samples == 3 else pixel_format.photometric


def _import_imagecodecs(path: object, what: str) -> Any:
    try:
        import imagecodecs
    except ImportError:
        raise InputError(
            path, f"{what} needs a decoder that is not installed", advice="pip install usdehaze[codecs]"
        ) from None
    return imagecodecs


def _check_size(size: tuple[int, int], pixel_format: PixelFormat, path: object) -> None:
    """Before a decoder sets memory aside for what the stream declares."""
    rows, columns = pixel_format.rows, pixel_format.columns
    if size != (rows, columns):
        raise InputError(path, f"a compressed frame of {size[0]} x {size[1]}", f"{rows} x {columns} as the file says")
