"""The attributes of a derived image: what it is, what it came from and how it was made.

UIDs are made from their inputs alone (UUIDs by name, PS3.5 B.2), so that the same run on the same file gives the same
UIDs, and another setting, prior, version or range of frames other ones; nothing in the image says when it was made, so
that one UID never stands for two different files. All images of one source series that were made the same way share one
derived series.
"""

from __future__ import annotations

import json
import uuid

from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import UID

from usdehaze.io.dicom.codecs import LOSSY_SYNTAXES
from usdehaze.io.dicom.copying import kept_attributes
from usdehaze.io.dicom.file import rescale
from usdehaze.io.dicom.header import (
    MULTIFRAME_CLASSES,
    US_IMAGE,
    US_MULTIFRAME,
    items,
    numbers,
    sop_class,
    sop_instance,
    word,
    words,
)
from usdehaze.io.dicom.read import DicomScan
from usdehaze.io.dicom.series import PRODUCTS, Product, series_description, series_number
from usdehaze.io.dicom.timing import FRAME_TIME, FRAME_TIME_VECTOR, find_frame_times
from usdehaze.io.dicom.video import VIDEO_SYNTAXES
from usdehaze.io.runs import mark
from usdehaze.provenance import describe
from usdehaze.result import Result

WINDOW = (  # and whatever else is told of stored values
    "WindowCenter WindowWidth WindowCenterWidthExplanation VOILUTFunction VOILUTSequence PresentationLUTShape "
    "RealWorldValueMappingSequence"
)
COLOUR_PROFILE = "ICCProfile ColorSpace"
CINE = (
    "NumberOfFrames FrameIncrementPointer FrameTime FrameTimeVector StartTrim StopTrim CineRate FrameDelay "
    "EffectiveDuration ActualFrameDuration RecommendedDisplayFrameRate PreferredPlaybackSequencing "
    "RepresentativeFrameNumber FrameLabelVector"
)
OF_ALL_FRAMES = (  # by number, or told from the first frame on: without a meaning for part of them
    "StartTrim StopTrim EffectiveDuration FrameDelay TriggerTime RepresentativeFrameNumber FrameLabelVector "
    "RWaveTimeVector RWavePointer FrameNumbersOfInterest FrameOfInterestDescription FrameOfInterestType "
    "MaskSubtractionSequence MaskPointers RecommendedViewingMode TriggerVector TimeSlotVector SliceLocationVector "
    "FramePrimaryAngleVector FrameSecondaryAngleVector"
)
MOST_IN_ST = 1024  # characters of a value of VR ST
MAX_FRAME_LIST = 8000  # frame numbers that fit an attribute


# Type 2 attributes of the modules that both kinds of image have: written, empty where the source lacks them
TYPE_2 = (
    "PatientName PatientID PatientBirthDate PatientSex StudyDate StudyTime ReferringPhysicianName StudyID "
    "AccessionNumber Manufacturer InstanceNumber PatientOrientation"
).split()
IMPLEMENTATION = UID("2.25.279771185206611371875735476962146651638")


