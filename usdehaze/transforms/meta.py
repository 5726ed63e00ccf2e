"""What travels with the frames: a cine's geometry and provenance as MetaTensor metadata, and back."""

from __future__ import annotations

import base64
import json
import os
import zlib
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.utils import ImageMetaKey, MetaKeys, TraceKeys

from usdehaze.choices import Layout
from usdehaze.cine import Cartesian, Cine, Geometry, Polar, Sector
from usdehaze.errors import InputError
from usdehaze.io import Reading
from usdehaze.provenance import source_attributes, source_in
from usdehaze.transforms.frames import DIGESTS, LOADED, SUMS, are_shuffled, digests_in, digests_of, sums_of
from usdehaze.transforms.layout import array_of, plane_affine, time_affine

GEOMETRY = "geometry"
SETTINGS = "usdehaze"
TISSUE_MASK = "tissue_mask"
ESTIMATE = "estimate"
READING = "reading"
FRAME_TIMES = "frame_times_s"
DEFAULT_DYNAMIC_RANGE_DB = 60.0


def meta_of(
    cine: Cine, path: str | os.PathLike[str], layout: Layout = "THW", reading: Reading | None = None
) -> dict[str, Any]:
    """Metadata of a cine whose frames become a MetaTensor in a layout.

    MONAI's own keys, for the two spatial dimensions ``(H, W)``: ``affine`` ``(3, 3)`` in mm (see `affine_of`; of
    ``(1, T, H, W)`` it is ``(4, 4)``, its first axis in s, and ``T`` the first of three spatial dimensions),
    ``original_affine``, ``spatial_shape``, ``original_channel_dim`` 0, ``filename_or_obj``. Ours have the names they
    have in a result file: ``geometry`` (see `encode_geometry`), ``dynamic_range_db``, ``frame_times_s`` (JSON, null
    where not known), ``source_name``, ``source_sha256``, ``source_dataset``, ``source_layout``, ``source_units``,
    ``source_options``, ``source_frames``, ``notes`` and ``assumptions`` (the same, one a line), ``first_frame``,
    ``frame_digests`` (see `usdehaze.transforms.frames`),
    ``tissue_mask`` (see `encode_mask`), and ``reading`` (see `encode_reading`).
    `DehazeUltrasound` adds ``usdehaze``, the settings, ``usdehaze_version``, ``n_frames``, and ``estimate``: "tissue",
    "haze" or "tissue_std".

    Every key is always there, and every value a number, a string or a tensor, so that scans of different kinds collate
    into one batch and lose nothing: MONAI keeps the keys alone that all have.
    """
    plane, shape = affine_of(cine.geometry), cine.frames.shape[1:]
    affine = plane if layout == "THW" else time_affine(plane, cine)
    times_s = None if cine.frame_times_s is None else np.asarray(cine.frame_times_s, np.float64).tolist()
    return {
        MetaKeys.AFFINE: affine,
        MetaKeys.ORIGINAL_AFFINE: torch.from_numpy(affine.copy()),  # as an array no cache of MONAI's could be read
        MetaKeys.SPATIAL_SHAPE: torch.tensor(shape if layout == "THW" else cine.frames.shape),
        MetaKeys.ORIGINAL_CHANNEL_DIM: 0,
        ImageMetaKey.FILENAME_OR_OBJ: os.fspath(path),
        GEOMETRY: encode_geometry(cine.geometry, shape, plane),
        "dynamic_range_db": float(cine.dynamic_range_db),
        FRAME_TIMES: json.dumps(times_s),  # as text, times of cines of different length collate
        TISSUE_MASK: encode_mask(cine.tissue_mask),
        DIGESTS: json.dumps({LOADED: digests_of(cine.frames), SUMS: sums_of(cine.frames)}),
        READING: encode_reading(reading or Reading()),
        **source_attributes(cine.source),
    }


def encode_reading(reading: Reading) -> str:
    """How to open a DICOM file again so that it gives the same frames, as JSON; which frames apart."""
    names = "dynamic_range_db", "levels", "rectangle", "force"
    return json.dumps({name: getattr(reading, name) for name in names})


