"""Regions of interest: which pixels of which frames count as tissue and which as haze.

Three forms are read (``--roi``):

* JSON ``{"regions": [{"name": "septum", "role": "tissue" | "haze", "frames": [0], "polygon": [[x, y], ...]}]}`` in
  pixels of the native frame, x right and y down, pixel centres at whole numbers; without ``frames`` a region holds in
  every frame;
* a label image (PNG), 255 = tissue, 128 = haze, the convention of the DehazingEcho2025 challenge;
* an HDF5 file with one label dataset ``(H, W)`` or ``(T, H, W)``, same values.

Frames are counted as in the source file: a result of ``--frames 4:8`` has the frames 4 to 7. Inside this module, and in
:class:`Regions`, they are counted from 0 in the result.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from usdehaze.errors import InputError

ROLES = ("tissue", "haze")
LABELS = {"tissue": 255, "haze": 128}
LABEL_NAMES = ("label", "labels", "roi", "rois", "mask", "segmentation")


@dataclass(frozen=True)
class Region:
    """One region.

    Attributes:
        name: what it is called in tables and reports.
        role: "tissue" or "haze".
        mask: bool ``(1, H, W)``, the same in every frame it holds in, or ``(T, H, W)``.
        frames: indices of the frames it holds in.
    """

    name: str
    role: str
    mask: np.ndarray
    frames: frozenset[int]


@dataclass(frozen=True)
class Regions:
    """Every region of a cine. ``source`` is the file they came from."""

    regions: tuple[Region, ...]
    shape: tuple[int, int, int]
    source: str = ""

    def mask(self, role: str, frame: int) -> np.ndarray:
        """Bool ``(H, W)``: union of the regions of one role in one frame."""
        union = np.zeros(self.shape[1:], dtype=bool)
        for region in self.regions:
            if region.role == role and frame in region.frames:
                union |= region.mask[frame if len(region.mask) > 1 else 0]
        return union

    def frames(self) -> list[int]:
        """Frames in which both a tissue and a haze region have pixels, ascending."""
        return [t for t in range(self.shape[0]) if all(self.mask(role, t).any() for role in ROLES)]


def read_regions(path: Path, shape: tuple[int, int, int], first_frame: int = 0) -> Regions:
    """Read a file of regions for frames of the given shape.

    Args:
        path: JSON, PNG or HDF5, told apart by content.
        shape: ``(T, H, W)`` of the cine.
        first_frame: index in the source of the first frame of the cine.

    Raises:
        InputError: one line that says what is wrong: not readable, none of the three forms, unknown role, a polygon
            of fewer than 3 points or outside the frame, a frame that does not exist, labels of another size, a region
            without pixels, tissue and haze that overlap, no frame with both.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})", "a file of regions (JSON, PNG or HDF5)") from error
    if head == b"\x89PNG\r\n\x1a\n":
        regions = _from_labels(path, _read_png(path), shape)
    elif head == b"\x89HDF\r\n\x1a\n":
        regions = _from_labels(path, _read_hdf5(path, shape), shape)
    else:
        regions = _from_json(path, shape, first_frame)
    return _checked(path, Regions(tuple(regions), shape, path.name), first_frame)