def derived_attributes(
    scan: DicomScan, result: Result, what: str, photometric: str, mark: bool = False, window: int | None = None
) -> Dataset:
    """Everything of a derived image but its pixel data, ready to be written with explicit VR, little endian.

    Args:
        scan: the source.
        result: its settings and version are told.
        what: "tissue" or "haze".
        photometric: Photometric Interpretation of its pixels.
        mark: whether there is a line written into its pixels.
        window: highest level that its window shows; None leaves the source's.
    """
    source, out = scan.attributes, kept_attributes(scan.attributes)
    product, settings = PRODUCTS[what], {k: v for k, v in result.settings.items() if v is not None}
    settings |= {"source_options": scan.source.options} if scan.source.options else {}
    made_by = {**settings, "usdehaze": result.usdehaze_version}
    made_by |= {"dynamic_range_db": scan.dynamic_range_db, "what": what} | ({"mark": True} if mark else {})
    recipe = json.dumps(made_by, sort_keys=True, default=str)
    sop_uid, series_uid = sop_instance(source), word(source, "SeriesInstanceUID")
    frames = f"{scan.source.first_frame}+{scan.n_frames}"
    out.SOPInstanceUID = _uid("instance", sop_uid, scan.source.sha256, frames, recipe)
    out.SeriesInstanceUID = _uid("series", series_uid or sop_uid or scan.source.sha256, recipe)
    if not word(source, "StudyInstanceUID"):
        out.StudyInstanceUID = _uid("study", series_uid or sop_uid or scan.source.sha256)
    out.SeriesDescription = series_description(source, product, settings)
    out.SeriesNumber = series_number(source, product, settings)
    out.Modality = "US"
    for keyword in TYPE_2:
        if keyword not in out:
            setattr(out, keyword, None)
    if not any(keyword in out for keyword in ("Laterality", "ImageLaterality", "FrameLaterality")):
        out.Laterality = None
    _set_image_pixel(out, scan, photometric)
    _set_cine(out, scan)
    if window is not None:
        _drop(out, WINDOW)
        out.WindowCenter, out.WindowWidth = f"{window / 2:g}", window
    _set_derivation(out, scan, product, result)
    _set_lossy_history(out, scan)
    return out


def _set_image_pixel(out: Dataset, scan: DicomScan, photometric: str) -> None:
    colour = photometric != "MONOCHROME2"
    out.Rows, out.Columns = scan.shape
    out.SamplesPerPixel, out.PhotometricInterpretation = 3 if colour else 1, photometric
    if colour:
        out.PlanarConfiguration = 0
    out.BitsAllocated, out.BitsStored, out.HighBit, out.PixelRepresentation = 8, 8, 7, 0
    stored = scan.pixel_format
    same_levels = stored.photometric == "MONOCHROME2" and stored.bits_stored == 8 and rescale(scan.attributes) == (1, 0)
    _drop(out, "" if same_levels else WINDOW)
    _drop(out, "" if colour else COLOUR_PROFILE)
    if not colour and "UltrasoundColorDataPresent" in out:
        out.UltrasoundColorDataPresent = 0


def _set_cine(out: Dataset, scan: DicomScan) -> None:
    """Multi-frame and Cine module (PS3.3 C.7.6.6, C.7.6.5), of the frames asked for."""
    source, first = scan.attributes, scan.source.first_frame
    if scan.n_frames != scan.n_frames_in_file:
        _drop(out, OF_ALL_FRAMES)
    if scan.n_frames == 1 and sop_class(source) != US_MULTIFRAME:
        out.SOPClassUID = US_IMAGE
        _drop(out, CINE)
        return
    out.SOPClassUID = US_MULTIFRAME
    out.NumberOfFrames = scan.n_frames
    times = find_frame_times(source, scan.n_frames_in_file)
    _drop(out, "FrameIncrementPointer FrameTimeVector")  # which may be of a type that cannot hold what it must
    if numbers(source, "FrameTime")[:1] != [times.step_ms]:
        _drop(out, "FrameTime")
    if times.steps_ms is not None:
        cut = times.steps_ms[first + 1 : first + scan.n_frames]
        out.FrameTimeVector = [0, *(f"{step:.10g}" for step in cut)]
        out.FrameIncrementPointer = FRAME_TIME_VECTOR
    elif times.step_ms is not None:
        if "FrameTime" not in out:
            out.FrameTime = f"{times.step_ms:.6g}"
        out.FrameIncrementPointer = FRAME_TIME
    else:  # nothing says when they were taken: frames are told apart by their number
        out.FrameLabelVector = [f"Frame {first + i + 1}" for i in range(scan.n_frames)]
        out.FrameIncrementPointer = 0x00182002


