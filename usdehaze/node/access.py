"""Who may send to the node, how much, and how fast."""

from __future__ import annotations

import ipaddress
import ssl
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path

from usdehaze.errors import InputError, UsdehazeError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
PER_S = 60.0


@dataclass(frozen=True)
class Access:
    """What is let in.

    Attributes:
        titles: AE titles that may call; all where there are none.
        networks: addresses that may connect; all where there are none.
        max_bytes: of one object.
        per_minute: objects from one address.
        connections: at once.
    """

    titles: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    max_bytes: int = 2 * 2**30
    per_minute: int = 600
    connections: int = 10

    def admits(self, address: str) -> bool:
        """Whether an IP address may connect."""
        if not self.networks:
            return True
        found = ipaddress.ip_address(address.split("%")[0])
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in network for network in self.networks)


@dataclass
class Rate:
    """Counts what came from each address during the last minute."""

    most: int
    _came: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def allows(self, address: str) -> bool:
        """Counts one more, unless that is too many."""
        now = time.monotonic()
        with self._lock:
            for other in [other for other, times in self._came.items() if not times or times[-1] < now - PER_S]:
                del self._came[other]
            times = self._came[address]
            while times and times[0] < now - PER_S:
                times.popleft()
            if len(times) >= self.most:
                return False
            times.append(now)
            return True


def networks(names: tuple[str, ...]) -> tuple[Network, ...]:
    """Addresses and networks such as 10.1.2.3, 10.1.0.0/16, fd00::/8.

    Raises:
        UsdehazeError: one that is none.
    """
    try:
        return tuple(ipaddress.ip_network(name, strict=False) for name in names)
    except ValueError:
        raise UsdehazeError(
            f"no address or network among {', '.join(names)}; expected 10.1.2.3 or 10.1.0.0/16"
        ) from None


def is_loopback(address: str) -> bool:
    """Whether an address to listen at can be reached from this machine alone."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def tls_context(
    *, server: bool, certificate: Path | None, key: Path | None, authority: Path | None
) -> ssl.SSLContext | None:
    """TLS 1.2 or newer, both sides with certificates where an authority is named; None where nothing is.

    Raises:
        InputError: a file that cannot be used.
    """
    if certificate is None and authority is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        if authority is not None:
            context.load_verify_locations(authority)
            context.verify_mode = ssl.CERT_REQUIRED
        elif not server:
            context.load_default_certs()
    except (OSError, ssl.SSLError) as error:
        named = certificate if certificate is not None else authority
        raise InputError(named, f"cannot be used for TLS ({type(error).__name__})", "PEM files") from None
    return context
