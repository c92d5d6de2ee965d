"""The transport below a stream: a TCP connection to the other TGen (tgen-transport.c).

A transport neither waits nor moves bytes. Its stream does, tells it what happened, and sends what
it returns. With a proxy in between it is a `SocksTransport` (socks.py).
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from .options import Peer
from .states import TransportFault, TransportState

if TYPE_CHECKING:
    from .log_lines import Line


class Address:
    """A peer as TGen prints it: name, address, port. The address may come later."""

    __slots__ = ("address", "name", "port")

    def __init__(self, name: str | None, address: str | None, port: int) -> None:
        self.name = name
        self.address = address
        self.port = port

    @classmethod
    def of_peer(cls, peer: Peer) -> Address:
        """Return the address of a peer named in a graph, not looked up yet."""
        if peer.name.lower() == "localhost":
            return cls("localhost", "127.0.0.1", peer.port)
        try:
            socket.inet_pton(socket.AF_INET, peer.name)
        except (OSError, ValueError):
            return cls(peer.name, None, peer.port)
        return cls.of_ip(peer.name, peer.port)

    @classmethod
    def of_ip(cls, address: str, port: int) -> Address:
        """Return an address that was never a name."""
        return cls("localhost" if address == "127.0.0.1" else None, address, port)

    def __str__(self) -> str:
        return f"{self.name or 'NULL'}:{self.address or '0.0.0.0'}:{self.port}"


class HandshakeError(Exception):
    """A proxy's answer that ends the transport; line: TGen's warning about it, if it has one."""

    def __init__(self, fault: TransportFault, line: Line | None = None) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.line = line


class Transport:
    """A connection without a proxy: open once it is there.

    Times are microseconds of the monotonic clock, as in TGen; None: has not happened.
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
        """This end of the connection; nowhere where the socket has none."""
        try:
            address, port = self.sock.getsockname()[:2]
        except OSError:
            return Address(None, None, 0)
        return Address.of_ip(address, port)

    @property
    def greeting(self) -> bytes:
        """What is sent as soon as the connection is there; empty: nothing, it is open then."""
        return b""

    def connected(self, now_us: int) -> None:
        """Take note that the connection is there."""
        self.connected_at = now_us
        self.state = TransportState.OPEN

    def received(self, buffer: bytearray, now_us: int) -> bytes:
        """Take the proxy's answer from the buffer; return what to send to the proxy next.

        Empty: nothing now. Raises HandshakeError.
        """
        return b""

    def message_sent(self, now_us: int) -> bool:
        """Take note that a whole message has gone out; whether it was one to the proxy."""
        return False

    def fail(self, fault: TransportFault) -> None:
        """End in an error."""
        self.state = TransportState.ERROR
        self.fault = fault
