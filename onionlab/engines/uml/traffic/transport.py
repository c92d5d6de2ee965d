"""The transport below a stream (tgen-transport.c): a TCP connection and the handshake with a proxy.

A transport neither waits nor transfers bytes. The stream above it does both, reports events to the
transport, and sends the messages that the transport returns. States and errors have TGen's names.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .options import Peer

TransportState = Literal[
    "CONNECT",
    "INIT",
    "CHOICE",
    "AUTH_REQUEST",
    "AUTH_RESPONSE",
    "REQUEST",
    "RESPONSE_STATUS",
    "RESPONSE_TYPE",
    "RESPONSE_IPV4",
    "RESPONSE_NAMELEN",
    "SUCCESS_OPEN",
    "SUCCESS_EOF",
    "ERROR",
]
"""The state of a connection and of the handshake with its proxy."""


TransportFault = Literal[
    "NONE", "CONNECT", "CHOICE", "AUTH", "STATUS", "ADDR", "READ", "WRITE", "TIMEOUT", "STALLOUT"
]
"""The error of a connection or of the handshake."""


@dataclass(slots=True)
class Address:
    """A peer with name, IPv4 address and port. Its str() is TGen's notation in logs.

    If `address` is None, it may be set later.
    """

    name: str | None
    address: str | None
    port: int

    @classmethod
    def from_peer(cls, peer: Peer) -> Address:
        """Return the address of a peer in a graph. Do not resolve names other than localhost."""
        if peer.name.lower() == "localhost":
            return cls("localhost", "127.0.0.1", peer.port)
        try:
            socket.inet_pton(socket.AF_INET, peer.name)
        except (OSError, ValueError):
            return cls(peer.name, None, peer.port)
        return cls.from_ip(peer.name, peer.port)

    @classmethod
    def from_ip(cls, address: str, port: int) -> Address:
        """Return the Address of an IPv4 address and a port. Only localhost gets a name."""
        return cls("localhost" if address == "127.0.0.1" else None, address, port)

    def __str__(self) -> str:
        return f"{self.name or 'NULL'}:{self.address or '0.0.0.0'}:{self.port}"


class HandshakeError(Exception):
    """A proxy's answer makes the handshake fail.

    warning: empty, or a line of TGen's log: the place in TGen's source and the text.
    """

    def __init__(self, fault: TransportFault, *warning: str) -> None:
        super().__init__(fault)
        self.fault = fault
        self.warning = warning


_VERSION, _LOGIN_VERSION = 5, 1
_NO_LOGIN, _LOGIN = 0, 2
_CONNECT, _RESERVED = 1, 0
_IPV4, _NAME = 1, 3
_GRANTED = 0
_PORT_BYTES = 2

_STATUS = {
    0x01: "general failure",
    0x02: "connection not allowed by ruleset",
    0x03: "network unreachable",
    0x04: "host unreachable",
    0x05: "connection refused by destination host",
    0x06: "TTL expired",
    0x07: "command not supported / protocol error",
    0x08: "address type not supported",
    0xF0: "(tor) onion service descriptor can not be found",
    0xF1: "(tor) onion service descriptor is invalid",
    0xF2: "(tor) onion service introduction failed",
    0xF3: "(tor) onion service rendezvous failed",
    0xF4: "(tor) onion service missing client authorization",
    0xF5: "(tor) onion service wrong client authorization",
    0xF6: "(tor) onion service invalid address",
    0xF7: "(tor) onion service introduction timed out",
}


@dataclass(eq=False)
class Transport:
    """A connection, either direct or through a SOCKS5 proxy (RFC 1928, RFC 1929).

    The state becomes SUCCESS_OPEN when the connection is established and, if there is a proxy, the
    proxy has granted the request. Each message is sent completely before the answer to it is
    parsed. In each state, one part of an answer is parsed.
    Times are microseconds of the monotonic clock, as in TGen. A time is None until its event has
    happened.

    proxy: None for a direct connection. resolve: a function that returns the IPv4 address of a
    name, or None if the name is unknown. username, password: if at least one is given, the client
    logs in at the proxy.
    """

    sock: socket.socket
    remote: Address
    resolve: Callable[[str], str | None]
    proxy: Address | None = None
    username: str | None = None
    password: str | None = None
    state: TransportState = "CONNECT"
    fault: TransportFault = "NONE"
    connected_at: int | None = None
    proxy_init: int | None = None
    proxy_choice: int | None = None
    proxy_request: int | None = None
    proxy_response: int | None = None

    @property
    def local(self) -> Address:
        """The local address. If the socket has no address, the fields are None, None and 0."""
        try:
            address, port = self.sock.getsockname()[:2]
        except OSError:
            return Address(None, None, 0)
        return Address.from_ip(address, port)

    @property
    def _method(self) -> int:
        return _NO_LOGIN if self.username is None and self.password is None else _LOGIN

    @property
    def greeting(self) -> bytes:
        """The first message to the proxy on an established connection; empty without a proxy.

        The message offers a single method of authentication.
        """
        return b"" if self.proxy is None else bytes([_VERSION, 1, self._method])

    def connected(self, now_us: int) -> None:
        """Record that the connection is established. The next message is `greeting`, or none."""
        self.connected_at = now_us
        self.state = "SUCCESS_OPEN" if self.proxy is None else "INIT"

    def fail(self, fault: TransportFault) -> None:
        """Record that the transport has failed."""
        self.state = "ERROR"
        self.fault = fault

    def __str__(self) -> str:
        """Describe the transport as TGen's log does."""
        return (
            f"[fd={self.sock.fileno()},local={self.local},proxy={self.proxy or 'NULL:0.0.0.0:0'},"
            f"remote={self.remote},state={self.state},error={self.fault}]"
        )

    # --- the handshake with the proxy

    def message_sent(self, now_us: int) -> bool:
        """Record that a whole message was sent. Return whether it was a message to the proxy."""
        if self.state == "INIT":
            self.state, self.proxy_init = "CHOICE", now_us
        elif self.state == "AUTH_REQUEST":
            self.state = "AUTH_RESPONSE"
        elif self.state == "REQUEST":
            self.state, self.proxy_request = "RESPONSE_STATUS", now_us
        else:
            return False
        return True

    def received(self, buffer: bytearray, now_us: int) -> bytes:
        """Remove a complete part of the proxy's answer from the buffer. Return the next message.

        Return b"" if there is nothing to send. Raises HandshakeError if the proxy refuses.
        """
        if self.state in ("INIT", "AUTH_REQUEST", "REQUEST"):
            return b""
        size = 2
        if self.state == "RESPONSE_IPV4":
            size = 4 + _PORT_BYTES
        elif self.state == "RESPONSE_NAMELEN":
            size = (1 + buffer[0] + _PORT_BYTES) if buffer else 1
        if len(buffer) < size:
            return b""
        first, second = buffer[:2]
        del buffer[:size]
        if self.state == "CHOICE":
            self.proxy_choice = now_us
            if (first, second) != (_VERSION, self._method):
                raise HandshakeError("CHOICE")
            return self._request() if second == _NO_LOGIN else self._login()
        if self.state == "AUTH_RESPONSE":
            if second != _GRANTED:
                raise HandshakeError(
                    "AUTH",
                    "[tgen-transport.c:777] [_tgentransport_receiveSocksAuth]",
                    f"socks server {self.proxy} authentication failed with "
                    f"username='{self.username or ''}' and password='{self.password or ''}'",
                )
            return self._request()
        if self.state == "RESPONSE_STATUS":
            if second != _GRANTED:
                raise HandshakeError(
                    "STATUS",
                    "[tgen-transport.c:1160] [_tgentransport_receiveSocksResponseStatus]",
                    f"connection from {self.local} through socks proxy {self.proxy} to "
                    f"{self.remote} failed: our request was not granted by the SOCKS server: "
                    f"error status {second:X}: {_STATUS.get(second, 'unknown error')}",
                )
            self.state = "RESPONSE_TYPE"
        elif self.state == "RESPONSE_TYPE":
            if second not in (_IPV4, _NAME):
                raise HandshakeError("ADDR")
            self.state = "RESPONSE_NAMELEN" if second == _NAME else "RESPONSE_IPV4"
        else:
            self.state, self.proxy_response = "SUCCESS_OPEN", now_us
        return b""

    def _login(self) -> bytes:
        self.state = "AUTH_REQUEST"
        # If either the user name or the password is missing, TGen sends a NUL byte in its place.
        user, password = (
            b"\x00" if text is None else _at_most_255(text)
            for text in (self.username, self.password)
        )
        return bytes([_LOGIN_VERSION, len(user)]) + user + bytes([len(password)]) + password

    def _request(self) -> bytes:
        self.state = "REQUEST"
        name, address = self.remote.name, self.remote.address
        if name is not None and name.endswith(".onion"):
            host = _at_most_255(name)
            target = bytes([_NAME, len(host)]) + host
        else:
            if address is None and name is not None:
                address = self.remote.address = self.resolve(name)
            # TGen requests 0.0.0.0 if it cannot resolve a name. The proxy then refuses the request.
            target = bytes([_IPV4]) + socket.inet_aton(address or "0.0.0.0")
        port = struct.pack("!H", self.remote.port)
        return bytes([_VERSION, _CONNECT, _RESERVED]) + target + port


def _at_most_255(text: str) -> bytes:
    return text.encode()[:255]
