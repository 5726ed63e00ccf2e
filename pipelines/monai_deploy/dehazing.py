"""What the operator does, without MONAI Deploy: images of a study in, derived images out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usdehaze import Dehazer, open_scan
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io.dicom import DicomScan, DicomWriter
from usdehaze.io.dicom.header import words
from usdehaze.io.dicom.modes import is_secondary
from usdehaze.io.sink import SinkSet

FRAMES_AT_ONCE = 32
ENDS = {"tissue": "", "haze": ".haze"}  # of the names of derived images


@dataclass(frozen=True)
class Dehazed:
    """What was made of a study.

    Attributes:
        images: files of the derived images, of tissue and haze in turn.
        passed: number of the object (from 1) and why nothing was made of it.
    """

    images: tuple[Path, ...]
    passed: dict[int, str]


def dehaze_images(
    files: Iterable[Path], out: Path, dehazer: Dehazer, tell: Callable[[str], None] = lambda line: None
) -> Dehazed:
    """Dehazes every B-mode image among files, into a series of tissue and one of haze in the study of each.

    What is no ultrasound, shows no B-mode or was itself derived is passed over. Nothing that is told names a patient, a
    UID or a file: objects are numbered in their order.

    Args:
        files: DICOM files.
        out: folder for ``0001.dehazed.dcm``, ``0001.dehazed.haze.dcm`` and so on; those that are there are replaced.
        dehazer: made once, for all of them.
        tell: called with a line about each object.

    Raises:
        UsdehazeError: nothing was made of any of them.
    """
    images: list[Path] = []
    passed: dict[int, str] = {}
    for number, path in enumerate(files, 1):
        try:
            made = _dehaze_image(path, out / f"{number:04d}", dehazer)
        except UsdehazeError as error:
            passed[number] = str(error).removeprefix(f"{path}: ")
            tell(f"object {number}: passed over: {passed[number]}")
        else:
            images += made
            tell(f"object {number}: dehazed")
    if not images:
        raise UsdehazeError(f"no ultrasound to dehaze among {len(passed)} objects")
    return Dehazed(tuple(images), passed)


def _dehaze_image(path: Path, stem: Path, dehazer: Dehazer) -> list[Path]:
    """The derived images of one file, which appear together."""
    with open_scan(path) as scan:
        if not isinstance(scan, DicomScan):
            raise InputError(path, "is no DICOM image", "ultrasound as DICOM")
        if is_secondary(words(scan.attributes, "ImageType")):
            raise InputError(path, "was derived from another image", "an original one")
        targets = {what: stem.with_name(f"{stem.name}.dehazed{end}.dcm") for what, end in ENDS.items()}
        writers = [DicomWriter(target, scan, what=what, overwrite=True) for what, target in targets.items()]
        with SinkSet(writers, scan) as sinks:
            for cine in scan.chunks(FRAMES_AT_ONCE):
                sinks.append(dehazer.dehaze(cine))
            sinks.finish()
            sinks.commit()
        return list(targets.values())


def files_of(studies: Iterable[Any], folder: Path) -> list[Path]:
    """The files of all instances of studies, as the loader of MONAI Deploy has them in memory.

    Args:
        studies: objects such as ``monai.deploy.core.domain.DICOMStudy``.
        folder: where to write an instance that is of no file, or whose file is gone.
    """
    files = []
    for study in studies:
        for series in study.get_all_series():
            for instance in series.get_sop_instances():
                dataset = instance.get_native_sop_instance()
                path = Path(str(getattr(dataset, "filename", None) or ""))
                if not path.is_file():
                    path = folder / f"{len(files) + 1:04d}.dcm"
                    dataset.save_as(path, enforce_file_format=True)
                files.append(path)
    return files
