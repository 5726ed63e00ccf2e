"""Several images on one screen: every fan by itself, and what looks like echoes where there is no fan.

A screen has text, scales and bars around its images. Areas of image are thick, and no two of their pixels are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import ndimage

from ..cine import Cartesian, Geometry, Sector
from .sector import (
    COARSE_SIZE,
    LEVELS,
    SMALLEST,
    Fit,
    block_mean,
    enlarged,
    find_fan,
    frames_used,
    mostly_seen,
    sector_mask,
)

SMALLEST_SHARE = 0.04  # of the screen, that an image covers
THICK = 7  # coarse pixels, about 3 % of the screen: text and scales are thinner
TEXTURED = 0.3  # of an image's pixels differ from their neighbours; bars and boxes are flat
WHOLE = 0.9  # of either side of the screen: an image that fills it
QUIET = 0.01  # of the range: as much as lossy compression leaves of black
GRAPHICS = 0.3  # of the range above the background: as bright as text
UNUSUAL = 1.9  # evidence for a fan that lies as hardly any does; up to 1.7 in upright images of linear arrays
ALIKE = 0.9  # ratio of the sides of two images of one kind
FAR = 1e8  # columns; a rectangle is a fan whose apex is so far away that its arcs are straight to 0.02 columns

Box = tuple[int, int, int, int]  # first row and column, last row and column


def find_sectors(frames_db: np.ndarray, floor_db: float, aspect: float = 1.0) -> list[Sector]:
    """All fans on a screen, largest first; see `usdehaze.geometry.find_sector` for one.

    The ``aspect`` of a fan whose apex is below is negative; one is sought unless one with its apex above is certain.

    Args:
        frames_db: ``(T, H, W)`` dB in ``[floor_db, 0]``.
        floor_db: the value of black, negative dB.
        aspect: row pitch over column pitch.
    """
    return sectors_beside(find_fan(frames_db, floor_db, aspect), frames_db, floor_db, aspect)


def sectors_beside(
    first: Fit | None, frames_db: np.ndarray, floor_db: float, aspect: float, cluttered: bool = False
) -> list[Sector]:
    """What `find_sectors` finds, once it is known which fan is seen best with its apex above, if any.

    In ``cluttered`` frames there may be anything: beside a fan that explains most of them another one is sought, and a
    single fan in parts of them.
    """
    upturned = frames_db[:, ::-1]
    below = None if first is not None and first.certain else find_fan(upturned, floor_db, aspect)
    if below is not None and first is not None and below.score <= first.score:
        below = None
    several = _several(frames_db, floor_db, aspect, cluttered) if first is None else []
    # of a fan upside down that is not seen well, parts may look like fans, too
    if below is not None and (below.evidence >= UNUSUAL or first is not None or several):
        found = [below.sector, *(_beside(below.sector, upturned, floor_db, aspect) if cluttered else [])]
    elif first is not None:
        return [first.sector, *(_beside(first.sector, frames_db, floor_db, aspect) if cluttered else [])]
    elif several or not cluttered:
        return several
    else:
        found = _in_areas(upturned, floor_db, aspect, UNUSUAL)
    return [upside_down(sector, len(upturned[0])) for sector in found]


def upside_down(sector: Sector, height: int) -> Sector:
    """A fan in frames whose ``height`` rows have been turned round, in the coordinates of the frames."""
    return replace(sector, apex_y=sector.apex_y - (height - 1) * sector.aspect, aspect=-sector.aspect)


def _several(frames_db: np.ndarray, floor_db: float, aspect: float, cluttered: bool) -> list[Sector]:
    """Fans in parts of the screen, where it has no single one."""
    found = _in_areas(frames_db, floor_db, aspect)
    if len(found) < 2:
        found = _in_halves(frames_db, floor_db, aspect) or (found if cluttered else [])
    return found


def _beside(first: Sector, frames_db: np.ndarray, floor_db: float, aspect: float) -> list[Sector]:
    """Further fans on a screen of which one is known."""
    rest = frames_db.copy()
    rest[:, ndimage.binary_dilation(sector_mask(first, rest.shape[1:]), iterations=5)] = floor_db
    return _in_areas(rest, floor_db, aspect)


def _in_areas(frames_db: np.ndarray, floor_db: float, aspect: float, evidence: float = 0.0) -> list[Sector]:
    """Fans in areas of echoes that do not touch."""
    found = []
    for area in echo_areas(frames_db, floor_db):
        rows, columns = (np.flatnonzero(area.any(axis=axis)).tolist() for axis in (1, 0))
        box = rows[0], columns[0], rows[-1], columns[-1]
        sector = _in_box(np.where(area, frames_db, floor_db), box, floor_db, aspect, evidence)
        found += [] if sector is None else [sector]
    return sorted(found, key=lambda sector: -sector_mask(sector, frames_db.shape[1:]).sum())


def _in_halves(frames_db: np.ndarray, floor_db: float, aspect: float) -> list[Sector]:
    """Two fans that touch, beside each other or one above the other: either side of where there is least."""
    height, width = frames_db.shape[1:]
    lit = _bright(frames_db, floor_db, LEVELS[0])
    for axis, size in ((0, width), (1, height)):
        middle, share = slice(size // 3, size - size // 3), lit.sum(axis=axis)
        cut = middle.start + int(np.argmin(share[middle]))
        if share[cut] > 0.5 * np.quantile(share, 0.8):  # as much image there as anywhere
            continue
        boxes = [(0, 0, height - 1, cut - 1), (0, cut, height - 1, width - 1)]
        if axis == 1:
            boxes = [(0, 0, cut - 1, width - 1), (cut, 0, height - 1, width - 1)]
        one = _in_box(frames_db, boxes[0], floor_db, aspect)
        other = None if one is None else _in_box(frames_db, boxes[1], floor_db, aspect)
        if one is not None and other is not None:
            return [one, other]
    return []


def _in_box(frames_db: np.ndarray, box: Box, floor_db: float, aspect: float, evidence: float = 0.0) -> Sector | None:
    """The fan in a part of the screen, in the screen's coordinates; None where there is less evidence for it."""
    margin = 4  # black around the fan
    top, left = (max(side - margin, 0) for side in box[:2])
    part = frames_db[:, top : box[2] + 1 + margin, left : box[3] + 1 + margin]
    fit = find_fan(part, floor_db, aspect)
    return None if fit is None or fit.evidence < evidence else moved(fit.sector, top, left)


