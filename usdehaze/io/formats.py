"""The file formats of scans, known by their content.

To add a format: a file that reads it, and a row here in `FORMATS`.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from usdehaze.errors import InputError
from usdehaze.io.reading import Reading
from usdehaze.io.run_marks import marked_run, start_of
from usdehaze.io.scan import Scan
from usdehaze.io.stored_cine import ImageFile

EXPECTED = "an HDF5 or DICOM file, a MetaImage, or images; a film, a NIfTI, NumPy or MAT file"
START_BYTES = 1024  # of a file that its signature is looked for in
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_TIFF_SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the last two of BigTIFF
_IMAGE_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", *_TIFF_SIGNATURES)  # PNG, JPEG, BMP, TIFF
_META_IMAGE = re.compile(rb"(\w+ *=[^\n]*\n)*(ObjectType|NDims)\b")  # whichever of its lines comes first
_MPEG_SIGNATURES = (b"\0\0\1\xba", b"\0\0\1\xb3")  # the latter of video without a container
_FILM_SIGNATURES = (b"\x1a\x45\xdf\xa3", b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", *_MPEG_SIGNATURES)  # Matroska, ASF, MPEG
_STILLS = (b"avif", b"heic", b"heix", b"mif1", b"jp2 ", b"jpx ")  # brands of what is no film
_MATLAB_VERSIONS = (b"\0\1IM", b"\1\0MI")
_DOCUMENT = re.compile(rb"PK\x03\x04.{26}(\[Content_Types|_rels/|docProps/|mimetype)", re.DOTALL)  # of an office suite
_FOREIGN = {  # what is not read
    re.compile(rb"NRRD\d{4}"): "NRRD, which is not read",
    re.compile(rb"\x0e\x03\x13\x01"): "HDF4, which is not read; HDF5 is",
    re.compile(rb"# Created by Octave"): "text of Octave's, which is not read; its save -v7 is",
    re.compile(rb"KRETZFILE"): "a volume of Kretz (GE Voluson), which is not read",
    re.compile(rb"CDF[\1\2\5]"): "netCDF 3, which is not read; netCDF 4 is HDF5",
    re.compile(rb"RIFF.{4}WEBP", re.DOTALL): "WebP, which is not read",
    re.compile(rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51"): "JPEG 2000 outside DICOM, which is not read",
    re.compile(rb"P[2-6]\s+[#\d]"): "PGM or PPM, which is not read",
    re.compile(rb"(\x5c\x01\0\0|\0\0\x01\x5c).{344}", re.DOTALL): "a header of NIfTI or Analyze alone",
    _DOCUMENT: "a document",
    re.compile(rb"PK\x03\x04|\x1f\x8b"): "a zip or gzip archive, to be unpacked",
}
_EMPTY, _UNKNOWN = "empty", "unknown content"
NO_KIND = (_EMPTY, _UNKNOWN, _FOREIGN[_DOCUMENT])  # of what is nowhere near a scan
_MASK = re.compile(r"(.+?)[ _.-](mask|gt|seg|segmentation|label|annotation)s?[ _-]?\d*", re.IGNORECASE)  # of a stem
_SUFFIXES = {".jpeg": ".jpg", ".tiff": ".tif", ".mhd": ".mha"}
# Media Storage SOP Class UID of a DICOMDIR; and of reports, presentation states, documents, waveforms, raw data,
# registrations and segmentations
_DIRECTORY = rb"1\.2\.840\.10008\.1\.3\.10"
_NO_IMAGE = rb"1\.2\.840\.10008\.5\.1\.4\.1\.1\.(88\.|11\.|104\.|9\.|66\.|68\.|6[67][\0\x02])"
_DICOM_GROUPS = (b"\x02\0", b"\x08\0")  # little endian, of the first elements of a data set


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """A format of scans.

    Attributes:
        name: what messages call it.
        signature: whether a file is of this format, by its path and its first `START_BYTES` bytes.
        open_scan: opens a scan of it.
        open_image: opens a file of it as one of the images in a folder; None where it is never one of them.
        is_alone: whether a file of it, found in a folder, is a scan by itself.
        of_folders: the format is of folders; its signature gets no bytes.
        has_datasets: it takes the reading options ``dataset`` and ``axes``.
        holds: what all of its frames are, so that it does not take the reading option ``units``; "" for anything.
        suffixes: that its files often have, lower case; the names of results do without them.
        other_files: files that a scan in a file of this format takes frames from as well.
        scans_listed: scans that a file stands for, given by name; none where it is one itself.
    """

    name: str
    signature: Callable[[Path, bytes], bool]
    open_scan: Callable[[Path, Reading], Scan]
    open_image: Callable[[Path], ImageFile] | None = None
    is_alone: Callable[[Path], bool] = lambda path: True
    of_folders: bool = False
    has_datasets: bool = False
    holds: str = ""
    suffixes: tuple[str, ...] = ()
    other_files: Callable[[Path], list[Path]] = lambda path: []
    scans_listed: Callable[[Path], list[Path]] = lambda path: []

    def check_reading(self, reading: Reading, path: object) -> None:
        """Refuses reading options that mean nothing for files of this format.

        Raises:
            InputError: there is one.
        """
        if (reading.dataset or reading.axes) and not self.has_datasets:
            raise InputError(path, f"has no datasets ({self.name})", "no --dataset and no --axes")
        if reading.units and self.holds:
            raise InputError(path, f"units {reading.units!r}", f"no --units: {self.name} images hold {self.holds}")


def lazily(module: str, name: str) -> Callable[..., Any]:
    """A function that is imported when it is first called: a format's libraries are loaded for its files alone."""

    def call(*arguments: Any) -> Any:
        return getattr(import_module(module), name)(*arguments)

    return call


