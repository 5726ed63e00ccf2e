"""Find the fan in scan-converted frames.

Works on where there is image, not on how bright it is: a mask of pixels above the background, its two straight edges
(:mod:`usdehaze.geometry.edges`), the apex where they meet, and the radii between which there is image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from ..cine import Sector
from .edges import LEFT, OUTSIDE_WEIGHT, RIGHT, Line, boundary_points, candidate_lines, refine_line
from .radii import find_radii

SMALLEST = 64  # px; on thumbnails two edges can be drawn through anything
COARSE_SIZE = 256  # lines are sought on a mask about this large
FRAMES_USED = 12  # evenly spread over the cine
LEVELS = (0.015, 0.03, 0.06, 0.1)  # of the range above the background: how bright a pixel must be to count as image
SYMMETRY_WEIGHT = 0.4

# The confidence rule: see find_sector.
MIN_LEAN_RAD = math.radians(6)
MAX_LEAN_RAD = math.radians(78)
USUAL_LEAN_RAD = math.radians(65)
MIN_OPENING_RAD = math.radians(20)
MAX_TILT_RAD = math.radians(10)
MAX_RADIUS_RATIO = 0.75
MIN_DEPTH = 0.25
MIN_SUPPORT = 0.12
MIN_BOTH_SUPPORT = 0.6
MIN_EVIDENCE = 0.95
MIN_EVIDENCE_WIDE = 2.0
CERTAIN_EVIDENCE = 2.2
MAX_BEYOND = 0.03
MAX_COLLAR = 0.1
MAX_STRAYS = 0.35
MIN_COVERAGE = 0.4


@dataclass(frozen=True)
class Fit:
    """A fan and the evidence for it, each figure in [0, 1].

    Attributes:
        sector: the fan.
        support: fraction of the left and of the right edge, inside the frame, where image ends at the edge.
        ends: fraction of the beams on which image lasts to the arc at the bottom or to the frame's border.
        beyond: fraction of the image that lies outside the fan.
        collar: fraction of a strip along the outside of both edges that is bright, noise included.
        strays: fraction of all bright areas, whether they touch the image or not, that lies outside the fan.
        coverage: fraction of the fan, inside the frame, that holds image.
        level: brightness above which a pixel counted as image, fraction of the range.
    """

    sector: Sector
    support: tuple[float, float]
    ends: float
    beyond: float
    collar: float
    strays: float
    coverage: float
    level: float

    @property
    def evidence(self) -> float:
        """Support of both edges and ends together, in [0, 3]."""
        return sum(self.support) + self.ends

    @property
    def convincing(self) -> bool:
        wide = max(-self.sector.angle_min, self.sector.angle_max) > USUAL_LEAN_RAD
        return (
            min(self.support) >= MIN_SUPPORT
            and sum(self.support) >= MIN_BOTH_SUPPORT
            and self.evidence >= (MIN_EVIDENCE_WIDE if wide else MIN_EVIDENCE)
            and self.beyond <= MAX_BEYOND
            and self.collar <= MAX_COLLAR
            and self.strays <= MAX_STRAYS
            and self.coverage >= MIN_COVERAGE
        )

    @property
    def certain(self) -> bool:
        """Whether it leaves no doubt."""
        return self.convincing and self.evidence >= CERTAIN_EVIDENCE

    @property
    def score(self) -> float:
        seen = (self.evidence + self.coverage) / 2
        # the faintest image shows the edges best, unless noise comes with it
        return seen - self.collar - 3 * self.beyond - 2 * self.level


def find_sector(frames_db: np.ndarray, floor_db: float, aspect: float = 1.0) -> Sector | None:
    """Find the fan of a phased or curved array in scan-converted frames, apex above.

    A fan is reported only where all of this holds, at some brightness level between background and image:

    - two straight edges lean outwards by 6 to 78 degrees each, open by 20 at least, about an axis within 10 of upright;
    - image ends within a pixel or so of the edge along at least 12 % of either edge, 60 % of both together; with the
      fraction of the beams that last to the bottom arc (or the frame) that makes 0.95 at least, or 2 where an edge
      leans by more than 65 degrees;
    - at most 3 % of the image lies beyond the fan, at most 10 % of a strip along the outside of the edges is bright,
      and at most 35 % of everything bright in the frame lies outside the fan;
    - image fills 40 % of the fan, ``r_min`` is at most three quarters of ``r_max``, and the fan is a quarter of the
      frame deep.

    Overlays thinner than about 1 % of the frame (ECG trace, text, depth marks) do not count as image; larger ones only
    where they touch it. A frame under 64 pixels high or wide is refused.

    Where the arc at the bottom is cut off, or too dark to be seen, ``r_max`` is the farthest image inside the fan.

    Args:
        frames_db: ``(T, H, W)`` dB in ``[floor_db, 0]``.
        floor_db: the value of black, negative dB.
        aspect: row pitch over column pitch.

    Returns:
        The sector, or None where there is no convincing one: linear arrays, polar frames, photographs, noise.

    Raises:
        ValueError: frames that are not 3-D, a floor that is not negative, or an aspect that is not positive.
    """
    if frames_db.ndim != 3:
        raise ValueError(f"frames must be (T, H, W), found shape {frames_db.shape}")
    if not floor_db < 0:
        raise ValueError(f"floor must be negative, found {floor_db} dB")
    if not aspect > 0:
        raise ValueError(f"aspect must be positive, found {aspect}")
    best = find_fan(frames_db, floor_db, aspect)
    return None if best is None else best.sector


def find_fan(frames_db: np.ndarray, floor_db: float, aspect: float = 1.0) -> Fit | None:
    """What `find_sector` finds, with the evidence for it."""
    fits = candidate_fits(frames_db, floor_db, aspect)
    return max((fit for fit in fits if fit.convincing), key=lambda fit: fit.score, default=None)


def frames_used(count: int) -> np.ndarray:
    """Indices of the frames, of ``count``, that `find_sector` looks at; of these frames alone it looks at all."""
    return np.unique(np.linspace(0, count - 1, min(count, FRAMES_USED)).astype(int))


def mostly_seen(frames_db: np.ndarray) -> np.ndarray:
    """Of each pixel the least value that four in five frames do not exceed, ``(H, W)``; of up to five the largest."""
    if len(frames_db) <= 5:
        return np.asarray(frames_db.max(axis=0))
    rank = -(-4 * (len(frames_db) - 1) // 5)
    return np.asarray(np.partition(frames_db, rank, axis=0)[rank])  # a third of the time of np.quantile


def sector_mask(sector: Sector, shape: tuple[int, int]) -> np.ndarray:
    """``(H, W)`` bool: pixels whose centre lies in the fan, edges included."""
    radius, angle = polar_coordinates(sector, shape)
    return (
        (radius >= sector.r_min) & (radius <= sector.r_max) & (angle >= sector.angle_min) & (angle <= sector.angle_max)
    )


def polar_coordinates(sector: Sector, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Radius (columns) and angle (rad) of every pixel centre about the apex, each ``(H, W)`` float64."""
    y = np.arange(shape[0])[:, None] * sector.aspect - sector.apex_y
    x = np.arange(shape[1])[None, :] - sector.apex_x
    return np.hypot(x, y), np.arctan2(x, y)


