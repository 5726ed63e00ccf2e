"""Regions as a DICOM Segmentation object (PS3.3 A.51)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydicom.uid import DeflatedExplicitVRLittleEndian, RLELossless

from usdehaze.budget import spend
from usdehaze.errors import InputError
from usdehaze.validation.regions.labels import Labels
from usdehaze.validation.regions.model import FAINT, ROLES, Region

PIXEL_COPIES = 4  # of a frame of the SEG: bits as bytes, in their order, and as a mask
SEGMENTATION = "1.2.840.10008.5.1.4.1.1.66.4"  # SOP Class UID of Segmentation Storage


def read_segmentation(
    path: Path, shape: tuple[int, int, int], first_frame: int, labels: Labels | None, result: Path | None = None
) -> list[Region]:
    """Regions of a DICOM SEG, binary or fractional (at least half of the maximum counts as inside).

    A frame of the SEG belongs to the frames of the source that its Derivation Image Sequence names (Referenced Frame
    Number), or of a derived image beside the result, if it is that which it names. Where it names none, a segment with
    one frame holds throughout, and one with as many frames as the cine frame by frame.

    Args:
        path: the file.
        shape: ``(T, H, W)`` of the cine.
        first_frame: index in the source of the cine's first frame.
        labels: Segment Label (any case) or Segment Number that stands for each role; None for segments labelled
            "tissue" and "haze", and "faint" where there is one.
        result: the file that the cine is the input of.

    Raises:
        InputError: no DICOM SEG, damaged, of another size, of several images, without the segments asked for, or with
            frames that cannot be matched. Segment labels are never repeated: what somebody wrote there may concern a
            patient.
    """
    from usdehaze.io.dicom.bounded import open_inflated, read_attributes, read_meta
    from usdehaze.quiet import quiet

    try:
        with quiet(), open_inflated(path, read_meta(path)) as file:
            return _regions(path, read_attributes(file), shape, first_frame, labels, result)
    except InputError:
        raise
    except Exception:  # pydicom raises many kinds, and their texts may quote attributes
        raise InputError(path, "a DICOM Segmentation that cannot be read", "one that is whole") from None


def _regions(
    path: Path,
    dataset: Any,
    shape: tuple[int, int, int],
    first_frame: int,
    labels: Labels | None,
    result: Path | None,
) -> list[Region]:
    pixels, image = _pixels(path, dataset, shape), _image(path, dataset)
    if first_frame and result is not None and image in _derived(result):
        first_frame = 0  # a derived image counts its own frames
    segments = {
        int(item.SegmentNumber): str(item.get("SegmentLabel", "")).strip().lower() for item in dataset.SegmentSequence
    }
    frames_of: dict[int, list[tuple[int, list[int]]]] = {number: [] for number in segments}
    for index, item in enumerate(dataset.PerFrameFunctionalGroupsSequence):
        frames_of[_segment_number(item, dataset)].append((index, _source_frames(item)))
    regions = []
    for role in (*ROLES, FAINT):
        wanted = {value.lower() for value in (labels or {}).get(role, (role,))}
        chosen = [number for number, label in segments.items() if label in wanted or str(number) in wanted]
        if not chosen and (role in ROLES or role in (labels or {})):
            found = f"no segment for {role} among the segments {', '.join(map(str, segments))}"
            raise InputError(path, found, "one of them", '--labels "tissue=1 haze=2" names segments by number or label')
        regions += [_region(path, role, frames_of[number], pixels, shape, first_frame) for number in chosen]
    return regions


def _pixels(path: Path, dataset: Any, shape: tuple[int, int, int]) -> np.ndarray:
    """The masks of all frames of the SEG, bool ``(N, H, W)``."""
    if str(dataset.get("SOPClassUID", "")) != SEGMENTATION:
        raise InputError(path, "a DICOM file, but not a Segmentation", "Segmentation Storage")
    size = (int(dataset.Rows), int(dataset.Columns))
    if size != shape[1:]:
        found = f"a segmentation of {size[0]} x {size[1]} pixels (height x width)"
        raise InputError(path, found, f"{shape[1]} x {shape[2]}, the frame of the result")
    syntax = dataset.file_meta.TransferSyntaxUID
    if syntax.is_compressed and syntax not in (RLELossless, DeflatedExplicitVRLittleEndian):
        raise InputError(path, f"a DICOM Segmentation stored as {syntax.name}", "one that is not compressed, or RLE")
    n_frames = int(dataset.get("NumberOfFrames", 1) or 1)
    spend(path, memory=PIXEL_COPIES * n_frames * size[0] * size[1])
    pixels = dataset.pixel_array.reshape(-1, *size)
    if len(dataset.PerFrameFunctionalGroupsSequence) != len(pixels):
        raise InputError(path, "a damaged DICOM Segmentation", "functional groups for every frame")
    return pixels >= int(dataset.get("MaximumFractionalValue", 1)) / 2


def _image(path: Path, dataset: Any) -> str:
    """SOP Instance UID of the image whose frames a SEG names; "" where it names none."""
    sources = [source for item in dataset.PerFrameFunctionalGroupsSequence for source in _sources(item)]
    named = {str(source.get("ReferencedSOPInstanceUID", "")) for source in sources if _numbers(source)}
    if len(named) > 1:
        raise InputError(path, f"a DICOM Segmentation of frames of {len(named)} images", "one")
    return named.pop() if named else ""


def _derived(result: Path) -> set[str]:
    """SOP Instance UIDs of the derived images beside a result."""
    from usdehaze.io.detect import DICOM_HAZE_SUFFIX, DICOM_SUFFIX, beside_result
    from usdehaze.io.dicom.header import image_attributes, sop_instance

    paths = (beside_result(result, suffix) for suffix in (DICOM_SUFFIX, DICOM_HAZE_SUFFIX))
    return {sop_instance(image_attributes(path)) for path in paths if path.is_file()}


def _segment_number(item: Any, dataset: Any) -> int:
    """Referenced Segment Number of a frame, from its own or from the shared functional groups."""
    for groups in (item, *dataset.get("SharedFunctionalGroupsSequence", [])):
        if "SegmentIdentificationSequence" in groups:
            return int(groups.SegmentIdentificationSequence[0].ReferencedSegmentNumber)
    return 1


def _source_frames(item: Any) -> list[int]:
    """Frames of the source, from 0, that a frame of the SEG was derived from; empty where it does not say."""
    return [number - 1 for source in _sources(item) for number in _numbers(source)]


def _sources(item: Any) -> list[Any]:
    """Images that a frame of the SEG was derived from."""
    derivations = item.get("DerivationImageSequence", [])
    return [source for derivation in derivations for source in derivation.get("SourceImageSequence", [])]


def _numbers(source: Any) -> list[int]:
    """Frames of an image that are named, from 1."""
    named = source.get("ReferencedFrameNumber", [])  # IS, 1 or many
    return [int(n) for n in (named if isinstance(named, Sequence) else [named])]


def _region(
    path: Path,
    role: str,
    frames: list[tuple[int, list[int]]],
    pixels: np.ndarray,
    shape: tuple[int, int, int],
    first_frame: int,
) -> Region:
    """One segment as a region of the cine."""
    n_frames = shape[0]
    if len(frames) == 1 and not frames[0][1]:
        return Region(role, role, pixels[frames[0][0]][None], range(n_frames))
    if len(frames) == n_frames and not any(named for _, named in frames):
        frames = [(index, [first_frame + t]) for t, (index, _) in enumerate(frames)]
    if not all(named for _, named in frames):
        found = f"a segment of {len(frames)} frames that do not say which frame of the source they belong to"
        raise InputError(path, found, f"Referenced Frame Number, or {n_frames} frames")
    spend(path, memory=math.prod(shape))
    mask = np.zeros(shape, dtype=bool)
    for index, named in frames:
        spend(path)
        for t in named:
            if 0 <= t - first_frame < n_frames:
                mask[t - first_frame] |= pixels[index]
    return Region(role, role, mask, range(n_frames))
