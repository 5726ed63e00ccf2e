"""Objects that go with an image: reports and segmentations made from a result, in the study of its source.

Whoever builds one sees nothing of the patient: it is given `stand_in`, an image of no one, and `adopted` puts the
patient and the study in afterwards, with the very bytes that the source has.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pydicom
from pydicom.dataset import Dataset
from pydicom.tag import Tag

import usdehaze
from usdehaze.cine import Source
from usdehaze.errors import InputError
from usdehaze.io.atomic import atomic
from usdehaze.io.detect import sha256_of
from usdehaze.io.dicom.copying import kept_attributes
from usdehaze.io.dicom.header import (
    MULTIFRAME_CLASSES,
    image_attributes,
    numbers,
    sop_class,
    sop_instance,
    whole_number,
    word,
    words,
)
from usdehaze.quiet import quiet

SHARED = (  # of the modules Patient, General Study, Patient Study and Clinical Trial Subject, and what they are told in
    "SpecificCharacterSet TimezoneOffsetFromUTC PatientName PatientID IssuerOfPatientID "
    "IssuerOfPatientIDQualifiersSequence TypeOfPatientID OtherPatientIDs OtherPatientIDsSequence PatientBirthDate "
    "PatientBirthTime PatientSex PatientIdentityRemoved DeidentificationMethod DeidentificationMethodCodeSequence "
    "ClinicalTrialSponsorName ClinicalTrialProtocolID ClinicalTrialProtocolName ClinicalTrialSiteID "
    "ClinicalTrialSiteName ClinicalTrialSubjectID ClinicalTrialSubjectReadingID StudyInstanceUID StudyDate "
    "StudyTime StudyID AccessionNumber StudyDescription ReferringPhysicianName PatientAge PatientSize "
    "PatientWeight"
).split()
EMPTY = (
    "PatientName PatientID PatientBirthDate PatientSex StudyDate StudyTime StudyID AccessionNumber "
    "ReferringPhysicianName"
).split()


def source_image(result: Path, source: Source, given: Path | None) -> tuple[Path, Dataset]:
    """The DICOM image that a result was made of: its file, and its attributes without the pixel data.

    Args:
        result: the result's file, for errors; the image is looked for beside it.
        source: what the result says of it.
        given: the image, where it lies elsewhere.

    Raises:
        InputError: it was no DICOM image, cannot be found, is another file by its SHA-256, cannot be read, or does
            not say which image, study and patient it is of.
    """
    if not source.layout.startswith("DICOM"):
        raise InputError(result, "was not made of a DICOM image", "one that was: patient and study are taken from it")
    path = result.parent / Path(source.name).name if given is None else given
    if not path.is_file():
        missing = "is not there" if given else "the DICOM image that it was made of is not beside it"
        raise InputError(given or result, missing, "the source of the result", "name it with --source FILE")
    if not source.sha256 or sha256_of(path) != source.sha256:
        raise InputError(path, f"is not the file that {result.name} was made of", "one with the same SHA-256")
    attributes = image_attributes(path)
    ids = {"SOP Instance UID": sop_instance(attributes)}
    ids |= {name: word(attributes, name.replace(" ", "")) for name in ("Series Instance UID", "Study Instance UID")}
    if lacking := [name for name, value in ids.items() if not value]:
        raise InputError(path, f"has no {lacking[0]}", "an image that says what it is and which study it belongs to")
    if not (_is_told(attributes, "PatientID") or _is_told(attributes, "PatientName")):
        raise InputError(path, "names no patient (Patient ID and Patient's Name are empty)", "one of them")
    return path, attributes


def _is_told(attributes: Dataset, keyword: str) -> bool:
    """Whether an attribute of text has a value, which is not decoded: it would not keep its bytes."""
    element = attributes.get_item(keyword) if keyword in attributes else None
    return element is not None and bool(element.value) and bool(element.value.strip())


def stand_in(image: Dataset) -> Dataset:
    """An image of no one, as `highdicom` wants it: of the same class, UIDs and size, one frame, without pixel data."""
    out = Dataset()
    out.SOPClassUID, out.SOPInstanceUID = sop_class(image), sop_instance(image)
    out.StudyInstanceUID, out.SeriesInstanceUID = word(image, "StudyInstanceUID"), word(image, "SeriesInstanceUID")
    out.Rows, out.Columns = (whole_number(image, keyword, "", 1) for keyword in ("Rows", "Columns"))
    out.Modality = "US"
    methods, ratios = words(image, "LossyImageCompressionMethod"), numbers(image, "LossyImageCompressionRatio")
    if word(image, "LossyImageCompression") == "01" and len(methods) == len(ratios) > 0:
        out.LossyImageCompression, out.LossyImageCompressionMethod = "01", methods
        out.LossyImageCompressionRatio = ratios
    for keyword in EMPTY:
        setattr(out, keyword, "")
    return out


def has_frame_numbers(image: Dataset) -> bool:
    """Whether references to an image name its frames: where it has several, or its class is of such images."""
    return sop_class(image) in MULTIFRAME_CLASSES or numbers(image, "NumberOfFrames")[:1] > [1]


def series_number_beside(image: Dataset, number: int) -> int:
    """Series Number of a companion: 1000 times the source's, plus ``number`` over 900, where derived images end."""
    try:
        found = 1000 * whole_number(image, "SeriesNumber", "", 0) + number
    except InputError:
        return number
    return found if 0 < found < 2**31 else number


def adopted(built: Dataset, image: Dataset) -> Dataset:
    """What was built of a `stand_in`, in the study of the image and of its patient, ready to be written.

    Args:
        built: with explicit VR, little endian, and text in ASCII alone.
        image: the attributes of the source.
    """
    out = kept_attributes(image)
    shared = {Tag(keyword) for keyword in SHARED}
    for tag in list(out.keys()):
        if tag not in shared:
            del out[tag]
    for element in built:
        if element.tag not in shared or (element.tag not in out and element.keyword in EMPTY):
            out[element.tag] = element
    out.file_meta = built.file_meta
    out.Manufacturer = out.ManufacturerModelName = "usdehaze"
    out.SoftwareVersions = usdehaze.__version__
    return out


def write_companion(path: Path, companion: Dataset, overwrite: bool, sources: Iterable[Path]) -> None:
    """Writes it, whole or not at all; whoever may not read the ``sources`` may not read it.

    Raises:
        InputError: it exists and ``overwrite`` is False, or it cannot be written.
    """
    with atomic(path, overwrite, sources) as part:
        try:
            with quiet():
                pydicom.dcmwrite(part, companion, enforce_file_format=True)
        except OSError:
            raise
        except Exception as error:  # pydicom's own words may quote the attribute it stumbled over
            reason = f"attributes of its source cannot be written again ({type(error).__name__})"
            raise InputError(path, reason) from None
