"""Between a scan's own pixels and the fixed depth x angle grid that the priors see.

Frames go to the grid averaged over each grid cell; what comes back is a gain in dB, interpolated and added to the
native frame, so that native speckle survives and pixels that are no image keep their very bits.

Grid points are cell centres: row ``i`` of ``n`` stands for depths from ``i / n`` to ``(i + 1) / n`` of the extent.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy import ndimage, sparse

from ..cine import Cartesian, Geometry, Sector, blocks
from .sector import polar_coordinates, sector_mask

FRAMES_AT_ONCE = 32  # bounds the memory of the float32 copies
SAMPLES_PER_CELL = 8  # at most, along either axis


@dataclass(frozen=True)
class ModelGrid:
    """The grid of the priors: ``n_depth`` rows (near to far) by ``n_angle`` columns (left to right)."""

    n_depth: int = 128
    n_angle: int = 128

    def __post_init__(self) -> None:
        if self.n_depth < 1 or self.n_angle < 1:
            raise ValueError(f"model grid must have at least one row and column, found {self.n_depth}, {self.n_angle}")

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_depth, self.n_angle


class Mapper(ABC):
    """Takes frames of one shape and geometry to the model grid, and images on the model grid back.

    Attributes:
        frame_shape: native ``(H, W)``.
        grid: the model grid.
        valid: ``(n_depth, n_angle)`` bool, grid points that hold image data; the frame cuts the fan off at the others.
        image_mask: ``(H, W)`` bool, native pixels that take part: the fan, or the whole frame.
    """

    def __init__(
        self, frame_shape: tuple[int, int], grid: ModelGrid, valid: np.ndarray, image_mask: np.ndarray
    ) -> None:
        self.frame_shape = frame_shape
        self.grid = grid
        self.valid = valid
        self.image_mask = image_mask
        self._pixels = np.flatnonzero(image_mask)

    @abstractmethod
    def _gather(self, frames: np.ndarray) -> np.ndarray:
        """``(t, H, W)`` to ``(t, n_depth, n_angle)`` float32."""

    @abstractmethod
    def _scatter(self, images: np.ndarray) -> np.ndarray:
        """``(t, n_depth, n_angle)`` to ``(t, P)`` float32 at the ``P`` pixels of ``image_mask``, in row order."""

    def to_model(self, frames: np.ndarray) -> np.ndarray:
        """Average native frames over the cells of the model grid.

        Grid points that are not ``valid`` repeat the nearest valid one: no black corner is left for a prior to explain.

        Args:
            frames: ``(T, H, W)`` float32, dB.

        Returns:
            ``(T, n_depth, n_angle)`` float32, dB, within the range of ``frames``.

        Raises:
            ValueError: frames of another shape than the mapper was made for.
        """
        self._check(frames, self.frame_shape, "frames")
        out = np.empty((len(frames), *self.grid.shape), np.float32)
        for block in blocks(len(frames), FRAMES_AT_ONCE):
            out[block] = self._gather(frames[block].astype(np.float32, copy=False))
        return out

    def from_model(self, images: np.ndarray, outside_value: float) -> np.ndarray:
        """Interpolate images on the model grid at native pixels.

        Args:
            images: ``(T, n_depth, n_angle)``, any unit.
            outside_value: given to native pixels that hold no image.

        Returns:
            ``(T, H, W)`` float32.

        Raises:
            ValueError: images that are not on the model grid.
        """
        self._check(images, self.grid.shape, "images")
        out = np.full((len(images), *self.frame_shape), outside_value, np.float32)
        flat = out.reshape(len(images), -1)
        for block in blocks(len(images), FRAMES_AT_ONCE):
            flat[block, self._pixels] = self._scatter(images[block].astype(np.float32, copy=False))
        return out

    def apply_gain(self, frames: np.ndarray, gain_db: np.ndarray) -> np.ndarray:
        """Native frames plus the gain interpolated at their pixels.

        Pixels outside the image, and pixels whose gain is zero, come back bit for bit. The sum is not clipped: a gain
        above zero may pass 0 dB, one below zero the floor.

        Args:
            frames: ``(T, H, W)`` float32, dB.
            gain_db: ``(T, n_depth, n_angle)``, dB.

        Returns:
            ``(T, H, W)`` float32, dB; a new array.

        Raises:
            ValueError: shapes that do not fit the mapper or each other.
        """
        self._check(frames, self.frame_shape, "frames")
        self._check(gain_db, self.grid.shape, "gain")
        if len(frames) != len(gain_db):
            raise ValueError(f"gain must have one image per frame, found {len(gain_db)} for {len(frames)} frames")
        out = np.array(frames, np.float32, order="C")
        flat = out.reshape(len(out), -1)
        for block in blocks(len(out), FRAMES_AT_ONCE):
            gain = self._scatter(gain_db[block].astype(np.float32, copy=False))
            native = flat[block, self._pixels]
            # -0.0 + 0.0 is 0.0: not the same bits
            flat[block, self._pixels] = np.where(gain == 0, native, native + gain)
        return out

    @staticmethod
    def _check(array: np.ndarray, shape: tuple[int, int], what: str) -> None:
        if array.ndim != 3 or array.shape[1:] != shape:
            raise ValueError(f"{what} must be (T, {shape[0]}, {shape[1]}), found {array.shape}")


class SameGrid(Mapper):
    """A rectangle that has the model grid's shape already: nothing is resampled."""

    def __init__(self, grid: ModelGrid) -> None:
        super().__init__(grid.shape, grid, np.ones(grid.shape, bool), np.ones(grid.shape, bool))

    def _gather(self, frames: np.ndarray) -> np.ndarray:
        return frames

    def _scatter(self, images: np.ndarray) -> np.ndarray:
        return images.reshape(len(images), -1)


