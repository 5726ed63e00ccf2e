"""The node's threads: one that dehazes, one for each destination."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from usdehaze import stopping
from usdehaze.node.destinations import Destination, NotSent
from usdehaze.node.queue import Queue
from usdehaze.quiet import quiet

IDLE_S = 1.0  # between two looks at what is due
TIDY_S = 3600.0


@dataclass(frozen=True)
class Dehazed:
    """What became of an object.

    Attributes:
        images: the derived DICOM images.
        reason: why there are none, in a line.
        hopeless: trying again will not help: it holds nothing to dehaze.
    """

    images: Sequence[Path] = ()
    reason: str = ""
    hopeless: bool = False


class Process(Protocol):
    """Dehazes a DICOM file into a folder."""

    def __call__(self, scan: Path, folder: Path) -> Dehazed:
        """What became of it; never an exception that the scan is to blame for."""


class Node:
    """Works the queue off until it is stopped.

    Args:
        queue: what came in.
        process: dehazes an object.
        destinations: where the derived images go.
        tell: called with a line for the log.
    """

    def __init__(
        self, queue: Queue, process: Process, destinations: Sequence[Destination], tell: Callable[[str], None]
    ) -> None:
        self.queue, self.process, self.destinations, self.tell = queue, process, destinations, tell
        self._stop = threading.Event()
        loops = [self._dehaze_next, *(lambda to=to: self._send_next(to) for to in destinations)]
        self._threads = [threading.Thread(target=self._run, args=(loop,), daemon=True) for loop in loops]

    def start(self) -> None:
        """Begins."""
        for thread in self._threads:
            thread.start()

    def stop(self, patience_s: float = 10.0) -> None:
        """Ends after what is being done now, or after ``patience_s``: the queue keeps what is left. May come before
        `start`."""
        self._stop.set()
        end = time.monotonic() + patience_s
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(0.0, end - time.monotonic()))

    @property
    def alive(self) -> bool:
        """Whether all threads are at work."""
        return all(thread.is_alive() for thread in self._threads)

    def _run(self, step: Callable[[], bool]) -> None:
        tidied = 0.0
        while not self._stop.is_set():
            try:
                busy = step()
                if time.monotonic() > tidied + TIDY_S:
                    self.queue.forget()
                    tidied = time.monotonic()
            except stopping.Stopped:  # in the middle of a cine: the queue has it still
                return
            except (OSError, sqlite3.Error) as error:  # a full disk: nothing is lost, and it may pass
                self.tell(f"the spool cannot be written ({type(error).__name__}); trying again")
                busy = False
            if not busy:
                self.queue.changed.wait(IDLE_S)
                self.queue.changed.clear()

    def _dehaze_next(self) -> bool:
        received = self.queue.next_object()
        if received is None:
            return False
        folder = self.queue.results(received.number)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        began = time.monotonic()
        done = self.process(received.path, folder)
        if done.images:
            self.queue.made(
                received.number, [(path, _uid(path)) for path in done.images], [to.name for to in self.destinations]
            )
            self.tell(f"object {received.number}: dehazed in {time.monotonic() - began:.1f} s")
        elif done.hopeless:
            self.queue.passed(received.number, done.reason)
            self.tell(f"object {received.number}: passed over: {done.reason}")
        else:
            parked = self.queue.put_off(received, done.reason)
            self.tell(f"object {received.number}: {'parked' if parked else 'tried later again'}: {done.reason}")
        return True

    def _send_next(self, destination: Destination) -> bool:
        delivery = self.queue.next_delivery(destination.name)
        if delivery is None:
            return False
        try:
            destination.send(delivery.path)
        except NotSent as error:
            parked = self.queue.undelivered(delivery, str(error))
            what = "parked" if parked else "tried later again"
            self.tell(f"object {delivery.object} to {destination.name}: {what}: {error}")
            return True
        self.queue.sent(delivery)
        self.tell(f"object {delivery.object} to {destination.name}: sent")
        return True


@quiet()
def _uid(path: Path) -> str:
    import pydicom

    return str(pydicom.dcmread(path, specific_tags=["SOPInstanceUID"], stop_before_pixels=True).SOPInstanceUID)
