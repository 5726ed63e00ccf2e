"""Pixels that are no image: what grey frames are padded out with to a rectangle."""

from __future__ import annotations

import numpy as np
from pydicom.dataset import Dataset
from scipy import ndimage

from usdehaze.io.dicom.codecs import PixelFormat
from usdehaze.io.dicom.colour import is_colour
from usdehaze.io.dicom.header import numbers


def padding_values(attributes: Dataset, pixel_format: PixelFormat) -> tuple[int, int] | None:
    """Lowest and highest stored value of pixels that are no image (0028,0120 and 0121); None of colours or of none."""
    ends = numbers(attributes, "PixelPaddingValue")[:1] + numbers(attributes, "PixelPaddingRangeLimit")[:1]
    usable = ends and all(0 <= end < 2**pixel_format.bits_stored for end in ends)
    return (int(min(ends)), int(max(ends))) if usable and not is_colour(pixel_format) else None


def at_edges(mask: np.ndarray) -> np.ndarray:
    """The parts ``(H, W)`` bool of a mask that reach the edges of the frame: those inside are image."""
    parts, _ = ndimage.label(mask)
    edges = np.concatenate([parts[0], parts[-1], parts[:, 0], parts[:, -1]])
    return np.isin(parts, np.unique(edges[edges > 0]))