def candidate_fits(frames_db: np.ndarray, floor_db: float, aspect: float) -> list[Fit]:
    """The best fan at each brightness level, convincing or not; stops at one that leaves no doubt."""
    count, height, width = frames_db.shape
    if min(height, width) < SMALLEST:
        return []
    chosen = frames_used(count)
    # seen in a fifth of the frames: keeps what moves in and out of the dark, drops one frame's overlays and noise
    image = mostly_seen(frames_db[chosen]).astype(np.float32)
    background = float(np.quantile(image, 0.05))
    fits: list[Fit] = []
    for level in LEVELS:
        bright = image > background + level * abs(floor_db)
        fit = fit_fan(bright, aspect, level)
        if fit is not None:
            fits.append(fit)
            if fit.certain:
                break
    return fits


def fit_fan(bright: np.ndarray, aspect: float, level: float) -> Fit | None:
    """The best fan in a mask of bright pixels ``(H, W)``, or None where no two edges make one."""
    factor = math.ceil(max(bright.shape) / COARSE_SIZE)
    density = ndimage.uniform_filter(block_mean(bright, factor), 5, mode="nearest")
    filled = density > 0.5
    component = largest_component(filled)
    if component.mean() < 0.04:
        return None
    pair = best_pair(component, (factor * aspect, float(factor)))
    if pair is None:
        return None
    # the coarse mask's pixel (0, 0) is centred on the frame's pixel (factor - 1) / 2
    corner = (factor - 1) / 2
    fine = ndimage.uniform_filter(bright.astype(np.float32), 3, mode="nearest") > 0.5
    fine &= enlarged(ndimage.binary_dilation(component, iterations=2), factor, bright.shape)
    left, right = (
        refine_line(shifted(line, corner, corner * aspect), *boundary_points(fine, directions), aspect, 3.0 * factor)
        for line, directions in zip(pair, ("lu", "ru"), strict=True)
    )
    leans = (-left.angle, right.angle)
    if min(leans) < MIN_LEAN_RAD or max(leans) > MAX_LEAN_RAD or sum(leans) < MIN_OPENING_RAD:
        return None
    if abs(left.angle + right.angle) / 2 > MAX_TILT_RAD:
        return None
    apex_x, apex_y = intersection(left, right)
    image = fine | enlarged(ndimage.binary_erosion(component, iterations=2), factor, bright.shape)
    image = ndimage.binary_fill_holes(image)
    opened = ndimage.binary_opening(component, np.ones((7, 7)))
    thick = image & enlarged(ndimage.binary_dilation(opened, iterations=2), factor, bright.shape)
    opening = (left.angle, right.angle)
    radius, angle = polar_coordinates(Sector(apex_x, apex_y, 0.0, 1.0, *opening, aspect), bright.shape)
    radii = find_radii(image, thick, radius, angle, opening, tolerance=1.5 * factor)
    if radii is None or radii.r_min > MAX_RADIUS_RATIO * radii.r_max:
        return None
    if radii.r_max - radii.r_min < MIN_DEPTH * min(bright.shape[0] * aspect, bright.shape[1]):
        return None
    sector = Sector(apex_x, apex_y, radii.r_min, radii.r_max, *opening, aspect)
    support = (edge_support(left, sector, fine, "lu"), edge_support(right, sector, fine, "ru"))
    return judge(sector, (left, right), support, radii.ends, component, density, factor, level)


