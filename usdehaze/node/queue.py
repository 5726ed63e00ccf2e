"""What the node has accepted and not yet delivered, durable on disk.

An object is acknowledged once its file and its row are on disk; from then on a crash at any moment loses nothing. Steps
that a crash cut off are done again: derived images have the same UIDs each time, so archives recognise them.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io.atomic import sync

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FIRST_WAIT_S, LONGEST_WAIT_S = 5.0, 3600.0  # between two tries at something
TRIES = 12  # at a delivery, about four hours in all; then it is parked
KEEP_S = 7 * 86400  # files of objects that were passed over
_TABLES = """
CREATE TABLE IF NOT EXISTS objects (
    id INTEGER PRIMARY KEY AUTOINCREMENT, uid TEXT NOT NULL, bytes INTEGER NOT NULL, state TEXT NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '',
    arrived REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS objects_by_uid ON objects (uid);
CREATE INDEX IF NOT EXISTS objects_by_state ON objects (state, due);
CREATE TABLE IF NOT EXISTS deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, object INTEGER NOT NULL REFERENCES objects (id), path TEXT NOT NULL,
    uid TEXT NOT NULL, destination TEXT NOT NULL, state TEXT NOT NULL, tries INTEGER NOT NULL DEFAULT 0,
    due REAL NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS deliveries_by_state ON deliveries (state, due);
CREATE INDEX IF NOT EXISTS deliveries_by_object ON deliveries (object);
CREATE INDEX IF NOT EXISTS deliveries_by_uid ON deliveries (uid);
"""
# An object is waiting, then sending, then done; or passed (nothing to dehaze in it) or parked (given up for now).
# A delivery is waiting, then sent; or parked.


@dataclass(frozen=True)
class Received:
    """An object that waits to be dehazed: its number and its file."""

    number: int
    path: Path
    tries: int


@dataclass(frozen=True)
class Delivery:
    """A derived image that waits to be sent: its number, that of its object, and its file."""

    number: int
    object: int
    path: Path
    tries: int


class Queue:
    """Objects and deliveries in a folder of their own, that its owner alone can read.

    Args:
        folder: made where it is not there.
        exclusive: this process works it off; one at a time may. Without it the queue is only looked at.

    Raises:
        InputError: the folder cannot be used, or a node works it off already.
    """

    _held: TextIO | None = None

    def __init__(self, folder: Path, exclusive: bool = True) -> None:
        self.folder, self.incoming, self.outgoing = folder, folder / "in", folder / "out"
        self._lock = threading.RLock()
        self.changed = threading.Event()
        try:
            for each in (folder, self.incoming, self.outgoing, self.receiving):
                each.mkdir(parents=True, exist_ok=True, mode=0o700)
            if exclusive:
                self._claim()
            self._db = sqlite3.connect(
                folder / "queue.sqlite", check_same_thread=False, isolation_level=None, timeout=30
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_TABLES)
        except OSError as error:
            raise InputError(folder, f"cannot be used as a spool ({error.strerror})") from None
        except sqlite3.Error as error:
            raise InputError(folder, f"cannot be used as a spool ({error})") from None
        if exclusive:
            self._clear_up()

    @property
    def receiving(self) -> Path:
        """Where objects lie while they come in."""
        return self.folder / "receiving"

    def _claim(self) -> None:
        self._held = open(self.folder / "lock", "w")  # for as long as the process lives
        if fcntl is not None:
            try:
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(self.folder, "is in use by another node", advice="give each its own --spool") from None

    def _clear_up(self) -> None:
        """After a crash: files that were never acknowledged, results that were never noted."""
        for file in self.receiving.iterdir():
            file.unlink()
        known = {number for (number,) in self._db.execute("SELECT id FROM objects WHERE state != 'done'")}
        for file in self.incoming.iterdir():
            if file.suffix == ".part" or (file.stem.isdecimal() and int(file.stem) not in known):
                file.unlink()
        sending = {number for (number,) in self._db.execute("SELECT id FROM objects WHERE state = 'sending'")}
        for made in self.outgoing.iterdir():
            if made.name.isdecimal() and int(made.name) not in sending:
                shutil.rmtree(made)

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """A transaction; whoever waits for work is woken after it."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk may have ended it already
                    self._db.execute("ROLLBACK")
                raise
        self.changed.set()

    def add(self, uid: str, source: Path) -> int | None:
        """Takes an object over: on return its file and row are safe.

        Args:
            uid: SOP Instance UID (0008,0018).
            source: its file, which is copied.

        Returns:
            Its number; None where it needs no work: the very same is in the queue already, or the node made it itself.

        Raises:
            OSError, sqlite3.Error: the disk is full, or out of order.
        """
        with self._lock:
            own = self._db.execute("SELECT 1 FROM deliveries WHERE uid = ?", (uid,)).fetchone()
            here = "SELECT id FROM objects WHERE uid = ? AND state IN ('waiting', 'sending')"
            known = (self._file(number) for (number,) in self._db.execute(here, (uid,)).fetchall())
            if own or any(filecmp.cmp(source, file, shallow=False) for file in known):
                return None
            with self._change() as db:
                row = "INSERT INTO objects (uid, bytes, state, arrived) VALUES (?, ?, 'waiting', ?)"
                number = int(db.execute(row, (uid, source.stat().st_size, time.time())).lastrowid or 0)
                self._store(source, self._file(number))
            return number

    def _store(self, source: Path, target: Path) -> None:
        part = target.with_suffix(".part")
        try:
            with open(source, "rb") as read, open(part, "wb") as written:
                shutil.copyfileobj(read, written, 2**20)
                written.flush()
                os.fsync(written.fileno())
            os.replace(part, target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        sync(target.parent)

    def _file(self, number: int) -> Path:
        return self.incoming / f"{number:09d}.dcm"

    def results(self, number: int) -> Path:
        """The folder for what is made from an object."""
        return self.outgoing / f"{number:09d}"

    def next_object(self) -> Received | None:
        """What to dehaze next, first come, first served."""
        with self._lock:
            row = self._db.execute(
                "SELECT id, tries FROM objects WHERE state = 'waiting' AND due <= ? ORDER BY id LIMIT 1", (time.time(),)
            ).fetchone()
        return None if row is None else Received(row[0], self._file(row[0]), row[1])

    def made(self, number: int, files: Iterable[tuple[Path, str]], destinations: Iterable[str]) -> None:
        """Notes what was made from an object: files with their UIDs, to be sent to each of the destinations."""
        for path, _ in (files := list(files)):
            sync(path)
            sync(path.parent)
        sync(self.outgoing)
        with self._change() as db:
            db.execute("UPDATE objects SET state = 'sending', reason = '' WHERE id = ?", (number,))
            for path, uid in files:
                for destination in destinations:
                    db.execute(
                        "INSERT INTO deliveries (object, path, uid, destination, state) VALUES (?, ?, ?, ?, 'waiting')",
                        (number, str(path.relative_to(self.folder)), uid, destination),
                    )

    def passed(self, number: int, reason: str) -> None:
        """Notes that there is nothing in an object to dehaze; its file is kept for a week."""
        with self._change() as db:
            db.execute("UPDATE objects SET state = 'passed', reason = ? WHERE id = ?", (reason, number))

    def put_off(self, received: Received, reason: str) -> bool:
        """Notes that an object could not be dehazed now; True where it was the last try, and it is parked."""
        return self._try_later("objects", received, reason)

    def next_delivery(self, destination: str) -> Delivery | None:
        """What to send next to a destination."""
        with self._lock:
            row = self._db.execute(
                "SELECT id, object, path, tries FROM deliveries "
                "WHERE state = 'waiting' AND destination = ? AND due <= ? ORDER BY id LIMIT 1",
                (destination, time.time()),
            ).fetchone()
        return None if row is None else Delivery(row[0], row[1], self.folder / row[2], row[3])

    def sent(self, delivery: Delivery) -> None:
        """Notes a delivery; with an object's last one its files go."""
        with self._change() as db:
            db.execute("UPDATE deliveries SET state = 'sent', reason = '' WHERE id = ?", (delivery.number,))
            open_ones = "SELECT 1 FROM deliveries WHERE object = ? AND state != 'sent'"
            if finished := db.execute(open_ones, (delivery.object,)).fetchone() is None:
                db.execute("UPDATE objects SET state = 'done' WHERE id = ?", (delivery.object,))
        if finished:
            self._file(delivery.object).unlink(missing_ok=True)
            shutil.rmtree(self.results(delivery.object), ignore_errors=True)

    def undelivered(self, delivery: Delivery, reason: str) -> bool:
        """Notes that a destination did not take a file; True where it was the last try, and it is parked."""
        return self._try_later("deliveries", delivery, reason)

    def _try_later(self, table: str, what: Received | Delivery, reason: str) -> bool:
        last = what.tries + 1 >= TRIES
        with self._change() as db:
            db.execute(
                f"UPDATE {table} SET state = ?, reason = ?, tries = tries + 1, due = ? WHERE id = ?",
                ("parked" if last else "waiting", reason, _due(what.tries), what.number),
            )
        return last

    def retry(self) -> int:
        """Takes up again all that was parked, and what waits for its next try; returns how much was parked."""
        with self._change() as db:
            count = 0
            for table in ("objects", "deliveries"):
                again = f"UPDATE {table} SET state = 'waiting', tries = 0, due = 0 WHERE state = 'parked'"
                count += db.execute(again).rowcount
                db.execute(f"UPDATE {table} SET due = 0 WHERE state = 'waiting'")
        return count

    def forget(self) -> None:
        """Removes files of objects that were passed over long ago."""
        with self._lock:
            old = self._db.execute(
                "SELECT id FROM objects WHERE state = 'passed' AND arrived < ?", (time.time() - KEEP_S,)
            ).fetchall()
        for (number,) in old:
            self._file(number).unlink(missing_ok=True)

    def counts(self) -> dict[str, int]:
        """Objects by state, and deliveries that wait or are parked."""
        with self._lock:
            found = dict(self._db.execute("SELECT state, count(*) FROM objects GROUP BY state").fetchall())
            to_send = dict(self._db.execute("SELECT state, count(*) FROM deliveries GROUP BY state").fetchall())
        states = {state: int(found.get(state, 0)) for state in ("waiting", "sending", "done", "passed", "parked")}
        return states | {f"deliveries {state}": int(to_send.get(state, 0)) for state in ("waiting", "sent", "parked")}

    def elsewhere(self, destinations: Iterable[str]) -> dict[str, int]:
        """How many deliveries wait for each destination that is none of these."""
        with self._lock:
            found = self._db.execute(
                "SELECT destination, count(*) FROM deliveries WHERE state = 'waiting' GROUP BY destination"
            ).fetchall()
        return {name: int(count) for name, count in found if name not in set(destinations)}

    def troubles(self, most: int = 50) -> list[str]:
        """A line for each object or delivery that is late, parked or passed over, the latest first."""
        with self._lock:
            objects = self._db.execute(
                "SELECT id, state, tries, reason FROM objects WHERE reason != '' AND state != 'done' "
                "ORDER BY id DESC LIMIT ?",
                (most,),
            ).fetchall()
            sends = self._db.execute(
                "SELECT object, state, tries, destination, reason FROM deliveries "
                "WHERE reason != '' AND state != 'sent' ORDER BY id DESC LIMIT ?",
                (most,),
            ).fetchall()
        return [
            *(f"object {number}: {state}, {tries} tries: {reason}" for number, state, tries, reason in objects),
            *(f"object {number} to {to}: {state}, {tries} tries: {why}" for number, state, tries, to, why in sends),
        ]

    def close(self) -> None:
        """Lets go of the folder."""
        with self._lock:
            self._db.close()
        if self._held is not None:
            self._held.close()


def free_bytes(folder: Path) -> int:
    """Free space where a folder lies.

    Raises:
        UsdehazeError: it cannot be told.
    """
    try:
        return shutil.disk_usage(folder).free
    except OSError as error:
        raise UsdehazeError(f"{folder}: {error.strerror}") from None


def _due(tries: int) -> float:
    return time.time() + min(FIRST_WAIT_S * 2**tries, LONGEST_WAIT_S)