def _is_hdf5(path: Path, start: bytes) -> bool:
    if start.startswith(_HDF5_SIGNATURE):
        return True
    size, offset = path.stat().st_size, 512
    with open(path, "rb") as file:
        while offset + 8 <= size:  # behind a user block of 512, 1024, ... bytes
            file.seek(offset)
            if file.read(8) == _HDF5_SIGNATURE:
                return True
            offset *= 2
    return False


def _is_film(path: Path, start: bytes) -> bool:
    if start[:4] == b"RIFF":
        return start[8:12] == b"AVI "
    if start[4:8] == b"ftyp":
        return start[8:12] not in _STILLS
    if any(start[head :: 188 + head][:5] == b"GGGGG" for head in (0, 4)):  # packets of an MPEG transport stream
        return True
    return start[4:8] in (b"moov", b"mdat", b"wide", b"free") or start.startswith(_FILM_SIGNATURES)


def _is_nifti(path: Path, start: bytes) -> bool:
    with gzip.open(path) if start.startswith(b"\x1f\x8b") else open(path, "rb") as file:
        try:
            head = file.read(348)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return False
    return head[344:348] == b"n+1\0" or head[4:8] == b"n+2\0"


def _is_numpy_archive(path: Path, start: bytes) -> bool:
    if not start.startswith(b"PK\3\4"):
        return False
    with open(path, "rb") as file:  # the name of the first member, behind a head of 30 bytes
        return file.read(30 + int.from_bytes(start[26:28], "little")).endswith(b".npy")


def _is_dicom_of(class_uid: bytes) -> Callable[[Path, bytes], bool]:
    """Whether a file is DICOM of some SOP class, a pattern."""
    pattern = re.compile(rb"\x02\0\x02\0UI.." + class_uid, re.DOTALL)

    def signature(path: Path, start: bytes) -> bool:
        return start[128:132] == b"DICM" and pattern.search(start) is not None

    return signature


