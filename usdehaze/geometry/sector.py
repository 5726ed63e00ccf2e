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

SMALLEST = 48  # px; on thumbnails two edges can be drawn through anything
COARSE_SIZE = 256  # lines are sought on a mask about this large
FRAMES_USED = 12  # evenly spread over the cine
SYMMETRY_WEIGHT = 0.4
LEVELS = (0.03, 0.08, 0.16)  # of the range above the background: how bright a pixel must be to count as image

# The confidence rule: see find_sector. Lengths are fractions of the edge, areas fractions of the image.
MIN_LEAN_RAD = math.radians(6)
MAX_LEAN_RAD = math.radians(78)
MIN_OPENING_RAD = math.radians(20)
MAX_TILT_RAD = math.radians(10)
MAX_RADIUS_RATIO = 0.75
MIN_EDGE_SUPPORT = 0.2
MIN_TOTAL_SUPPORT = 0.6
MAX_BEYOND = 0.06
MAX_COLLAR = 0.2
MIN_COVERAGE = 0.4
MAX_STRAYS = 0.35
MIN_DEPTH = 0.25


@dataclass(frozen=True)
class Fit:
    """A fan and the evidence for it, each figure in [0, 1].

    Attributes:
        sector: the fan.
        support: fraction of the left and of the right edge, inside the frame, where image ends at the edge.
        beyond: fraction of the image that lies outside the fan.
        collar: fraction of a narrow strip along the outside of both edges that holds image.
        coverage: fraction of the fan, inside the frame, that holds image.
        strays: fraction of all bright areas, whether they touch the image or not, that lies outside the fan.
        level: brightness above which a pixel counted as image, fraction of the range.
    """

    sector: Sector
    support: tuple[float, float]
    beyond: float
    collar: float
    coverage: float
    strays: float
    level: float

    @property
    def convincing(self) -> bool:
        return (
            min(self.support) >= MIN_EDGE_SUPPORT
            and sum(self.support) >= MIN_TOTAL_SUPPORT
            and self.beyond <= MAX_BEYOND
            and self.collar <= MAX_COLLAR
            and self.coverage >= MIN_COVERAGE
            and self.strays <= MAX_STRAYS
        )

    @property
    def score(self) -> float:
        return (
            sum(self.support) / 2 + 0.5 * self.coverage - self.collar - 3 * self.beyond - 2 * self.level
        )  # faint image shows most of the edges