def enlarged(mask: np.ndarray, factor: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.kron(mask, np.ones((factor, factor), bool))[: shape[0], : shape[1]]


def block_mean(mask: np.ndarray, factor: int | tuple[int, int]) -> np.ndarray:
    """Mean over blocks of so many rows and columns; the last ones repeat the frame's border."""
    rows, columns = (factor, factor) if isinstance(factor, int) else factor
    padded = np.pad(mask, ((0, -mask.shape[0] % rows), (0, -mask.shape[1] % columns)), mode="edge").astype(np.float32)
    h, w = padded.shape
    return padded.reshape(h // rows, rows, w // columns, columns).mean(axis=(1, 3))


def largest_component(mask: np.ndarray) -> np.ndarray:
    """The largest connected part, black regions inside it filled."""
    labels, count = ndimage.label(mask)
    if count == 0:
        return mask
    return ndimage.binary_fill_holes(labels == 1 + int(np.argmax(np.bincount(labels.ravel())[1:])))


def shifted(line: Line, dx: float, dy: float) -> Line:
    nx, ny = line.normal
    return Line(line.angle, line.offset + nx * dx + ny * dy, line.side, line.score)


def intersection(left: Line, right: Line) -> tuple[float, float]:
    x, y = np.linalg.solve([left.normal, right.normal], [left.offset, right.offset])
    return float(x), float(y)


def best_pair(component: np.ndarray, pitch: tuple[float, float]) -> tuple[Line, Line] | None:
    """The left and right edge that together explain most of the boundary and leave out least of the image."""
    lefts, rights = (candidate_lines(component, side, pitch) for side in (LEFT, RIGHT))
    rows, columns = np.nonzero(component[::2, ::2])
    x, y, area = columns * 2 * pitch[1], rows * 2 * pitch[0], 4 * pitch[0] * pitch[1]
    extent = math.sqrt(len(x) * area)
    best, best_score = None, -math.inf
    out_left, out_right = ([line.outside(x, y) > 1.5 * pitch[1] for line in lines] for lines in (lefts, rights))
    for left, beyond_left in zip(lefts, out_left, strict=True):
        for right, beyond_right in zip(rights, out_right, strict=True):
            opening = right.angle - left.angle
            if opening < MIN_OPENING_RAD:
                continue
            both = np.count_nonzero(beyond_left & beyond_right) * area
            # what lies beyond both edges was charged to each
            score = left.score + right.score + OUTSIDE_WEIGHT * both / extent
            # most fans are upright: decides between nearly equal pairs only
            score -= SYMMETRY_WEIGHT * extent * abs(left.angle + right.angle) / opening
            if score > best_score:
                best, best_score = (left, right), score
    return best


def edge_support(line: Line, sector: Sector, fine: np.ndarray, directions: str) -> float:
    """Fraction of an edge, inside the frame, along which the image's boundary lies on it."""
    height, width = fine.shape
    step = 2.0
    along = np.arange(sector.r_min, sector.r_max, step)
    row = (sector.apex_y + along * math.cos(line.angle)) / sector.aspect
    column = sector.apex_x + along * math.sin(line.angle)
    in_frame = (row > 0) & (row < height - 1) & (column > 1) & (column < width - 2)
    if not in_frame.any():
        return 0.0
    rows, columns = boundary_points(fine, directions)
    x, y = columns, rows * sector.aspect
    on_line = np.abs(line.outside(x, y)) < max(1.0, max(fine.shape) / 400)
    at = (np.hypot(x - sector.apex_x, y - sector.apex_y)[on_line] - sector.r_min) / step
    found = np.bincount(at[(at >= 0) & (at < len(along))].astype(int), minlength=len(along))
    return float((found[in_frame] > 0).mean())


def judge(
    sector: Sector,
    lines: tuple[Line, Line],
    support: tuple[float, float],
    ends: float,
    component: np.ndarray,
    density: np.ndarray,
    factor: int,
    level: float,
) -> Fit:
    """Measure what lies outside the fan on the coarse masks: of the image, and of all bright areas."""
    filled = density > 0.5
    corner, margin = (factor - 1) / 2, 2.0 * factor
    y = (np.arange(component.shape[0])[:, None] * factor + corner) * sector.aspect
    x = np.arange(component.shape[1])[None, :] * factor + corner
    outside = np.maximum(lines[0].outside(x, y), lines[1].outside(x, y))
    radius = np.hypot(x - sector.apex_x, y - sector.apex_y)
    fan = (outside <= 0) & (radius >= sector.r_min) & (radius <= sector.r_max)
    grown = (outside <= margin) & (radius >= sector.r_min - margin) & (radius <= sector.r_max + margin)
    # vendor marks sit close to the apex; the strip starts below them
    deep = (radius > sector.r_min + 0.1 * (sector.r_max - sector.r_min)) & (radius <= sector.r_max)
    collar = (outside > margin) & (outside < margin + 0.08 * sector.r_max) & deep & (y > sector.apex_y)
    return Fit(
        sector=sector,
        support=support,
        ends=ends,
        beyond=float((component & ~grown).sum() / component.sum()),
        collar=float(density[collar].mean()) if collar.any() else 1.0,
        strays=float((filled & ~grown).sum() / filled.sum()),
        coverage=float(component[fan].mean()) if fan.any() else 0.0,
        level=level,
    )
