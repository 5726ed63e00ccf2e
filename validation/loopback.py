"""A DICOM archive and a modality on loopback, beside a node that is measured or tested."""

from __future__ import annotations

import random
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pynetdicom
from pydicom.dataset import Dataset

from usdehaze.node.titles import Peer

REFUSED = 0xA700
TIMEOUT_S = 30.0


class Archive:
    """A C-STORE provider that keeps what it is sent.

    Args:
        refuses: share of what it is sent that it refuses, at random.
        tls: for its connections.

    Attributes:
        kept: images, in the order in which they came.
        status: that it answers with; it keeps an image where that is 0.
        peer: where to send to.
    """

    def __init__(self, refuses: float = 0.0, tls: ssl.SSLContext | None = None) -> None:
        self.kept: list[Dataset] = []
        self.refuses, self.status, self._random, self._lock = refuses, 0x0000, random.Random(0), threading.Lock()
        entity = pynetdicom.AE("ARCHIVE")
        entity.supported_contexts = pynetdicom.StoragePresentationContexts
        entity.maximum_associations = 50
        handlers: Any = [(pynetdicom.evt.EVT_C_STORE, self._store)]
        server = entity.start_server(("127.0.0.1", 0), False, tls, evt_handlers=handlers)
        assert server is not None  # for it does not block
        self._server = server
        self.peer = Peer("ARCHIVE", "127.0.0.1", server.server_address[1])

    def _store(self, event: Any) -> int:
        with self._lock:
            if self._random.random() < self.refuses:
                return REFUSED
            if self.status == 0:
                image = event.dataset
                image.file_meta = event.file_meta
                self.kept.append(image)
            return self.status

    @property
    def uids(self) -> list[str]:
        """SOP Instance UIDs of what it keeps."""
        return [str(image.SOPInstanceUID) for image in self.kept]

    @property
    def sources(self) -> list[str]:
        """SOP Instance UIDs of what that was derived from."""
        return [str(image.SourceImageSequence[0].ReferencedSOPInstanceUID) for image in self.kept]

    def stop(self) -> None:
        """Listens no more."""
        self._server.shutdown()


@contextmanager
def modality(
    port: int, image: Dataset, *, calling: str = "MODALITY", called: str = "USDEHAZE", tls: Any = None, **more: Any
) -> Iterator[Any]:
    """An association with a node that can take such an image; it may not be established.

    Args:
        port: of the node.
        image: with its file meta information.
        calling, called: AE titles.
        tls: as pynetdicom's ``tls_args``.
        more: for pynetdicom's ``associate``.
    """
    entity = pynetdicom.AE(calling)
    entity.connection_timeout = entity.acse_timeout = entity.dimse_timeout = TIMEOUT_S
    entity.add_requested_context(image.SOPClassUID, image.file_meta.TransferSyntaxUID)
    association = entity.associate("127.0.0.1", port, ae_title=called, tls_args=tls, **more)
    try:
        yield association
    finally:
        if association.is_established:
            association.release()


def send(port: int, image: Dataset, **more: Any) -> int | None:
    """Status of a C-STORE; None where there was no association or no answer. ``more`` is for `modality`."""
    with modality(port, image, **more) as association:
        return association.send_c_store(image).get("Status") if association.is_established else None
