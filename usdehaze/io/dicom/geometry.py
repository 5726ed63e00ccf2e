"""Where in the frames the B-mode images lie."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from pydicom.dataset import Dataset

from usdehaze.cine import Cartesian, Sector
from usdehaze.geometry.screen import find_sectors, moved, rectangle
from usdehaze.io.dicom.regions import Region, find_regions, pixel_aspect, pixel_spacing_m
from usdehaze.io.whole_screen import Screen, fan_on_its_side, is_dark_on_white, look_at, note_on_probe
from usdehaze.notes import Guess

PLAIN = Screen()
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
        screen: what the frames show where no region says where the images are, and whether a region's fan lies on its
            side.
        traces_alone: there are regions, but of M-mode or spectral Doppler alone.
    """

    geometry: Cartesian
    inside: np.ndarray | None
    notes: tuple[str, ...]
    colour_flow: bool = False
    has_fan: bool = True
    screen: Screen = PLAIN
    traces_alone: bool = False


def find_place(
    attributes: Dataset,
    frames_db: np.ndarray,
    dynamic_range_db: float,
    force: bool = False,
    seek: bool = True,
    may_be_inverted: bool = False,
) -> Place:
    """The regions in the file, and the fans that the sector finder sees in them, or on a screen without regions.

    A region without a fan in it, as of a linear array, is given as a very narrow fan that fills the rectangle.

    Args:
        attributes: of the file.
        frames_db: ``(T, H, W)`` dB, some frames to look at.
        dynamic_range_db: of the frames.
        force: take regions of M-mode and spectral Doppler where there is no B-mode.
        seek: False takes regions, or a screen without any, as rectangles.
        may_be_inverted: nobody has said which end of the grey levels is black.
    """
    shape = (frames_db.shape[1], frames_db.shape[2])
    regions = find_regions(attributes, shape)
    b_mode = regions.b_mode or (regions.traces if force else ())
    if not b_mode:
        whole = Place(Cartesian(pixel_spacing_m(attributes)), None, (), has_fan=False)
        if regions.traces:
            return replace(whole, traces_alone=True)
        if not seek:
            return whole
        missing = "No ultrasound region in the file" + (" lies in the image" if regions.unusable else "")
        return _without_regions(attributes, frames_db, dynamic_range_db, may_be_inverted, missing)
    others = [other for other in regions.traces + regions.drawn if other not in b_mode]
    first, spacings = b_mode[0], {region.spacing_m for region in b_mode}
    spacing_m = first.spacing_m or pixel_spacing_m(attributes)
    aspect = pixel_aspect(attributes) if spacing_m is None else spacing_m[0] / spacing_m[1]
    if not first.fits:
        note = "The B-mode region in the file reaches beyond the image, as of an image of another size: "
        notes = [note + "its pixel spacing is not used."]
        if sectors := find_sectors(frames_db, -dynamic_range_db, aspect):
            notes.append("No ultrasound region that fits: the sector was found in the whole image.")
            return Place(_cartesian(first, spacing_m, sectors, "sector finder"), None, tuple(notes))
    else:
        notes = [*regions.notes]
    usable = [_free_of(others, region, shape) for region in b_mode]
    inside = np.logical_or.reduce(usable)
    screen, sought = PLAIN, partial(_in_regions, b_mode, usable, floor_db=-dynamic_range_db, aspect=aspect)
    fans, lying = sought(frames_db) if seek else ([[] for _ in b_mode], False)
    if not any(fans) and seek and may_be_inverted and is_dark_on_white(frames_db, -dynamic_range_db):
        fans, lying = sought(-dynamic_range_db - frames_db)
        screen = Screen(inverted=True) if any(fans) else Screen(white_around=True)
    screen = replace(screen, on_its_side=lying)
    found = [s for some, region in zip(fans, b_mode, strict=True) for s in some or [rectangle(region.box, aspect)]]
    n_fans = sum(map(len, fans))
    if n_left := len(others) + len(regions.beside):
        kinds = "M-mode, spectral Doppler, waveforms, graphics or colour flow"
        notes.append(f"Regions of {kinds} beside the B-mode: {n_left}, left as they are.")
    if len(b_mode) > 1:
        notes.append(f"{len(b_mode)} B-mode regions in the file: each is dehazed by itself.")
    if len(spacings - {None}) > 1 and first.spacing_m is not None:
        notes.append("The B-mode regions differ in pixel spacing: that of the largest is told of all.")
    if n_fans == len(found):
        notes.append(f"{_the_sectors(n_fans)} found within the ultrasound region that the file gives.")
    else:
        notes.append("No sector found within the ultrasound region that the file gives: it is taken as a rectangle.")
    geometry = _cartesian(first, spacing_m, found, "file" if n_fans == 0 else "sector finder")
    notes += note_on_probe(tuple(found))
    return Place(geometry, inside, tuple(notes), regions.colour_flow and bool(regions.b_mode), n_fans > 0, screen)