DICOMDIR = FileFormat(
    name="DICOMDIR",
    signature=_is_dicom_of(_DIRECTORY),
    open_scan=lazily("usdehaze.io.dicom.directory", "refuse"),
    is_alone=lambda path: False,
    scans_listed=lazily("usdehaze.io.dicom.directory", "images_listed"),
)
DICOM = FileFormat(
    name="DICOM",
    signature=lambda path, start: start[128:132] == b"DICM",
    open_scan=lazily("usdehaze.io.dicom.read", "DicomScan"),
    is_alone=lambda path: marked_run(start_of(path)) is None,  # else it is a derived image of our own
    holds="log-compressed grey levels",
    suffixes=(".dcm", ".dicom", ".ima"),
)
DICOM_WITHOUT_IMAGE = replace(DICOM, signature=_is_dicom_of(_NO_IMAGE), is_alone=lambda path: False)
META_IMAGE = FileFormat(
    name="MetaImage",
    signature=lambda path, start: _META_IMAGE.match(start) is not None,
    open_scan=lazily("usdehaze.io.images.read", "ImageScan"),
    open_image=lazily("usdehaze.io.images.metaimage", "MetaImage"),
    is_alone=lazily("usdehaze.io.images.metaimage", "is_stack"),
    suffixes=(".mha", ".mhd"),
    other_files=lazily("usdehaze.io.images.metaimage", "data_files"),
)
IMAGE = FileFormat(
    name="image",
    signature=lambda path, start: start.startswith(_IMAGE_SIGNATURES),
    open_scan=lazily("usdehaze.io.images.read", "ImageScan"),
    open_image=lazily("usdehaze.io.images.read", "PillowImage"),
    is_alone=lambda path: False,
    suffixes=(".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff"),
)
GIF = FileFormat(
    name="GIF",
    signature=lambda path, start: start.startswith((b"GIF87a", b"GIF89a")),
    open_scan=lazily("usdehaze.io.images.read", "ImageScan"),
    open_image=lazily("usdehaze.io.images.gif", "GifImage"),
    is_alone=lazily("usdehaze.io.images.gif", "is_animated"),
    suffixes=(".gif",),
)
FILM = FileFormat(
    name="film",
    signature=_is_film,
    open_scan=lazily("usdehaze.io.images.film", "FilmScan"),
    holds="log-compressed grey levels",
    suffixes=(".mp4", ".m4v", ".avi", ".mov", ".mkv", ".webm", ".wmv", ".mpg", ".mpeg", ".mts", ".m2ts"),
)
NPY = FileFormat(
    name="NumPy array",
    signature=lambda path, start: start.startswith(b"\x93NUMPY"),
    open_scan=lazily("usdehaze.io.arrays.npy", "NpyScan"),
    has_datasets=True,
    suffixes=(".npy",),
)
NPZ = FileFormat(
    name="NumPy archive",
    signature=_is_numpy_archive,
    open_scan=lazily("usdehaze.io.arrays.npz", "NpzScan"),
    has_datasets=True,
    suffixes=(".npz",),
)
MATLAB = FileFormat(
    name="MAT-file",
    signature=lambda path, start: start.startswith(b"MATLAB 5.0 MAT-file") or start[124:128] in _MATLAB_VERSIONS,
    open_scan=lazily("usdehaze.io.arrays.matlab", "MatlabScan"),
    has_datasets=True,
    suffixes=(".mat",),
)
NIFTI = FileFormat(
    name="NIfTI",
    signature=_is_nifti,
    open_scan=lazily("usdehaze.io.arrays.nifti", "NiftiScan"),
    has_datasets=True,
    suffixes=(".nii.gz", ".nii"),
)
HDF5 = FileFormat(
    name="HDF5",
    signature=_is_hdf5,
    open_scan=lazily("usdehaze.io.hdf5.read", "Hdf5Scan"),
    has_datasets=True,
    suffixes=(".h5", ".hdf5", ".hdf", ".he5", ".uff"),
)
IMAGE_FOLDER = FileFormat(
    name="images",
    signature=lambda path, start: bool(images_in(path)),
    open_scan=lazily("usdehaze.io.images.read", "ImageFolderScan"),
    of_folders=True,
)
# looked at in this order
FORMATS = [
    DICOMDIR,
    DICOM_WITHOUT_IMAGE,
    DICOM,
    META_IMAGE,
    IMAGE,
    GIF,
    FILM,
    NPY,
    NPZ,
    MATLAB,
    HDF5,
    NIFTI,
    IMAGE_FOLDER,
]
SUFFIXES = sorted({suffix for found in FORMATS for suffix in found.suffixes}, key=len, reverse=True)
SCAN_SUFFIXES = tuple(suffix for found in FORMATS if found.open_image is None for suffix in found.suffixes)


