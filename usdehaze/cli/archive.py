"""``usdehaze archive``: dehaze a whole archive on Ray Data."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdehaze.choices import PreviewKind, TransferSyntax
from usdehaze.cli.group import DONE, SOME_FAILED, Console, common_options, console_of
from usdehaze.cli.options import (
    Number,
    check_model,
    config_option,
    model_options,
    output_options,
    reading_options,
    sampling_options,
    scale_of,
    take_reading,
)
from usdehaze.cli.plan import Job, job_of, tell_left_out
from usdehaze.cli.progress import frame_progress
from usdehaze.errors import UsdehazeError

if TYPE_CHECKING:
    from usdehaze.archive.actor import Done, Process
    from usdehaze.io import Reading

MOST_TOLD = 20  # scans without a result, of a summary
DECIDES = ("SOURCE_DATE_EPOCH",)  # variables that decide bytes of results


@click.command()
@click.argument("sources", nargs=-1, metavar="SRC...")
@click.option("-o", "--out", metavar="DEST", help="Folder or URI for the results and their manifest.")
@click.option("--status", metavar="DEST", help="Say what a manifest holds, and do nothing.")
@click.option(
    "--address", default="local", show_default=True, metavar="local|auto|ray://...", help="A Ray of its own, or one."
)
@click.option("--workers", type=click.IntRange(1, 100_000), metavar="N", help="As many as there is room for.")
@click.option("--cpus-per-worker", "cpus", type=Number(0.1, 1024), default=1.0, show_default=True, metavar="N")
@click.option(
    "--gpus-per-worker",
    "gpus",
    type=Number(0, 64),
    metavar="N",
    help="Such as 0.5; 1 where there are GPUs by default.",
)
@click.option(
    "--retries", type=click.IntRange(0, 100), default=2, show_default=True, metavar="N", help="Of a scan that failed."
)
@click.option("--retry-quarantined", is_flag=True, help="Try bad scans of earlier runs again.")
@click.option("--scratch", metavar="DIR", help="For what is fetched, a scan a worker; the system's by default.")
@model_options
@sampling_options
@reading_options
@click.option("--overwrite", is_flag=True, help="Replace results of other settings.")
@output_options
@config_option
@common_options
@click.pass_context
def archive(ctx: click.Context, sources: tuple[str, ...], status: str | None, out: str | None, **options: Any) -> None:
    """Dehazes an archive on Ray: the files that usdehaze process makes, by many workers.

    A SRC is a scan or a folder of scans, as a path or a URI (s3://, gs://, abfs://, ...). DEST/manifest says what
    became of each; started again, the command goes on. See docs/archive.md.
    """
    console = console_of(ctx)
    if status is not None:
        if sources or out:
            raise click.UsageError("--status DEST stands alone")
        ctx.exit(_tell_status(console, status))
    if not sources or not out:
        raise click.UsageError("name scans or their folders, and --out DEST")
    ctx.exit(_run(console, sources, out, options))


@dataclass(frozen=True, kw_only=True)
class Making:
    """What is made of each scan, and how; makes what does so in the process of a worker.

    Attributes:
        model: options of `Dehazer.from_pretrained`.
        reading: see `Reading`.
        overwrite, preview, zea, save_haze, review, with_screen, mark, transfer_syntax: as of ``usdehaze process``.
        max_memory: bytes, see `usdehaze.budget`.
    """

    model: dict[str, Any]
    reading: Reading
    overwrite: bool
    preview: PreviewKind | None
    zea: bool
    save_haze: bool
    review: bool
    with_screen: bool
    mark: bool
    transfer_syntax: TransferSyntax
    max_memory: int

    def settings(self) -> dict[str, Any]:
        """All that decides the files, with the hashes of the networks that are named."""
        import usdehaze
        from usdehaze.budget import file_sha256
        from usdehaze.dehazing.dehazer import check_options
        from usdehaze.dehazing.settings import POSTERIOR, PRIORS
        from usdehaze.priors.cards import find_weights

        by_rule = check_options(**self.model).by_rule
        values = asdict(self)
        model = values.pop("model")
        model.pop("batch_size")
        named = [model.pop(name) for name in ("posterior", "tissue_prior", "haze_prior")]
        used = [named[1] or PRIORS[0], named[2] or PRIORS[1]] if by_rule else [named[0] or POSTERIOR]
        weights = [find_weights(name, "network") for name in used]
        networks = [file_sha256(file) for path in weights for file in (path, path.with_suffix(".json"))]
        for unimportant in ("overwrite", "max_memory"):
            values.pop(unimportant)
        return {**model, **values, "networks": networks, "usdehaze_version": usdehaze.__version__}

    def __call__(self) -> Process:
        """What dehazes scans, with its networks loaded."""
        return _FolderProcess(self)


class _FolderProcess:
    """Dehazes as ``usdehaze process`` does, with the same bytes."""

    def __init__(self, making: Making) -> None:
        from usdehaze.cli.process import Worker

        self.making = making
        self.worker = Worker(
            making.model, Console(quiet=True), making.overwrite, False, making.preview, making.transfer_syntax, True,
            with_screen=making.with_screen, mark=making.mark,
        )  # fmt: skip
        self.worker.load()

    def __call__(self, scan: Path, folder: Path, stem: str) -> Done:
        """See `usdehaze.archive.actor.Process`."""
        from usdehaze.archive.actor import Done
        from usdehaze.budget import max_memory
        from usdehaze.notes import in_full
        from usdehaze.plain_text import readable

        making = self.making
        with max_memory(making.max_memory):
            job = job_of(scan, folder, stem, making.preview, making.zea, making.save_haze, making.review)
            kept = self._kept(job)
            if kept is None:
                entry = self.worker.try_one(job, making.reading)
                if entry.outcome == "skipped":  # a run was killed while it named the files: they are whole now
                    kept = self._kept(job)
        if kept is not None:
            return kept
        notes = tuple(readable(in_full(note)) for note in entry.notes)
        if entry.outcome != "dehazed":
            error = entry.error or f"{job.result}: is not whole; remove it"
            name = readable(str(scan))  # which that of a result beside it may begin with
            of_scan = isinstance(self.worker.error, UsdehazeError) and error.startswith((f"{name}: ", f"{name}/"))
            return Done("quarantined" if of_scan else "failed", entry.frames, entry.sha256, notes, error=error)
        made = {Path(file).name: digest for file, digest in entry.results.items()}
        return Done("dehazed", entry.frames, entry.sha256, notes, made)

    def _kept(self, job: Job) -> Done | None:
        """The job as done, where all files are there, of the very run that this would be: a frame tells its name."""
        from usdehaze.archive.actor import Done
        from usdehaze.io import open_scan
        from usdehaze.io.detect import sha256_of
        from usdehaze.io.runs import run_id, run_of
        from usdehaze.notes import in_full
        from usdehaze.plain_text import readable

        if not all(target.exists() for target in job.targets):
            return None
        try:
            with open_scan(job.scan, self.making.reading) as scan:
                run = run_id(scan, self.worker.load().dehaze(next(iter(scan.chunks(1)))))
                frames, digest, notes = scan.n_frames, scan.source.sha256, scan.source.assumptions
        except Exception:  # the attempt itself will say why
            return None
        if any(run_of(target) != run for target in job.targets):
            return None
        results = {readable(target.name): sha256_of(target) for target in job.targets}
        return Done("kept", frames, digest, tuple(readable(in_full(note)) for note in notes), results)


def _run(console: Console, sources: tuple[str, ...], out: str, options: dict[str, Any]) -> int:
    from usdehaze.archive.actor import Task
    from usdehaze.archive.manifest import FOLDER, OUTCOMES, Manifest, Row, identity
    from usdehaze.archive.pool import Pool
    from usdehaze.archive.run import run_archive
    from usdehaze.archive.sources import list_sources
    from usdehaze.archive.store import Store, is_remote
    from usdehaze.io.atomic import check_target
    from usdehaze.io.detect import look_in

    out = out if is_remote(out) else os.path.abspath(out)
    pool = Pool(options.pop("address"), *(options.pop(name) for name in ("workers", "cpus", "gpus")))
    attempts, again = 1 + options.pop("retries"), options.pop("retry_quarantined")
    scratch = options.pop("scratch")
    making = _making(options)
    settings = making.settings()
    manifest = Manifest(Store(out))
    if manifest.store.local is not None:
        check_target(manifest.store.local / FOLDER / "part", overwrite=True)
    found = {name: look_in(os.path.abspath(name)) for name in sources if not is_remote(name)}
    lost = {path: error for inside in found.values() for path, error in inside.lost.items()}
    for error in lost.values():
        console.report(error)
    tell_left_out(console, [*found.values()])
    listed = list_sources(sources, {name: inside.scans for name, inside in found.items()})
    task = Task(
        make=making, out=out, scratch=scratch and os.path.abspath(scratch), attempts=attempts,
        settings=identity(settings), usdehaze_version=settings["usdehaze_version"],
        environment={name: os.environ[name] for name in DECIDES if name in os.environ},
    )  # fmt: skip
    with frame_progress("archive", len(listed), console.quiet, "scans") as progress:

        def told(row: Row, done: int, in_all: int) -> None:
            if row.error:
                console.report(UsdehazeError(f"{row.error} ({row.outcome})"))
            if progress is not None:
                progress(done, in_all)

        outcomes = run_archive(listed, manifest, task, pool, settings, retry_quarantined=again, told=told)
    before = len(listed) - outcomes.total()
    counts = ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in OUTCOMES)
    console.say(f"{len(listed)} scans: {counts}, {before} recorded before; {manifest.store.name_of(FOLDER)}")
    return SOME_FAILED if lost or outcomes["quarantined"] + outcomes["failed"] else DONE


def _making(options: dict[str, Any]) -> Making:
    """What the options of the command ask for."""
    from usdehaze.budget import most_memory

    if str(options["device"]).startswith("cuda:"):
        raise click.UsageError(f"--device {options['device']}: Ray gives each worker its GPU; use --device cuda")
    own = ("overwrite", "preview", "save_haze", "review", "with_screen", "mark", "transfer_syntax")
    outputs = {name: options.pop(name) for name in own}
    if outputs["preview"] is not None:
        from usdehaze.preview import check_kind

        check_kind(outputs["preview"])
    for name in ("posterior", "tissue_prior", "haze_prior"):  # workers have folders of their own
        if options[name] and Path(options[name]).is_file() and Path(options[name]).suffix:
            options[name] = os.path.abspath(options[name])
    zea, reading = options.pop("formats") == "zea", take_reading(options)
    options["scale"] = scale_of(options.pop("lambda_"), options.pop("kappa"))
    check_model(options)
    return Making(model=options, reading=reading, zea=zea, max_memory=most_memory(), **outputs)


def _tell_status(console: Console, out: str) -> int:
    """What the manifest under ``out`` says, in lines."""
    from usdehaze.archive.manifest import FOLDER, Manifest
    from usdehaze.archive.store import Store
    from usdehaze.errors import InputError

    store = Store(out)
    summary = Manifest(store).summary()
    if not summary.parts:
        raise InputError(store.name_of(FOLDER), "no manifest of an archive", "the --out of usdehaze archive")
    counts = ", ".join(f"{count} {outcome}" for outcome, count in summary.scans.items())
    each = f" ({summary.seconds / summary.frames:.3g} s a frame)" if summary.frames else ""
    hours = summary.seconds / 3600
    console.say(f"{sum(summary.scans.values())} scans: {counts}; {summary.frames} frames, {hours:.3g} hours{each}")
    console.say(f"{summary.parts} parts, settings {', '.join(summary.settings)}")
    for _, outcome, error in summary.troubles[:MOST_TOLD]:
        console.say(f"{outcome}: {error}")
    if len(summary.troubles) > MOST_TOLD:
        console.say(f"... and {len(summary.troubles) - MOST_TOLD} more")
    return SOME_FAILED if summary.troubles else DONE
