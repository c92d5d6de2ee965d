"""TGen's SOCKS5 client (RFC 1928, RFC 1929; tgen-transport.c): an optional login, then CONNECT.

Each message is sent completely before its answer is parsed, and each field of an answer has its own
state: TGen's log contains the state that a stream ended in.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from . import log_lines
from .states import TransportFault, TransportState
from .transport import Address, HandshakeError, Transport

_VERSION = 5
_LOGIN_VERSION = 1
_NO_LOGIN, _LOGIN = 0, 2
_CONNECT, _RESERVED = 1, 0
_IPV4, _NAME = 1, 3
_GRANTED = 0

_IPV4_AND_PORT_BYTES = 4 + 2
_PORT_BYTES = 2
_MAX_NAME_BYTES = 255


class SocksTransport(Transport):
    """A connection through a proxy, which is open when the proxy has granted it.

    username, password: a login is performed if one of them is given. resolve: returns the IPv4
    address of a name, or None if it has none.
    """

    proxy: Address

    def __init__(
        self,
        sock: socket.socket,
        remote: Address,
        proxy: Address,
        *,
        username: str | None,
        password: str | None,
        resolve: Callable[[str], str | None],
    ) -> None:
        super().__init__(sock, remote)
        self.proxy = proxy
        self.username = username
        self.password = password
        self._resolve = resolve
        self._method = _NO_LOGIN if username is None and password is None else _LOGIN

    @property
    def greeting(self) -> bytes:
        """The greeting, which offers a single method."""
        return bytes([_VERSION, 1, self._method])

    def connected(self, now_us: int) -> None:
        """Record that the connection to the proxy is established. The greeting is sent next."""
        self.connected_at = now_us
        self.state = TransportState.INIT

    def message_sent(self, now_us: int) -> bool:
        """Record that a whole message was sent. Return whether it was a message to the proxy."""
        if self.state is TransportState.INIT:
            self.state, self.proxy_init = TransportState.CHOICE, now_us
        elif self.state is TransportState.AUTH_REQUEST:
            self.state = TransportState.AUTH_RESPONSE
        elif self.state is TransportState.REQUEST:
            self.state, self.proxy_request = TransportState.RESPONSE_STATUS, now_us
        else:
            return False
        return True

    def received(self, buffer: bytearray, now_us: int) -> bytes:
        """Remove a complete answer of the proxy from the buffer. Return the next message to send.

        Raises HandshakeError.
        """
        take_answer = _ANSWERS.get(self.state)
        return b"" if take_answer is None else take_answer(self, buffer, now_us)

    def _choice(self, buffer: bytearray, now_us: int) -> bytes:
        answer = _take(buffer, 2)
        if not answer:
            return b""
        self.proxy_choice = now_us
        if answer != bytes([_VERSION, self._method]):
            raise HandshakeError(TransportFault.CHOICE)
        return self._request() if self._method == _NO_LOGIN else self._login()

    def _login(self) -> bytes:
        self.state = TransportState.AUTH_REQUEST
        # If one of the two is missing, TGen sends a single NUL in its place.
        user, password = (
            b"\x00" if text is None else _at_most_255(text)
            for text in (self.username, self.password)
        )
        return bytes([_LOGIN_VERSION, len(user)]) + user + bytes([len(password)]) + password

    def _login_answer(self, buffer: bytearray, now_us: int) -> bytes:
        answer = _take(buffer, 2)
        if not answer:
            return b""
        version, status = answer
        if version != _LOGIN_VERSION:
            raise HandshakeError(
                TransportFault.VERSION, log_lines.proxy_login_version(self.proxy, version)
            )
        if status != _GRANTED:
            raise HandshakeError(
                TransportFault.AUTH,
                log_lines.proxy_login_failed(self.proxy, self.username, self.password),
            )
        return self._request()

    def _request(self) -> bytes:
        self.state = TransportState.REQUEST
        name, address = self.remote.name, self.remote.address
        if name is not None and name.endswith(".onion"):
            host = _at_most_255(name)
            target = bytes([_NAME, len(host)]) + host
        else:
            if address is None and name is not None:
                address = self.remote.address = self._resolve(name)
            # TGen requests 0.0.0.0 if it cannot resolve a name. The proxy then refuses the request.
            target = bytes([_IPV4]) + socket.inet_aton(address or "0.0.0.0")
        port = struct.pack("!H", self.remote.port)
        return bytes([_VERSION, _CONNECT, _RESERVED]) + target + port

    def _status(self, buffer: bytearray, now_us: int) -> bytes:
        answer = _take(buffer, 2)
        if not answer:
            return b""
        version, status = answer
        if version != _VERSION:
            raise HandshakeError(TransportFault.VERSION, log_lines.proxy_version(self, version))
        if status != _GRANTED:
            raise HandshakeError(TransportFault.STATUS, log_lines.proxy_refused(self, status))
        self.state = TransportState.RESPONSE_TYPE
        return b""

    def _type(self, buffer: bytearray, now_us: int) -> bytes:
        answer = _take(buffer, 2)
        if not answer:
            return b""
        kind = answer[1]
        if kind == _IPV4:
            self.state = TransportState.RESPONSE_IPV4
        elif kind == _NAME:
            self.state = TransportState.RESPONSE_NAMELEN
        else:
            raise HandshakeError(TransportFault.ADDRESS, log_lines.proxy_address_type(self, kind))
        return b""

    def _bound_address(self, buffer: bytearray, now_us: int) -> bytes:
        if _take(buffer, _IPV4_AND_PORT_BYTES):
            self._opened(now_us)
        return b""

    def _bound_name(self, buffer: bytearray, now_us: int) -> bytes:
        if buffer and _take(buffer, 1 + buffer[0] + _PORT_BYTES):
            self._opened(now_us)
        return b""

    def _opened(self, now_us: int) -> None:
        self.state, self.proxy_response = TransportState.OPEN, now_us


_ANSWERS: dict[TransportState, Callable[[SocksTransport, bytearray, int], bytes]] = {
    TransportState.CHOICE: SocksTransport._choice,
    TransportState.AUTH_RESPONSE: SocksTransport._login_answer,
    TransportState.RESPONSE_STATUS: SocksTransport._status,
    TransportState.RESPONSE_TYPE: SocksTransport._type,
    TransportState.RESPONSE_IPV4: SocksTransport._bound_address,
    TransportState.RESPONSE_NAMELEN: SocksTransport._bound_name,
}


def _take(buffer: bytearray, count: int) -> bytes:
    """Remove the first `count` bytes and return them, or no bytes if there are fewer."""
    if len(buffer) < count:
        return b""
    taken = bytes(buffer[:count])
    del buffer[:count]
    return taken


def _at_most_255(text: str) -> bytes:
    return text.encode()[:_MAX_NAME_BYTES]
