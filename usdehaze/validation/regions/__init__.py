"""Regions of interest: which pixels of which frames count as tissue, as haze, and as faint walls.

`read_regions` reads a file of regions, `find_regions` takes what ``--roi`` may name (a file, a folder with a file for
each scan, or "auto").
"""

from usdehaze.validation.regions.automatic import AUTOMATIC_METHOD, automatic_regions
from usdehaze.validation.regions.labels import Labels
from usdehaze.validation.regions.model import AUTOMATIC, FAINT, GIVEN, ROLES, Region, Regions
from usdehaze.validation.regions.polygons import compact, polygon_mask
from usdehaze.validation.regions.reading import (
    AUTO,
    check_scan_of,
    find_regions,
    labels_and_margin,
    parse_labels,
    read_regions,
    region_file,
    stem_for,
)

__all__ = [
    "AUTO",
    "AUTOMATIC",
    "AUTOMATIC_METHOD",
    "FAINT",
    "GIVEN",
    "ROLES",
    "Labels",
    "Region",
    "Regions",
    "automatic_regions",
    "check_scan_of",
    "compact",
    "find_regions",
    "labels_and_margin",
    "parse_labels",
    "polygon_mask",
    "read_regions",
    "region_file",
    "stem_for",
]