def polygon_mask(polygon: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Pixels whose centre lies inside a polygon, by the even-odd rule.

    Each edge owns the half-open interval of rows from its upper end (included) to its lower one (excluded), so a
    rectangle covers exactly as many pixels as its area and two polygons that share an edge never share a pixel.

    Args:
        polygon: ``(N, 2)`` corners ``(x, y)`` in pixels, closed implicitly.
        shape: ``(H, W)``.

    Returns:
        bool ``(H, W)``.
    """
    rows, columns = np.arange(shape[0], dtype=np.float64), np.arange(shape[1], dtype=np.float64)
    inside = np.zeros(shape, dtype=bool)
    for (x0, y0), (x1, y1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        if y0 == y1:
            continue
        crossed = np.flatnonzero((rows >= min(y0, y1)) & (rows < max(y0, y1)))
        x_crossing = x0 + (rows[crossed] - y0) * (x1 - x0) / (y1 - y0)
        inside[crossed] ^= columns >= x_crossing[:, None]  # toggles everything right of the edge
    return inside


def _from_json(path: Path, shape: tuple[int, int, int], first_frame: int) -> list[Region]:
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(path, "neither JSON, PNG nor HDF5", "a file of regions") from error
    except json.JSONDecodeError as error:
        found = f"not valid JSON (line {error.lineno}, column {error.colno}: {error.msg})"
        raise InputError(path, found, '{"regions": [...]}') from error
    entries = document.get("regions") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InputError(path, "no list of regions", '{"regions": [{"name", "role", "frames", "polygon"}, ...]}')
    return [_region(path, entry, index, shape, first_frame) for index, entry in enumerate(entries)]


def _region(path: Path, entry: Any, index: int, shape: tuple[int, int, int], first_frame: int) -> Region:
    """One entry of the JSON form, checked."""
    if not isinstance(entry, dict):
        raise InputError(path, f"region {index} is not an object", '{"name", "role", "frames", "polygon"}')
    name = str(entry.get("name", index))
    label = f'region "{name}"'
    role = entry.get("role")
    if role not in ROLES:
        raise InputError(path, f"{label} has the role {json.dumps(role)}", '"tissue" or "haze"')
    n_frames, height, width = shape

    frames = entry.get("frames")
    if frames is None:
        frames = list(range(first_frame, first_frame + n_frames))
    if not isinstance(frames, list) or not frames or not all(type(t) is int for t in frames):
        raise InputError(path, f"{label} has frames {json.dumps(frames)}", "a list of frame indices such as [0, 1]")
    for t in frames:
        if not 0 <= t - first_frame < n_frames:
            expected = f"{first_frame} to {first_frame + n_frames - 1}, the frames of the result"
            raise InputError(path, f"{label} names frame {t}", expected)

    try:
        polygon = np.asarray(entry.get("polygon"), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        polygon = np.empty(0)
    if polygon.ndim != 2 or polygon.shape[1] != 2 or not np.isfinite(polygon).all():
        raise InputError(path, f"{label} has no usable polygon", "a list of points [[x, y], ...] in pixels")
    if len(polygon) < 3:
        raise InputError(path, f"{label} has a polygon of {len(polygon)} points", "at least 3")
    if (polygon < -0.5).any() or (polygon > np.array([width, height]) - 0.5).any():
        x, y = polygon[((polygon < -0.5) | (polygon > np.array([width, height]) - 0.5)).any(axis=1)][0]
        expected = f"x from 0 to {width - 1} and y from 0 to {height - 1}"
        raise InputError(path, f"{label} has the point ({x:g}, {y:g}) outside the frame", expected)
    mask = polygon_mask(polygon, (height, width))
    if not mask.any():
        raise InputError(path, f"{label} holds no pixel centre", "a polygon around at least one pixel")
    return Region(name, role, mask[None], frozenset(t - first_frame for t in frames))


def _read_png(path: Path) -> np.ndarray:
    """Label image as ``(1, H, W)`` grey values."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return np.asarray(image if image.mode.startswith("I") else image.convert("L"))[None]
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(path, "damaged PNG", "a label image, 255 = tissue, 128 = haze") from error


def _read_hdf5(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """The label dataset of an HDF5 file as ``(1 or T, H, W)``."""
    import h5py

    found: list[tuple[str, tuple[int, ...]]] = []
    try:
        with h5py.File(path, "r") as file:

            def visit(name: str, item: Any) -> None:
                if isinstance(item, h5py.Dataset) and item.dtype.kind in "buif" and item.ndim in (2, 3):
                    found.append((name, item.shape))

            file.visititems(visit)
            fitting = [name for name, size in found if (1, *size)[-3:] in (shape, (1, *shape[1:]))]
            named = [name for name in fitting if name.rsplit("/", 1)[-1].lower() in LABEL_NAMES]
            chosen = named or fitting
            if len(chosen) > 1:
                raise InputError(path, f"several label datasets ({', '.join(chosen)})", "one")
            if chosen:
                labels = np.asarray(file[chosen[0]][()])
                return labels[None] if labels.ndim == 2 else labels
    except OSError as error:
        raise InputError(path, "HDF5 file that cannot be read", "a label dataset (H, W) or (T, H, W)") from error
    sizes = ", ".join(f"{name} {size}" for name, size in found) or "none"
    raise InputError(path, f"no label dataset that fits (found {sizes})", f"{shape[1:]} or {shape}")


def _from_labels(path: Path, labels: np.ndarray, shape: tuple[int, int, int]) -> list[Region]:
    """Tissue and haze region of a label array ``(1 or T, H, W)``."""
    if labels.shape[1:] != shape[1:]:
        found = f"labels of {labels.shape[1]} x {labels.shape[2]} pixels (height x width)"
        raise InputError(path, found, f"{shape[1]} x {shape[2]}, the frame of the result")
    regions = []
    for role, value in LABELS.items():
        mask = labels == value
        if mask.any():
            regions.append(Region(role, role, mask, frozenset(range(shape[0]))))
    if len(regions) < len(LABELS):
        values = ", ".join(f"{v:g}" for v in np.unique(labels)[:8].tolist())
        raise InputError(path, f"labels {values}", "both 255 (tissue) and 128 (haze)")
    return regions


def _checked(path: Path, regions: Regions, first_frame: int) -> Regions:
    """Regions that can be compared: both roles there, in one frame at least, and apart from each other."""
    for role in ROLES:
        if not any(region.role == role for region in regions.regions):
            raise InputError(path, f"no {role} region", "at least one tissue and one haze region")
    if not regions.frames():
        raise InputError(path, "no frame has both a tissue and a haze region", "both in one frame at least")
    for t in regions.frames():
        shared = int((regions.mask("tissue", t) & regions.mask("haze", t)).sum())
        if shared:
            raise InputError(
                path, f"tissue and haze overlap in {shared} pixels of frame {t + first_frame}", "regions that are apart"
            )
    return regions
