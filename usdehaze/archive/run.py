"""A run over an archive: what is left to do, a wave of it at a time, and the manifest of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from usdehaze import stopping
from usdehaze.archive.actor import Task, row_of
from usdehaze.archive.manifest import Manifest, Outcome, Row, left_of
from usdehaze.archive.pool import Pool, connected, dehazed
from usdehaze.archive.scratch import sweep
from usdehaze.archive.sources import Source
from usdehaze.errors import UsdehazeError
from usdehaze.plain_text import readable

WAVE, WAVE_A_WORKER = 2000, 200  # scans given to Ray at once: the larger; each wave loads the networks anew
PART_ROWS, PART_S = 500, 60.0  # of the manifest: a part is written when there are so many rows, or after so long
MOST_IN_A_ROW = 10  # scans that fail one after the other, and 2 more a worker: something else is wrong


def run_archive(
    sources: Sequence[Source],
    manifest: Manifest,
    task: Task,
    pool: Pool,
    settings: Mapping[str, Any],
    *,
    retry_quarantined: bool = False,
    told: Callable[[Row, int, int], None] = lambda row, done, in_all: None,
) -> Counter[Outcome]:
    """Dehazes what has no result under these settings yet; each scan gets one row of the manifest.

    Whenever it ends, by whatever, the next run goes on: rows are written every `PART_S` seconds, and results that came
    after the last are found where they lie.

    Args:
        sources: all scans.
        manifest: of the destination.
        task, pool: for the workers.
        settings: that decide results; kept with the rows.
        retry_quarantined: try scans again that are in quarantine.
        told: called with each row once it is known, the number of rows so far, and that of scans to do.

    Returns:
        Scans of this run by outcome.

    Raises:
        UsdehazeError: no scan can be dehazed, or many in a row failed for what is no fault of theirs; what was done is
            written down.
    """
    left = left_of(sources, manifest.finished(task.settings, retry_quarantined))
    outcomes: Counter[Outcome] = Counter()
    if not left:
        return outcomes

    def add(book: _Book, row: Row) -> None:
        outcomes[row.outcome] += 1
        told(row, outcomes.total(), len(left))
        book.add(row)

    try:
        with connected(pool) as (ray, fitted):
            n_workers = fitted.workers or 1
            wave = max(WAVE, WAVE_A_WORKER * n_workers)
            for first in range(0, len(left), wave):
                some = left[first : first + wave]
                with _Book(manifest, settings, MOST_IN_A_ROW + 2 * n_workers) as book:
                    pending = dict(enumerate(some))
                    for index, text, fatal in dehazed(ray, fitted, task, some):
                        stopping.check()
                        if fatal:
                            raise UsdehazeError(fatal)
                        if pending.pop(index, None) is not None:
                            add(book, row_of(text))
                    if len(pending) == len(some) > MOST_IN_A_ROW:
                        raise UsdehazeError("every worker ended before it had done a scan; Ray's logs may say why")
                    for source in pending.values():
                        add(book, _lost(source, task))
    finally:
        sweep(Path(task.scratch or gettempdir()))
    return outcomes


class _Book:
    """Rows on their way into the manifest; what is left is written at the end of the block, whatever ended it."""

    def __init__(self, manifest: Manifest, settings: Mapping[str, Any], most_failed: int) -> None:
        self.manifest, self.settings, self.most_failed = manifest, settings, most_failed
        self._failed = 0  # in a row
        self._rows: list[Row] = []
        self._since = 0.0  # the first of them came

    def add(self, row: Row) -> None:
        if not self._rows:
            self._since = time.monotonic()
        self._rows.append(row)
        self._failed = self._failed + 1 if row.outcome == "failed" else 0
        if self._failed >= self.most_failed:
            raise UsdehazeError(f"{self._failed} scans in a row failed, the last: {row.error}")
        if len(self._rows) >= PART_ROWS or time.monotonic() - self._since >= PART_S:
            self._write()

    def _write(self) -> None:
        if self._rows:
            self.manifest.append(self._rows, self.settings)
        self._rows = []

    def __enter__(self) -> _Book:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()


def _lost(source: Source, task: Task) -> Row:
    """The row of a scan that every worker died of."""
    uri = readable(source.uri)
    return Row(
        source=uri, size=source.size, stamp=source.stamp, settings=task.settings, outcome="quarantined",
        attempts=task.attempts, error=f"{uri}: ended the process that worked on it, {task.attempts} times",
        usdehaze_version=task.usdehaze_version,
    )  # fmt: skip