def derivation(scan: DicomScan, result: Result, product: Product) -> str:
    """Derivation Description: what the source says of its own, what was found out until these frames, what was done."""
    how = ", ".join(f"{field.key} {words}" for field, words in describe(result.settings, "setting"))
    how += f", read with {scan.source.options}" if scan.source.options else ""
    text = f"{product.derivation} by usdehaze {result.usdehaze_version}, joint posterior sampling: {how}"
    notes = " ".join(result.cine.source.assumptions)[: max(MOST_IN_ST - 1 - len(text), 0)]
    text = f"{notes} {text}".strip()[:MOST_IN_ST]
    before = word(scan.attributes, "DerivationDescription")[: max(MOST_IN_ST - 2 - len(text), 0)]
    return f"{before}; {text}" if before and before.isascii() else text


def _set_derivation(out: Dataset, scan: DicomScan, product: Product, result: Result) -> None:
    source = scan.attributes
    out.ImageType = ["DERIVED", "SECONDARY", *words(source, "ImageType")[2:4]]
    out.DerivationDescription = derivation(scan, result, product)
    out.DerivationCodeSequence = Sequence([*items(out, "DerivationCodeSequence"), _code(*product.code)])
    if sop_uid := sop_instance(source):
        out.SourceImageSequence = [_reference(scan, sop_uid)]
    equipment = Dataset()
    equipment.PurposeOfReferenceCodeSequence = [_code("109102", "DCM", "Processing Equipment")]
    equipment.Manufacturer = equipment.ManufacturerModelName = "usdehaze"
    equipment.SoftwareVersions = result.usdehaze_version
    networks = "; ".join(f"{field.key} {words}" for field, words in describe(result.settings, "network"))
    equipment.ContributionDescription = f"{networks[:960]}; {mark(scan, result)}"
    out.ContributingEquipmentSequence = Sequence([*items(out, "ContributingEquipmentSequence"), equipment])


def _reference(scan: DicomScan, sop_uid: str) -> Dataset:
    """Item of Source Image Sequence."""
    image = Dataset()
    image.ReferencedSOPClassUID = sop_class(scan.attributes)
    image.ReferencedSOPInstanceUID = sop_uid
    part = scan.n_frames != scan.n_frames_in_file and scan.n_frames <= MAX_FRAME_LIST
    if part and image.ReferencedSOPClassUID in MULTIFRAME_CLASSES:
        first = scan.source.first_frame + 1
        image.ReferencedFrameNumber = list(range(first, first + scan.n_frames))
    image.PurposeOfReferenceCodeSequence = [_code("121322", "DCM", "Source image for image processing operation")]
    image.SpatialLocationsPreserved = "YES"
    return image


def _set_lossy_history(out: Dataset, scan: DicomScan) -> None:
    """Pixels once compressed with loss stay so, whatever the file forgot to say (PS3.3 C.7.6.1.1.5)."""
    method = (LOSSY_SYNTAXES | VIDEO_SYNTAXES).get(scan.transfer_syntax)
    if method is None or word(out, "LossyImageCompression") == "01":
        return
    stored = scan.pixel_format
    uncompressed = scan.n_frames_in_file * stored.rows * stored.columns * stored.samples * stored.bits_allocated // 8
    out.LossyImageCompression = "01"
    out.LossyImageCompressionMethod = method
    out.LossyImageCompressionRatio = f"{max(uncompressed / scan.path.stat().st_size, 1):.4g}"


def _uid(*parts: str) -> UID:
    return UID(f"2.25.{uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(['usdehaze', *parts])).int}")


def _code(value: str, scheme: str, meaning: str) -> Dataset:
    code = Dataset()
    code.CodeValue, code.CodingSchemeDesignator, code.CodeMeaning = value, scheme, meaning
    return code


def _drop(out: Dataset, keywords: str) -> None:
    for keyword in keywords.split():
        if keyword in out:
            del out[keyword]
