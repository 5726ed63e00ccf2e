"""Sequence of Ultrasound Regions (PS3.3 C.8.5.5): where the B-mode images lie, and how large their pixels are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from pydicom.dataset import Dataset

from usdehaze.io.dicom.header import items, numbers
from usdehaze.io.limits import MIN_SIDE
from usdehaze.notes import Guess

SPATIAL_2D, M_MODE, SPECTRAL, WAVEFORM, GRAPHICS = 1, 2, 3, 4, 5
TRACES, DRAWN = (M_MODE, SPECTRAL), (WAVEFORM, GRAPHICS)
TISSUE, COLOUR_FLOW = 1, 2
NESTED = 0.8  # of a region within a larger one: the same image told twice
OVER_MOST = 0.5  # of a B-mode region: what is drawn there lies over the image, not beside it
CENTIMETRES = 3
BY_CORNERS = "Region Locations that are right"
MAX_OVERHANG = 2  # pixels that a region may lie beyond the image: counting from 1 instead of 0, and the like


@dataclass(frozen=True)
class Region:
    """A part of the image.

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

    @property
    def box(self) -> tuple[int, int, int, int]:
        """First row and column, last row and column."""
        return self.top, self.left, self.bottom, self.right

    def share_in(self, other: Region) -> float:
        """Fraction of it that lies in another region."""
        height = min(self.bottom, other.bottom) - max(self.top, other.top) + 1
        width = min(self.right, other.right) - max(self.left, other.left) + 1
        return max(height, 0) * max(width, 0) / self.area


@dataclass(frozen=True)
class Regions:
    """What the regions in a file say.

    Attributes:
        b_mode: two-dimensional ones of tissue, else of colour flow (B-mode with colours over it), largest first.
        colour_flow: whether they are of colour flow.
        traces: M-mode and spectral Doppler, whose horizontal axis is time.
        drawn: waveforms (ECG and the like) and graphics, which are no image; but for those over most of a B-mode one.
        beside: of colour flow, not within those of tissue.
        unusable: how many of two dimensions have no part of the image.
        notes: what had to be assumed of those of two dimensions, one sentence each.
    """

    b_mode: tuple[Region, ...]
    colour_flow: bool
    traces: tuple[Region, ...]
    drawn: tuple[Region, ...]
    beside: tuple[Region, ...]
    unusable: int
    notes: tuple[str, ...]


def find_regions(attributes: Dataset, shape: tuple[int, int]) -> Regions:
    """The regions in a file, clamped to the image; those that lie in a larger one of the same kind are left out."""

    told = items(attributes, "SequenceOfUltrasoundRegions")
    alone = sum(map(_is_b_mode, told)) == 1
    read = [(*_kind(item), *_region(item, shape, alone)) for item in told]

    def regions(spatial: int, data_type: int | None = None) -> list[Region]:
        found = [region for s, t, region, _ in read if s == [spatial] and (data_type is None or t == [data_type])]
        kept: list[Region] = []
        for region in sorted(filter(None, found), key=lambda region: -region.area):
            if not any(region.share_in(larger) > NESTED for larger in kept):
                kept.append(region)
        return kept

    tissue, flow = regions(SPATIAL_2D, TISSUE), regions(SPATIAL_2D, COLOUR_FLOW)
    beside = [region for region in flow if tissue and all(region.share_in(other) < NESTED for other in tissue)]
    traces, drawn = (regions(first) + regions(second) for first, second in (TRACES, DRAWN))
    drawn = [region for region in drawn if all(image.share_in(region) < OVER_MOST for image in tissue or flow)]
    b_mode = [(region, note) for item, (_, _, region, note) in zip(told, read, strict=True) if _is_b_mode(item)]
    notes = tuple(dict.fromkeys(note for _, note in b_mode if note))
    unusable = sum(region is None for region, _ in b_mode)
    return Regions(tuple(tissue or flow), not tissue, tuple(traces), tuple(drawn), tuple(beside), unusable, notes)


def _kind(item: Dataset) -> tuple[list[float], list[float]]:
    """Spatial format and data type."""
    return numbers(item, "RegionSpatialFormat"), numbers(item, "RegionDataType")


def _is_b_mode(item: Dataset) -> bool:
    return _kind(item) in (([SPATIAL_2D], [TISSUE]), ([SPATIAL_2D], [COLOUR_FLOW]))


def _region(item: Dataset, shape: tuple[int, int], alone: bool) -> tuple[Region | None, Guess | None]:
    """One item, clamped to the image, None where it has too little extent in it; and what had to be assumed.

    One that is ``alone`` of B-mode and has no extent stands for the whole image.
    """
    keywords = ("MinY0", "MinX0", "MaxY1", "MaxX1")
    corners = [numbers(item, f"RegionLocation{keyword}") for keyword in keywords]
    if not all(len(corner) == 1 and math.isfinite(corner[0]) for corner in corners):
        return None, None
    top, left, bottom, right = (_signed(int(corner[0])) for corner in corners)
    (height, width), note, b_mode = shape, None, _is_b_mode(item)
    if alone and b_mode and top == left == bottom == right == 0:
        bottom, right = height - 1, width - 1
        note = Guess("A B-mode region in the file has all its corners at 0: taken as the whole image.", BY_CORNERS)
    elif top > bottom or left > right:
        (top, bottom), (left, right) = sorted((top, bottom)), sorted((left, right))
        note = Guess("A B-mode region in the file has its corners the other way round: exchanged.", BY_CORNERS)
    fits = bottom < height + MAX_OVERHANG and right < width + MAX_OVERHANG
    clamped = max(top, 0), max(left, 0), min(bottom, height - 1), min(right, width - 1)
    least = MIN_SIDE if b_mode else 2  # pixels
    if min(clamped[2] - clamped[0], clamped[3] - clamped[1]) + 1 < least:
        return None, None
    spacing_m = _spacing_m(item) if fits else None
    return Region(*clamped, spacing_m, _origin_m(item, top, left) if spacing_m else (0.0, 0.0), fits), note


def _signed(corner: int) -> int:
    """A corner before the first row or column, which some write without its sign."""
    return corner - 2**32 if corner >= 2**31 else corner


def _spacing_m(item: Dataset) -> tuple[float, float] | None:
    """Physical Delta, which some write with a sign, where Physical Units says cm on both axes."""
    pitch = []
    for axis in "YX":
        delta = numbers(item, f"PhysicalDelta{axis}")
        in_cm = numbers(item, f"PhysicalUnits{axis}Direction") == [CENTIMETRES]
        if not in_cm or len(delta) != 1 or not (math.isfinite(delta[0]) and delta[0] != 0):
            return None
        pitch.append(abs(delta[0]) / 100)
    return (pitch[0], pitch[1]) if _is_pixel(*pitch) else None


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
    """Pixel Spacing (0028,0030), ``(row, column)``, mm in the file; for images whose regions tell none."""
    spacing = numbers(attributes, "PixelSpacing")
    if len(spacing) != 2 or not _is_pixel(*spacing):
        return None
    return spacing[0] / 1000, spacing[1] / 1000


def pixel_aspect(attributes: Dataset) -> float:
    """Row pitch over column pitch as in Pixel Aspect Ratio (0028,0034), 1 where it is not given."""
    ratio = numbers(attributes, "PixelAspectRatio")
    return ratio[0] / ratio[1] if len(ratio) == 2 and _is_pixel(*ratio) else 1.0


def _is_pixel(height: float, width: float) -> bool:
    """Whether a pixel can have such sides: a damaged file may say anything."""
    return all(math.isfinite(side) and side > 0 for side in (height, width)) and 1e-3 <= height / width <= 1e3