def reading_in(image: Any) -> Reading:
    """What `encode_reading` was given, in the metadata of an image; all defaults where they do not say."""
    fields = json.loads(image.meta.get(READING) or "{}")
    levels = fields.pop("levels", None)
    return Reading(levels=None if levels is None else (levels[0], levels[1]), **fields)


def affine_of(geometry: Geometry) -> np.ndarray:
    """``(3, 3)`` float64 from pixel ``(row, column)`` to ``(z, x)`` in mm; the identity where no spacing is known.

    Polar frames have none: their columns are angles.
    """
    affine = np.eye(3)
    if isinstance(geometry, Cartesian) and geometry.spacing_m is not None:
        affine[[0, 1], [0, 1]] = 1e3 * np.asarray(geometry.spacing_m)
        affine[:2, 2] = 1e3 * np.asarray(geometry.origin_m)
    return affine


def encode_geometry(geometry: Geometry, shape: tuple[int, ...], affine: Any) -> str:
    """A geometry as JSON, together with the frame shape ``(H, W)`` and the affine that it holds for."""
    if isinstance(geometry, Polar):
        fields: dict[str, Any] = {"kind": "polar"}
        fields |= {name: np.asarray(axis, np.float64).tolist() for name, axis in asdict(geometry).items()}
    else:
        fields = {"kind": "cartesian", **asdict(geometry)}
    fields["grid"] = {"shape": list(shape), "affine": np.asarray(affine, np.float64).tolist()}
    return json.dumps(fields, default=float)


def decode_geometry(text: str) -> tuple[Geometry, tuple[int, ...], np.ndarray]:
    """What `encode_geometry` was given: geometry, frame shape ``(H, W)``, affine."""
    fields = json.loads(text)
    grid, kind = fields.pop("grid"), fields.pop("kind")
    if kind == "polar":
        geometry: Geometry = Polar(**{name: np.asarray(axis) for name, axis in fields.items()})
    else:
        spacing_m, sector = fields["spacing_m"], fields["sector"]
        geometry = Cartesian(
            None if spacing_m is None else (float(spacing_m[0]), float(spacing_m[1])),
            (float(fields["origin_m"][0]), float(fields["origin_m"][1])),
            None if sector is None else Sector(**sector),
            fields["found_by"],
            tuple(Sector(**other) for other in fields.get("others", ())),
        )
    return geometry, tuple(grid["shape"]), np.asarray(grid["affine"])


def geometry_in(image: Any) -> Geometry | None:
    """The geometry in the metadata of frames ``(T, H, W)`` or ``(1, T, H, W)``; None where they carry none.

    Raises:
        InputError: a spatial transform has changed shape or affine since the geometry was written, or the places of
            the pixels.
    """
    if not isinstance(image, MetaTensor) or GEOMETRY not in image.meta:
        return None
    geometry, shape, affine = decode_geometry(image.meta[GEOMETRY])
    now = plane_affine(image.affine)
    # a ten-thousandth of a pixel: flipping twice gives back the same affine but for rounding
    same = now.shape == affine.shape and np.allclose(now, affine, rtol=0, atol=1e-4 * np.abs(np.diag(affine)[:2]).min())
    if tuple(image.shape[-2:]) == shape and same and not are_shuffled(array_of(image), digests_in(image)):
        return geometry
    by = ", ".join(str(step.get(TraceKeys.CLASS_NAME, "?")) for step in image.applied_operations)
    raise InputError(
        name_of(image),
        f"a spatial transform{f' ({by})' if by else ''} has moved its pixels, and its geometry no longer fits",
        advice="dehaze before spatial transforms, or find the sector in the frames as they are with geometry='find'",
    )


def dynamic_range_of(image: Any, given_db: float | None = None) -> float:
    """dB between full scale and the floor: as given, else as the metadata say, else 60."""
    meta = image.meta if isinstance(image, MetaTensor) else {}
    return float(meta.get("dynamic_range_db", DEFAULT_DYNAMIC_RANGE_DB) if given_db is None else given_db)


