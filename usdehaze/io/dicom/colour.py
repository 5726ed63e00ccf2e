"""Samples of a frame -> grey levels and colours.

Luma is Y where the frame is stored as YBR, else ``0.299 R + 0.587 G + 0.114 B`` (ITU-R BT.601, as in PS3.3 C.7.6.3.1.2)
rounded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pydicom.dataset import Dataset
from pydicom.pixels import apply_color_lut, convert_color_space

from usdehaze.errors import InputError
from usdehaze.io.dicom.codecs import PixelFormat
from usdehaze.io.dicom.header import numbers, word
from usdehaze.io.picture import Picture
from usdehaze.quiet import quiet


def luma(rgb: np.ndarray) -> np.ndarray:
    """``(..., 3)`` uint8 RGB to uint8 luma; a grey pixel keeps its level."""
    weighted = rgb.astype(np.uint32) @ np.array([299, 587, 114], np.uint32)
    return ((weighted + 500) // 1000).astype(np.uint8)


def is_colour(pixel_format: PixelFormat) -> bool:
    """True where the frames may hold colours."""
    return pixel_format.samples == 3 or pixel_format.photometric == "PALETTE COLOR"


def make_picture(attributes: Dataset, pixel_format: PixelFormat, path: object) -> Callable[[np.ndarray, str], Picture]:
    """A function from samples and their Photometric Interpretation, as the decoders give them, to a `Picture`.

    Raises:
        InputError: a palette that cannot be used, or colours above grey levels.
    """
    if pixel_format.photometric.startswith("MONOCHROME") and _has_colours_above(attributes):
        found = "grey levels with colours above them (Supplemental Palette Color Lookup Table)"
        raise InputError(path, found, "grey levels alone, a palette, or RGB", "convert it to RGB")
    palette = _palette(attributes, pixel_format, path) if pixel_format.photometric == "PALETTE COLOR" else None
    palette_luma = None if palette is None else luma(palette)

    def picture(samples: np.ndarray, photometric: str) -> Picture:
        if palette is not None and palette_luma is not None:
            return Picture(palette_luma[samples], palette[samples])
        if samples.ndim == 2:
            return Picture(samples)
        samples = _eight_bits(samples, pixel_format.bits_stored)
        if photometric.startswith("YBR_PARTIAL"):
            samples = _full_range(samples)
        if not photometric.startswith("YBR"):
            return Picture(luma(samples), samples)
        return Picture(samples[..., 0], convert_color_space(samples, "YBR_FULL", "RGB"))

    return picture


def _eight_bits(samples: np.ndarray, bits_stored: int) -> np.ndarray:
    if bits_stored > 8:
        return (samples >> (bits_stored - 8)).astype(np.uint8)
    return (samples << (8 - bits_stored)).astype(np.uint8)


def _full_range(ybr: np.ndarray) -> np.ndarray:
    """YBR_PARTIAL, Y in 16 to 235 and chroma in 16 to 240, stretched to YBR_FULL."""
    stretched = (ybr.astype(np.float32) - [16, 128, 128]) * [255 / 219, 255 / 224, 255 / 224] + [0, 128, 128]
    return np.clip(np.rint(stretched), 0, 255).astype(np.uint8)


def _has_colours_above(attributes: Dataset) -> bool:
    """Whether stored values of grey frames from some level up are colours (PS3.3 C.7.6.19)."""
    tables = [numbers(attributes, f"{c}PaletteColorLookupTableDescriptor")[1:2] for c in ("Red", "Green", "Blue")]
    shown = word(attributes, "PixelPresentation") in ("COLOR", "MIXED")
    return all(tables) and (shown or numbers(attributes, "UltrasoundColorDataPresent") == [1])


def _palette(attributes: Dataset, pixel_format: PixelFormat, path: object) -> np.ndarray:
    """``(2 ** bits allocated, 3)`` uint8, the colour of every stored value."""
    indices = np.arange(2**pixel_format.bits_allocated, dtype=f"u{pixel_format.bits_allocated // 8}")
    try:
        with quiet():
            colours = apply_color_lut(indices, attributes)
    except Exception:
        raise InputError(path, "its colour palette cannot be used", advice="the file may be damaged") from None
    if colours.dtype.itemsize == 1 or colours.max() <= 255:  # 8-bit entries, which some files keep in 16 bits
        return colours.astype(np.uint8)
    return (colours >> 8).astype(np.uint8)
