"""Regions as files of another form: a DICOM Segmentation in the study of the scan, or a label image."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset
from pydicom.pixels.utils import pack_bits
from pydicom.uid import generate_uid

import usdehaze
from usdehaze.budget import spend
from usdehaze.errors import InputError
from usdehaze.optional import needed
from usdehaze.validation.regions.labels import ROLES_KEY
from usdehaze.validation.regions.model import AUTOMATIC, FAINT, Regions
from usdehaze.validation.regions.reading import find_regions, labels_and_margin, stem_for

LEVELS = {"tissue": 255, "haze": 128, FAINT: 64}  # tissue and haze as in the DehazingEcho2025 challenge
SUFFIXES = (".dcm", ".png", ".h5", ".hdf5")
TISSUE = ("85756007", "SCT", "Tissue")
SPATIAL = ("309825002", "SCT", "Spatial and Relational Concept")
KINDS = {  # category and type of the segments, PS3.3 C.8.20.2; haze is no property that a standard code names
    "tissue": (TISSUE, TISSUE),
    "haze": (SPATIAL, ("region_haze", "99USDEHAZE", "Region of haze")),
    FAINT: (TISSUE, ("region_faint", "99USDEHAZE", "Region of faint walls")),
}
HISTOGRAMS = ("123105", "DCM", "Histogram Analysis")  # what automatic regions are found by
FRAME_CONTENT, IN_STACK_POSITION = 0x00209111, 0x00209057
NUMBER = 902  # of the series, added to 1000 times the source's


def write_regions(
    path: Path,
    result: Path,
    roi: Path,
    labels: str | None = None,
    margin_px: float | None = None,
    given: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Writes the regions of a result in the form that the suffix names.

    Args:
        path: ``.dcm`` for a DICOM Segmentation; ``.png``, ``.h5`` or ``.hdf5`` for labels by `LEVELS`.
        result: a result file.
        roi: regions of its frames, in any form that is read, or "auto".
        labels, margin_px: see `labels_and_margin`.
        given: the DICOM image that the result was made of; None where it lies beside the result. For ``.dcm``.
        overwrite: replace a file that exists.

    Raises:
        UsdehazeError: highdicom is not installed (``.dcm``).
        InputError: regions, result, image or target that cannot be used.
    """
    from usdehaze.io.atomic import check_target
    from usdehaze.io.dicom.companion import source_image, write_companion
    from usdehaze.io.result import read_result

    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise InputError(path, f"no form for {path.suffix or 'a name without a suffix'}", " or ".join(SUFFIXES))
    sources = [result, *([] if roi == Path("auto") else [roi])]
    check_target(path, overwrite, sources)
    cine, source = read_result(result).cine, None
    if kind == ".dcm":
        image, source = source_image(result, cine.source, given)
        sources.append(image)
    found = find_regions(roi, cine, stem_for(roi, result, cine.source), *labels_and_margin(labels, margin_px), result)
    if source is None:
        write_labels(path, found, overwrite, sources)
    else:
        write_companion(path, segmentation(found, source, cine.source.first_frame), overwrite, sources)


def label_stack(regions: Regions) -> np.ndarray:
    """Labels ``(T, H, W)`` uint8 by `LEVELS`, 0 elsewhere; ``(1, H, W)`` where all frames are alike.

    Raises:
        InputError: tissue and faint walls overlap.
    """
    spend(regions.source, memory=2 * int(np.prod(regions.shape)))
    if overlapping(regions):
        found = "tissue and faint walls overlap, and a label image has one role a pixel"
        raise InputError(regions.source or "the regions", found, "regions that are apart, or the name of a .dcm file")
    stack = np.zeros(regions.shape, np.uint8)
    for t in range(len(stack)):
        for role, level in LEVELS.items():
            stack[t][regions.mask(role, t)] = level
    return stack[:1] if (stack == stack[0]).all() else stack


def overlapping(regions: Regions) -> bool:
    """Whether a pixel is of tissue and of a faint wall; haze is off both."""
    return any((regions.mask("tissue", t) & regions.mask(FAINT, t)).any() for t in range(regions.shape[0]))


def write_labels(path: Path, regions: Regions, overwrite: bool, sources: list[Path]) -> None:
    """Writes a label image: PNG, or the dataset "labels" of an HDF5 file; whoever may not read ``sources`` may not it.

    Raises:
        InputError: regions that change from frame to frame, in a PNG; or the file cannot be written.
    """
    from PIL import Image, PngImagePlugin

    from usdehaze.io.atomic import atomic
    from usdehaze.io.h5_output import Hdf5Output

    stack, png = label_stack(regions), path.suffix.lower() == ".png"
    roles = " ".join(f"{role}={level}" for role, level in LEVELS.items())
    if png and len(stack) > 1:
        raise InputError(path, "cannot hold regions that change from frame to frame", "the name of an .h5 or .dcm file")
    with atomic(path, overwrite, sources) as part:
        if png:
            info = PngImagePlugin.PngInfo()
            info.add_text(ROLES_KEY, roles)
            Image.fromarray(stack[0]).save(part, format="PNG", pnginfo=info)
            return
        output = Hdf5Output(part)
        labels = output.file.create_dataset("labels", data=stack, chunks=(1, *stack.shape[1:]), compression="gzip")
        labels.attrs[ROLES_KEY] = roles
        output.check()
        output.close()


