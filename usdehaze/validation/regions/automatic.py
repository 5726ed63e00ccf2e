"""Automatic regions: a quick look where nobody has drawn any. Never used unless asked for."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from usdehaze.cine import Cartesian, Cine
from usdehaze.errors import InputError
from usdehaze.geometry import sector_mask
from usdehaze.validation.regions.model import AUTOMATIC, Region, Regions, checked

SMOOTHING = 1 / 64  # standard deviation of the smoothing, in frame heights
MARGIN_PX = 3.0  # between a region and the level that bounds it
MIN_PIXELS = 200  # fewer in a frame and it has no region
SILENT_DB = 3.0  # smoothed pixels this close to the floor show neither tissue nor haze
AUTOMATIC_METHOD = (
    "brighter and darker part of the smoothed input inside the sector, split at Otsu's level, 3 pixels apart from it; "
    "chosen by brightness, so gcnr and contrast of the input are high by construction: for a quick look, not for "
    "publication"
)


def automatic_regions(cine: Cine) -> Regions:
    """Tissue and haze of every frame of the *input*, by brightness.

    Each frame is smoothed; Otsu's level of all smoothed pixels inside the sector (of the whole frame where there is
    none) splits them into tissue (above) and haze (below, but above the floor). What lies within 3 pixels of the
    border of a part is left out.

    Raises:
        InputError: no frame has at least 200 pixels of each.

    Source:
        Otsu, "A threshold selection method from gray-level histograms", IEEE Trans. SMC 9(1), 1979.
    """
    frames, geometry = cine.frames, cine.geometry
    shape = (frames.shape[0], frames.shape[1], frames.shape[2])
    inside = np.ones(shape[1:], dtype=bool)
    if isinstance(geometry, Cartesian) and geometry.sector is not None:
        inside = sector_mask(geometry.sector, shape[1:])
    sigma = SMOOTHING * shape[1]
    smooth = np.stack([ndimage.gaussian_filter(frame, sigma) for frame in frames])
    heard = inside & (smooth > -cine.dynamic_range_db + SILENT_DB)
    name = cine.source.name or "the cine"
    if not heard.any():
        raise InputError(name, "nothing above the floor to find regions in", "--roi FILE with regions drawn by hand")
    level = otsu_level(smooth[heard])
    parts = {"tissue": heard & (smooth > level), "haze": heard & (smooth <= level)}
    regions = []
    for role, part in parts.items():
        mask = np.stack([ndimage.distance_transform_edt(np.pad(p, 1))[1:-1, 1:-1] > MARGIN_PX for p in part])
        frames_of = frozenset(t for t in range(shape[0]) if mask[t].sum() >= MIN_PIXELS)
        regions.append(Region(f"{AUTOMATIC} {role}", role, mask, frames_of))
    found = Regions(tuple(regions), shape, "", AUTOMATIC)
    if not found.frames():
        expected = f"{MIN_PIXELS} pixels of both in one frame"
        raise InputError(name, "no automatic regions of tissue and haze found", expected, "draw them: --roi FILE")
    return checked(name, found, cine.source.first_frame)


def otsu_level(values: np.ndarray, bins: int = 256) -> float:
    """The level that splits values into two classes with the largest variance between them."""
    counts, edges = np.histogram(values, bins=bins)
    centres = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(counts)[:-1]
    above = values.size - below
    sum_below = np.cumsum(counts * centres)[:-1]
    total = float((counts * centres).sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        between = below * above * np.square(sum_below / below - (total - sum_below) / above)
    return float(edges[1:-1][np.argmax(np.nan_to_num(between))])
