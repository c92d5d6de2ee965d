"""The transport below a stream: a TCP connection to the other TGen (tgen-transport.c).

A transport neither waits nor transfers bytes. Its stream does this, reports events to the transport
and sends the bytes that it returns. Behind a proxy it is a `SocksTransport` (socks.py).
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from .options import Peer
from .states import TransportFault, TransportState

if TYPE_CHECKING:
    from .log_lines import Line


class Address:
    """A peer in TGen's notation: name, address, port. The address may be set later."""

    __slots__ = ("address", "name", "port")

    def __init__(self, name: str | None, address: str | None, port: int) -> None:
        self.name = name
        self.address = address
        self.port = port

    @classmethod
    def from_peer(cls, peer: Peer) -> Address:
        """Return the unresolved address of a peer in a graph."""
        if peer.name.lower() == "localhost":
            return cls("localhost", "127.0.0.1", peer.port)
        try:
            socket.inet_pton(socket.AF_INET, peer.name)
        except (OSError, ValueError):
            return cls(peer.name, None, peer.port)
        return cls.from_ip(peer.name, peer.port)

    @classmethod
    def from_ip(cls, address: str, port: int) -> Address:
        """Return an address without a name."""
        return cls("localhost" if address == "127.0.0.1" else None, address, port)

    def __str__(self) -> str:
        return f"{self.name or 'NULL'}:{self.address or '0.0.0.0'}:{self.port}"


class HandshakeError(Exception):
    """A proxy's answer that ends the transport; line: TGen's warning about it, if any."""

    def __init__(self, fault: TransportFault, line: Line | None = None) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.line = line


class Transport:
    """A connection without a proxy, which is open when it is established.

    Times are microseconds of the monotonic clock, as in TGen, None if they have not happened.
    """

    proxy: Address | None = None
    proxy_init: int | None = None
    proxy_choice: int | None = None
    proxy_request: int | None = None
    proxy_response: int | None = None

    def __init__(self, sock: socket.socket, remote: Address) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.remote = remote
        self.state = TransportState.CONNECT
        self.fault = TransportFault.NONE
        self.connected_at: int | None = None

    @property
    def local(self) -> Address:
        """The local address, empty if the socket has none."""
        try:
            address, port = self.sock.getsockname()[:2]
        except OSError:
            return Address(None, None, 0)
        return Address.from_ip(address, port)

    @property
    def greeting(self) -> bytes:
        """The first message on an established connection; if empty, the transport is then open."""
        return b""

    def connected(self, now_us: int) -> None:
        """Record that the connection is established."""
        self.connected_at = now_us
        self.state = TransportState.OPEN

    def received(self, buffer: bytearray, now_us: int) -> bytes:
        """Remove the proxy's answer from the buffer. Return the next message to the proxy.

        The message is empty if there is none. Raises HandshakeError.
        """
        return b""

    def message_sent(self, now_us: int) -> bool:
        """Record that a whole message was sent. Return whether it was a message to the proxy."""
        return False

    def fail(self, fault: TransportFault) -> None:
        """End with an error."""
        self.state = TransportState.ERROR
        self.fault = fault
