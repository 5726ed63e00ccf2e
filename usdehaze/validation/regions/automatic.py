"""Automatic regions: a quick look where nobody has drawn any. Never used unless asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from scipy import ndimage

from usdehaze.cine import Cine
from usdehaze.errors import InputError
from usdehaze.geometry import image_mask
from usdehaze.validation.regions.model import AUTOMATIC, PackedMasks, Region, Regions, checked

if TYPE_CHECKING:
    from usdehaze.io.own_files import LazyCine

SMOOTHING = 1 / 64  # standard deviation of the smoothing, in frame heights
MARGIN_PX = 3.0  # between a region and the level that bounds it
BINS = 256  # of the histogram that is split
MIN_PIXELS = 200  # fewer in a frame and it has no region
SILENT_DB = 3.0  # smoothed pixels this close to the floor show neither tissue nor haze
AUTOMATIC_METHOD = (
    "brighter and darker part of the smoothed input inside the sector, split at Otsu's level, 3 pixels apart from it; "
    "chosen by brightness, so gcnr and contrast of the input are high by construction: for a quick look, not for "
    "publication"
)


def automatic_regions(cine: Cine | LazyCine, name: str = "") -> Regions:
    """Tissue and haze of every frame of the *input*, by brightness.

    Each frame is smoothed; Otsu's level of all smoothed pixels inside the images (of the whole frame where there is
    no sector) splits them into tissue (above) and haze (below, but above the floor). What lies within 3 pixels of the
    border of a part is left out. Frames are read one at a time, each of them several times.

    Args:
        cine: frames and geometry.
        name: what errors call it; the source's name by default.

    Raises:
        InputError: no frame has at least 200 pixels of each.

    Source:
        Otsu, "A threshold selection method from gray-level histograms", IEEE Trans. SMC 9(1), 1979.
    """
    frames = cine.frames
    shape = (frames.shape[0], frames.shape[1], frames.shape[2])
    inside = image_mask(cine.geometry, shape[1:])

    def smoothed() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Every frame, smoothed, and where it shows anything."""
        for t in range(shape[0]):
            smooth = ndimage.gaussian_filter(frames[t], SMOOTHING * shape[1])
            yield smooth, inside & (smooth > -cine.dynamic_range_db + SILENT_DB)

    name = name or cine.source.name or "the cine"
    ends = [(values.min(), values.max()) for smooth, heard in smoothed() if (values := smooth[heard]).size]
    if not ends:
        raise InputError(name, "nothing above the floor to find regions in", "--roi FILE with regions drawn by hand")
    span = min(low for low, _ in ends), max(high for _, high in ends)
    counts, edges = np.zeros(BINS, np.int64), np.empty(0)
    for smooth, heard in smoothed():
        found, edges = np.histogram(smooth[heard], BINS, span)
        counts += found
    level = otsu_level(counts, edges)
    regions = []
    for role, part in (("tissue", np.greater), ("haze", np.less_equal)):
        masks = PackedMasks((_inner(heard & part(smooth, level)) for smooth, heard in smoothed()), shape[1:])
        frames_of = frozenset(t for t in range(shape[0]) if masks[t].sum() >= MIN_PIXELS)
        regions.append(Region(f"{AUTOMATIC} {role}", role, masks, frames_of))
    whole = Regions(tuple(regions), shape, "", AUTOMATIC)
    if not whole.frames():
        expected = f"{MIN_PIXELS} pixels of both in one frame"
        raise InputError(name, "no automatic regions of tissue and haze found", expected, "draw them: --roi FILE")
    return checked(name, whole, cine.source.first_frame)


def _inner(part: np.ndarray) -> np.ndarray:
    """A part of a frame without its border."""
    inner: np.ndarray = ndimage.distance_transform_edt(np.pad(part, 1))[1:-1, 1:-1] > MARGIN_PX
    return inner


def otsu_level(counts: np.ndarray, edges: np.ndarray) -> float:
    """The level that splits a histogram, counts ``(N,)`` between edges ``(N + 1,)``, into two classes with the largest
    variance between them."""
    centres = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(counts)[:-1]
    above = counts.sum() - below
    sum_below = np.cumsum(counts * centres)[:-1]
    total = float((counts * centres).sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        between = below * above * np.square(sum_below / below - (total - sum_below) / above)
    return float(edges[1:-1][np.argmax(np.nan_to_num(between))])
