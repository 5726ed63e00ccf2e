"""The attributes of a DICOM file: read within bounds, and checked to be an ultrasound image."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import BinaryIO

from pydicom.dataset import Dataset
from pydicom.uid import (
    UID,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
)

from usdehaze.errors import InputError
from usdehaze.io.dicom.bounded import CountedFile, open_inflated, read_attributes, read_meta, skip_meta
from usdehaze.quiet import quiet

US_IMAGE = "1.2.840.10008.5.1.4.1.1.6.1"
US_MULTIFRAME = "1.2.840.10008.5.1.4.1.1.3.1"
RETIRED_IMAGE, RETIRED_MULTIFRAME = "1.2.840.10008.5.1.4.1.1.6", "1.2.840.10008.5.1.4.1.1.3"
ULTRASOUND_CLASSES = {US_IMAGE, US_MULTIFRAME, RETIRED_IMAGE, RETIRED_MULTIFRAME}
SINGLE_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
CAPTURE_CLASSES = {SINGLE_CAPTURE + part for part in ("", ".1", ".2", ".3", ".4")}
MULTIFRAME_CLASSES = {US_MULTIFRAME, RETIRED_MULTIFRAME, *CAPTURE_CLASSES} - {SINGLE_CAPTURE}
LARGEST_ELEMENT = 4 * 2**20  # bytes; larger attributes than this are left unread (none that is used here is)
UNDEFINED = 0xFFFFFFFF
PIXEL_DATA = 0x7FE00010
NATIVE_SYNTAXES = {ImplicitVRLittleEndian, ExplicitVRLittleEndian, ExplicitVRBigEndian}


@dataclass(frozen=True)
class Header:
    """A DICOM file up to its pixel data.

    Attributes:
        attributes: the data set, without the pixel data and without attributes over `LARGEST_ELEMENT`.
        transfer_syntax: of the pixel data, as they are.
        file: open at any position; closed by whoever asked for the header.
        pixel_start: offset in ``file`` of the value of Pixel Data.
        pixel_length: its length in bytes, None where it is encapsulated.
        pixel_vr: "OB" or "OW".
    """

    attributes: Dataset
    transfer_syntax: UID
    file: BinaryIO
    pixel_start: int
    pixel_length: int | None
    pixel_vr: str

    @property
    def encapsulated(self) -> bool:
        return self.pixel_length is None


def open_header(path: str | os.PathLike[str]) -> Header:
    """Opens a DICOM file and reads what precedes the pixel data.

    Raises:
        InputError: it cannot be read, is no ultrasound, or has no pixel data. No message quotes an attribute's value,
            save those of SOP Class and Modality that name a kind of image.
    """
    file: CountedFile | None = None
    try:
        with quiet():
            meta = read_meta(path)
            syntax = meta.get("TransferSyntaxUID")
            if not syntax:
                raise InputError(
                    path, "is a DICOM file without a Transfer Syntax UID", advice="write it again as DICOM"
                )
            file = open_inflated(path, meta)
            _check_order(file, syntax, path)
            attributes = read_attributes(file, stop_before_pixels=True, defer_size=LARGEST_ELEMENT)
            _check_kind(attributes, path)
            if syntax == DeflatedExplicitVRLittleEndian:
                syntax = ExplicitVRLittleEndian
            syntax, start, length, vr = _pixel_element(file, syntax, path)
        return Header(attributes, syntax, file, start, length, vr)
    except BaseException as error:
        if file is not None:
            file.close()
        if isinstance(error, InputError) or not isinstance(error, Exception):
            raise
        if isinstance(error, OSError) and error.strerror:
            raise InputError(path, f"cannot be read ({error.strerror})") from None
        # pydicom's own words may quote what it stumbled over
        raise unreadable(path, type(error).__name__) from None


def image_attributes(path: str | os.PathLike[str]) -> Dataset:
    """The attributes of the ultrasound image in a file, without the pixel data.

    Raises:
        InputError: see `open_header`.
    """
    header = open_header(path)
    header.file.close()
    return header.attributes


def unreadable(path: object, reason: str) -> InputError:
    return InputError(path, f"cannot be read as DICOM ({reason})", advice="the file may be cut off or damaged")


def whole_number(attributes: Dataset, keyword: str, path: object, default: int | None = None) -> int:
    """An attribute that must be a whole number.

    Raises:
        InputError: it is missing and has no default, or it is something else.
    """
    try:
        with quiet():
            value = attributes.get(keyword)
        if value is None or value == "":
            if default is None:
                raise InputError(path, f"attribute {keyword} is missing", "a DICOM image")
            return default
        return int(value)
    except InputError:
        raise
    except Exception:
        raise InputError(path, f"attribute {keyword} cannot be used", "a whole number") from None


def numbers(attributes: Dataset, keyword: str) -> list[float]:
    """The values of a numeric attribute; empty where it is missing or anything else."""
    try:
        with quiet():
            value = attributes.get(keyword)
        if isinstance(value, bytes):  # text of more than 64 KiB, whose VR cannot be told (PS3.5 6.2.2)
            value = value.split(b"\\")
        values = [] if value is None or value == "" else value if hasattr(value, "__iter__") else [value]
        return [float(v) for v in values]
    except Exception:
        return []


def words(attributes: Dataset, keyword: str) -> list[str]:
    """The values of an attribute of text; empty where it is missing or anything else."""
    try:
        with quiet():
            value = attributes.get(keyword)
        values = [value] if isinstance(value, str) else value or []
        return [text.strip() for text in values if isinstance(text, str)]
    except Exception:
        return []


def word(attributes: Dataset, keyword: str) -> str:
    """A code string such as Photometric Interpretation; "" where it is missing or no single text."""
    found = words(attributes, keyword)
    return found[0] if len(found) == 1 else ""


def items(attributes: Dataset, keyword: str) -> list[Dataset]:
    """The items of a sequence; empty where it is missing or broken."""
    try:
        with quiet():
            value = attributes.get(keyword)
            return [item for item in value or [] if isinstance(item, Dataset)]
    except Exception:
        return []


def sop_class(attributes: Dataset) -> UID:
    """SOP Class UID, of the file's header where the data set has none; "" where neither has."""
    return UID(word(attributes, "SOPClassUID") or word(attributes.file_meta, "MediaStorageSOPClassUID"))


