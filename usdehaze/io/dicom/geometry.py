"""Where in the frames the B-mode image lies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydicom.dataset import Dataset

from usdehaze.cine import Cartesian, Sector
from usdehaze.geometry import find_sector
from usdehaze.io.dicom.regions import Region, find_region, pixel_aspect, pixel_spacing_m

FAR = 1e8  # columns; a rectangle is a fan whose apex is so far away that its arcs are straight to 0.02 columns


def find_geometry(
    attributes: Dataset, frames_db: np.ndarray, dynamic_range_db: float
) -> tuple[Cartesian, Region | None, tuple[str, ...]]:
    """Geometry of the frames: the region in the file, and the fan that the sector finder sees in it.

    A region without a fan in it, as of a linear array, is given as a very narrow fan that fills the rectangle.

    Args:
        attributes: of the file.
        frames_db: ``(T, H, W)`` dB, some frames to look at.
        dynamic_range_db: of the frames.

    Returns:
        The geometry, the region or None where the file has none, and what had to be assumed, one sentence each.
    """
    shape = frames_db.shape[1:]
    region, notes = find_region(attributes, (shape[0], shape[1]))
    spacing_m = pixel_spacing_m(attributes) if region is None else region.spacing_m
    aspect = pixel_aspect(attributes) if spacing_m is None else spacing_m[0] / spacing_m[1]
    origin_m = (0.0, 0.0) if region is None else region.origin_m
    if region is None or not region.fits:
        sector = find_sector(frames_db, -dynamic_range_db, aspect)
        if sector is not None:
            where = "in the file" if region is None else "that fits"
            notes += (f"No ultrasound region {where}: the sector was found in the whole image.",)
            return Cartesian(spacing_m, origin_m, sector, "sector finder"), None, notes
    if region is None:
        notes += ("No ultrasound region in the file and no sector found: the frames are taken as a rectangle.",)
        return Cartesian(spacing_m, origin_m), None, notes
    part = frames_db[:, region.top : region.bottom + 1, region.left : region.right + 1]
    sector = find_sector(part, -dynamic_range_db, aspect)
    if sector is not None:
        sector = replace(sector, apex_x=sector.apex_x + region.left, apex_y=sector.apex_y + region.top * aspect)
        notes += ("The sector was found within the ultrasound region that the file gives.",)
        return Cartesian(spacing_m, origin_m, sector, "sector finder"), region, notes
    notes += ("No sector found within the ultrasound region that the file gives: it is taken as a rectangle.",)
    return Cartesian(spacing_m, origin_m, rectangle(region, aspect), "file"), region, notes


def rectangle(region: Region, aspect: float) -> Sector:
    """A fan that holds exactly the pixels of a region; its beams are parallel for all that a pixel can tell."""
    half_width = (region.right - region.left + 1) / 2
    top, bottom = (region.top - 0.5) * aspect, (region.bottom + 0.5) * aspect
    angle = float(np.arctan(half_width / FAR))
    centre = (region.left + region.right) / 2
    return Sector(centre, top - FAR, FAR, FAR + bottom - top, -angle, angle, aspect)
