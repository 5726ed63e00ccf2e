"""Sequence of Ultrasound Regions (PS3.3 C.8.5.5): where the B-mode image lies, and how large its pixels are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from pydicom.dataset import Dataset

from usdehaze.io.dicom.header import items, numbers

SPATIAL_2D = 1
TISSUE, COLOUR_FLOW = 1, 2
CENTIMETRES = 3
MAX_OVERHANG = 2  # pixels that a region may lie beyond the image: counting from 1 instead of 0, and the like


@dataclass(frozen=True)
class Region:
    """The part of the image that holds B-mode.

    Attributes:
        top, left, bottom, right: first and last row and column, inside the image.
        spacing_m: ``(row, column)`` pixel pitch in m, or None where the file does not give it in cm.
        origin_m: ``(z, x)`` of the image's pixel (0, 0), where reference pixels are given; else 0.
        fits: False where the region reaches beyond the image: it describes an image of another size.
    """

    top: int
    left: int
    bottom: int
    right: int
    spacing_m: tuple[float, float] | None
    origin_m: tuple[float, float]
    fits: bool

    def mask(self, shape: tuple[int, int]) -> np.ndarray:
        """``(H, W)`` bool, pixels of the region."""
        inside = np.zeros(shape, bool)
        inside[self.top : self.bottom + 1, self.left : self.right + 1] = True
        return inside

    @property
    def area(self) -> int:
        return (self.bottom - self.top + 1) * (self.right - self.left + 1)


def find_region(attributes: Dataset, shape: tuple[int, int]) -> tuple[Region | None, tuple[str, ...]]:
    """The largest two-dimensional region of tissue, else of colour flow (B-mode with colours over it).

    Returns:
        The region, or None where there is none; and what had to be assumed, one sentence each.
    """
    for data_type in (TISSUE, COLOUR_FLOW):
        found = [
            _region(item, shape) for item in items(attributes, "SequenceOfUltrasoundRegions") if _is(item, data_type)
        ]
        regions = [region for region in found if region is not None]
        if regions:
            notes = []
            if len(regions) > 1:
                notes.append(f"{len(regions)} B-mode regions in the file: the largest is dehazed, the others are left.")
            region = max(regions, key=lambda region: region.area)
            if not region.fits:
                notes.append(
                    "The B-mode region in the file reaches beyond the image, as of an image of another size: "
                    "its pixel spacing is not used."
                )
            return region, tuple(notes)
    return None, ()


def _is(item: Dataset, data_type: int) -> bool:
    return numbers(item, "RegionSpatialFormat") == [SPATIAL_2D] and numbers(item, "RegionDataType") == [data_type]


def _region(item: Dataset, shape: tuple[int, int]) -> Region | None:
    """One item, clamped to the image; None where it has no extent in it."""
    keywords = ("MinY0", "MinX0", "MaxY1", "MaxX1")
    corners = [numbers(item, f"RegionLocation{keyword}") for keyword in keywords]
    if not all(len(corner) == 1 and math.isfinite(corner[0]) for corner in corners):
        return None
    top, left, bottom, right = (int(corner[0]) for corner in corners)
    height, width = shape
    fits = bottom < height + MAX_OVERHANG and right < width + MAX_OVERHANG
    clamped = max(top, 0), max(left, 0), min(bottom, height - 1), min(right, width - 1)
    if clamped[0] >= clamped[2] or clamped[1] >= clamped[3]:
        return None
    spacing_m = _spacing_m(item) if fits else None
    return Region(*clamped, spacing_m, _origin_m(item, top, left) if spacing_m else (0.0, 0.0), fits)


def _spacing_m(item: Dataset) -> tuple[float, float] | None:
    """Physical Delta, which some write with a sign, where Physical Units says cm on both axes."""
    pitch = []
    for axis in "YX":
        delta = numbers(item, f"PhysicalDelta{axis}")
        in_cm = numbers(item, f"PhysicalUnits{axis}Direction") == [CENTIMETRES]
        if not in_cm or len(delta) != 1 or not (math.isfinite(delta[0]) and delta[0] != 0):
            return None
        pitch.append(abs(delta[0]) / 100)
    return pitch[0], pitch[1]


def _origin_m(item: Dataset, top: int, left: int) -> tuple[float, float]:
    """Position of the image's pixel (0, 0), from that of the reference pixel, which counts from the region's corner."""
    origin = []
    for axis, first in (("Y", top), ("X", left)):
        pixel, value, delta = (
            numbers(item, keyword)
            for keyword in (f"ReferencePixel{axis}0", f"ReferencePixelPhysicalValue{axis}", f"PhysicalDelta{axis}")
        )
        if not (len(pixel) == len(value) == 1 and math.isfinite(value[0]) and math.isfinite(pixel[0]) and delta[0] > 0):
            return 0.0, 0.0
        origin.append((value[0] - (first + pixel[0]) * delta[0]) / 100)
    return origin[0], origin[1]


def pixel_spacing_m(attributes: Dataset) -> tuple[float, float] | None:
    """Pixel Spacing (0028,0030), ``(row, column)``, mm in the file; for images without regions."""
    spacing = numbers(attributes, "PixelSpacing")
    if len(spacing) != 2 or not all(math.isfinite(value) and value > 0 for value in spacing):
        return None
    return spacing[0] / 1000, spacing[1] / 1000


def pixel_aspect(attributes: Dataset) -> float:
    """Row pitch over column pitch as in Pixel Aspect Ratio (0028,0034), 1 where it is not given."""
    ratio = numbers(attributes, "PixelAspectRatio")
    if len(ratio) != 2 or not all(math.isfinite(value) and value > 0 for value in ratio):
        return 1.0
    return ratio[0] / ratio[1]