def sop_instance(attributes: Dataset) -> str:
    """SOP Instance UID, of the file's header where the data set has none; "" where neither has."""
    return word(attributes, "SOPInstanceUID") or word(attributes.file_meta, "MediaStorageSOPInstanceUID")


def _check_order(file: CountedFile, syntax: UID, path: object) -> None:
    """Refuses a data set whose first group, 0008, has its bytes in another order than the transfer syntax says."""
    skip_meta(file, path)
    group, is_big = file.read(2), syntax == ExplicitVRBigEndian
    file.seek(0)
    if group == (b"\x08\0" if is_big else b"\0\x08"):
        found = f"its data set is {'little' if is_big else 'big'}-endian, which does not fit the transfer syntax"
        raise InputError(path, f"{found} ({syntax.name})", advice="write it again as DICOM")


def _check_kind(attributes: Dataset, path: object) -> None:
    """Refuses everything but ultrasound images."""
    kind_uid, modality = sop_class(attributes), word(attributes, "Modality")
    if kind_uid in ULTRASOUND_CLASSES or (kind_uid in CAPTURE_CLASSES and modality == "US"):
        return
    if not kind_uid:
        kind = "a DICOM file without a SOP class"
    elif kind_uid.name == kind_uid:
        kind = "a DICOM file of a private or unknown SOP class"
    elif kind_uid in CAPTURE_CLASSES:
        kind = f"a {kind_uid.name} whose Modality is not US"
    else:
        kind = f"a DICOM file of another kind ({kind_uid.name})"
    raise InputError(path, f"is {kind}", "an ultrasound image, or a secondary capture of Modality US")


def misfit(stored: str, syntax: UID, path: object) -> InputError:
    known = f" ({syntax.name})" if syntax.name != syntax else ""
    return InputError(path, f"pixel data are {stored}, which does not fit the transfer syntax{known}")


def _pixel_element(file: BinaryIO, syntax: UID, path: object) -> tuple[UID, int, int | None, str]:
    """Their true syntax, where the value of Pixel Data begins, its length and VR; ``file`` stands at the element."""
    order = ">" if syntax == ExplicitVRBigEndian else "<"
    header = file.read(12)
    if len(header) < 8:
        raise InputError(path, "is a DICOM file without pixel data", "an ultrasound image")
    group, element = struct.unpack(order + "HH", header[:4])
    if (group << 16) + element != PIXEL_DATA:
        raise InputError(path, "is a DICOM file without Pixel Data in whole numbers", "an ultrasound image")
    has_vr = header[4:6] in (b"OB", b"OW", b"UN") and len(header) == 12  # as a length each of these would be odd
    if syntax == ImplicitVRLittleEndian and has_vr:
        syntax = ExplicitVRLittleEndian
    elif syntax == ExplicitVRLittleEndian and not has_vr and header[4] % 2 == 0 and any(header[4:8]):
        syntax = ImplicitVRLittleEndian
    if syntax == ImplicitVRLittleEndian:
        vr, (length,) = "OW", struct.unpack(order + "L", header[4:8])
        file.seek(-4 if len(header) == 12 else 0, os.SEEK_CUR)
    elif has_vr:
        vr, (length,) = header[4:6].decode(), struct.unpack(order + "L", header[8:12])
    else:
        raise unreadable(path, "Pixel Data is neither bytes nor words")
    if syntax not in NATIVE_SYNTAXES and length != UNDEFINED:
        raise misfit("not encapsulated", syntax, path)
    if length == 0:
        raise InputError(path, "is a DICOM file whose pixel data are empty", "an ultrasound image")
    return syntax, file.tell(), None if length == UNDEFINED else length, vr