def find_sector(frames_db: np.ndarray, floor_db: float, aspect: float = 1.0) -> Sector | None:
    """Find the fan of a phased or curved array in scan-converted frames, apex above.

    A fan is reported only where all of this holds (otherwise a wrong geometry would spoil every frame):
    two straight edges that open by 15 to 160 degrees, each leaning outwards by at least 4; image ends at the
    edge along at least 20 % of either and 60 % of both together; at most 6 % of the image lies beyond
    the fan, and at most 30 % of a narrow strip along the outside of the edges is filled; image fills at least 40 % of
    the fan. Overlays smaller than about 1 % of the frame (ECG trace, text, depth marks) do not count as image, nor do
    those that do not touch the fan.

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
    fits = candidate_fits(frames_db, floor_db, aspect)
    best = max((fit for fit in fits if fit.convincing), key=lambda fit: fit.score, default=None)
    return None if best is None else best.sector


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
    """The best fan at each brightness level, convincing or not."""
    count, height, width = frames_db.shape
    if min(height, width) < SMALLEST:
        return []
    chosen = np.unique(np.linspace(0, count - 1, min(count, FRAMES_USED)).astype(int))
    # seen in a fifth of the frames: keeps what moves in and out of the dark, drops one frame's overlays and noise
    image = np.quantile(frames_db[chosen], 0.8, axis=0, method="higher").astype(np.float32)
    background = float(np.quantile(image, 0.05))
    fits: list[Fit] = []
    for level in LEVELS:
        bright = image > background + level * abs(floor_db)
        fit = fit_fan(bright, aspect, level)
        if fit is not None:
            fits.append(fit)
    return fits


def fit_fan(bright: np.ndarray, aspect: float, level: float) -> Fit | None:
    """The best fan in a mask of bright pixels ``(H, W)``, or None where no two edges make one."""
    factor = max(1, math.ceil(max(bright.shape) / COARSE_SIZE))
    density = ndimage.uniform_filter(block_mean(bright, factor), 5, mode="nearest")
    filled = density > 0.5
    component = largest_component(filled)
    if component.sum() < 0.04 * component.size:
        return None
    pitch = (factor * aspect, float(factor))
    lines = best_pair(component, pitch)
    if lines is None:
        return None
    # the mask's pixel (0, 0) is centred on frame pixel (factor - 1) / 2
    corner = (factor - 1) / 2
    lines = tuple(shifted(line, corner, corner * aspect) for line in lines)
    fine = ndimage.uniform_filter(bright.astype(np.float32), 3, mode="nearest") > 0.5
    near = np.kron(ndimage.binary_dilation(component, iterations=2), np.ones((factor, factor), bool))
    fine &= near[: bright.shape[0], : bright.shape[1]]
    left = refine_line(lines[0], *boundary_points(fine, "lu"), aspect, 3.0 * factor)
    right = refine_line(lines[1], *boundary_points(fine, "ru"), aspect, 3.0 * factor)
    leans = (-left.angle, right.angle)
    if min(leans) < MIN_LEAN_RAD or max(leans) > MAX_LEAN_RAD or sum(leans) < MIN_OPENING_RAD:
        return None
    if abs(left.angle + right.angle) / 2 > MAX_TILT_RAD:
        return None
    apex_x, apex_y = intersection(left, right)
    radii = find_radii(component, fine, apex_x, apex_y, left.angle, right.angle, aspect, factor)
    if radii is None:
        return None
    sector = Sector(apex_x, apex_y, *radii, left.angle, right.angle, aspect)
    if sector.r_min > MAX_RADIUS_RATIO * sector.r_max or sector.r_max - sector.r_min < MIN_DEPTH * min(
        bright.shape[0] * aspect, bright.shape[1]
    ):
        return None
    return judge(sector, (left, right), component, filled, factor, level)


def block_mean(mask: np.ndarray, factor: int) -> np.ndarray:
    """Mean over ``factor x factor`` blocks; the last ones repeat the frame's border."""
    pad = [(0, -size % factor) for size in mask.shape]
    padded = np.pad(mask, pad, mode="edge").astype(np.float32)
    h, w = padded.shape
    return padded.reshape(h // factor, factor, w // factor, factor).mean(axis=(1, 3))


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


def find_radii(
    component: np.ndarray,
    fine: np.ndarray,
    apex_x: float,
    apex_y: float,
    angle_min: float,
    angle_max: float,
    aspect: float,
    factor: int,
) -> tuple[float, float] | None:
    """``(r_min, r_max)`` of the image between two angles, in columns."""
    whole = Sector(apex_x, apex_y, 0.0, 1e9, angle_min, angle_max, aspect)
    radius, angle = polar_coordinates(whole, fine.shape)
    solid = np.kron(component, np.ones((factor, factor), bool))[: fine.shape[0], : fine.shape[1]]
    solid = ndimage.binary_fill_holes(fine | ndimage.binary_erosion(solid, iterations=2 * factor))
    inside = (angle > angle_min) & (angle < angle_max)
    if not (solid & inside).any():
        return None
    # first radius at which image fills a good part of the arc
    bin_of = radius[inside].astype(int)
    total = np.bincount(bin_of)
    filled = np.bincount(bin_of, weights=solid[inside], minlength=len(total))
    started = np.nonzero(filled > 0.25 * np.maximum(total, 1))[0]
    if len(started) == 0:
        return None
    r_min = float(started[0])
    # last radius along each of 96 beams; a beam that leaves the frame first says nothing about the arc
    beams = 96
    beam_of = ((angle - angle_min) / (angle_max - angle_min) * beams).astype(int)
    rows, columns = np.nonzero(solid & inside)
    last = np.zeros(beams)
    np.maximum.at(last, beam_of[rows, columns], radius[rows, columns] + 0.5)
    frame_end = np.zeros(beams)
    np.maximum.at(frame_end, beam_of[inside], radius[inside])
    seen = last > 0
    cut = last > frame_end - 2.0
    arc = last[seen & ~cut]
    farthest = float(np.quantile(last[seen], 0.98))
    if len(arc) > 0:
        tolerance = 1.5 * factor
        near = np.abs(arc[:, None] - arc[None, :]) < tolerance
        beyond = (last[seen][None, :] > arc[:, None] + tolerance).sum(axis=1)
        votes = near.sum(axis=1) - 2.0 * beyond
        best = int(np.argmax(votes))
        if near[best].sum() >= 0.12 * beams and beyond[best] <= 0.15 * beams:
            return r_min, max(float(np.median(arc[near[best]])), r_min + 1)
    return r_min, max(farthest, r_min + 1)


def judge(
    sector: Sector, lines: tuple[Line, Line], component: np.ndarray, filled: np.ndarray, factor: int, level: float
) -> Fit:
    """Measure the evidence for a fan on the coarse masks: the image, and all bright areas."""
    corner = (factor - 1) / 2
    rows, columns = boundary_points(component, "lru")
    x, y = columns * factor + corner, (rows * factor + corner) * sector.aspect
    radius = np.hypot(x - sector.apex_x, y - sector.apex_y)
    height, width = component.shape
    support = []
    for line in lines:
        steps = np.arange(sector.r_min, sector.r_max, 2.0 * factor)
        at_x = sector.apex_x + steps * math.sin(line.angle)
        at_y = sector.apex_y + steps * math.cos(line.angle)
        inside = (
            (at_x >= factor) & (at_x < (width - 1) * factor) & (at_y >= 0) & (at_y < height * factor * sector.aspect)
        )
        on_line = np.abs(line.outside(x, y)) < 2.0 * factor
        found = np.bincount(
            ((radius[on_line] - sector.r_min) / (2.0 * factor)).clip(0).astype(int), minlength=len(steps)
        )
        support.append(float((found[: len(steps)][inside] > 0).mean()) if inside.any() else 0.0)
    y_grid = (np.arange(height)[:, None] * factor + corner) * sector.aspect
    x_grid = np.arange(width)[None, :] * factor + corner
    outside = np.maximum(lines[0].outside(x_grid, y_grid), lines[1].outside(x_grid, y_grid))
    r_grid = np.hypot(x_grid - sector.apex_x, y_grid - sector.apex_y)
    fan = (outside <= 0) & (r_grid >= sector.r_min) & (r_grid <= sector.r_max)
    # overlays are often glued to the fan near its apex and below its arc; the edges are what is judged
    margin = 2.0 * factor
    deep = (r_grid > sector.r_min + 0.1 * (sector.r_max - sector.r_min)) & (r_grid <= sector.r_max)
    collar = (outside > margin) & (outside < margin + 0.08 * sector.r_max) & deep & (y_grid > sector.apex_y)
    grown = (outside <= margin) & (r_grid >= sector.r_min - margin) & (r_grid <= sector.r_max + margin)
    return Fit(
        sector=sector,
        support=(support[0], support[1]),
        beyond=float((component & ~grown).sum() / component.sum()),
        collar=float(filled[collar].mean()) if collar.any() else 1.0,
        coverage=float(component[fan].mean()) if fan.any() else 0.0,
        strays=float((filled & ~grown).sum() / filled.sum()),
        level=level,
    )