def _in_regions(
    regions: tuple[Region, ...], usable: list[np.ndarray], frames_db: np.ndarray, floor_db: float, aspect: float
) -> tuple[list[list[Sector]], bool]:
    """The fans in each of the regions, of whose pixels some are usable ``(H, W)``; and whether one lies on its side."""
    found, lying = [], False
    for region, mask in zip(regions, usable, strict=True):
        rows, columns = slice(region.top, region.bottom + 1), slice(region.left, region.right + 1)
        part = np.where(mask, frames_db, floor_db)[:, rows, columns]
        fans = find_sectors(part, floor_db, aspect)
        lying = lying or (not fans and fan_on_its_side(part, floor_db, aspect) is not None)
        found.append([moved(fan, region.top, region.left) for fan in fans])
    return found, lying


def _without_regions(
    attributes: Dataset, frames_db: np.ndarray, dynamic_range_db: float, may_be_inverted: bool, missing: str
) -> Place:
    """The same where there are no regions; ``missing`` says so."""
    spacing_m = pixel_spacing_m(attributes)
    aspect = pixel_aspect(attributes) if spacing_m is None else spacing_m[0] / spacing_m[1]
    screen = look_at(frames_db, -dynamic_range_db, aspect, framed=True, may_be_inverted=may_be_inverted)
    if not screen.sectors:
        note = f"{missing} and no sector found: the frames are taken as a rectangle."
        return Place(Cartesian(spacing_m), None, (Guess(note, IN_FILE),), has_fan=False, screen=screen)
    largest, *others = screen.sectors
    geometry = Cartesian(spacing_m, (0.0, 0.0), largest, "sector finder", (*others,))
    count = len(screen.sectors)
    if screen.fans:
        note = f"{missing}: {_the_sectors(count).lower()} found in the whole image."
        return Place(geometry, None, (note, *note_on_probe(screen.sectors)), screen=screen)
    what = f"the {count} largest areas of echoes are" if others else "the largest area of echoes is"
    note = f"{missing} and no sector found: {what} taken as B-mode, all else is left."
    return Place(geometry, None, (Guess(note, IN_FILE),), has_fan=False, screen=screen)


def _the_sectors(count: int) -> str:
    return "The sector was" if count == 1 else f"{count} sectors were"


def _cartesian(
    region: Region, spacing_m: tuple[float, float] | None, sectors: list[Sector], found_by: str
) -> Cartesian:
    return Cartesian(spacing_m, region.origin_m, sectors[0], found_by, (*sectors[1:],))


def _free_of(others: list[Region], region: Region, shape: tuple[int, int]) -> np.ndarray:
    """``(H, W)`` bool: pixels of a region that no other lies over; one that holds all of it lies under it."""
    mask = region.mask(shape)
    for other in others:
        if region.share_in(other) < 1:
            mask &= ~other.mask(shape)
    return mask
