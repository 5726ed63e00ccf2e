"""Which scan goes to which result file, decided before any work begins."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from usdehaze.cli.group import Console
    from usdehaze.io.detect import Found


@dataclass(frozen=True)
class Job:
    """One scan and the files made from it."""

    scan: Path
    result: Path
    preview: Path | None
    zea: Path | None
    dicom: Path | None = None
    dicom_haze: Path | None = None
    review: Path | None = None

    @property
    def targets(self) -> list[Path]:
        """Every file that the job writes."""
        files = self.result, self.preview, self.zea, self.dicom, self.dicom_haze, self.review
        return [target for target in files if target is not None]


def plan_jobs(
    inputs: tuple[str, ...],
    out_dir: str | None,
    preview: str | None = None,
    zea: bool = False,
    save_haze: bool = False,
    review: bool = False,
    found: Sequence[Found] | None = None,
) -> list[Job]:
    """One job per scan, in the order given; a scan named twice is done once.

    ``STEM.dehazed.h5`` goes next to the scan, or under ``out_dir``, where the sub-folders of an input folder are kept.
    For DICOM input ``STEM.dehazed.dcm`` goes beside it, with ``save_haze`` also ``STEM.dehazed.haze.dcm``.
    With ``review`` the page ``STEM.review.html`` goes there too.
    Scans of one folder that differ in their suffix alone (``a.h5``, ``a.hdf5``) keep it: ``a.hdf5.dehazed.h5``.

    ``found`` is what `usdehaze.io.detect.look_in` finds under each of the inputs, where that is known.

    Raises:
        click.UsageError: two scans would write one file, or a result would replace a scan.
    """
    from usdehaze.io.detect import distinct_stems, look_in, naming_of

    places: dict[Path, tuple[Path, Path]] = {}  # resolved scan -> the scan as named, the folder of its result
    for name, inside in zip(map(Path, inputs), found or map(look_in, inputs), strict=True):
        top = name if os.path.isdir(name) else name.parent
        for scan in inside.scans:
            folder = scan.parent
            if out_dir is not None:  # a folder of images is itself the scan
                folder = Path(out_dir) / (folder.relative_to(top) if scan != name else "")
            places.setdefault(scan.resolve(), (scan, folder))
    stems = distinct_stems({scan: naming_of(scan) for scan, _ in places.values()})
    jobs = [job_of(scan, folder, stems[scan], preview, zea, save_haze, review) for scan, folder in places.values()]
    writers: dict[Path, Path] = {}
    for job in jobs:
        for target in job.targets:
            resolved = target.resolve()
            if resolved in places:
                raise click.UsageError(f"{target}: the result of {job.scan} would replace an input; choose another -o")
            if resolved in writers:
                other = writers[resolved]
                raise click.UsageError(f"{other} and {job.scan} would both write {target}; give each a -o of its own")
            writers[resolved] = job.scan
    return jobs


def job_of(scan: Path, folder: Path, stem: str, preview: str | None, zea: bool, save_haze: bool, review: bool) -> Job:
    """The job of a scan whose files begin with ``stem`` and lie in ``folder``; kinds of files as for `plan_jobs`."""
    from usdehaze.io.detect import DICOM_HAZE_SUFFIX, DICOM_SUFFIX, RESULT_SUFFIX, REVIEW_SUFFIX, ZEA_SUFFIX

    result = folder / (stem + RESULT_SUFFIX)
    drawn = result.with_suffix(f".{preview}") if preview else None
    dicom = folder / (stem + DICOM_SUFFIX) if _is_dicom(scan) else None
    dicom_haze = folder / (stem + DICOM_HAZE_SUFFIX) if dicom and save_haze else None
    page = folder / (stem + REVIEW_SUFFIX) if review else None
    return Job(scan, result, drawn, folder / (stem + ZEA_SUFFIX) if zea else None, dicom, dicom_haze, page)


def tell_left_out(console: Console, found: Sequence[Found]) -> None:
    """Says which files under the inputs are left out though they could be meant: a line for each kind."""
    own = {path: "made by usdehaze, left out" for each in found for path in each.own}
    foreign = {path: f"{kind}; left out" for each in found for path, kind in each.foreign.items()}
    left_out = own | foreign
    for why in dict.fromkeys(left_out.values()):
        first, *others = (path for path in left_out if left_out[path] == why)
        console.note(f"{first}{f' and {len(others)} more' if others else ''}: {why}")


def _is_dicom(scan: Path) -> bool:
    from usdehaze.errors import InputError
    from usdehaze.io.formats import DICOM, format_of

    try:
        return format_of(scan) is DICOM
    except InputError:  # opening it will say what is wrong
        return False