def segmentation(regions: Regions, source: Dataset, first_frame: int) -> Dataset:
    """A binary DICOM Segmentation, a segment a role, ready to be written.

    A frame of it is of one role in one frame of the source, which it names; where a role has no pixels there is none.
    highdicom makes the object. It takes no cines of ultrasound, which have neither functional groups nor a frame of
    reference: it is given a single image, and the frames are put in here, told apart by In-Stack Position Number.

    Args:
        regions: on the frames of a result.
        source: attributes of the DICOM image that the result was made of.
        first_frame: index in the source of the first of these frames.

    Raises:
        UsdehazeError: highdicom is not installed.
        InputError: the image is of another size.
    """
    highdicom = needed("highdicom", "report")
    from usdehaze.io.dicom.companion import adopted, has_frame_numbers, series_number_beside, stand_in
    from usdehaze.io.dicom.header import US_IMAGE

    image = stand_in(source)
    kind, image.SOPClassUID = image.SOPClassUID, US_IMAGE
    if (image.Rows, image.Columns) != regions.shape[1:]:
        found = f"frames of {image.Rows} x {image.Columns} pixels (height x width)"
        raise InputError("the DICOM image", found, f"{regions.shape[1]} x {regions.shape[2]}, the frame of the result")
    spend(regions.source, memory=2 * len(LEVELS) * int(np.prod(regions.shape)))
    held = [
        (role, t, mask) for role in LEVELS for t in range(regions.shape[0]) if (mask := regions.mask(role, t)).any()
    ]
    roles = list(dict.fromkeys(role for role, _, _ in held))
    code, by = highdicom.sr.CodedConcept, {"algorithm_type": "MANUAL"}
    if regions.origin == AUTOMATIC:
        algorithm = highdicom.AlgorithmIdentificationSequence("usdehaze", code(*HISTOGRAMS), usdehaze.__version__)
        by = {"algorithm_type": "AUTOMATIC", "algorithm_identification": algorithm}
    described = [
        highdicom.seg.SegmentDescription(number, role, *(code(*words) for words in KINDS[role]), **by)
        for number, role in enumerate(roles, 1)
    ]
    built = highdicom.seg.Segmentation(
        source_images=[image],
        pixel_array=np.ones((1, *regions.shape[1:], len(roles)), np.uint8),
        segmentation_type="BINARY",
        segment_descriptions=described,
        series_instance_uid=generate_uid(prefix=None),
        series_number=series_number_beside(source, NUMBER),
        sop_instance_uid=generate_uid(prefix=None),
        instance_number=1,
        manufacturer="usdehaze",
        manufacturer_model_name="usdehaze",
        software_versions=usdehaze.__version__,
        device_serial_number=usdehaze.__version__,
        content_label="REGIONS",
        series_description="Regions of interest (usdehaze)",
    )
    for element in built.iterall():
        if element.keyword == "ReferencedSOPClassUID":
            element.value = kind
    _put_in(
        built,
        [(roles.index(role) + 1, first_frame + t + 1) for role, t, _ in held],
        has_frame_numbers(source),
    )
    built.PixelData = pack_bits(np.concatenate([mask.ravel() for _, _, mask in held]))
    built["PixelData"].VR = "OB"
    built.PatientOrientation = None  # of type 2 here, where nothing says how the image lies in the patient
    built.SegmentsOverlap = "YES" if overlapping(regions) else "NO"
    return adopted(built, source)


def _put_in(built: Dataset, frames: list[tuple[int, int]], numbered: bool) -> None:
    """Gives a segmentation these frames: segment, and number of the frame of the source, both from 1.

    Args:
        built: with one frame a segment.
        frames: in their order.
        numbered: the source has frames with numbers.
    """
    pattern = built.PerFrameFunctionalGroupsSequence[0]
    second = deepcopy(built.DimensionIndexSequence[0])
    second.DimensionIndexPointer, second.FunctionalGroupPointer = IN_STACK_POSITION, FRAME_CONTENT
    second.DimensionDescriptionLabel = "In-Stack Position Number"
    built.DimensionIndexSequence.append(second)
    positions = {number: position for position, number in enumerate(sorted({number for _, number in frames}), 1)}
    groups = []
    for segment, number in frames:
        group = deepcopy(pattern)
        group.SegmentIdentificationSequence[0].ReferencedSegmentNumber = segment
        content = group.FrameContentSequence[0]
        content.StackID, content.InStackPositionNumber = "1", positions[number]
        content.DimensionIndexValues = [segment, positions[number]]
        if numbered:
            group.DerivationImageSequence[0].SourceImageSequence[0].ReferencedFrameNumber = number
        groups.append(group)
    built.PerFrameFunctionalGroupsSequence, built.NumberOfFrames = groups, len(groups)