class Rectangle(Mapper):
    """Polar frames, or frames of a linear array: rows and columns are resampled each on their own.

    Samples count as evenly spaced over the extent, whatever the depths and angles say.
    """

    def __init__(self, frame_shape: tuple[int, int], grid: ModelGrid) -> None:
        super().__init__(frame_shape, grid, np.ones(grid.shape, bool), np.ones(frame_shape, bool))
        sizes = list(zip(frame_shape, grid.shape, strict=True))
        self._to = [sparse.csr_array(axis_weights(n, m)) for n, m in sizes]
        self._from = [sparse.csr_array(axis_weights(m, n)) for n, m in sizes]

    def _gather(self, frames: np.ndarray) -> np.ndarray:
        return _resampled(frames, *self._to)

    def _scatter(self, images: np.ndarray) -> np.ndarray:
        return _resampled(images, *self._from).reshape(len(images), -1)


class Fan(Mapper):
    """Scan-converted frames with a sector: both ways are one sparse product for many frames."""

    def __init__(self, sector: Sector, frame_shape: tuple[int, int], grid: ModelGrid) -> None:
        image_mask = sector_mask(sector, frame_shape)
        if not image_mask.any():
            raise ValueError(f"sector holds no pixel of a frame of shape {frame_shape}: {sector}")
        self._gather_matrix, source = gather_matrix(sector, image_mask, grid)
        valid = (source == np.arange(source.size)).reshape(grid.shape)
        super().__init__(frame_shape, grid, valid, image_mask)
        self._scatter_matrix = scatter_matrix(sector, image_mask, grid, source)

    def _gather(self, frames: np.ndarray) -> np.ndarray:
        columns = np.ascontiguousarray(frames.reshape(len(frames), -1).T)
        return (self._gather_matrix @ columns).T.reshape(len(frames), *self.grid.shape)

    def _scatter(self, images: np.ndarray) -> np.ndarray:
        columns = np.ascontiguousarray(images.reshape(len(images), -1).T)
        return (self._scatter_matrix @ columns).T


def _resampled(images: np.ndarray, rows: sparse.csr_array, columns: sparse.csr_array) -> np.ndarray:
    """``rows @ images @ columns.T`` of ``(t, H, W)`` images.

    Sparse on purpose: the threads of a dense product wait busily for the next one, on the cores of the networks.
    """
    for weights in (rows, columns):
        n, height, width = images.shape
        done = weights @ np.ascontiguousarray(images.transpose(1, 2, 0)).reshape(height, width * n)
        images = done.reshape(len(done), width, n).transpose(2, 1, 0)
    return images


def make_mapper(geometry: Geometry, frame_shape: tuple[int, int], grid: ModelGrid | None = None) -> Mapper:
    """The mapper between frames of a geometry and the model grid; make it once per cine.

    Args:
        geometry: of the frames. A Cartesian one without a sector is taken as a rectangle.
        frame_shape: native ``(H, W)``.
        grid: the model grid; 128 x 128 by default.

    Raises:
        ValueError: a frame with no rows or columns, or a sector that holds none of its pixels.
    """
    grid = grid or ModelGrid()
    height, width = frame_shape
    if height < 1 or width < 1:
        raise ValueError(f"frame shape must be (H, W), both at least 1, found {frame_shape}")
    if isinstance(geometry, Cartesian) and geometry.sector is not None:
        return Fan(geometry.sector, (height, width), grid)
    if (height, width) == grid.shape:
        return SameGrid(grid)
    return Rectangle((height, width), grid)


