"""The attributes of a source that a derived image keeps."""

from __future__ import annotations

from copy import copy

from pydicom.datadict import dictionary_VR, tag_for_keyword
from pydicom.dataelem import DataElement, RawDataElement
from pydicom.dataset import Dataset
from pydicom.filewriter import correct_ambiguous_vr_element
from pydicom.sequence import Sequence
from pydicom.tag import BaseTag

TEXT_VRS = {"AE", "AS", "CS", "DA", "DS", "DT", "IS", "LO", "LT", "PN", "SH", "ST", "TM", "UC", "UI", "UR", "UT"}
NO_DATA_SET = (0, 2)  # groups of commands and of a file's header, which some files have among the others
OVERLAYS = range(0x6000, 0x6100)
CURVES = range(0x5000, 0x5100)  # retired; drawn over frames by number
PALETTES = range(0x00281100, 0x00281225)  # their descriptors, data and UIDs
_DROPPED = (
    # of the source's pixel data: written anew, or without a meaning for 8-bit pixels
    "SamplesPerPixel PhotometricInterpretation PlanarConfiguration BitsAllocated BitsStored HighBit "
    "PixelRepresentation SmallestImagePixelValue LargestImagePixelValue SmallestPixelValueInSeries "
    "LargestPixelValueInSeries "
    "PixelPaddingValue PixelPaddingRangeLimit RescaleIntercept RescaleSlope RescaleType ModalityLUTSequence "
    "ExtendedOffsetTable ExtendedOffsetTableLengths PixelData FloatPixelData DoubleFloatPixelData "
    "PixelDataProviderURL PixelPresentation "
    # pictures, seals and padding that no longer fit
    "IconImageSequence DigitalSignaturesSequence MACParametersSequence EncryptedAttributesSequence "
    "DataSetTrailingPadding ReferencedRawDataSequence "
    # of images of other kinds: what they say by frame
    "SharedFunctionalGroupsSequence PerFrameFunctionalGroupsSequence DimensionOrganizationSequence "
    "DimensionOrganizationType DimensionIndexSequence "
    # of parts of one image (PS3.3 C.7.6.16.2.2.4)
    "ConcatenationUID SOPInstanceUIDOfConcatenationSource InConcatenationNumber InConcatenationTotalNumber "
    "ConcatenationFrameOffsetNumber "
    # of the secondary capture and of the source's instance
    "ConversionType SecondaryCaptureDeviceID SecondaryCaptureDeviceManufacturer "
    "SecondaryCaptureDeviceManufacturerModelName SecondaryCaptureDeviceSoftwareVersions DateOfSecondaryCapture "
    "TimeOfSecondaryCapture PageNumberVector InstanceCreatorUID InstanceCreationDate InstanceCreationTime "
    "InstanceCoercionDateTime SourceImageSequence"
)
DROPPED = {*map(tag_for_keyword, _DROPPED.split())}


def kept_attributes(source: Dataset) -> Dataset:
    """A copy, ready to be written with explicit VR, little endian.

    Private groups, overlays, curves, palettes and `DROPPED` are left out, in the items of sequences too, and so is what
    cannot be read. Text keeps its very bytes, whatever the character set says of them: a name is not for us to mend.
    """
    kept = Dataset()
    kept.set_original_encoding(False, True, source.original_character_set)  # bytes may be written as they are
    for tag in list(source.keys()):
        if tag.is_private or tag.group in NO_DATA_SET or tag.element == 0:
            continue
        if tag.group in OVERLAYS or tag.group in CURVES or int(tag) in PALETTES or tag in DROPPED:
            continue
        element = source.get_item(tag, keep_deferred=True)
        if isinstance(element, RawDataElement) and element.value is None and element.length != 0:
            continue  # left unread for its size
        try:
            copied = _copied(source, tag, element)
        except Exception:  # whatever pydicom makes of a broken value
            continue
        if copied is not None:
            kept[tag] = copied
    return kept


def _copied(source: Dataset, tag: BaseTag, element: object) -> DataElement | RawDataElement | None:
    if isinstance(element, RawDataElement):
        vr = element.VR or dictionary_VR(tag)
        if vr in TEXT_VRS:
            value = element.value or b""
            value += (b"\0" if vr == "UI" else b" ") * (len(value) % 2)
            return element._replace(VR=vr, value=value, length=len(value), is_implicit_VR=False, is_little_endian=True)
    decoded = source[tag]
    if decoded.VR == "SQ":
        return DataElement(tag, "SQ", Sequence(kept_attributes(item) for item in decoded.value))
    certain = correct_ambiguous_vr_element(copy(decoded), source, True)  # a copy is what others may set
    return certain if certain.VR is not None and len(certain.VR) == 2 else None
