"""Reading regions of interest, whichever of these forms they have:

* JSON ``{"regions": [{"name": "septum", "role": "tissue", "frames": [0], "polygon": [[x, y], ...]}]}`` (roles: tissue,
  haze, faint) in pixels of the native frame, x right and y down, pixel centres at whole numbers. Without ``frames`` a
  region is static: it holds in every frame; a region that moves is written once for each frame. ``"units": "mm"`` (or
  ``"m"``), in the document or in a region, makes the points physical: x lateral, y depth, as the scan's own geometry
  counts them;
* a label image: PNG, NIfTI (``.nii``, ``.nii.gz``), or a dataset ``(H, W)`` or ``(T, H, W)`` of an HDF5 file
  (``FILE.h5:path/inside``), 255 = tissue, 128 = haze as in the DehazingEcho2025 challenge, or the values of
  ``--labels "tissue=170 haze=85"``, with ``faint=60`` for walls at risk;
* a DICOM Segmentation, whose segments ``--labels`` names by number or label.

Frames are counted as in the source file: a result of ``--frames 4:8`` has the frames 4 to 7. In :class:`Regions` they
are counted from 0 in the result. Frames of the source that the result has not are left out.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from usdehaze.budget import check_regular, spending
from usdehaze.cine import Cine, Geometry, Source
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io.detect import RESULT_SUFFIX, stem_of_name
from usdehaze.io.formats import HDF5
from usdehaze.validation.regions.automatic import automatic_regions
from usdehaze.validation.regions.dicom_seg import read_segmentation
from usdehaze.validation.regions.labels import Labels, read_h5_labels, read_nifti, read_png, regions_of_labels
from usdehaze.validation.regions.model import FAINT, ROLES, Region, Regions, checked
from usdehaze.validation.regions.polygons import read_polygons

AUTO = "auto"
NIFTI_SUFFIXES = (".nii", ".nii.gz")
FOLDER_SUFFIXES = (".rois.json", ".json", ".png", ".nii.gz", ".nii", ".h5", ".hdf5", ".dcm")
LABEL_MARGIN_PX = 3.0
MASK_BYTES = 16  # a pixel of the cine, for labels in double precision and their order
EXPECTED = "a file of regions (JSON polygons, label PNG, NIfTI or HDF5, DICOM Segmentation)"


def find_regions(
    roi: str | Path,
    cine: Cine,
    stem: str = "",
    labels: Labels | None = None,
    margin_px: float = 0.0,
    result: Path | None = None,
) -> Regions:
    """The regions of a cine that ``--roi`` means.

    Args:
        roi: a file, ``FILE.h5:dataset``, a folder with a file for each scan (``STEM.rois.json``, ``STEM.png``, ...), or
            "auto" for automatic regions of the input.
        cine: the input.
        stem: of the scan's name, for a folder.
        labels: as :func:`parse_labels` gives them.
        margin_px: erosion of the regions, pixels; automatic ones have their own.
        result: the file that the cine is the input of.

    Raises:
        InputError: no such file, or regions that cannot be used.
    """
    if str(roi) == AUTO:
        return automatic_regions(cine)
    path = region_file(roi, stem)
    shape = (cine.frames.shape[0], cine.frames.shape[1], cine.frames.shape[2])
    how: dict[str, Any] = {"labels": labels, "margin_px": margin_px, "source_frames": cine.source.frames}
    return read_regions(path, shape, cine.source.first_frame, geometry=cine.geometry, result=result, **how)


def read_regions(
    path: str | Path,
    shape: tuple[int, int, int],
    first_frame: int = 0,
    *,
    geometry: Geometry | None = None,
    labels: Labels | None = None,
    margin_px: float = 0.0,
    source_frames: int = 0,
    result: Path | None = None,
) -> Regions:
    """Read a file of regions for frames of the given shape.

    Args:
        path: JSON, PNG, HDF5 (``FILE.h5:dataset`` names one), NIfTI or DICOM SEG, told apart by content.
        shape: ``(T, H, W)`` of the cine.
        first_frame: index in the source of the first frame of the cine.
        geometry: of the cine, for polygons in physical units.
        labels: what stands for tissue and haze in labels and segments; None for the form's own convention.
        margin_px: pixels of every region within this distance of its border are left out.
        source_frames: that the source has, 0 where that is not known: a stack of labels is of all of them, or of the
            cine's; polygons may name any of them, and hold in those of the cine.
        result: the file that the cine is the input of: a Segmentation may be of a derived image beside it.

    Raises:
        InputError: one line that says what is wrong: not readable, none of these forms, unknown role, a polygon of
            fewer than 3 points or outside the frame, a frame that does not exist, labels of another size, a region
            without pixels, haze that overlaps tissue or faint walls, no frame with something to measure.
    """
    path, dataset = _split(Path(path))
    check_regular(path)
    with spending(path, extra=MASK_BYTES * shape[0] * shape[1] * shape[2]):
        regions = Regions(
            tuple(_read(path, dataset, shape, (first_frame, source_frames), geometry, labels, result)), shape, path.name
        )
        return checked(path, regions.eroded(margin_px), first_frame)


def _read(
    path: Path,
    dataset: str | None,
    shape: tuple[int, int, int],
    source: tuple[int, int],
    geometry: Geometry | None,
    labels: Labels | None,
    result: Path | None,
) -> list[Region]:
    """The regions of a file of any form; ``source`` is its first frame and its number of frames."""
    try:
        with path.open("rb") as file:
            head = file.read(132)
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})", EXPECTED) from None
    if head[128:] == b"DICM":
        return read_segmentation(path, shape, source[0], labels, result)
    if dataset is not None or HDF5.signature(path, head):
        stack, roles = read_h5_labels(path, dataset, shape, *source)
        return regions_of_labels(path, stack, shape, labels or roles)
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        stack, roles = read_png(path)
        return regions_of_labels(path, stack, shape, labels or roles)
    if path.name.lower().endswith(NIFTI_SUFFIXES):
        return regions_of_labels(path, read_nifti(path, shape, *source), shape, labels)
    if labels is None:
        return read_polygons(path, shape, source, geometry)
    raise InputError(path, "--labels given, but regions in JSON have roles", "labels or segments", "drop --labels")


def parse_labels(text: str) -> dict[str, tuple[str, ...]]:
    """``"tissue=170 haze=85,86"`` as role to values; names with blanks may stand after ``=``.

    Raises:
        UsdehazeError: not of that form, or without a value for tissue or haze.
    """
    pairs = re.findall(r"(\w+)\s*=\s*([^=]*?)\s*(?=\w+\s*=|$)", text.strip())
    labels = {role: tuple(filter(None, (v.strip() for v in values.split(",")))) for role, values in pairs}
    if set(labels) - {FAINT} != set(ROLES) or not all(labels.values()) or len(pairs) != len(labels):
        raise UsdehazeError(f'--labels is "{text}"; expected a value for each role, such as "tissue=170 haze=85"')
    return labels


def labels_and_margin(text: str | None, margin_px: float | None) -> tuple[Labels | None, float]:
    """Labels and margin of the options ``--labels`` and ``--margin``, None where they are not given.

    With labels the margin is 3 pixels by default: their borders are nobody's measurement. Else it is 0.

    Raises:
        UsdehazeError: see `parse_labels`.
    """
    if margin_px is None:
        margin_px = 0.0 if text is None else LABEL_MARGIN_PX
    return None if text is None else parse_labels(text), margin_px


def _split(path: Path) -> tuple[Path, str | None]:
    """``FILE.h5:dataset`` as file and dataset; a plain path as itself and None."""
    file, colon, dataset = str(path).rpartition(":")
    if colon and dataset and not path.exists() and Path(file).is_file():
        return Path(file), dataset
    return path, None


def stem_for(roi: str | Path, result: Path, source: Source) -> str:
    """What the regions of a result are called in a folder: as the result, where they are there, or the scan has no name
    or that very one (several scans share a stem, or it is a UID); else as the scan, without suffixes of a format."""
    own = result.name.removesuffix(RESULT_SUFFIX)
    return own if source.name in ("", own) or region_file(roi, own).is_file() else stem_of_name(source.name)


def check_scan_of(roi: str | Path, stem: str, scan: Path, known: Hashable, scans: dict[Path, Hashable]) -> None:
    """Refuses what a folder has for one scan for a second one of its name, as in patients' folders.

    Args:
        roi, stem: see `region_file`.
        scan: its file or that of its result, for errors.
        known: what it is known by.
        scans: so far by the files of their regions; this one is put in.
    """
    if Path(roi).is_dir() and scans.setdefault(region_file(roi, stem), known) != known:
        found = f"its regions, {region_file(roi, stem)}, are those of another scan of this name"
        raise InputError(scan, found, "names that differ, or scans of one name taken one after the other")


def region_file(roi: str | Path, stem: str) -> Path:
    """The file of regions for a scan: the one named, or its own in a folder, by the usual name where there is none."""
    folder = Path(roi)
    if not folder.is_dir():
        return folder
    named = [folder / (stem + suffix) for suffix in FOLDER_SUFFIXES]
    return next((path for path in named if path.is_file()), named[0])
