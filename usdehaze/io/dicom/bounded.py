"""What pydicom reads of a file, within the file's budget."""

from __future__ import annotations

import io
import os
import tempfile
import zlib
from typing import Any, BinaryIO, cast

from pydicom.datadict import dictionary_VR
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.filebase import DicomFileLike
from pydicom.filereader import dcmread, read_file_meta_info
from pydicom.filewriter import write_file_meta_info
from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian

from usdehaze.budget import spend, spending
from usdehaze.errors import InputError

ELEMENT_BYTES = 2**10  # that an element or an item takes as an object
SEQUENCE_BYTES = 200  # that a byte of a sequence takes once it is parsed, its smallest items being 8 bytes long
_DAMAGED = "write it again as DICOM; it may be damaged"
_LONG = {b"OB", b"OD", b"OF", b"OL", b"OV", b"OW", b"SQ", b"SV", b"UC", b"UN", b"UR", b"UT", b"UV"}


class CountedFile(io.BufferedReader):
    """A file whose every read is spent from its budget: pydicom reads each element, and each item, by itself.

    Args:
        raw: the open file.
        path: for messages.
    """

    def __init__(self, raw: io.FileIO, path: object) -> None:
        super().__init__(raw)
        self.path = path

    def read(self, size: int | None = -1) -> bytes:
        size = -1 if size is None else size
        spend(self.path, memory=ELEMENT_BYTES + max(size, 0))
        return super().read(size)


def read_meta(path: str | os.PathLike[str]) -> FileMetaDataset:
    """The header of a DICOM file (group 0002).

    Raises:
        InputError: it takes more than the file's budget. Whatever else pydicom raises is left as it is.
    """
    with spending(path), open(path, "rb") as file:
        skip_meta(file, path)
    return read_file_meta_info(path)


def skip_meta(file: BinaryIO, path: object) -> None:
    """Goes to the first element behind the header."""
    file.seek(132)  # behind preamble and "DICM"
    while len(head := file.read(8)) == 8 and head[:2] == b"\2\0":
        spend(path, memory=ELEMENT_BYTES)
        length = file.read(4) if head[4:6] in _LONG else head[6:]
        file.seek(int.from_bytes(length, "little"), os.SEEK_CUR)
    file.seek(-len(head), os.SEEK_CUR)


def open_inflated(path: str | os.PathLike[str], meta: FileMetaDataset) -> CountedFile:
    """The file, open at its beginning; a deflated one inflated into a temporary file that vanishes when it is closed.

    Raises:
        InputError: it inflates to more than the budget, or is not deflated.
    """
    if meta.TransferSyntaxUID != DeflatedExplicitVRLittleEndian:
        return CountedFile(io.FileIO(path), path)
    with cast(BinaryIO, tempfile.TemporaryFile()) as out, open(path, "rb") as file:
        skip_meta(file, path)
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        out.write(bytes(128) + b"DICM")
        write_file_meta_info(DicomFileLike(out), meta, enforce_standard=False)
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        while block := file.read(2**16):
            while block:
                try:
                    data = inflate.decompress(block, 2**20)
                except zlib.error:
                    found = "its data set cannot be inflated, as its transfer syntax asks for"
                    raise InputError(path, found, "a deflate stream without a zlib header", _DAMAGED) from None
                spend(path, decoded=len(data))
                out.write(data)
                block = inflate.unconsumed_tail
        out.write(inflate.flush())
        out.seek(0)
        return CountedFile(io.FileIO(os.dup(out.fileno())), path)


def read_attributes(file: CountedFile, **options: Any) -> Dataset:
    """`pydicom.dcmread` within the budget.

    Raises:
        InputError: more than the budget. Whatever else pydicom raises is left as it is.
    """
    attributes = dcmread(file, **options)
    for element in attributes._dict.values():
        if isinstance(element, RawDataElement) and element.value and not element.tag.is_private:
            if (_vr(element) if element.VR in (None, "UN") else element.VR) == "SQ":  # parsed when it is asked for
                spend(file.path, memory=SEQUENCE_BYTES * len(element.value))
    return attributes


def _vr(element: RawDataElement) -> str:
    try:
        return dictionary_VR(element.tag)
    except KeyError:
        return ""