def encode_mask(mask: np.ndarray | None) -> str:
    """``(T, H, W)`` bool as text; "" for None, and a single frame where all are the same.

    As an array it would not collate with scans that have none.
    """
    if mask is None:
        return ""
    kept = mask[:1] if (mask == mask[:1]).all() else mask
    bits = base64.b64encode(zlib.compress(np.packbits(kept).tobytes())).decode()
    return json.dumps({"shape": list(kept.shape), "bits": bits})


def mask_in(image: Any, n_frames: int) -> np.ndarray | None:
    """The mask ``(n_frames, H, W)`` bool in the metadata of frames: False where there is no tissue; None for no mask.

    Raises:
        InputError: pixels have been moved since it was written, or frames picked that differ in it.
    """
    text = image.meta.get(TISSUE_MASK) if isinstance(image, MetaTensor) else None
    if not text:
        return None
    try:
        geometry_in(image)
    except InputError as error:  # whose advice is not for a scan with a mask
        reason = "a spatial transform has moved its pixels, and the mask of what is no tissue no longer fits"
        raise InputError(name_of(image), reason, advice="dehaze before spatial transforms") from error
    fields = json.loads(text)
    shape = tuple(fields["shape"])
    bits = np.frombuffer(zlib.decompress(base64.b64decode(fields["bits"])), np.uint8)
    mask = np.unpackbits(bits, count=int(np.prod(shape))).reshape(shape).astype(bool)
    if len(mask) not in (1, n_frames):
        raise InputError(
            name_of(image),
            f"{n_frames} frames have been picked of {len(mask)} whose colour or other regions are known",
            advice="dehaze before frames are picked or padded, or pick them as the scan is loaded, with frames=",
        )
    return np.broadcast_to(mask, (n_frames, *shape[1:]))


def name_of(image: Any) -> str:
    """What to call these frames in an error: the source's file name, where it is known."""
    meta = image.meta if isinstance(image, MetaTensor) else {}
    return meta.get("source_name") or os.path.basename(str(meta.get(ImageMetaKey.FILENAME_OR_OBJ, ""))) or "frames"


def check_apart(image: Any) -> None:
    """Refuses a collated batch, whose metadata are those of several scans, even where it is of one.

    Raises:
        InputError: it is one.
    """
    if isinstance(image, MetaTensor) and image.is_batch:
        found = f"{len(image)} collated into one tensor of shape {tuple(image.shape)}"
        advice = "take it apart first: monai.data.decollate_batch"
        raise InputError("batch of scans", found, "one scan", advice)


def check_cine(image: Any, expected: str) -> None:
    """Refuses what is no array or tensor with the axes of one of the layouts, and a collated batch.

    Raises:
        InputError: it is none, and what is expected.
    """
    check_apart(image)
    known = isinstance(image, np.ndarray | torch.Tensor)
    if not (known and (image.ndim == 3 or (image.ndim == 4 and len(image) == 1))):
        found = f"shape {tuple(image.shape)}" if hasattr(image, "shape") else type(image).__name__
        raise InputError(name_of(image), found, expected)


def cine_of(image: Any, frames: np.ndarray, geometry: Geometry, dynamic_range_db: float) -> Cine:
    """A cine of these frames ``(T, H, W)`` float32 dB, with what the metadata of ``image`` says about their source.

    Raises:
        InputError: frames of another shape, not finite, or outside ``[-dynamic_range_db, 0]``.
    """
    meta = image.meta if isinstance(image, MetaTensor) else {}
    times = meta.get(FRAME_TIMES)
    times = json.loads(times) if isinstance(times, str) else times
    if times is not None and len(times) != len(frames):  # frames were picked since
        times = None
    try:
        times = None if times is None else np.asarray(times)
        return Cine(frames, geometry, dynamic_range_db, times, source_in(meta), mask_in(image, len(frames)))
    except ValueError as error:
        raise InputError(name_of(image), str(error)) from error
