"""From images in a pipeline back to a result, and to the DICOM file that they came from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from monai.data import MetaTensor
from monai.utils import ImageMetaKey

from usdehaze.errors import InputError
from usdehaze.provenance import settings_in
from usdehaze.result import Result
from usdehaze.transforms.frames import (
    DEHAZED,
    DIGESTS,
    LOADED,
    SUMS,
    check_order,
    check_same,
    digests_in,
    digests_of,
)
from usdehaze.transforms.layout import array_of, n_frames_of, plane_affine
from usdehaze.transforms.meta import (
    ESTIMATE,
    GEOMETRY,
    SETTINGS,
    check_apart,
    cine_of,
    decode_geometry,
    encode_geometry,
    geometry_in,
    name_of,
    reading_in,
)

if TYPE_CHECKING:
    from usdehaze.io.dicom import DicomScan


def mark_estimates(images: Mapping[str, MetaTensor], result: Result) -> None:
    """Writes into images' metadata what a result can be made of again: see `usdehaze.transforms.meta.meta_of`.

    Args:
        images: ``(T, H, W)`` or ``(1, T, H, W)`` dB, out of the result, by the estimates that they are: "tissue",
            "haze" or "tissue_std".
        result: whose images they are.
    """
    cine = result.cine
    own = {estimate: digests_of(array_of(image)) for estimate, image in images.items()}
    own |= {DEHAZED: digests_of(cine.frames), SUMS: []}  # the geometry is that of the frames as they are
    for estimate, image in images.items():
        image.meta[ESTIMATE], image.meta[SETTINGS] = estimate, settings_in(result.attrs)
        image.meta[GEOMETRY] = encode_geometry(cine.geometry, cine.frames.shape[1:], plane_affine(image.affine))
        image.meta["dynamic_range_db"], image.meta["n_frames"] = cine.dynamic_range_db, len(cine.frames)
        image.meta["usdehaze_version"] = result.usdehaze_version
        image.meta[DIGESTS] = json.dumps(digests_in(image) | own)


def check_estimate(image: Any, *expected: str) -> str:
    """Which estimate an image is by its metadata: one of those expected.

    Raises:
        InputError: another, or an image that does not come from `DehazeUltrasound`.
    """
    check_apart(image)
    meta = image.meta if isinstance(image, MetaTensor) else {}
    if geometry_in(image) is None or SETTINGS not in meta or ESTIMATE not in meta:
        raise InputError(
            name_of(image), "no record of dehazing in the metadata", f"{expected[0]} from DehazeUltrasound"
        )
    if meta[ESTIMATE] not in expected:
        raise InputError(name_of(image), f"its metadata say {meta[ESTIMATE]}", " or ".join(expected))
    return str(meta[ESTIMATE])


def result_of(tissue: Any, haze: Any, image: Any, std: Any = None) -> Result:
    """A result, as the dehazer made it.

    Args:
        tissue: MetaTensor out of `DehazeUltrasound`, whose metadata speak for all; like the others ``(T, H, W)`` or
            ``(1, T, H, W)`` dB.
        haze, image, std: haze, the frames that went in, and the deviation of the tissue or None.

    Raises:
        InputError: no tissue, of which a spatial transform has moved no pixel since; images that do not go together,
            or are not what they were as the tissue was made.
    """
    check_estimate(tissue, "tissue")
    shapes = [tuple(array.shape) for array in (tissue, haze, image, std) if array is not None]
    if len(set(shapes)) > 1:
        raise InputError(name_of(tissue), f"tissue, haze and input have shapes {shapes}", "one shape (T, H, W)")
    check_all_frames(tissue)
    geometry = decode_geometry(tissue.meta[GEOMETRY])[0]
    cine = cine_of(tissue, array_of(image), geometry, float(tissue.meta["dynamic_range_db"]))
    check_darker(tissue, cine.frames)
    images = {DEHAZED: cine.frames, "tissue": array_of(tissue), "haze": array_of(haze)}
    if std is not None:
        images["tissue_std"] = array_of(std)
    for what, frames in images.items():
        check_same(name_of(tissue), what, frames, digests_in(tissue).get(what))
    return Result(cine, images["tissue"], images["haze"], images.get("tissue_std"), **made_by(tissue))


def made_by(estimate: Any) -> dict[str, Any]:
    """Of an estimate's result what its metadata say: ``settings`` and ``usdehaze_version``."""
    meta = estimate.meta
    return {"settings": meta[SETTINGS], "usdehaze_version": str(meta.get("usdehaze_version", "unknown"))}


def check_all_frames(estimate: Any) -> None:
    """Refuses an estimate of frames that were picked or put in another order, before dehazing or since.

    Raises:
        InputError: nothing says any longer which frames it holds.
    """
    digests = digests_in(estimate)
    check_order(name_of(estimate), digests.get(DEHAZED, []), digests.get(LOADED))
    check_order(name_of(estimate), digests_of(array_of(estimate)), digests.get(estimate.meta[ESTIMATE]))


def check_held(estimate: Any, frames: np.ndarray) -> None:
    """Refuses an estimate of other frames than these ``(T, H, W)`` float32 dB, which its file holds.

    Raises:
        InputError: it is.
    """
    if digests_in(estimate).get(DEHAZED) != digests_of(frames):
        raise InputError(
            name_of(estimate), "what was dehazed is not what its file holds", "the frames as they were loaded"
        )


def check_darker(tissue: Any, frames: np.ndarray) -> None:
    """Refuses tissue that is brighter anywhere than the frames it is to be an estimate of: dehazing only darkens."""
    brighter = int(np.count_nonzero(array_of(tissue) > frames))
    if brighter:
        raise InputError(
            name_of(tissue),
            f"tissue is brighter than the input in {brighter} pixels",
            "the frames that it was made from",
            "save before transforms that change values",
        )


def is_dicom(image: Any) -> bool:
    """True where the metadata say that the frames were read from a DICOM file."""
    return isinstance(image, MetaTensor) and str(image.meta.get("source_layout", "")).startswith("DICOM ")


def open_source(estimate: Any) -> DicomScan:
    """The DICOM file that an estimate ``(T, H, W)`` was made from, opened at its frames.

    Raises:
        InputError: an estimate from another source, of picked frames, or of another dynamic range than they were loaded
            at; the file is missing or no longer what it was.
    """
    from usdehaze.io.dicom import DicomScan

    if not is_dicom(estimate):
        raise InputError(
            name_of(estimate), "was not read from a DICOM file", "frames loaded by LoadUltrasound from one"
        )
    check_all_frames(estimate)
    path = os.fspath(estimate.meta[ImageMetaKey.FILENAME_OR_OBJ])
    first, span = int(estimate.meta["first_frame"]), float(estimate.meta["dynamic_range_db"])
    scan = DicomScan(path, replace(reading_in(estimate), frames=slice(first, first + n_frames_of(estimate))))
    try:
        if scan.source.sha256 != estimate.meta["source_sha256"]:
            raise InputError(path, "has changed since its frames were loaded", advice="dehaze it again")
        if scan.dynamic_range_db != span:
            found = f"was dehazed at a dynamic range of {span:g} dB, but loaded at {scan.dynamic_range_db:g} dB"
            raise InputError(path, found, advice="give it to the loader: dynamic_range_db=")
    except InputError:
        scan.close()
        raise
    return scan