def axis_weights(size: int, new_size: int) -> np.ndarray:
    """``(new_size, size)`` float32, rows summing to 1: averages over cells when shrinking, linear when growing."""
    if new_size <= size:
        edges = np.arange(new_size + 1) * (size / new_size)
        cells = np.arange(size)
        overlap = np.minimum(edges[1:, None], cells + 1) - np.maximum(edges[:-1, None], cells)
        weights = np.maximum(overlap, 0.0)
    else:
        at = np.clip((np.arange(new_size) + 0.5) * (size / new_size) - 0.5, 0, size - 1)
        weights = np.maximum(1 - np.abs(at[:, None] - np.arange(size)), 0.0)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def gather_matrix(sector: Sector, image_mask: np.ndarray, grid: ModelGrid) -> tuple[sparse.csr_array, np.ndarray]:
    """Weights ``(n_depth * n_angle, H * W)`` that average the fan over each grid cell, and the cell that each is
    taken from: itself where it is valid, else the nearest valid one.

    Each cell is sampled at about one point per pixel, every point bilinearly from pixels inside the fan only: the
    black around the fan must not leak into the outermost beams.
    """
    depth_step = (sector.r_max - sector.r_min) / grid.n_depth
    angle_step = (sector.angle_max - sector.angle_min) / grid.n_angle
    finest = min(1.0, abs(sector.aspect))
    per_depth = int(np.clip(math.ceil(depth_step / finest), 1, SAMPLES_PER_CELL))
    per_angle = int(np.clip(math.ceil(angle_step * sector.r_max / finest), 1, SAMPLES_PER_CELL))
    radius = sector.r_min + depth_step * (np.arange(grid.n_depth * per_depth) + 0.5) / per_depth
    angle = sector.angle_min + angle_step * (np.arange(grid.n_angle * per_angle) + 0.5) / per_angle
    column = sector.apex_x + radius[:, None] * np.sin(angle)
    row = (sector.apex_y + radius[:, None] * np.cos(angle)) / sector.aspect
    height, width = image_mask.shape
    in_frame = (row > -0.5) & (row < height - 0.5) & (column > -0.5) & (column < width - 0.5)
    cell = (np.arange(len(radius)) // per_depth)[:, None] * grid.n_angle + np.arange(len(angle)) // per_angle
    cells, pixels, weights = [], [], []
    first_row, first_column = np.floor(row).astype(int), np.floor(column).astype(int)
    for dr in (0, 1):
        for dc in (0, 1):
            r, c = first_row + dr, first_column + dc
            weight = (1 - np.abs(row - r)) * (1 - np.abs(column - c))
            usable = in_frame & (weight > 0) & (r >= 0) & (r < height) & (c >= 0) & (c < width)
            usable[usable] = image_mask[r[usable], c[usable]]
            cells.append(cell[usable])
            pixels.append(r[usable] * width + c[usable])
            weights.append(weight[usable])
    count = grid.n_depth * grid.n_angle
    entries = np.concatenate(weights), (np.concatenate(cells), np.concatenate(pixels))
    matrix = sparse.coo_array(entries, shape=(count, height * width)).tocsr()
    total = np.asarray(matrix.sum(axis=1)).ravel()
    # most of a cell must be seen: a cell that the frame's border halves is worth keeping, a sliver is not
    seen = np.bincount(cell.ravel(), weights=in_frame.ravel(), minlength=count) / (per_depth * per_angle)
    valid = ((seen >= 0.5) & (total > 0)).reshape(grid.shape)
    if not valid.any():
        raise ValueError(f"no cell of the model grid lies inside the frame: {sector}")
    # each row sums to 1
    matrix = sparse.diags_array(1 / np.maximum(total, 1e-12)) @ matrix
    nearest = ndimage.distance_transform_edt(~valid, return_distances=False, return_indices=True)
    source = np.ravel_multi_index(tuple(nearest), grid.shape).ravel()
    return sparse.csr_array(matrix.tocsr()[source], dtype=np.float32), source


def scatter_matrix(sector: Sector, image_mask: np.ndarray, grid: ModelGrid, source: np.ndarray) -> sparse.csr_array:
    """Weights ``(P, n_depth * n_angle)``: bilinear at the ``P`` pixels of the mask, clamped in the outer half cell.

    Of each cell the one in ``source`` (see `gather_matrix`) is taken: what was not seen has no value of its own.
    """
    radius, angle = (values[image_mask] for values in polar_coordinates(sector, image_mask.shape))
    depth_at = (radius - sector.r_min) / (sector.r_max - sector.r_min) * grid.n_depth - 0.5
    angle_at = (angle - sector.angle_min) / (sector.angle_max - sector.angle_min) * grid.n_angle - 0.5
    (d0, d1, dw), (a0, a1, aw) = _neighbours(depth_at, grid.n_depth), _neighbours(angle_at, grid.n_angle)
    count = len(radius)
    columns = np.concatenate(
        [d0 * grid.n_angle + a0, d0 * grid.n_angle + a1, d1 * grid.n_angle + a0, d1 * grid.n_angle + a1]
    )
    weights = np.concatenate([(1 - dw) * (1 - aw), (1 - dw) * aw, dw * (1 - aw), dw * aw]).astype(np.float32)
    entries = weights, (np.tile(np.arange(count), 4), source[columns])
    return sparse.coo_array(entries, shape=(count, grid.n_depth * grid.n_angle)).tocsr()


def _neighbours(at: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grid indices on either side of fractional positions, and the weight of the second."""
    at = np.clip(at, 0, size - 1)
    first = np.minimum(at.astype(int), max(size - 2, 0))
    return first, np.minimum(first + 1, size - 1), at - first