def format_of(path: str | os.PathLike[str]) -> FileFormat | None:
    """The format of a file or folder, by its content; None for a file of another.

    Raises:
        InputError: there is no such file, it cannot be read, or it is a folder that is no scan.
    """
    return _look(Path(path))[0]


def kind_of(path: str | os.PathLike[str]) -> str:
    """What a file or folder is, by its content: the name of its format, or "empty", "unknown content" and the like.

    Raises:
        InputError: as of `format_of`.
    """
    return look_at(path)[1]


def look_at(path: str | os.PathLike[str]) -> tuple[FileFormat | None, str]:
    """`format_of` and `kind_of` a file or folder."""
    found, start = _look(Path(path))
    if found is not None:
        return found, found.name
    if start[:2] in _DICOM_GROUPS and start[3:4] == b"\0":
        return None, "perhaps a DICOM data set, but without the header of a DICOM file"
    foreign = next((name for signature, name in _FOREIGN.items() if signature.match(start)), _UNKNOWN)
    return None, foreign if start else _EMPTY


def _look(path: Path) -> tuple[FileFormat | None, bytes]:
    """The format of a file or folder, and the file's first bytes."""
    try:
        if not path.exists():
            raise InputError(path, "no such file")
        folder, start = path.is_dir(), b""
        if not folder:
            if not path.is_file():
                raise InputError(path, "is not a regular file")
            with open(path, "rb") as file:
                start = file.read(START_BYTES)
        found = next((f for f in FORMATS if f.of_folders == folder and f.signature(path, start)), None)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(path, f"cannot be read ({reason})") from None
    if folder and found is None:
        raise InputError(path, "is a folder, not a scan", "a scan, or on the command line a folder of scans")
    return found, start


def parts_of(path: str | os.PathLike[str]) -> list[Path]:
    """The files that a scan lies in: the one itself and others beside it, or the images of a folder.

    Raises:
        InputError: as of `format_of`, or others are not there.
    """
    path = Path(path)
    if os.path.isdir(path):
        return images_in(path)
    found = format_of(path)
    return [path, *(found.other_files(path) if found is not None else ())]


def images_in(folder: str | os.PathLike[str]) -> list[Path]:
    """Images directly in a folder, without hidden files, previews and masks; of several suffixes, the commonest."""
    return max(images_by_suffix(folder).values(), key=len, default=[])


def images_by_suffix(folder: str | os.PathLike[str]) -> dict[str, list[Path]]:
    """The same of every suffix, by its usual form in lower case."""
    images: dict[str, list[Path]] = {}
    for path in sorted(Path(folder).iterdir()):
        if not is_left_out(path.name) and not is_mask(path) and path.is_file():
            with suppress(InputError):
                if (found := format_of(path)) is not None and found.open_image is not None:
                    suffix = path.suffix.lower()
                    images.setdefault(_SUFFIXES.get(suffix, suffix), []).append(path)
    return images


def is_left_out(name: str) -> bool:
    """Whether a file among images is none of them by its name: hidden, or a preview."""
    return name.startswith(".") or ".dehazed." in name


def is_mask(path: Path) -> bool:
    """Whether a file is named as the mask of an image or a scan beside it, as ``a_mask.png`` is of ``a.png``."""
    ending = next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), "")
    stem = path.name[: len(path.name) - len(ending)]
    suffixes, named = {path.name[len(stem) :], *IMAGE.suffixes}, _MASK.fullmatch(stem)
    return named is not None and any(os.path.isfile(path.with_name(named[1] + suffix)) for suffix in suffixes)
