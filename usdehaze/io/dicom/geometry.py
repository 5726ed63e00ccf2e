"""Where in the frames the B-mode images lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydicom.dataset import Dataset

from usdehaze.cine import Cartesian, Sector
from usdehaze.geometry.screen import Box, echo_boxes, find_sectors, moved, rectangle
from usdehaze.io.dicom.regions import Region, find_regions, pixel_aspect, pixel_spacing_m
from usdehaze.notes import Guess

IN_FILE = "an ultrasound region in the file"


@dataclass(frozen=True)
class Place:
    """Where the B-mode images of a screen lie.

    Attributes:
        geometry: of the frames.
        inside: ``(H, W)`` bool, pixels of the regions that the file gives; None where it gives none.
        notes: what had to be assumed, one sentence each.
        colour_flow: whether the regions are of colour flow.
        has_fan: whether there is a fan in them.
    """

    geometry: Cartesian
    inside: np.ndarray | None
    notes: tuple[str, ...]
    colour_flow: bool = False
    has_fan: bool = True


def find_place(
    attributes: Dataset,
    frames_db: np.ndarray,
    dynamic_range_db: float,
    force: bool = False,
    seek: bool = True,
) -> Place | None:
    """The regions in the file, and the fans that the sector finder sees in them, or on a screen without regions.

    A region without a fan in it, as of a linear array, is given as a very narrow fan that fills the rectangle.

    Args:
        attributes: of the file.
        frames_db: ``(T, H, W)`` dB, some frames to look at.
        dynamic_range_db: of the frames.
        force: take regions of M-mode and spectral Doppler, or all of the screen, where there is no B-mode.
        seek: False takes a screen without regions as a whole.

    Returns:
        None where nothing looks like B-mode.
    """
    shape = (frames_db.shape[1], frames_db.shape[2])
    regions = find_regions(attributes, shape)
    b_mode = regions.b_mode or (regions.traces if force else ())
    if not b_mode:
        if not seek and not regions.traces:
            return Place(Cartesian(pixel_spacing_m(attributes)), None, (), has_fan=False)
        return None if regions.traces else _without_regions(attributes, frames_db, dynamic_range_db, force)
    traces = [trace for trace in regions.traces if trace not in b_mode]
    first = b_mode[0]
    aspect = pixel_aspect(attributes) if first.spacing_m is None else first.spacing_m[0] / first.spacing_m[1]
    if not first.fits:
        note = "The B-mode region in the file reaches beyond the image, as of an image of another size: "
        notes = [note + "its pixel spacing is not used."]
        if sectors := find_sectors(frames_db, -dynamic_range_db, aspect):
            notes.append("No ultrasound region that fits: the sector was found in the whole image.")
            return Place(_cartesian(first, sectors, "sector finder"), None, tuple(notes))
    else:
        notes = []
    inside = np.logical_or.reduce([_free_of(traces, region, shape) for region in b_mode])
    found: list[Sector] = []
    n_fans = 0
    for region in b_mode:
        usable = _free_of(traces, region, shape)
        part = np.where(usable, frames_db, -dynamic_range_db)[
            :, region.top : region.bottom + 1, region.left : region.right + 1
        ]
        sectors = [moved(fan, region.top, region.left) for fan in find_sectors(part, -dynamic_range_db, aspect)]
        n_fans += len(sectors)
        found += sectors or [rectangle(region.box, aspect)]
    if n_left := len(traces) + len(regions.beside):
        notes.append(
            f"Regions of M-mode, spectral Doppler or colour flow beside the B-mode: {n_left}, left as they are."
        )
    if len(b_mode) > 1:
        notes.append(f"{len(b_mode)} B-mode regions in the file: each is dehazed by itself.")
    if n_fans == len(found):
        notes.append(f"{_the_sectors(n_fans)} found within the ultrasound region that the file gives.")
    else:
        notes.append("No sector found within the ultrasound region that the file gives: it is taken as a rectangle.")
    geometry = _cartesian(first, found, "file" if n_fans == 0 else "sector finder")
    return Place(geometry, inside, tuple(notes), regions.colour_flow and bool(regions.b_mode), n_fans > 0)


def _without_regions(attributes: Dataset, frames_db: np.ndarray, dynamic_range_db: float, force: bool) -> Place | None:
    spacing_m = pixel_spacing_m(attributes)
    aspect = pixel_aspect(attributes) if spacing_m is None else spacing_m[0] / spacing_m[1]
    if sectors := find_sectors(frames_db, -dynamic_range_db, aspect, cluttered=True):
        note = f"No ultrasound region in the file: {_the_sectors(len(sectors)).lower()} found in the whole image."
        return Place(Cartesian(spacing_m, (0.0, 0.0), sectors[0], "sector finder", (*sectors[1:],)), None, (note,))
    none = "No ultrasound region in the file and no sector found"
    height, width = frames_db.shape[1:]
    whole = (0, 0, height - 1, width - 1)
    boxes: list[Box] = echo_boxes(frames_db, -dynamic_range_db) or ([whole] if force else [])
    if not boxes:
        return None
    if boxes == [whole]:
        note = f"{none}: the frames are taken as a rectangle."
        return Place(Cartesian(spacing_m), None, (Guess(note, IN_FILE),), has_fan=False)
    largest, *others = (rectangle(box, aspect) for box in boxes)
    what = f"the {len(boxes)} largest areas of echoes are" if others else "the largest area of echoes is"
    note = f"{none}: {what} taken as B-mode, all else is left."
    geometry = Cartesian(spacing_m, (0.0, 0.0), largest, "sector finder", (*others,))
    return Place(geometry, None, (Guess(note, IN_FILE),), has_fan=False)


def _the_sectors(count: int) -> str:
    return "The sector was" if count == 1 else f"{count} sectors were"


def _cartesian(region: Region, sectors: list[Sector], found_by: str) -> Cartesian:
    return Cartesian(region.spacing_m, region.origin_m, sectors[0], found_by, (*sectors[1:],))


def _free_of(traces: list[Region], region: Region, shape: tuple[int, int]) -> np.ndarray:
    """``(H, W)`` bool: pixels of a region that no trace lies over; a trace that holds all of it lies under it."""
    mask = region.mask(shape)
    for trace in traces:
        if region.share_in(trace) < 1:
            mask &= ~trace.mask(shape)
    return mask
