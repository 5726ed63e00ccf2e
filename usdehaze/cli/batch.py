"""The log of a batch of scans."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, TypeVar

import click

from usdehaze.cli.plan import Job
from usdehaze.errors import InputError
from usdehaze.plain_text import cell

Outcome = Literal["dehazed", "skipped", "failed"]
_Self = TypeVar("_Self", bound="BatchLog")
_CSV_BYTES = 2**28  # of a log that a table is made of


@dataclass
class Entry:
    """What became of a scan: a line of the log. Holds no attribute of a DICOM file.

    Attributes:
        scan: its path as given.
        outcome: of this run.
        seconds: that it took.
        frames: dehazed.
        sha256: of the scan; "" where it was not read.
        notes: what was guessed or left out.
        results: SHA-256 of each file that was written, by its path.
        error: why it failed, in a line.
        finished: when, ISO 8601 in UTC.
        usdehaze_version: that did it.
    """

    scan: str
    outcome: Outcome = "failed"
    seconds: float = 0.0
    frames: int = 0
    sha256: str = ""
    notes: list[str] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    error: str = ""
    finished: str = ""
    usdehaze_version: str = ""


class BatchLog:
    """Appends a JSON line a scan to a file, and makes a table of it, the same name with ``.csv``, in the end.

    A log that is there is gone on with. Of a scan that was met several times the table has the last line, save that
    "skipped" does not stand in for what was skipped.

    Args:
        path: of the log; None for none.
        jobs: whose files it must not replace.

    Raises:
        click.UsageError: the file is something else, or belongs to a job.
        InputError: from the methods, where it cannot be written.
    """

    _file: IO[str] | None = None

    def __init__(self, path: str | None, jobs: Sequence[Job]) -> None:
        self.path = None if path is None else Path(path)
        if self.path is None:
            return
        self.table = self.path.with_suffix(".csv")
        taken = {file.resolve() for job in jobs for file in (job.scan, *job.targets)}
        if self.path == self.table or {self.path.resolve(), self.table.resolve()} & taken:
            raise click.UsageError(f"--log {path}: a file of its own is needed, such as batch.jsonl")
        if not _is_log(self.path) or (self.table.exists() and not self.path.exists()):
            other = self.path if self.path.exists() else self.table
            raise click.UsageError(f"--log {path}: {other} is there and no log of usdehaze; choose another name")

    def __enter__(self: _Self) -> _Self:
        if self.path is not None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                _end_last_line(self.path)
                self._file = open(self.path, "a", encoding="utf-8")
            except OSError as error:
                raise InputError(self.path, f"cannot be written ({error.strerror})") from error
        return self

    def add(self, entry: Entry) -> None:
        """Writes a line, safe on disk."""
        if self._file is None:
            return
        import usdehaze

        entry.finished = datetime.now(timezone.utc).isoformat(timespec="seconds")
        entry.usdehaze_version = usdehaze.__version__
        try:
            self._file.write(json.dumps(asdict(entry)) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(self.path, f"cannot be written ({error.strerror})") from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            try:
                self._file.close()  # tries anew to write what is left
            except OSError as failure:
                raise InputError(self.path, f"cannot be written ({failure.strerror})") from failure
            self._write_table()

    def _write_table(self) -> None:
        from usdehaze.io.atomic import atomic

        assert self.path is not None
        rows: dict[str, Entry] = {}
        for line in _lines(self.path):
            entry = Entry(**line)
            before = rows.get(entry.scan)
            if entry.outcome != "skipped" or before is None or before.outcome == "failed":
                rows[entry.scan] = entry
        with atomic(self.table, overwrite=True) as part, open(part, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(asdict(Entry("")))
            for entry in rows.values():
                listed = {**asdict(entry), "notes": " ".join(entry.notes), "results": " ".join(entry.results)}
                writer.writerow(map(_cell, listed.values()))


def _is_log(path: Path) -> bool:
    """Whether a file is a log, or may become one."""
    try:
        if not path.exists():
            return True
        if not path.is_file():
            return False
        return path.stat().st_size == 0 or bool(_lines(path, most=1))
    except OSError:
        return False


def _end_last_line(path: Path) -> None:
    """Ends a line that was cut off, on a full disk say, so that the next one is a line of its own."""
    with open(path, "a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _lines(path: Path, most: int | None = None) -> list[dict[str, Any]]:
    """Lines of a log; none where one of them is no such line."""
    names = set(asdict(Entry("")))
    lines: list[dict[str, Any]] = []
    with open(path, encoding="utf-8", errors="replace") as file:
        while (most is None or len(lines) < most) and file.tell() < _CSV_BYTES and (text := file.readline(2**24)):
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):  # cut off by a crash
                continue
            if isinstance(line, dict) and set(line) == names:
                lines.append(line)
            elif most is not None:
                break
    return lines


def _cell(value: object) -> str:
    """A cell of a table that no spreadsheet takes for a formula."""
    return str(cell(f"{value:.3f}" if isinstance(value, float) else str(value)))
