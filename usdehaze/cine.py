"""Cine: the one data type that moves through the product."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Sector:
    """The fan that a phased or curved array leaves in a scan-converted frame.

    All lengths are in *columns* (the width of a pixel). A frame whose rows are ``aspect`` times as far apart as its
    columns has its pixel ``(row, column)`` at ``x = column``, ``y = row * aspect`` (x right, y down, pixel centres at
    whole numbers). Angles are in rad, 0 straight down, positive towards +x. Where the probe is at the bottom of the
    frame ``aspect`` is negative: y, which points into the body, then rises with falling rows.

    Attributes:
        apex_x, apex_y: where the beams meet, in columns; may lie outside the frame.
        r_min, r_max: first and last radius of image data, in columns from the apex; ``0 <= r_min < r_max``.
        angle_min, angle_max: opening angles in rad, ``-pi/2 < angle_min < angle_max < pi/2``.
        aspect: row pitch over column pitch; not 0.
    """

    apex_x: float
    apex_y: float
    r_min: float
    r_max: float
    angle_min: float
    angle_max: float
    aspect: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.r_min < self.r_max):
            raise ValueError(f"sector radii must satisfy 0 <= r_min < r_max, found {self.r_min}, {self.r_max}")
        if not (-math.pi / 2 < self.angle_min < self.angle_max < math.pi / 2):
            raise ValueError(f"sector angles out of order or range: {self.angle_min}, {self.angle_max} rad")


@dataclass(frozen=True)
class Polar:
    """Frames before scan conversion: rows are depths, columns are beam angles.

    Attributes:
        depths_m: ``(H,)`` distance of each row from the apex, m, increasing.
        angles_rad: ``(W,)`` angle of each column, rad, 0 straight down, increasing.
    """

    depths_m: np.ndarray
    angles_rad: np.ndarray

    @property
    def row_per_column(self) -> float:
        """1: of m and rad there is no ratio."""
        return 1.0

    def check(self) -> None:
        """Raises a ValueError for axes that do not increase, and for angles of more than a full turn."""
        for axis in (self.depths_m, self.angles_rad):
            if np.ndim(axis) != 1 or not _are_numbers(axis) or np.any(np.diff(np.asarray(axis, float)) <= 0):
                raise ValueError("polar geometry: depths and angles must increase")
        if np.ptp(self.angles_rad) > 2 * math.pi + 1e-6:
            raise ValueError("polar geometry: angles are in rad, and span no more than a full turn")


@dataclass(frozen=True)
class Cartesian:
    """Frames on a rectangular pixel grid.

    Attributes:
        spacing_m: ``(row, column)`` pixel pitch in m, or None where the file does not say.
        origin_m: ``(z, x)`` of pixel (0, 0) in m.
        sector: the fan inside the frame; None for a linear array, or where no fan was found.
        found_by: where ``sector`` came from: "file", "sector finder", or "none" (the frame is taken as a rectangle).
        others: fans of further images on the same screen, each dehazed by itself.
    """

    spacing_m: tuple[float, float] | None = None
    origin_m: tuple[float, float] = (0.0, 0.0)
    sector: Sector | None = None
    found_by: str = "none"
    others: tuple[Sector, ...] = ()

    @property
    def row_per_column(self) -> float:
        """Row pitch over column pitch; 1 where nothing tells."""
        if self.spacing_m is not None:
            return self.spacing_m[0] / self.spacing_m[1]
        return 1.0 if self.sector is None else abs(self.sector.aspect)

    def check(self) -> None:
        """Raises a ValueError for a spacing that is not two positive numbers."""
        pitch = self.spacing_m
        if pitch is not None and (np.shape(pitch) != (2,) or not _are_numbers(pitch) or min(pitch) <= 0):
            raise ValueError(f"pixel spacing must be two positive numbers of m, row and column, found {pitch}")


Geometry = Polar | Cartesian


def positions_m(geometry: Geometry, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray] | None:
    """x (lateral) and z (depth) of every pixel centre of frames of a shape, each ``(H, W)`` m; None where the pixel
    spacing is not known. The apex of a polar geometry lies at 0."""
    if isinstance(geometry, Polar):
        depth, angle = np.meshgrid(geometry.depths_m, geometry.angles_rad, indexing="ij")
        return depth * np.sin(angle), depth * np.cos(angle)
    if geometry.spacing_m is None:
        return None
    axes = (o + s * np.arange(n) for o, s, n in zip(geometry.origin_m, geometry.spacing_m, shape, strict=True))
    z_m, x_m = np.meshgrid(*axes, indexing="ij")
    return x_m, z_m


@dataclass(frozen=True)
class Source:
    """Where a cine came from.

    Attributes:
        name: file name without its folder ("" for arrays made in memory).
        sha256: hash of the whole source file, hex ("" in memory).
        dataset: path of the dataset inside an HDF5 file.
        layout: what the reader recognised, for instance "HDF5 dataset" or "usdehaze simulation".
        units: how stored values became dB: "dB", "8-bit", "grey" (levels of another
            full scale), "envelope", "I/Q".
        assumptions: what had to be assumed, one sentence each, guesses as `usdehaze.notes.Guess`; told by ``info`` and
            ``process`` and kept in the result.
        first_frame: index in the source of the first frame held.
        frames: in the source, whichever are held; 0 where that is not known.
        options: of reading that decided values, as on the command line.
    """

    name: str = ""
    sha256: str = ""
    dataset: str = ""
    layout: str = "array"
    units: str = "dB"
    assumptions: tuple[str, ...] = ()
    first_frame: int = 0
    frames: int = 0
    options: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Cine:
    """A run of log-compressed beamformed frames; one equals itself alone, and its ``repr`` shows no pixel.

    Attributes:
        frames: ``(T, H, W)`` float32 in dB, 0 dB = full scale, floor = ``-dynamic_range_db``.
        geometry: Polar or Cartesian.
        dynamic_range_db: positive, dB between full scale and the floor.
        frame_times_s: ``(T,)`` s, or None where the file does not say.
        source: provenance.
        tissue_mask: ``(T, H, W)`` bool, False where a pixel shows no grey tissue (colour Doppler, an ECG trace, another
            region of the screen) and must stay as it is; None where all may be tissue.

    Raises:
        ValueError: frames that are not 3-D float32, hold non-finite values, or lie outside ``[-dynamic_range_db, 0]``;
            times, a mask or polar axes that do not fit them, axes that do not increase, angles of more than a full
            turn, a spacing that is not positive, no geometry.
    """

    frames: np.ndarray
    geometry: Geometry
    dynamic_range_db: float = 60.0
    frame_times_s: np.ndarray | None = None
    source: Source = field(default_factory=Source)
    tissue_mask: np.ndarray | None = None

    def __post_init__(self) -> None:
        f = self.frames
        if not isinstance(f, np.ndarray) or f.dtype != np.float32:
            found = f"an array of {f.dtype}" if isinstance(f, np.ndarray) else type(f).__name__
            how = "make one: np.asarray(frames, np.float32)"
            raise ValueError(f"frames must be an array of float32, found {found}; {how}")
        if f.ndim != 3 or f.size == 0:
            raise ValueError(f"frames must be (T, H, W) and not empty, found {f.shape}")
        if not (math.isfinite(self.dynamic_range_db) and self.dynamic_range_db > 0):
            raise ValueError(f"dynamic range must be positive, found {self.dynamic_range_db} dB")
        low, high = float(f.min()), float(f.max())
        if not (low >= -self.dynamic_range_db - 1e-3 and high <= 1e-3):  # also false for NaN
            found = f"frames must lie in [-{self.dynamic_range_db:g}, 0] dB, found [{low:g}, {high:g}]"
            raise ValueError(f"{found}; {_how_to_convert(low, high, self.dynamic_range_db)}")
        if self.tissue_mask is not None and np.shape(self.tissue_mask) != f.shape:
            raise ValueError(f"tissue mask has shape {np.shape(self.tissue_mask)}, the frames {f.shape}")
        if self.frame_times_s is not None and np.shape(self.frame_times_s) != f.shape[:1]:
            raise ValueError(f"frame times have shape {np.shape(self.frame_times_s)}, the frames {f.shape}")
        if self.frame_times_s is not None and not _are_numbers(self.frame_times_s):
            raise ValueError("frame times must be finite numbers of seconds")
        if not isinstance(self.geometry, Geometry):
            raise ValueError(f"geometry must be Polar or Cartesian, found {type(self.geometry).__name__}")
        if isinstance(self.geometry, Polar):
            axes = self.geometry.depths_m, self.geometry.angles_rad
            if tuple(map(np.shape, axes)) != (f.shape[1:2], f.shape[2:]):
                raise ValueError(f"polar geometry does not fit frames of shape {f.shape}")
        self.geometry.check()

    def __repr__(self) -> str:
        n, height, width = self.frames.shape
        return f"Cine({n} frames of {height} x {width}, {self.dynamic_range_db:g} dB, {type(self.geometry).__name__})"


def _are_numbers(values: object) -> bool:
    """Whether all of these are finite numbers."""
    array = np.asarray(values)
    return array.dtype.kind in "fiu" and bool(np.isfinite(array).all())


def _how_to_convert(low: float, high: float, span: float) -> str:
    """What makes dB within ``[-span, 0]`` of frames whose smallest and largest values are these."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return (
            f"background that is no number becomes the floor by np.nan_to_num(frames, nan={-span:g}, neginf={-span:g})"
        )
    if low >= 0 and high <= 255:
        full_scale, divided = (1, "frames") if high <= 1 else (255, "frames / 255")
        return f"grey levels of 0 to {full_scale} become dB by ({divided} - 1) * {span:g}"
    if low >= 0:
        return f"an envelope becomes dB by 20 * np.log10(frames / frames.max()), clipped to [{-span:g}, 0]"
    if high <= 0:
        return f"give a dynamic range of {-low:g} dB, or clip them: np.clip(frames, {-span:g}, 0)"
    return f"of dB above another zero take off the largest, and clip: np.clip(frames - frames.max(), {-span:g}, 0)"


def blocks(n_frames: int, most: int) -> Iterator[slice]:
    """Cuts a run of frames into blocks of ``most`` frames; the last one may be smaller."""
    for start in range(0, n_frames, most):
        yield slice(start, min(start + most, n_frames))
