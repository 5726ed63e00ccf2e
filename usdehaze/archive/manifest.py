"""The manifest of an archive: what became of every scan, in Parquet, a part after the other."""

from __future__ import annotations

import hashlib
import io
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, Literal

from usdehaze.archive.sources import Source
from usdehaze.archive.store import EXTRA, Store
from usdehaze.errors import InputError, foreign
from usdehaze.optional import needed
from usdehaze.plain_text import readable

Outcome = Literal["dehazed", "kept", "quarantined", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("dehazed", "kept", "quarantined", "failed")
FOLDER = "manifest"
SETTINGS = b"usdehaze.settings"  # key of a part's metadata


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of a scan: a row of the manifest. Holds no attribute of a DICOM file.

    Attributes:
        source: path or URI of the scan.
        size: bytes of its files.
        stamp: see `usdehaze.archive.sources.Source`.
        sha256: of the scan; "" where it was not read.
        settings: `identity` of the run.
        outcome: "dehazed"; "kept", the same result was there, of a run that ended before it was written down;
            "quarantined", the scan cannot be dehazed; "failed", for another reason, so that the next run tries again.
        attempts: that it took.
        seconds: of the last attempt, fetching and putting back included.
        frames: dehazed.
        results: SHA-256 of each file that was written, by its name below the destination.
        notes: what was guessed or left out.
        error: why there is no result, in a line.
        finished: when, in UTC.
        usdehaze_version: that did it.
    """

    source: str
    size: int
    stamp: str
    sha256: str = ""
    settings: str
    outcome: Outcome
    attempts: int = 1
    seconds: float = 0.0
    frames: int = 0
    results: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str = ""
    finished: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    usdehaze_version: str = ""


def identity(settings: Mapping[str, Any]) -> str:
    """16 hex digits for all that decides the files of a run but the scans themselves."""
    return hashlib.sha256(_text(settings).encode()).hexdigest()[:16]


def key_of(source: str, size: int, stamp: str) -> bytes:
    """16 bytes for a scan as it is now."""
    return hashlib.blake2b(f"{source}\n{size}\n{stamp}".encode("utf-8", "surrogateescape"), digest_size=16).digest()


@dataclass(frozen=True)
class Summary:
    """What a manifest says, the last row of each scan counted.

    Attributes:
        scans: by outcome.
        frames, seconds: of those with a result; seconds of one worker.
        troubles: source and reason of those without, in order of name.
        settings: `identity` and settings of every run.
        parts: files of the manifest.
    """

    scans: dict[Outcome, int]
    frames: int
    seconds: float
    troubles: list[tuple[str, Outcome, str]]
    settings: dict[str, str]
    parts: int


class Manifest:
    """The manifest under a destination: ``manifest/*.parquet``, of which a part is never changed.

    Args:
        store: the destination.

    Raises:
        InputError: from all methods, where a part cannot be read or written.
        UsdehazeError: pyarrow is not installed.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._arrow, self._parquet = needed("pyarrow", EXTRA), needed("pyarrow.parquet", EXTRA)
        self._run = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        self._n_parts = 0

    def append(self, rows: Sequence[Row], settings: Mapping[str, Any]) -> None:
        """Writes a part, whole or not at all."""
        values = [{**asdict(row), "results": list(row.results.items()), "notes": list(row.notes)} for row in rows]
        table = self._arrow.Table.from_pylist(values, self._schema())
        table = table.replace_schema_metadata({SETTINGS: _text(settings).encode()})
        content = io.BytesIO()
        self._parquet.write_table(table, content, compression="zstd")
        self.store.write(f"{FOLDER}/part-{self._run}-{self._n_parts:05d}.parquet", content.getvalue())
        self._n_parts += 1

    def finished(self, settings: str, retry_quarantined: bool = False) -> set[bytes]:
        """`key_of` of every scan that has its result, or is in quarantine, under these settings.

        A scan whose result was replaced since, by a run of other settings, has it no more.
        """
        made: dict[str, tuple[datetime, bytes]] = {}  # when and of what each result was made last; b"" for others
        quarantined: set[bytes] = set()
        for table, _ in self._parts(["source", "size", "stamp", "settings", "outcome", "results", "finished"]):
            columns = table.to_pydict()
            for source, size, stamp, made_with, outcome, results, finished in zip(*columns.values(), strict=True):
                key = key_of(source, size, stamp) if made_with == settings else b""
                if outcome == "quarantined":
                    quarantined.add(key)
                if outcome in ("dehazed", "kept"):
                    name = results[0][0] if results else source
                    made[name] = max((finished, key), made.get(name, (finished, key)))
        return {key for _, key in made.values()} | (set() if retry_quarantined else quarantined)

    def rows(self) -> Iterator[Row]:
        """Every row, part after part."""
        for table, _ in self._parts([f.name for f in fields(Row)]):
            for values in table.to_pylist():
                yield Row(**{**values, "results": dict(values["results"]), "notes": tuple(values["notes"])})

    def summary(self) -> Summary:
        """Counts, sums and troubles."""
        columns = ["source", "outcome", "frames", "seconds", "error", "finished"]
        tables, settings, parts = [], {}, 0
        for table, made_with in self._parts(columns):
            parts += 1
            tables.append(table)
            settings[identity(json.loads(made_with))] = made_with
        last: dict[str, tuple[Any, ...]] = {}
        if tables:
            whole = self._arrow.concat_tables(tables).sort_by("finished")
            for batch in whole.to_batches(max_chunksize=2**16):
                last.update((row[0], row[1:]) for row in zip(*batch.to_pydict().values(), strict=True))
        made = [row for row in last.values() if row[0] in ("dehazed", "kept")]
        return Summary(
            {outcome: sum(row[0] == outcome for row in last.values()) for outcome in OUTCOMES},
            sum(row[1] for row in made),
            sum(row[2] for row in made),
            [(source, row[0], row[3]) for source, row in sorted(last.items()) if row[0] in ("quarantined", "failed")],
            settings,
            parts,
        )

    def _parts(self, columns: list[str]) -> Iterator[tuple[Any, str]]:
        """Columns of every part, in order, and the settings that it was made with."""
        for name in sorted(self.store.names(FOLDER)):
            if not name.endswith(".parquet") or name.startswith("."):
                continue
            path = f"{FOLDER}/{name}"
            try:
                with self.store.files.open(self.store.path.rstrip("/") + "/" + path, "rb") as file:
                    part = self._parquet.ParquetFile(file)
                    table = part.read(columns).select(columns)
                    made_with = (part.schema_arrow.metadata or {})[SETTINGS].decode()
            except Exception as error:  # pyarrow has kinds of its own
                raise InputError(
                    self.store.name_of(path), f"cannot be read as a part of a manifest ({foreign(error)})"
                ) from error
            yield table, made_with

    def _schema(self) -> Any:
        a = self._arrow
        kinds = {
            **{f.name: a.string() for f in fields(Row)},
            **{"size": a.int64(), "attempts": a.int32(), "seconds": a.float64(), "frames": a.int32()},
            **{"results": a.map_(a.string(), a.string()), "notes": a.list_(a.string())},
            "finished": a.timestamp("ms", "UTC"),
        }
        return a.schema(list(kinds.items()))


def left_of(sources: Iterable[Source], finished: set[bytes]) -> list[Source]:
    """Those that are not among the finished."""
    return [source for source in sources if key_of(readable(source.uri), source.size, source.stamp) not in finished]


def _text(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)
