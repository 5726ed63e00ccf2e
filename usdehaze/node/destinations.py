"""Where derived images go: by C-STORE to an application entity, by STOW-RS to a DICOMweb server."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from usdehaze.errors import UsdehazeError
from usdehaze.node.titles import Peer, pynetdicom
from usdehaze.optional import needed
from usdehaze.quiet import quiet

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

TIMEOUT_S = 60.0
USER, PASSWORD = "USDEHAZE_DICOMWEB_USER", "USDEHAZE_DICOMWEB_PASSWORD"  # environment variables


class NotSent(UsdehazeError):
    """A destination that did not take a file; it is tried again."""


class Destination(Protocol):
    """Takes files."""

    name: str

    def send(self, path: Path) -> None:
        """Sends a file.

        Raises:
            NotSent: it was not taken.
        """


class ByStore:
    """A C-STORE user.

    Args:
        peer: to send to.
        title: AE title of the node.
        tls: for the connection.
    """

    def __init__(self, peer: Peer, title: str, tls: ssl.SSLContext | None = None) -> None:
        self.peer, self.title, self.tls, self.name = peer, title, tls, str(peer)

    @quiet()
    def send(self, path: Path) -> None:
        """See `Destination`."""
        import pydicom

        library = pynetdicom()
        image = pydicom.dcmread(path)
        entity = library.AE(ae_title=self.title)
        entity.connection_timeout = entity.acse_timeout = TIMEOUT_S
        entity.dimse_timeout = entity.network_timeout = 10 * TIMEOUT_S
        syntaxes = [image.file_meta.TransferSyntaxUID]
        if not syntaxes[0].is_compressed:  # the default, which some archives alone take (PS3.5 10.1)
            syntaxes.append(pydicom.uid.ImplicitVRLittleEndian)
        entity.add_requested_context(image.SOPClassUID, syntaxes)
        tls = None if self.tls is None else (self.tls, self.peer.host)
        association = entity.associate(self.peer.host, self.peer.port, ae_title=self.peer.title, tls_args=tls)
        if not association.is_established:
            raise NotSent("no association" + (" (rejected)" if association.is_rejected else ""))
        try:
            if not association.accepted_contexts:
                raise NotSent("it takes no such images, or not with this transfer syntax")
            if association.accepted_contexts[0].transfer_syntax[0] != syntaxes[0]:
                _make_implicit(image)
                image.file_meta.TransferSyntaxUID = syntaxes[-1]
            status = association.send_c_store(image)
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:  # cut off by now, or not to be encoded
            raise NotSent(f"could not be sent ({type(error).__name__})") from None
        finally:
            association.release()
        if "Status" not in status:
            raise NotSent("the connection broke off")
        if status.Status not in (0x0000, 0xB000, 0xB006, 0xB007):  # success, or with a warning (PS3.4 B.2.3)
            raise NotSent(f"refused with status {status.Status:04X}")


def _make_implicit(image: Dataset) -> None:
    """Has a data set in explicit VR written in implicit VR, its text with the very bytes that it has."""
    for tag in image.keys():
        if image.get_item(tag).VR == "SQ":
            for item in image[tag].value:
                _make_implicit(item)
    image.set_original_encoding(True, True, image.original_character_set)


class ByWeb:
    """A DICOMweb server; user and password come from the environment.

    Args:
        url: of the service, such as ``http://localhost:8042/dicom-web``.
    """

    def __init__(self, url: str) -> None:
        self.name = url
        self.client = web_client(url)

    @quiet()
    def send(self, path: Path) -> None:
        """See `Destination`."""
        import pydicom

        try:
            answer = self.client.store_instances([pydicom.dcmread(path)])
        except Exception as error:  # of requests, or of the server: their text may quote what was sent
            raise NotSent(f"not stored ({reason_of(error)})") from None
        if "FailedSOPSequence" in answer:
            raise NotSent("not stored (the server refused the image)")


def reason_of(error: Exception) -> str:
    """What went wrong with a DICOMweb server, in a word: nothing of its own text."""
    code = getattr(getattr(error, "response", None), "status_code", None)
    return f"HTTP {code}" if code else type(error).__name__


def web_client(url: str) -> Any:
    """A client of a DICOMweb server.

    Raises:
        UsdehazeError: the library is not installed, or that is no URL.
    """
    library, sessions = (needed(name, "node") for name in ("dicomweb_client", "dicomweb_client.session_utils"))
    user, password = os.environ.get(USER), os.environ.get(PASSWORD)
    named = user and password
    session = sessions.create_session_from_user_pass(user, password) if named else sessions.create_session()
    try:
        client = library.DICOMwebClient(url, session=session, timeout=(TIMEOUT_S, 10 * TIMEOUT_S))
    except ValueError:
        raise UsdehazeError(f"{url!r} is no DICOMweb service; expected http://HOST:PORT/dicom-web") from None
    client.set_http_retry_params(retry=False)  # whoever sends tries again later
    return client
