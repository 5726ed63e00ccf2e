"""``usdehaze process``: dehaze scans."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Hashable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdehaze import stopping
from usdehaze.choices import PreviewKind, TransferSyntax
from usdehaze.cli.batch import BatchLog, Entry, Outcome
from usdehaze.cli.group import DONE, SOME_FAILED, Console, common_options, complain, console_of, describe
from usdehaze.cli.options import (
    check_model,
    config_option,
    model_options,
    output_options,
    reading_options,
    sampling_options,
    scale_of,
    take_reading,
)
from usdehaze.cli.plan import Job, plan_jobs, tell_left_out
from usdehaze.cli.progress import frame_progress
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.notes import in_full

if TYPE_CHECKING:
    from usdehaze.dehazing.dehazer import Dehazer
    from usdehaze.io import Reading, Scan, Sink

    Progress = Callable[[int, int], None]

DICOMWEB = "dicomweb:"  # before the UID of a study
CHUNK_FRAMES, CHUNK_BYTES = 128, 32 * 2**20  # taken on at once at most, as float32


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--out", "out_dir", metavar="DIR", help="Folder for the results; next to each scan by default.")
@model_options
@sampling_options
@reading_options
@click.option("--overwrite", is_flag=True, help="Replace results that exist.")
@click.option(
    "--skip-existing", is_flag=True, help="Leave out scans with results of these settings: goes on with a folder."
)
@click.option("--log", metavar="FILE.jsonl", help="Also write what became of each scan, a line each, and a CSV of it.")
@output_options
@click.option(
    "--roi",
    metavar="FILE|auto",
    help="Regions of interest on the page: as of usdehaze review, or a folder with STEM.rois.json for each scan.",
)
@click.option("--dicomweb", metavar="URL", help="Server that a FILE dicomweb:STUDY_UID is fetched from; with -o.")
@config_option
@common_options
@click.pass_context
def process(
    ctx: click.Context,
    files: tuple[str, ...],
    out_dir: str | None,
    overwrite: bool,
    skip_existing: bool,
    log: str | None,
    preview: PreviewKind | None,
    review: bool,
    roi: str | None,
    with_screen: bool,
    mark: bool,
    formats: str | None,
    save_haze: bool,
    transfer_syntax: TransferSyntax,
    **options: Any,
) -> None:
    """Dehazes every FILE: STEM.dehazed.h5 holds the tissue and haze estimates.

    For a DICOM file STEM.dehazed.dcm is the dehazed image as well.

    A FILE may be a folder: every scan in it, recursively. A scan that fails does not stop the others.
    """
    if overwrite and skip_existing:
        raise click.UsageError("--overwrite and --skip-existing exclude each other")
    if roi is not None and not review:
        raise click.UsageError("--roi belongs to --review")
    files = _fetched(ctx, files, options.pop("dicomweb"), out_dir)
    console = console_of(ctx)
    options["scale"] = scale_of(options.pop("lambda_"), options.pop("kappa"))
    check_model(options)
    if preview is not None:
        from usdehaze.preview import check_kind

        check_kind(preview)
    from usdehaze.io.detect import look_in
    from usdehaze.plain_text import readable

    found = list(map(look_in, files))
    jobs = plan_jobs(files, out_dir, preview, formats == "zea", save_haze, review, found)
    reading = take_reading(options)
    tell_left_out(console, found)
    batch = BatchLog(log, jobs)
    # what is left of the options is the model's business
    look: dict[str, Any] = {"with_screen": with_screen, "mark": mark, "roi": roi}
    worker = Worker(options, console, overwrite, skip_existing, preview, transfer_syntax, log is not None, **look)
    outcomes: Counter[Outcome] = Counter()
    with batch:
        for path, lost in {path: lost for each in found for path, lost in each.lost.items()}.items():
            console.report(lost)
            batch.add(Entry(readable(str(path)), error=readable(str(lost))))
            outcomes["failed"] += 1
        for job in jobs:
            started = time.monotonic()
            entry = worker.try_one(job, reading)
            entry.seconds = round(time.monotonic() - started, 3)
            batch.add(entry)
            outcomes[entry.outcome] += 1
    if outcomes.total() != 1 or os.path.isdir(files[0]):
        skipped = f", {outcomes['skipped']} skipped" if skip_existing else ""
        console.say(f"{outcomes['dehazed']} scans dehazed, {outcomes['failed']} failed{skipped}")
    ctx.exit(SOME_FAILED if outcomes["failed"] else DONE)


def _fetched(ctx: click.Context, files: tuple[str, ...], url: str | None, out_dir: str | None) -> tuple[str, ...]:
    """The files, with what DICOMweb studies among them hold, in a folder that lasts as long as the command."""
    studies = [name for name in files if name.startswith(DICOMWEB)]
    if not studies:
        return files
    if url is None or out_dir is None:
        raise click.UsageError(f"{studies[0]}: say where it is with --dicomweb URL, and where results go with -o DIR")
    from tempfile import TemporaryDirectory

    from usdehaze.node.fetch import fetch_study

    folder = Path(ctx.with_resource(TemporaryDirectory(prefix="usdehaze-")))
    fetched: list[str] = []
    for study in studies:
        fetched += map(str, fetch_study(url, study.removeprefix(DICOMWEB), folder, len(fetched) + 1))
    return (*(name for name in files if name not in studies), *fetched)


class Worker:
    """Dehazes scans one after the other; the priors are loaded when the first readable scan needs them.

    Attributes:
        error: what the last scan that failed failed of.
    """

    def __init__(
        self,
        model: dict[str, Any],
        console: Console,
        overwrite: bool,
        skip_existing: bool,
        preview: PreviewKind | None,
        transfer_syntax: TransferSyntax,
        log_hashes: bool,
        *,
        with_screen: bool,
        mark: bool,
        roi: str | None = None,
    ) -> None:
        self.log_hashes = log_hashes
        self.model, self.console, self.preview = model, console, preview
        self.overwrite, self.skip_existing = overwrite or skip_existing, skip_existing
        self.transfer_syntax, self.with_screen, self.mark = transfer_syntax, with_screen, mark
        self.roi, self.drawn = roi, dict[Path, Hashable]()
        self.dehazer: Dehazer | None = None
        self.error: Exception | None = None

    def try_one(self, job: Job, reading: Reading) -> Entry:
        """What became of the job; an error has been reported.

        Priors that cannot be loaded are no fault of the scan: that error is raised, and ends the run.
        """
        from usdehaze.io.detect import sha256_of
        from usdehaze.plain_text import readable

        entry = Entry(readable(str(job.scan)))
        wanted = self.told if self.skip_existing else {}
        try:
            if self._stands(job, reading, wanted):
                if regions := self._regions(job):
                    self.drawn.setdefault(Path(regions), job.scan)  # not those of another one, either
                entry.outcome = "skipped"
                return entry
            scan = self._open(job, reading)
        except Exception as error:
            self._failed(error, job, entry)
            return entry
        with scan:
            entry.frames, entry.sha256, entry.notes = scan.n_frames, scan.source.sha256, list(scan.source.assumptions)
            dehazer = self.load()
            try:
                made = self._dehaze(dehazer, scan, job)
            except Exception as error:
                self._failed(error, job, entry)
                return entry
            entry.notes = list(scan.source.assumptions)  # what the frames told is among them by now
            if entry.notes:
                self.console.note(f"{job.scan}: {' '.join(map(in_full, entry.notes))}")
        self.console.say(f"{job.scan} -> {made}")
        self._tell_of_others(job)
        entry.outcome = "dehazed"
        if self.log_hashes:
            entry.results = {readable(str(file)): sha256_of(file) for file in job.targets if file.exists()}
        return entry

    def _failed(self, error: Exception, job: Job, entry: Entry) -> None:
        from usdehaze.plain_text import readable

        self.console.report(error, job.scan)
        self.error = error
        entry.error = readable(describe(error, job.scan))

    def _stands(self, job: Job, reading: Reading, wanted: dict[str, Any]) -> bool:
        """Whether there is nothing left to do for the job."""
        from usdehaze.io.standing import check_owner, made_otherwise, standing

        if self._finished_before(job):
            return True
        if not self.skip_existing:
            if self.overwrite:
                check_owner(job.result, job.scan)
            return False
        if not standing(job.targets, job.scan):
            return False
        if other := made_otherwise(job.result, wanted, reading):
            self.console.say(f"{job.scan}: {job.result} was made with other settings ({other}): made anew")
            return False
        self.console.say(f"{job.scan} -> {job.result} (there already)")
        return True

    def _finished_before(self, job: Job) -> bool:
        """Clears up what a killed run left; True where that makes files complete that nobody asked to replace."""
        from usdehaze.io import together
        from usdehaze.io.detect import files_beside

        named = together.finish(job.result)
        if named:
            files = ", ".join(map(str, named))
            self.console.say(f"{job.scan} -> {files} (complete already: a run was killed while it named them)")
        left = together.remove_left_overs(files_beside(job.result))
        if left:
            self.console.say(f"{job.scan}: removed what a killed run had begun ({', '.join(p.name for p in left)})")
        return bool(named) and all(target.exists() for target in job.targets) and not self.overwrite

    def _tell_of_others(self, job: Job) -> None:
        """Says where files of other runs lie beside the job's."""
        from usdehaze.io.detect import files_beside
        from usdehaze.io.runs import of_several_runs

        runs = of_several_runs(files_beside(job.result))
        others = [path.name for path, run in runs.items() if run != runs.get(job.result)]
        if others and not self.console.quiet:
            complain(f"{job.result}: of another run are {', '.join(sorted(others))}; make them again, or remove them")

    def _open(self, job: Job, reading: Reading) -> Scan:
        """The scan, once it is sure that its result can be written."""
        from usdehaze.io import open_scan
        from usdehaze.io.atomic import check_target
        from usdehaze.io.detect import is_own_image

        if not reading.force and is_own_image(job.scan):
            found, advice = "was made by usdehaze: dehazed already, or the haze", "leave it out, or go on with --force"
            raise InputError(job.scan, found, "an image as it was taken", advice)
        scan = open_scan(job.scan, reading)
        try:
            for target in job.targets:
                check_target(target, self.overwrite)
            scan.read_db(0, 1)  # priors are loaded for a scan that can be read
            self._check_regions(scan, job)
        except BaseException:
            scan.close()
            raise
        return scan

    def _regions(self, job: Job) -> str | None:
        """What ``--roi`` names for the page of a job."""
        if self.roi is None:
            return None
        from usdehaze.validation.regions import AUTO, region_file

        return AUTO if self.roi == AUTO else str(region_file(self.roi, self._stem(job)))

    def _check_regions(self, scan: Scan, job: Job) -> None:
        """Reads for once what ``--roi`` names, before long work."""
        from usdehaze.validation.regions import AUTO, check_scan_of, read_regions

        if self.roi is None or self.roi == AUTO:
            return
        check_scan_of(self.roi, self._stem(job), job.scan, job.scan, self.drawn)
        shape, source = (scan.n_frames, *scan.shape), scan.source
        how: dict[str, Any] = {"geometry": scan.geometry, "source_frames": source.frames}
        read_regions(str(self._regions(job)), shape, source.first_frame, **how)

    @staticmethod
    def _stem(job: Job) -> str:
        from usdehaze.io import RESULT_SUFFIX

        return job.result.name.removesuffix(RESULT_SUFFIX)

    @cached_property
    def told(self) -> dict[str, Any]:
        """What results say of the dehazer, which is not loaded for that."""
        from usdehaze.dehazing.told import told_of

        return told_of(**self.model)

    def load(self) -> Dehazer:
        """The dehazer, loaded once.

        Raises:
            InputError: priors that cannot be used.
        """
        if self.dehazer is None:
            from usdehaze.dehazing.dehazer import Dehazer

            self.dehazer = Dehazer.from_pretrained(**self.model)
        return self.dehazer

    def _dehaze(self, dehazer: Dehazer, scan: Scan, job: Job) -> str:
        """Writes the job's files, a chunk of frames at a time, and tells which."""
        from usdehaze.io.sink import SinkSet

        started = time.monotonic()
        failed: UsdehazeError | None = None
        made = list(job.targets)
        with (
            SinkSet(self._sinks(scan, job), scan) as sinks,
            frame_progress(job.scan.name, scan.n_frames, self.console.quiet) as progress,
        ):
            for cine in scan.chunks(self._chunk(scan)):
                stopping.check()
                done = cine.source.first_frame - scan.source.first_frame
                sinks.append(dehazer.dehaze(cine, progress=progress and _from(progress, done, scan.n_frames)))
            sinks.finish()
            if job.review is not None:
                from usdehaze.review import write_page

                result = sinks.sinks[0].part.path
                try:
                    page = partial(write_page, result, roi=self._regions(job), with_screen=self.with_screen)
                    sinks.add(job.review, self.overwrite, page)
                except UsdehazeError as error:  # of a page that browsers could not show: the rest is as good without
                    failed = error
                    made.remove(job.review)
            sinks.commit()
        if failed is not None:
            raise failed
        seconds = time.monotonic() - started
        return f"{', '.join(map(str, made))} ({scan.n_frames} frames in {seconds:.1f} s)"

    def _sinks(self, scan: Scan, job: Job) -> list[Sink]:
        """The files to write, the result first."""
        from usdehaze.io import ResultWriter

        sinks: list[Sink] = [ResultWriter(job.result, scan, self.overwrite)]
        if job.preview is not None and self.preview is not None:
            from usdehaze.preview import PreviewWriter

            look = {"overwrite": self.overwrite, "with_screen": self.with_screen}
            sinks.append(film := PreviewWriter(job.preview, scan, self.preview, **look))
            if film.untimely:
                same = f"shows each frame for {1000 * film.shown_s:.0f} ms, though their times are uneven"
                self.console.note(f"{job.preview}: {same}; --preview gif keeps the times")
        if job.zea is not None:
            from usdehaze.io.zea import ZeaWriter

            sinks.append(ZeaWriter(job.zea, scan, self.overwrite))
        if job.dicom is not None:
            sinks += self._dicom_sinks(scan, job)
        return sinks

    def _dicom_sinks(self, scan: Scan, job: Job) -> list[Sink]:
        from usdehaze.io.dicom import DicomScan, DicomWriter

        named = [(path, what) for path, what in ((job.dicom, "tissue"), (job.dicom_haze, "haze")) if path is not None]
        if not isinstance(scan, DicomScan):
            return []
        how: dict[str, Any] = {"transfer_syntax": self.transfer_syntax, "overwrite": self.overwrite, "mark": self.mark}
        return [DicomWriter(path, scan, what=what, **how) for path, what in named]

    def _chunk(self, scan: Scan) -> int:
        """Frames to hold at once: never fewer than a batch."""
        height, width = scan.shape
        batch = 16 if self.model["batch_size"] == "auto" else int(self.model["batch_size"])
        return max(batch, min(CHUNK_FRAMES, CHUNK_BYTES // (4 * height * width)) // batch * batch)


def _from(progress: Progress, first: int, n_frames: int) -> Progress:
    """Progress of a chunk that begins at frame ``first`` as progress of the whole."""
    return lambda done, _: progress(first + done, n_frames)
