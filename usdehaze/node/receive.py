"""C-ECHO and C-STORE: what modalities and archives send to the node."""

from __future__ import annotations

import sqlite3
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usdehaze.errors import UsdehazeError
from usdehaze.io.dicom.header import RETIRED_IMAGE, RETIRED_MULTIFRAME, US_IMAGE, US_MULTIFRAME
from usdehaze.node.access import Access, Rate
from usdehaze.node.queue import Queue, free_bytes
from usdehaze.node.titles import pynetdicom

if TYPE_CHECKING:
    from pynetdicom.transport import ThreadedAssociationServer

SUCCESS, OUT_OF_RESOURCES = 0x0000, 0xA700  # PS3.4, table B.2-1
RETIRED = {RETIRED_IMAGE: "RetiredUltrasound", RETIRED_MULTIFRAME: "RetiredUltrasoundMultiframe"}  # of old archives
ULTRASOUND = (US_IMAGE, US_MULTIFRAME, *RETIRED)  # SOP classes that hold B-mode
TIMEOUT_S = 30.0
SPARE_BYTES = 2**28  # left free on the disk
STALE_S = 3600.0


class Receiver:
    """Listens, and answers C-STORE with success once an object is safe in the queue.

    Args:
        queue: for what comes in.
        title: AE title of the node.
        access: who may send.
        tell: called with a line for the log; it names no patient and no study.
        tls: for the connections.
    """

    def __init__(
        self,
        queue: Queue,
        title: str,
        access: Access,
        tell: Callable[[str], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.queue, self.access, self.tell, self.tls = queue, access, tell, tls
        self.rate = Rate(access.per_minute)
        self.server: ThreadedAssociationServer | None = None
        library = pynetdicom()
        library._config.STORE_RECV_CHUNKED_DATASET = True  # to disk as it comes
        self.entity = library.AE(ae_title=title)
        self.entity.require_called_aet = True
        self.entity.require_calling_aet = list(access.titles)
        self.entity.maximum_associations = access.connections
        self.entity.acse_timeout = self.entity.dimse_timeout = self.entity.network_timeout = TIMEOUT_S
        self.entity.add_supported_context(library.sop_class.Verification)
        for uid, keyword in RETIRED.items():  # which the library does not know to be of storage
            library.sop_class.register_uid(uid, keyword, library.service_class.StorageServiceClass)
        for uid in ULTRASOUND:
            self.entity.add_supported_context(uid, library.ALL_TRANSFER_SYNTAXES)

    def start(self, address: str, port: int) -> int:
        """Listens in threads of its own; returns the port, which 0 leaves to the system.

        Raises:
            UsdehazeError: the port cannot be had.
        """
        events = pynetdicom().evt
        handlers = [
            (events.EVT_C_STORE, self._store),
            (events.EVT_PDU_RECV, self._measure),
            (events.EVT_C_ECHO, lambda event: SUCCESS),
        ]
        tempfile.tempdir = str(self.queue.receiving)  # where pynetdicom puts what is coming in
        try:
            server = self.entity.start_server((address, port), False, self.tls, evt_handlers=handlers)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "no such address"
            raise UsdehazeError(f"cannot listen at {address}:{port} ({reason})") from None
        server.verify_request = lambda _, client: self._admits(str(client[0]))
        self.server = server
        threading.excepthook = self._broken_off
        return int(server.server_address[1])

    def _admits(self, address: str) -> bool:
        if self.access.admits(address):
            return True
        self.tell(f"{address}: turned away, not an allowed address")
        return False

    def _broken_off(self, what: threading.ExceptHookArgs) -> None:
        """What pynetdicom's threads end with when a peer breaks the protocol: a line in place of a traceback."""
        self.tell(f"a connection broke off ({what.exc_type.__name__})")

    def _measure(self, event: Any) -> None:
        """Ends an association whose object grows past the limit."""
        if event.pdu.pdu_type != 0x04:  # P-DATA-TF
            return
        association = event.assoc
        total = getattr(association, "usdehaze_bytes", 0) + event.pdu.pdu_length
        association.usdehaze_bytes = total
        if total > self.access.max_bytes:
            self.tell(f"{association.requestor.address}: cut off, an object of more than {self.access.max_bytes} bytes")
            association.abort()

    def _store(self, event: Any) -> int:
        association = event.assoc
        too_large = getattr(association, "usdehaze_bytes", 0) > self.access.max_bytes
        association.usdehaze_bytes = 0
        if too_large:  # cut off already
            return OUT_OF_RESOURCES
        address = str(association.requestor.address)
        path = Path(event.dataset_path)
        self._clear_stale()
        if not self.rate.allows(address):
            self.tell(f"{address}: an object refused, more than {self.access.per_minute} a minute")
            return OUT_OF_RESOURCES
        try:
            size = path.stat().st_size
            if free_bytes(self.queue.folder) < size + SPARE_BYTES:
                self.tell(f"{address}: an object refused, the disk of the spool is full")
                return OUT_OF_RESOURCES
            number = self.queue.add(str(event.request.AffectedSOPInstanceUID), path)
        except (OSError, sqlite3.Error, UsdehazeError) as error:
            self.tell(f"{address}: an object refused, it cannot be kept ({type(error).__name__})")
            return OUT_OF_RESOURCES
        what = "known already" if number is None else f"object {number}"
        self.tell(f"{address}: received {what}, {size / 2**20:.1f} MiB")
        return SUCCESS

    def _clear_stale(self) -> None:
        """Removes what associations left that broke off while they sent."""
        old = time.time() - STALE_S
        for file in self.queue.receiving.iterdir():
            try:
                if file.stat().st_mtime < old:
                    file.unlink()
            except OSError:  # its own association has removed it
                continue

    def stop(self) -> None:
        """Takes no more; associations end."""
        if self.server is not None:
            self.server.shutdown()
            self.server = None
            threading.excepthook = threading.__excepthook__
            tempfile.tempdir = None
        self.entity.shutdown()