def moved(sector: Sector, rows: int, columns: int) -> Sector:
    """A fan in a part of a frame, in the coordinates of the frame."""
    return replace(sector, apex_x=sector.apex_x + columns, apex_y=sector.apex_y + rows * sector.aspect)


def _bright(frames_db: np.ndarray, floor_db: float, level: float) -> np.ndarray:
    chosen = frames_used(len(frames_db))
    image = mostly_seen(frames_db[chosen]).astype(np.float32)
    return np.asarray(image > float(np.quantile(image, 0.05)) + level * abs(floor_db))


def echo_areas(frames_db: np.ndarray, floor_db: float) -> list[np.ndarray]:
    """Areas of a screen that look like echoes, ``(H, W)`` bool each, largest first: thick, and textured all over.

    Args:
        frames_db: ``(T, H, W)`` dB in ``[floor_db, 0]``.
        floor_db: the value of black, negative dB.
    """
    shape = frames_db.shape[1:]
    if min(shape) < SMALLEST:
        return []
    factor = math.ceil(max(shape) / COARSE_SIZE)
    filled = ndimage.uniform_filter(block_mean(_bright(frames_db, floor_db, LEVELS[1]), factor), 5) > 0.5
    thick = ndimage.binary_opening(filled, np.ones((THICK, THICK)))
    labels, count = ndimage.label(thick)
    if count == 0:
        return []
    middle = frames_db[len(frames_db) // 2]
    flat = ndimage.maximum_filter(middle, 3) - ndimage.minimum_filter(middle, 3) < 1e-3 * abs(floor_db)
    areas = []
    for label in range(1, count + 1):
        coarse = ndimage.binary_fill_holes(labels == label)
        if coarse.mean() < SMALLEST_SHARE:
            continue
        area = enlarged(ndimage.binary_dilation(coarse, iterations=2), factor, shape)
        if 1 - flat[area].mean() >= TEXTURED:
            areas.append(area)
    return sorted(areas, key=lambda area: -int(area.sum()))


def echo_boxes(frames_db: np.ndarray, floor_db: float) -> list[Box]:
    """The rectangle of the largest area of echoes, and those of others of the same size: linear arrays.

    Returns:
        No box where there is no such area; the whole frame where one all but fills it, or where the frame is too small
        to tell.
    """
    height, width = frames_db.shape[1:]
    whole = (0, 0, height - 1, width - 1)
    if min(height, width) < SMALLEST:
        return [whole]
    boxes = []
    lit = _bright(frames_db, floor_db, LEVELS[0])
    for area in echo_areas(frames_db, floor_db):
        box = _fitted(lit, area)
        if box[2] - box[0] >= WHOLE * height and box[3] - box[1] >= WHOLE * width:
            return [whole]
        boxes.append(box)
    sides = [(box[2] - box[0] + 1, box[3] - box[1] + 1) for box in boxes]
    return [
        box
        for box, side in zip(boxes, sides, strict=True)
        if all(ALIKE <= a / b <= 1 / ALIKE for a, b in zip(side, sides[0], strict=True))
    ]


@dataclass(frozen=True)
class Around:
    """What is on a screen around its images.

    Attributes:
        count: bright things: letters, scales, bars.
        share: of the frame, that they cover.
        quiet: share of the pixels away from these that are as their neighbours are: nearly all of a screen, fewer of
            dark tissue.
    """

    count: int
    share: float
    quiet: float


def look_around(frames_db: np.ndarray, floor_db: float, boxes: list[Box]) -> Around:
    """What is around the images in some boxes.

    Args:
        frames_db, floor_db: see `echo_areas`.
        boxes: see `echo_boxes`.
    """
    lit = _bright(frames_db, floor_db, GRAPHICS)
    outside, middle = np.ones_like(lit), frames_db[len(frames_db) // 2]
    margin = math.ceil(0.03 * max(lit.shape))
    for top, left, bottom, right in boxes:
        outside[max(top - margin, 0) : bottom + 1 + margin, max(left - margin, 0) : right + 1 + margin] = False
    lit &= outside
    quiet = ndimage.maximum_filter(middle, 3) - ndimage.minimum_filter(middle, 3) <= QUIET * abs(floor_db)
    count = int(ndimage.label(lit, np.ones((3, 3)))[1])
    dark = outside & ~ndimage.binary_dilation(lit, np.ones((3, 3)), iterations=3)
    return Around(count, float(lit.mean()), float(quiet[dark].mean()) if dark.any() else 0.0)


def _fitted(lit: np.ndarray, area: np.ndarray) -> Box:
    """The rows and columns of an area that are lit over a fair part of its width and height."""
    inside = lit & area
    edges = []
    for axis in (1, 0):
        share = inside.sum(axis=axis)
        full = np.flatnonzero(share >= 0.3 * np.quantile(share[share > 0], 0.9))
        edges.append((int(full[0]), int(full[-1])))
    (top, bottom), (left, right) = edges
    return top, left, bottom, right


def rectangle(box: Box, aspect: float) -> Sector:
    """A fan that holds exactly the pixels of a rectangle; its beams are parallel for all that a pixel can tell."""
    top, left, bottom, right = box
    half_width = (right - left + 1) / 2
    upper, lower = (top - 0.5) * aspect, (bottom + 0.5) * aspect
    angle = float(np.arctan(half_width / FAR))
    return Sector((left + right) / 2, upper - FAR, FAR, FAR + lower - upper, -angle, angle, aspect)


def images_of(geometry: Geometry) -> list[Geometry]:
    """The geometry of each image on the screen, the largest first."""
    if isinstance(geometry, Cartesian) and geometry.others:
        return [replace(geometry, sector=sector, others=()) for sector in (geometry.sector, *geometry.others)]
    return [geometry]


def image_mask(geometry: Geometry, shape: tuple[int, int]) -> np.ndarray:
    """``(H, W)`` bool: pixels of the images; all of them where the frame is taken as a whole."""
    if not isinstance(geometry, Cartesian) or geometry.sector is None:
        return np.ones(shape, bool)
    return _union((geometry.sector, *geometry.others), shape).copy()


@lru_cache(maxsize=4)  # frame after frame of one cine
def _union(sectors: tuple[Sector, ...], shape: tuple[int, int]) -> np.ndarray:
    return np.asarray(np.logical_or.reduce([sector_mask(sector, shape) for sector in sectors]))


def blank_screen(frames: np.ndarray, geometry: Geometry, black: float) -> np.ndarray:
    """Frames whose screen around the images is black: names are written there.

    Args:
        frames: ``(..., H, W)``.
        geometry: of the frames.
        black: their value for black.
    """
    mask = image_mask(geometry, (frames.shape[-2], frames.shape[-1]))
    return frames if mask.all() else np.where(mask, frames, np.asarray(black, frames.dtype))
