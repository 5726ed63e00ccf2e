"""What a worker of the pool does with a scan: fetch it, dehaze it, put its results back."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from usdehaze.archive.manifest import Outcome, Row
from usdehaze.archive.scratch import Scratch
from usdehaze.archive.sources import Source, look
from usdehaze.archive.store import Store, is_remote
from usdehaze.errors import InputError, UsdehazeError, foreign
from usdehaze.io.detect import RESULT_SUFFIX, files_beside
from usdehaze.plain_text import readable

MOST_WAIT_S = 30.0  # between two attempts


@dataclass(frozen=True)
class Done:
    """What became of a scan on this machine.

    Attributes:
        outcome: "kept" where all its files were there already, of a run with the same settings; "quarantined" where
            the scan is at fault.
        frames, sha256, notes: see `usdehaze.archive.manifest.Row`.
        results: SHA-256 of the files, by their names in the folder; the result itself first.
        error: why there are none, in a line.
    """

    outcome: Outcome
    frames: int = 0
    sha256: str = ""
    notes: tuple[str, ...] = ()
    results: dict[str, str] = field(default_factory=dict)
    error: str = ""


class Process(Protocol):
    """Dehazes scans, one after the other."""

    def __call__(self, scan: Path, folder: Path, stem: str) -> Done:
        """What became of ``scan``, whose files are to lie in ``folder`` under names that begin with ``stem``."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What the workers of a run have in common.

    Attributes:
        make: makes what dehazes, in the worker's process; raises a `UsdehazeError` where nothing can be dehazed there.
        out: the destination.
        scratch: folder for what is fetched; None for the system's.
        attempts: at a scan, 1 and more.
        settings: `usdehaze.archive.manifest.identity` of the run.
        usdehaze_version: of the program that gives the work; workers of another version refuse.
        environment: variables that decide bytes.
    """

    make: Callable[[], Process]
    out: str
    scratch: str | None
    attempts: int
    settings: str
    usdehaze_version: str
    environment: dict[str, str]


class Worker:
    """A worker: Ray Data makes one in each process of the pool and calls it with a row for each scan."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._process: Process | None = None
        self._scratch: Scratch | None = None
        self._out: Store | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """``{"index", "source"}`` of a scan to ``{"index", "row", "fatal"}``: its row of the manifest, or why no scan
        can be dehazed."""
        source, made, fatal = Source.from_json(row["source"]), "", ""
        try:
            made = _to_json(self.work(source))
        except UsdehazeError as error:
            fatal = str(error)
        except Exception as error:  # an exception would be lost: Ray goes on without the row
            fatal = f"unexpected {foreign(error)}"
        return {"index": row["index"], "row": made, "fatal": fatal}

    def work(self, source: Source) -> Row:
        """What became of a scan, after as many attempts as it may have.

        Raises:
            UsdehazeError: no scan can be dehazed.
        """
        self._prepare()
        for attempt in range(1, self.task.attempts + 1):
            began = time.monotonic()
            row = self._attempt(source)
            row = replace(row, attempts=attempt, seconds=round(time.monotonic() - began, 3))
            if not row.error:
                break
            if row.outcome == "failed" and attempt < self.task.attempts:  # a store, a disk: it may pass
                time.sleep(min(2.0 ** (attempt - 1), MOST_WAIT_S))
        return row

    def _prepare(self) -> None:
        if self._process is not None:
            return
        import usdehaze

        if usdehaze.__version__ != self.task.usdehaze_version:
            wanted = self.task.usdehaze_version
            raise UsdehazeError(f"usdehaze {usdehaze.__version__} on a worker; expected {wanted} on every machine")
        os.environ.update(self.task.environment)
        self._out = Store(self.task.out)
        self._process = self.task.make()

    def _attempt(self, source: Source) -> Row:
        remote = is_remote(source.uri)
        size, stamp = source.size, source.stamp
        try:
            if not remote:
                size, stamp = look(Path(source.uri))
            if remote or is_remote(self.task.out):
                done = self._by_scratch(source, remote)
            else:
                done = self._dehaze(Path(source.uri), Path(self.task.out, source.folder), source)
        except InputError as error:
            done = Done("failed", error=readable(str(error)))
        except Exception as error:
            done = Done("failed", error=readable(f"{source.uri}: unexpected {foreign(error)}"))
        named = {f"{source.folder}/{name}".lstrip("/"): digest for name, digest in done.results.items()}
        return Row(
            source=readable(source.uri), size=size, stamp=stamp, sha256=done.sha256, settings=self.task.settings,
            outcome=done.outcome, frames=done.frames, results=named, notes=done.notes, error=done.error,
            usdehaze_version=self.task.usdehaze_version,
        )  # fmt: skip

    def _by_scratch(self, source: Source, remote: bool) -> Done:
        """Where the scan or the destination is elsewhere."""
        assert self._out is not None
        if self._scratch is None:
            self._scratch = Scratch(self.task.scratch)
        away = is_remote(self.task.out)
        with self._scratch.one(source.size if remote else 0) as folder:
            scan = _fetched(source, folder / "in") if remote else Path(source.uri)
            made = folder / "out" if away else Path(self.task.out, source.folder)
            if away:
                made.mkdir()
                self._fetch_results(source, made)
            done = self._dehaze(scan, made, source)
            if away and done.outcome == "dehazed":
                for name in reversed(done.results):  # the result comes last: where it is, all are
                    self._out.put(made / name, f"{source.folder}/{name}".lstrip("/"))
            for here, there in ((scan, source.uri), (made, self._out.name_of(source.folder))):
                done = replace(
                    done,
                    error=done.error.replace(str(here), there),
                    notes=tuple(note.replace(str(here), there) for note in done.notes),
                )
        return done

    def _fetch_results(self, source: Source, folder: Path) -> None:
        """The results of a scan that are in the destination already: perhaps they are whole."""
        assert self._out is not None
        for file in files_beside(folder / f"{source.stem}{RESULT_SUFFIX}"):
            name = f"{source.folder}/{file.name}".lstrip("/")
            if self._out.exists(name):
                self._out.fetch(name, file)
            elif file.name.endswith(RESULT_SUFFIX):  # without it the others are of no use
                return

    def _dehaze(self, scan: Path, folder: Path, source: Source) -> Done:
        assert self._process is not None
        done = self._process(scan, folder, source.stem)
        if done.outcome == "quarantined" and not _is_there(scan):
            return replace(done, outcome="failed")
        return done


def row_of(text: str) -> Row:
    """The row that a `Worker` made."""
    from datetime import datetime

    values = json.loads(text)
    finished = datetime.fromisoformat(values["finished"])
    return Row(**{**values, "notes": tuple(values["notes"]), "finished": finished})


def _to_json(row: Row) -> str:
    return json.dumps({**asdict(row), "finished": row.finished.isoformat()})


def _fetched(source: Source, folder: Path) -> Path:
    """The scan, in a folder of its own."""
    store, scan = Store(source.uri), folder / source.name
    (scan if source.images else folder).mkdir(parents=True)
    for name in source.images:
        store.fetch(name, scan / name)
    if not source.images:
        store.fetch("", scan)
    return scan


def _is_there(scan: Path) -> bool:
    """Whether a scan can be read at all, so that what is wrong with it lies in its content."""
    try:
        for part in [scan] if scan.is_file() else sorted(scan.iterdir()):
            with open(part, "rb") as file:
                while file.read(2**20):
                    pass
    except OSError:
        return False
    return True
