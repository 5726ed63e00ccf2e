"""The two straight edges of a fan: candidate lines by voting, then least squares on the pixel boundaries.

Points are ``(x, y)`` in columns, as in :class:`usdehaze.cine.Sector`. A line is ``(angle, offset)``: it runs along
``(sin angle, cos angle)``, and the fan lies where ``normal . (x, y) <= offset``; ``normal`` points out of the fan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

LEFT, RIGHT = -1, 1
ANGLES_RAD = np.deg2rad(np.arange(4.0, 77.5, 1.0))  # magnitude; steeper or flatter edges belong to a rectangle
ORIENTATION_TOLERANCE_RAD = np.deg2rad(25.0)
CANDIDATES = 8  # lines a side
OUTSIDE_WEIGHT = 8.0  # columns of edge given up for every strip, one column wide and as long as the image, left out


@dataclass(frozen=True)
class Line:
    """One edge: ``angle`` in rad (0 straight down, positive towards +x), ``offset`` along the outward normal."""

    angle: float
    offset: float
    side: int
    score: float = 0.0

    @property
    def normal(self) -> tuple[float, float]:
        return outward_normal(self.angle, self.side)

    def outside(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Signed distance of points beyond the line, in columns; negative inside."""
        nx, ny = self.normal
        return nx * x + ny * y - self.offset


def outward_normal(angle: float, side: int) -> tuple[float, float]:
    return side * float(np.cos(angle)), -side * float(np.sin(angle))


def boundary_points(mask: np.ndarray, directions: str) -> tuple[np.ndarray, np.ndarray]:
    """Midpoints ``(rows, columns)`` between a pixel of the mask and a neighbour outside it.

    The frame's own border is not a boundary: what lies beyond it is unknown. ``directions`` holds any of "l", "r", "u",
    "d": on which side of the mask's pixel the neighbour lies.
    """
    rows, columns = [], []
    horizontal, vertical = mask[:, 1:].astype(np.int8) - mask[:, :-1], mask[1:].astype(np.int8) - mask[:-1]
    for direction, step, value in (
        ("l", horizontal, 1),
        ("r", horizontal, -1),
        ("u", vertical, 1),
        ("d", vertical, -1),
    ):
        if direction in directions:
            r, c = np.nonzero(step == value)
            rows.append(r + 0.5 * (step is vertical))
            columns.append(c + 0.5 * (step is horizontal))
    return np.concatenate(rows), np.concatenate(columns)


def candidate_lines(mask: np.ndarray, side: int, pitch: tuple[float, float]) -> list[Line]:
    """Lines that much of the mask's boundary lies on and that little of the mask lies beyond, the `CANDIDATES` best.

    Args:
        mask: ``(h, w)`` bool, True where there is image.
        side: LEFT or RIGHT.
        pitch: row and column pitch of the mask, in columns of the frame; pixel (0, 0) of the mask is taken as (0, 0).
    """
    py, px = pitch
    tolerance, bin_width = 1.5 * px, 0.5 * px
    rows, columns = boundary_points(mask, "lu" if side == LEFT else "ru")
    if len(rows) == 0:
        return []
    soft = ndimage.gaussian_filter(mask.astype(np.float32), 2.0, mode="nearest")
    slope_y, slope_x = (ndimage.map_coordinates(g, [rows, columns], order=1) for g in np.gradient(soft))
    heading = np.arctan2(-slope_y / py, -slope_x / px)  # the way out of the mask
    x, y = columns * px, rows * py
    inner_rows, inner_columns = np.nonzero(mask[::2, ::2])
    inner_x, inner_y, inner_area = inner_columns * 2 * px, inner_rows * 2 * py, 4 * px * py
    extent = np.sqrt(len(inner_x) * inner_area)
    lines: list[Line] = []
    for angle in side * ANGLES_RAD:
        nx, ny = outward_normal(angle, side)
        turn = np.angle(np.exp(1j * (heading - np.arctan2(ny, nx))))
        aligned = np.abs(turn) < ORIENTATION_TOLERANCE_RAD
        if not aligned.any():
            continue
        offsets = nx * x[aligned] + ny * y[aligned]
        low, bins = offsets.min() - 3 * px, int((np.ptp(offsets) + 6 * px) / bin_width) + 1
        votes = np.bincount(((offsets - low) / bin_width).astype(int), minlength=bins).astype(float)
        # a line of unit length crosses |nx| / py rows and |ny| / px columns, with one boundary point at each
        length = np.convolve(votes, np.ones(7), "same") / (abs(nx) / py + abs(ny) / px)
        inner = ((nx * inner_x + ny * inner_y - low - tolerance) / bin_width).clip(0, bins).astype(int)
        beyond = np.bincount(inner, minlength=bins + 1)[::-1].cumsum()[::-1][1:] * inner_area
        score = length - OUTSIDE_WEIGHT * beyond / extent
        best = int(np.argmax(score))
        lines.append(Line(float(angle), float(low + (best + 0.5) * bin_width), side, float(score[best])))
    lines.sort(key=lambda line: -line.score)
    chosen: list[Line] = []
    for line in lines:
        if all(abs(line.angle - other.angle) > np.deg2rad(2.5) for other in chosen) and line.score > 0:
            chosen.append(line)
        if len(chosen) == CANDIDATES:
            break
    return chosen


def refine_line(line: Line, rows: np.ndarray, columns: np.ndarray, aspect: float, reach: float) -> Line:
    """Least squares on the outermost boundary points near a line, with Tukey's weights against stray ones.

    Args:
        line: the line to refine.
        rows, columns: boundary points of the full-size mask.
        aspect: row pitch over column pitch.
        reach: how far the points may lie from the line, in columns; shrinks as the fit settles.
    """
    x, y = columns, rows * aspect
    angle, offset = line.angle, line.offset
    for step in range(8):
        width = max(reach * 0.6**step, 1.5)
        nx, ny = outward_normal(angle, line.side)
        distance = nx * x + ny * y - offset
        near = np.abs(distance) < width
        if near.sum() < 8:
            break
        along = np.sin(angle) * x[near] + np.cos(angle) * y[near]
        across = distance[near]
        # the outermost point at each step along the edge: dark speckle makes the others lie inside
        order = np.lexsort((-across, np.floor(along)))
        first = np.unique(np.floor(along)[order], return_index=True)[1]
        along, across = along[order][first], across[order][first]
        if len(along) < 8 or np.ptp(along) < 4 * width:
            break
        weights = (1 - (across / width) ** 2) ** 2
        tilt, shift = np.polyfit(along, across, 1, w=np.sqrt(weights))
        # across = tilt * along + shift; turning the line by atan(tilt) about the origin follows it
        turn = float(np.arctan(tilt))
        angle, offset = angle + line.side * turn, (offset + float(shift)) * float(np.cos(turn))
    return Line(float(angle), float(offset), line.side, line.score)
