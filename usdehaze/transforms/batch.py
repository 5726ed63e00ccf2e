"""Many scans through a pipeline, one after the other: what the bundle runs."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Any

from usdehaze.choices import check_flags
from usdehaze.errors import UsdehazeError, foreign
from usdehaze.io import Reading
from usdehaze.io.detect import DICOM_HAZE_SUFFIX, DICOM_SUFFIX, beside_result, distinct_stems, lost_in, naming_of
from usdehaze.io.formats import DICOM, format_of
from usdehaze.io.standing import made_otherwise, standing
from usdehaze.plain_text import one_line
from usdehaze.transforms.dehaze import DehazeUltrasoundd
from usdehaze.transforms.load import LoadUltrasoundd
from usdehaze.transforms.save import SaveUltrasoundd


def dehaze_all(
    items: Iterable[Mapping[str, Any]],
    steps: Callable[[Any], Any],
    save: SaveUltrasoundd,
    resume: bool = True,
    raise_on_failure: bool = False,
    say: Callable[[str], None] = print,
    folder: str | os.PathLike[str] | None = None,
) -> dict[str, list[str]]:
    """Takes every scan through a pipeline and writes its results; a scan that fails does not stop the others.

    Files are named as ``usdehaze process`` names them: scans of one folder that differ in their suffix alone keep it.
    Every file written is told in a line ``SCAN -> FILE, FILE``, every failure in a line on stderr, and at the end their
    numbers.

    Args:
        items: ``{"image": path of a scan}``, as of a MONAI dataset.
        steps: from such an item to tissue and haze; `save` follows by itself.
        save: writes the files.
        resume: pass over scans whose results are there already; a set of files that is incomplete, or of other settings
            than those of the `DehazeUltrasoundd` and `LoadUltrasoundd` among the steps, is made anew.
        raise_on_failure: raise at the end where a scan has failed.
        say: prints a line.
        folder: where the scans were sought; what cannot be read in it, such as a link that leads nowhere, has failed,
            too.

    Returns:
        ``written``, paths of all files; ``kept``, results that were there; ``failed``, a line for each failure.

    Raises:
        UsdehazeError: every scan failed, or with ``raise_on_failure`` one.
        TypeError: ``raise_on_failure`` is neither True nor False.
    """
    check_flags(raise_on_failure=raise_on_failure)
    scans = [str(item["image"]) for item in items]
    savers = _savers(scans, save)
    writers = Counter(savers[scan].target_of(scan) for scan in scans)
    lost = [str(error) for error in lost_in([] if folder is None else [folder]).values()]
    for line in lost:
        print(one_line(line), file=sys.stderr, flush=True)
    told: dict[str, list[str]] = {"written": [], "kept": [], "failed": [*lost]}
    for scan in scans:
        target = savers[scan].target_of(scan)
        try:
            if writers[target] > 1:
                raise UsdehazeError(f"{scan}: would write {target}, as another scan; give each its own folder")
            there = resume and not save.overwrite and target.exists()
            stands = there and standing(_files_of(target, scan, save.save_haze), Path(scan), strict=True)
            if stands and not _made_otherwise(target, steps, say):
                told["kept"].append(str(target))
                say(one_line(f"{Path(scan).name}: {target} is there already"))
                continue
            savers[scan].overwrite |= there
            made = savers[scan](steps({"image": scan}))
            files = made[save.keys[0]].meta["saved_files"].split("\n")
        except Exception as error:
            told["failed"].append(_cause(error, scan))
            print(one_line(told["failed"][-1]), file=sys.stderr, flush=True)
        else:
            told["written"] += files
            say(one_line(f"{Path(scan).name} -> {', '.join(files)}"))
    n_kept, n_failed = len(told["kept"]), len(told["failed"])
    n_scans = len(scans) + len(lost)
    summary = f"{n_scans} scans: {n_scans - n_kept - n_failed} dehazed, {n_kept} there already, {n_failed} failed"
    say(summary)
    if told["failed"] and (raise_on_failure or n_failed == n_scans):
        raise UsdehazeError(f"{summary}: {told['failed'][0]}")
    return told


def _savers(scans: list[str], save: SaveUltrasoundd) -> dict[str, SaveUltrasoundd]:
    """A copy of the saver for each scan, which knows the scan's stem among those of its folder."""
    savers = {scan: copy(save) for scan in scans}
    for scan, stem in distinct_stems({scan: naming_of(Path(scan)) for scan in scans}).items():
        savers[scan].stem = stem
    return savers


def _files_of(target: Path, scan: str, save_haze: bool) -> list[Path]:
    """The result of a scan and the files that belong to it."""
    suffixes = [DICOM_SUFFIX, DICOM_HAZE_SUFFIX][: 2 if save_haze else 1] if format_of(scan) is DICOM else []
    return [target, *(beside_result(target, suffix) for suffix in suffixes)]


def _made_otherwise(target: Path, steps: object, say: Callable[[str], None]) -> bool:
    """Whether a result is of other settings than the steps have; says so."""
    wanted: dict[str, Any] = {}
    reading: Reading | None = None
    for step in _flat(steps):
        if isinstance(step, DehazeUltrasoundd):
            wanted |= step.dehaze.dehazer.told
        if isinstance(step, LoadUltrasoundd):
            reading = step.loader.reader.reading
    other = made_otherwise(target, wanted, reading)
    if other:
        say(one_line(f"{target} was made with other settings ({other}): made anew"))
    return bool(other)


def _flat(steps: object) -> Iterator[object]:
    """The steps of a pipeline, and of pipelines in it."""
    yield steps
    for step in getattr(steps, "transforms", ()):
        yield from _flat(step)


def _cause(error: BaseException, scan: str) -> str:
    """What is wrong, in one line; of errors that are not ours the kind alone, since their text may quote a patient."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, UsdehazeError):
        inner = inner.__cause__
    if inner is None:
        return f"{scan}: {foreign(error.__cause__ or error)}"
    return str(inner) if scan in str(inner) or Path(scan).name in str(inner) else f"{scan}: {inner}"
