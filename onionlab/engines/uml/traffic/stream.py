"""One stream: a TCP connection, SOCKS5 through a proxy where there is one, then TGen's protocol.

The states, the times and the errors are those of tgen-transport.c and tgen-stream.c; a stream's end
is one line of log that shows them all. Three things are done in fewer system calls than in TGen:

- Payload is discarded in the kernel (MSG_TRUNC) and not summed up, unless asked for.
- Between the first and the last byte of a payload the socket wakes the process only when a good
  piece has arrived (SO_RCVLOWAT). What is there is read in any case at each heartbeat, so that the
  counts of a heartbeat are right.
- A server offers the kernel more than TGen's 32 KiB at once.

Messages are sent in the same pieces as by TGen, since a proxy may pack each piece into cells of
its own.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import select
import socket
import struct
from typing import TYPE_CHECKING, Protocol

from . import wire
from .options import Peer

if TYPE_CHECKING:
    from .graph import Stream as StreamOptions
    from .log import TgenLog

__all__ = ["Address", "Owner", "Stream"]

READ_BYTES = 1 << 16
SEND_BYTES = 1 << 18
STATUS_SEND_BYTES = 1 << 15
DISCARD_BYTES = 1 << 24
MAX_LINE_BYTES = 1 << 16

_TRUNC = getattr(socket, "MSG_TRUNC", 0)
_DONTWAIT = socket.MSG_DONTWAIT
_HANGUP = select.EPOLLHUP | select.EPOLLERR
_TO_THE_END = _HANGUP | select.EPOLLRDHUP
_READABLE = select.EPOLLIN | _TO_THE_END

# Never touched by the kernel when it truncates, so these are pages that do not exist.
_DISCARD = memoryview(bytearray(DISCARD_BYTES))
_PAYLOAD = memoryview(wire.PAYLOAD_LETTER * SEND_BYTES)

_TCP_INFO_LAST_DATA_RECV = struct.Struct("52xI")

_SOCKS_STATUS = {
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


class Owner(Protocol):
    """The host that a stream belongs to."""

    name: str
    log: TgenLog
    verify_payload: bool
    low_water_bytes: int
    wants_info: bool

    @property
    def now_us(self) -> int:
        """Current time of the monotonic clock."""

    def count_bytes(self, read: int, written: int) -> None:
        """Take note of bytes for the next heartbeat."""

    def want_writable(self, stream: Stream) -> None:
        """Tell the stream when its socket can be written to again."""

    def resolve(self, name: str) -> str | None:
        """Return the IPv4 address of a name."""

    def stream_ended(self, stream: Stream) -> None:
        """The stream is over and its socket can be closed."""


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


class Stream:
    """A stream in progress. `on_event` takes what epoll says about its socket (edge-triggered)."""

    def __init__(
        self,
        owner: Owner,
        sock: socket.socket,
        stream_id: int,
        *,
        vertex: str,
        remote: Address,
        options: StreamOptions | None = None,
        proxy: Address | None = None,
        model_seed: int = 0,
        timeout_us: int = 0,
        stallout_us: int = 0,
    ) -> None:
        """options, proxy, model_seed: a client's. timeout_us, stallout_us: 0 for none."""
        self.owner = owner
        self.sock = sock
        self.id = stream_id
        self.vertex = vertex
        self.remote = remote
        self.proxy = proxy
        self.options = options
        self.model_seed = model_seed
        self.timeout_us = timeout_us
        self.stallout_us = stallout_us
        self.fd = sock.fileno()
        self.over = False

        self.transport_state = "CONNECT"
        self.transport_error = "NONE"
        self.send_state = "SEND_COMMAND" if options else "SEND_NONE"
        self.recv_state = "RECV_NONE" if options else "RECV_AUTHENTICATE"
        self.error = "NONE"
        self.peer_name = "(null)"
        # None: the peer asked for nothing at all in that direction.
        self.send_bytes: int | None = options.send_bytes if options else 0
        self.recv_bytes: int | None = options.recv_bytes if options else 0

        self.total_recv = self.total_send = 0
        self.payload_recv = self.payload_send = 0
        self.buffer = bytearray()
        self.out: memoryview | None = None
        self.model_left = 0
        self.low_water = 1
        self.digest = hashlib.md5(usedforsecurity=False) if owner.verify_payload else None

        # Microseconds of the monotonic clock, as in TGen; None: has not happened.
        self.started = owner.now_us
        self.connected: int | None = None
        self.proxy_init: int | None = None
        self.proxy_choice: int | None = None
        self.proxy_request: int | None = None
        self.proxy_response: int | None = None
        self.command_at: int | None = None
        self.response_at: int | None = None
        self.first_recv: int | None = None
        self.last_recv: int | None = None
        self.checksum_recv: int | None = None
        self.first_send: int | None = None
        self.last_send: int | None = None
        self.checksum_send: int | None = None
        self.progress: int | None = None
        # The times before a read that happened because of a heartbeat, not of an arrival.
        self.before_drain: tuple[int | None, int | None] | None = None

    # --- events

    def begin(self) -> None:
        """Go on as far as possible after connect() or accept(), without waiting for an event."""
        if self.options is None:
            self._connected()
        elif self.proxy is not None:
            # Over loopback a connection is there at once; if not, this says "try again".
            self._writable()

    def on_event(self, events: int) -> None:
        """React to epoll's events of the socket."""
        if self.transport_state == "CONNECT":
            if events & _HANGUP:
                self._fail_transport("CONNECT")
            elif events & select.EPOLLOUT:
                self._connected()
                self._writable()
            return
        if events & _READABLE:
            self._readable(to_the_end=bool(events & _TO_THE_END))
        if not self.over and events & (select.EPOLLOUT | _HANGUP):
            self._writable()
            # A peer may have answered before it was asked; no event will say so again.
            self._process()
        if not self.over and events & _HANGUP:
            if self.recv_state != "RECV_NONE":
                self.recv_state = "RECV_ERROR"
            self._fail("MISC")

    def drain(self) -> None:
        """Count what has arrived without being worth a wake-up."""
        if self.low_water > 1 and self.recv_state == "RECV_PAYLOAD":
            before = self.before_drain or (self.last_recv, self.progress)
            bytes_before = self.payload_recv
            self._readable(to_the_end=False)
            if self.payload_recv > bytes_before and self.recv_state == "RECV_PAYLOAD":
                self.before_drain = before

    def check_timeouts(self) -> None:
        """End the stream if it is too old, or stalled; TGen looks at each heartbeat."""
        if self.over:
            return
        now = self.owner.now_us
        too_old = 0 < self.timeout_us <= now - self.started
        if self.transport_state == "CONNECT":
            if 0 < self.stallout_us <= now - self.started:
                self.transport_error = "STALLOUT"
            elif too_old:
                self.transport_error = "TIMEOUT"
            else:
                return
            self._fail("PROXY")
            return
        if self.stallout_us > 0 and self.progress is not None:
            since = self.progress
            if self.before_drain and self.before_drain[1] is not None:
                since = self.before_drain[1]
            if now - since >= self.stallout_us:
                self._correct_drained_times()
                if now - self.progress >= self.stallout_us:
                    self._fail("STALLOUT")
                    return
        if too_old:
            self._fail("TIMEOUT")

    # --- reading

    def _readable(self, *, to_the_end: bool) -> None:
        while not self.over:
            discard = self.recv_state == "RECV_PAYLOAD" and not self.buffer and self.digest is None
            try:
                if discard:
                    assert self.recv_bytes is not None
                    wanted = min(
                        self.recv_bytes - self.payload_recv,
                        READ_BYTES if self.owner.wants_info else DISCARD_BYTES,
                    )
                    got = self.sock.recv_into(_DISCARD, wanted, _DONTWAIT | _TRUNC)
                else:
                    wanted = READ_BYTES
                    data = self.sock.recv(wanted, _DONTWAIT)
                    got = len(data)
                    self.buffer += data
            except BlockingIOError:
                return
            except OSError as error:
                self._read_failed(error)
                return
            if got == 0:
                self._end_of_file()
                return
            self.owner.count_bytes(got, 0)
            if self.transport_state == "SUCCESS_OPEN":
                self.total_recv += got
            self.progress = self.owner.now_us
            self.before_drain = None
            if discard:
                self._payload(got)
            self._process()
            if got < wanted and not to_the_end:
                return

    def _payload(self, count: int) -> None:
        now = self.owner.now_us
        if self.payload_recv == 0:
            self.first_recv = now
        self.last_recv = now
        self.payload_recv += count
        assert self.recv_bytes is not None
        left = self.recv_bytes - self.payload_recv
        if left == 0:
            self.recv_state = "RECV_CHECKSUM"
        elif self.owner.wants_info:
            self._log_status()
        self._set_low_water(left)

    def _set_low_water(self, left: int) -> None:
        """Ask to be woken when the rest of the payload or a good piece of it is there."""
        wanted = max(1, min(left, self.owner.low_water_bytes))
        if wanted != self.low_water:
            self.low_water = wanted
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

    def _process(self) -> None:
        """Go through the states as far as the bytes at hand allow."""
        while not self.over:
            before = self.recv_state, self.transport_state, len(self.buffer)
            if self.transport_state != "SUCCESS_OPEN":
                self._process_socks()
            elif self.recv_state == "RECV_AUTHENTICATE":
                self._process_password()
            elif self.recv_state == "RECV_HEADER":
                self._process_header()
            elif self.recv_state == "RECV_MODEL":
                self._process_model()
            elif self.recv_state == "RECV_PAYLOAD":
                self._process_payload()
            elif self.recv_state == "RECV_CHECKSUM":
                self._process_checksum()
            elif self.recv_state == "RECV_FOOTER":
                self._process_footer()
            if before == (self.recv_state, self.transport_state, len(self.buffer)):
                break

    def _take(self, count: int) -> bytes | None:
        if len(self.buffer) < count:
            return None
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    def _line(self) -> bytes | None:
        end = self.buffer.find(b"\n", 0, MAX_LINE_BYTES)
        if end < 0:
            if len(self.buffer) >= MAX_LINE_BYTES:
                self.recv_state = "RECV_ERROR"
                self._fail("HEADER")
            return None
        line = self._take(end + 1)
        assert line is not None
        return line[:-1]

    def _process_password(self) -> None:
        at_hand = bytes(self.buffer[: len(wire.AUTH_BYTES)])
        password = wire.AUTH_BYTES[:-1]
        if at_hand[: len(password)] != password[: len(at_hand)]:
            self.recv_state = "RECV_ERROR"
            self._fail("AUTH")
        elif len(at_hand) == len(wire.AUTH_BYTES):
            del self.buffer[: len(at_hand)]
            self.recv_state = "RECV_HEADER"

    def _process_header(self) -> None:
        line = self._line()
        if line is None:
            return
        try:
            if self.options is not None:
                self.peer_name = wire.parse_response(line)
                self.response_at = self.owner.now_us
                self._expect_payload()
                return
            asked = wire.parse_command(line)
        except wire.HeaderError as error:
            if self.options is None:
                self._refuse(error.code)
            else:
                self.recv_state, self.send_state = "RECV_ERROR", "SEND_SUCCESS"
                self._fail(error.code)
            return
        self.peer_name = asked.hostname
        self.vertex = f"{self.vertex}:{asked.transfer_id}"
        self.recv_bytes, self.send_bytes = asked.receive_bytes, asked.send_bytes
        if asked.model_name != wire.MODEL_NAME or 0 in (asked.receive_bytes, asked.send_bytes):
            self.owner.log.critical(
                "[tgen-stream.c:933] [_tgenstream_readModel]",
                f"We received model '{asked.model_name}', but only '{wire.MODEL_NAME}' with fixed "
                "sizes is supported",
            )
            self._refuse("MODEL")
            return
        self.model_left = asked.model_bytes
        self.recv_state = "RECV_MODEL"
        self._process_model()

    def _refuse(self, code: str) -> None:
        """Tell the client what is wrong with its command, if that can be done at once, and end."""
        self.recv_state, self.send_state = "RECV_ERROR", "SEND_RESPONSE"
        with contextlib.suppress(OSError):
            self._count_sent(self.sock.send(wire.response(self.owner.name, code), _DONTWAIT))
            self.response_at = self.owner.now_us
            self.send_state = "SEND_SUCCESS"
        self._fail(code)

    def _process_model(self) -> None:
        if self.model_left and self._take(self.model_left) is None:
            return
        if self.model_left:
            self.command_at = self.owner.now_us
        self.model_left = 0
        self.send_state = "SEND_RESPONSE"
        self.out = memoryview(wire.response(self.owner.name))
        self._expect_payload()
        self._writable()

    def _expect_payload(self) -> None:
        self.recv_state = "RECV_PAYLOAD" if self.recv_bytes else "RECV_FOOTER"

    def _process_payload(self) -> None:
        assert self.recv_bytes is not None
        count = min(len(self.buffer), self.recv_bytes - self.payload_recv)
        if count:
            taken = self._take(count)
            if self.digest is not None and taken is not None:
                self.digest.update(taken)
            self._payload(count)

    def _process_checksum(self) -> None:
        line = self._line()
        if line is None:
            return
        self.checksum_recv = self.owner.now_us
        _, space, received = line.partition(b" ")
        received_sum = received[:32].decode("ascii", "replace").lower()
        computed = self.digest.hexdigest() if self.digest is not None else received_sum
        if space and received_sum == computed and len(received_sum) == 32:
            self.recv_state = "RECV_FOOTER"
            self._writable()
            return
        self.owner.log.message(
            "[tgen-stream.c:1038] [_tgenstream_readChecksum]",
            f"MD5 checksums failed: computed={computed} received={received_sum}",
        )
        self.recv_state = "RECV_ERROR"
        self._fail("CHECKSUM")

    def _process_footer(self) -> None:
        line = self._line()
        if line is None:
            return
        if line[:3].upper() == b"FIN":
            self.recv_state = "RECV_SUCCESS"
            self._writable()
            self._check_success()
            return
        self.owner.log.message(
            "[tgen-stream.c:1078] [_tgenstream_readFooter]",
            f"transport {self.transport_text()} stream {self.stream_text()} received malformed "
            "FIN, graceful shutdown failed.",
        )
        self.recv_state = "RECV_ERROR"
        self._fail("FOOTER")

    def _end_of_file(self) -> None:
        if self.transport_state != "SUCCESS_OPEN":
            self._fail_transport("READ")
            return
        self.transport_state = "SUCCESS_EOF"
        self.owner.log.critical(
            "[tgen-stream.c:492] [_tgenstream_read]",
            f"read(): transport {self.transport_text()} stream {self.stream_text()} closed "
            "unexpectedly",
        )
        self.recv_state = "RECV_ERROR"
        self._fail("READEOF")

    def _read_failed(self, error: OSError) -> None:
        if self.transport_state != "SUCCESS_OPEN":
            self._fail_transport("READ")
            return
        self.transport_state, self.transport_error = "ERROR", "READ"
        self.recv_state, self.error = "RECV_ERROR", "READ"
        self.owner.log.critical(
            "[tgen-stream.c:483] [_tgenstream_read]",
            f"read(): transport {self.transport_text()} stream {self.stream_text()} "
            f"{_os_error(error)}",
        )
        # A server is busy writing when a connection breaks: TGen then tries, and that error stays.
        if self.send_state in ("SEND_RESPONSE", "SEND_PAYLOAD", "SEND_CHECKSUM"):
            self._writable()
        if not self.over:
            self._fail("READ")

    # --- SOCKS5

    def _process_socks(self) -> None:
        state = self.transport_state
        if state == "CHOICE":
            self._socks_choice()
        elif state == "AUTH_RESPONSE":
            self._socks_auth_response()
        elif state == "RESPONSE_STATUS":
            self._socks_status()
        elif state == "RESPONSE_TYPE":
            self._socks_type()
        elif state == "RESPONSE_IPV4":
            if self._take(6) is not None:
                self._socks_done()
        elif (
            state == "RESPONSE_NAMELEN"
            and self.buffer
            and self._take(self.buffer[0] + 3) is not None
        ):
            self._socks_done()

    @property
    def _authenticates(self) -> bool:
        assert self.options is not None
        return self.options.username is not None or self.options.password is not None

    def _socks_choice(self) -> None:
        answer = self._take(2)
        if answer is None:
            return
        self.proxy_choice = self.owner.now_us
        if answer != (b"\x05\x02" if self._authenticates else b"\x05\x00"):
            self._fail_transport("CHOICE")
        elif self._authenticates:
            assert self.options is not None
            # Without one of the two TGen sends a single NUL in its place.
            user = _at_most_255(self.options.username)
            password = _at_most_255(self.options.password)
            self.transport_state = "AUTH_REQUEST"
            self._send_message(
                b"\x01" + bytes([len(user)]) + user + bytes([len(password)]) + password
            )
        else:
            self._socks_request()

    def _socks_auth_response(self) -> None:
        answer = self._take(2)
        if answer is None:
            return
        assert self.options is not None
        if answer[0] != 1:
            self.owner.log.warning(
                "[tgen-transport.c:769] [_tgentransport_receiveSocksAuth]",
                f"socks server {self.proxy} returned unexpected version {answer[0]}",
            )
            self._fail_transport("VERSION")
        elif answer[1] != 0:
            self.owner.log.warning(
                "[tgen-transport.c:777] [_tgentransport_receiveSocksAuth]",
                f"socks server {self.proxy} authentication failed with "
                f"username='{self.options.username or ''}' and "
                f"password='{self.options.password or ''}'",
            )
            self._fail_transport("AUTH")
        else:
            self._socks_request()

    def _socks_request(self) -> None:
        self.transport_state = "REQUEST"
        name, port = self.remote.name, struct.pack("!H", self.remote.port)
        if name is not None and name.endswith(".onion"):
            host = _at_most_255(name)
            target = b"\x03" + bytes([len(host)]) + host
        else:
            if self.remote.address is None and name is not None:
                self.remote.address = self.owner.resolve(name)
            # TGen asks for 0.0.0.0 when it cannot resolve a name; the proxy then refuses.
            target = b"\x01" + socket.inet_aton(self.remote.address or "0.0.0.0")
        self._send_message(b"\x05\x01\x00" + target + port)

    def _socks_status(self) -> None:
        answer = self._take(2)
        if answer is None:
            return
        version, status = answer
        if version == 5 and status == 0:
            self.transport_state = "RESPONSE_TYPE"
            return
        reason = (
            f"our request was not granted by the SOCKS server: error status {status:X}: "
            + _SOCKS_STATUS.get(status, "unknown error")
            if version == 5
            else f"we support version 5 but the SOCKS server wants version {version:X}"
        )
        self.owner.log.warning(
            "[tgen-transport.c:1160] [_tgentransport_receiveSocksResponseStatus]",
            f"connection from {self._local()} through socks proxy {self.proxy} to {self.remote} "
            f"failed: {reason}",
        )
        self._fail_transport("STATUS" if version == 5 else "VERSION")

    def _socks_type(self) -> None:
        answer = self._take(2)
        if answer is None:
            return
        if answer[1] == 1:
            self.transport_state = "RESPONSE_IPV4"
        elif answer[1] == 3:
            self.transport_state = "RESPONSE_NAMELEN"
        else:
            self.owner.log.warning(
                "[tgen-transport.c:1016] [_tgentransport_receiveSocksResponseType]",
                f"connection from {self._local()} through socks proxy {self.proxy} to "
                f"{self.remote} failed: unsupported address type 0x{answer[1]:X}",
            )
            self._fail_transport("ADDR")

    def _socks_done(self) -> None:
        self.proxy_response = self.owner.now_us
        self.total_recv = len(self.buffer)
        self._open()

    def _fail_transport(self, error: str) -> None:
        self.transport_state, self.transport_error = "ERROR", error
        self.owner.log.critical(
            "[tgen-stream.c:1787] [_tgenstream_runTransportEventLoop]",
            "transport connection or proxy handshake failed, stream cannot begin",
        )
        self._fail("PROXY")

    # --- writing

    def _connected(self) -> None:
        self.connected = self.progress = self.owner.now_us
        if self.proxy is not None:
            self.transport_state = "INIT"
            self.out = memoryview(b"\x05\x01\x02" if self._authenticates else b"\x05\x01\x00")
        else:
            self._open()

    def _open(self) -> None:
        """The connection to the other TGen is there: its protocol begins."""
        self.transport_state = "SUCCESS_OPEN"
        self.progress = self.owner.now_us
        if self.options is not None:
            self._send_message(
                wire.command(
                    hostname=self.owner.name,
                    transfer_id=self.vertex,
                    send_bytes=self.options.send_bytes,
                    recv_bytes=self.options.recv_bytes,
                    model_seed=self.model_seed,
                )
            )

    def _send_message(self, message: bytes) -> None:
        self.out = memoryview(message)
        self._writable()

    def _writable(self) -> None:
        """Send as much as the socket takes of what is to be sent."""
        if self.over:
            return
        if self.transport_state == "CONNECT":
            self._try_first_message()
            return
        try:
            while not self.over:
                if self.out is not None:
                    sent = self.sock.send(self.out, _DONTWAIT)
                    self._count_sent(sent)
                    self.out = self.out[sent:]
                    if self.out:
                        self.owner.want_writable(self)
                        return
                    self.out = None
                    self._message_sent()
                elif self.send_state == "SEND_PAYLOAD":
                    if not self._send_payload():
                        return
                elif self.send_state == "SEND_FOOTER":
                    if self.recv_state not in ("RECV_FOOTER", "RECV_SUCCESS"):
                        return
                    self.out = memoryview(wire.FOOTER)
                else:
                    return
        except BlockingIOError:
            self.owner.want_writable(self)
        except OSError as error:
            self._write_failed(error)

    def _try_first_message(self) -> None:
        """Greet the proxy if connect() has succeeded at once, as it does over loopback."""
        greeting = b"\x05\x01\x02" if self._authenticates else b"\x05\x01\x00"
        try:
            sent = self.sock.send(greeting, _DONTWAIT)
        except BlockingIOError:
            self.owner.want_writable(self)
            return
        except OSError:
            self._fail_transport("CONNECT")
            return
        self._connected()
        self._count_sent(sent)
        self.out = memoryview(greeting)[sent:]
        if self.out:
            self.owner.want_writable(self)
        else:
            self.out = None
            self._message_sent()

    def _count_sent(self, sent: int) -> None:
        self.owner.count_bytes(0, sent)
        if self.transport_state == "SUCCESS_OPEN":
            self.total_send += sent
        self.progress = self.owner.now_us

    def _message_sent(self) -> None:
        now = self.owner.now_us
        state = self.transport_state
        if state == "INIT":
            self.transport_state, self.proxy_init = "CHOICE", now
        elif state == "AUTH_REQUEST":
            self.transport_state = "AUTH_RESPONSE"
        elif state == "REQUEST":
            self.transport_state, self.proxy_request = "RESPONSE_STATUS", now
        elif self.send_state == "SEND_COMMAND":
            self.command_at = now
            self.recv_state, self.send_state = "RECV_AUTHENTICATE", "SEND_PAYLOAD"
        elif self.send_state == "SEND_RESPONSE":
            self.response_at = now
            self.send_state = "SEND_PAYLOAD" if self.send_bytes else "SEND_FOOTER"
        elif self.send_state == "SEND_CHECKSUM":
            self.checksum_send = now
            self.send_state = "SEND_FOOTER"
        elif self.send_state == "SEND_FOOTER":
            self.send_state = "SEND_SUCCESS"
            self._check_success()

    def _send_payload(self) -> bool:
        """Send a piece of payload; False when the socket is full."""
        assert self.send_bytes is not None
        at_once = STATUS_SEND_BYTES if self.owner.wants_info else SEND_BYTES
        wanted = min(self.send_bytes - self.payload_send, at_once)
        sent = self.sock.send(_PAYLOAD[:wanted], _DONTWAIT)
        self._count_sent(sent)
        now = self.owner.now_us
        if self.payload_send == 0:
            self.first_send = now
        self.last_send = now
        self.payload_send += sent
        if self.owner.wants_info:
            self._log_status()
        if self.payload_send == self.send_bytes:
            self.send_state = "SEND_CHECKSUM"
            self.out = memoryview(wire.checksum_line(self.send_bytes))
        if sent < wanted:
            self.owner.want_writable(self)
            return False
        return True

    def _write_failed(self, error: OSError) -> None:
        if self.transport_state != "SUCCESS_OPEN" and self.error == "NONE":
            self._fail_transport("WRITE")
            return
        self.transport_state, self.transport_error = "ERROR", "WRITE"
        self.send_state, self.error = "SEND_ERROR", "WRITE"
        self.owner.log.critical(
            "[tgen-stream.c:1186] [_tgenstream_flushOut]",
            f"write(): transport {self.transport_text()} stream {self.stream_text()} "
            f"{_os_error(error)}",
        )
        self._fail("WRITE")

    # --- the end

    def _check_success(self) -> None:
        if self.recv_state == "RECV_SUCCESS" and self.send_state == "SEND_SUCCESS":
            self._finish()

    def _fail(self, error: str) -> None:
        self.error = error
        self._finish()

    def _finish(self) -> None:
        if self.over:
            return
        self.over = True
        if self.error != "NONE":
            self._correct_drained_times()
        kind, line = ("success", 1738) if self.error == "NONE" else ("error", 1721)
        self.owner.log.message(
            f"[tgen-stream.c:{line}] [_tgenstream_log]",
            f"[stream-{kind}] transport {self.transport_text()} stream {self.stream_text()} "
            f"bytes {self._bytes_text()} times {self._times_text()}",
        )
        self.owner.stream_ended(self)

    def _correct_drained_times(self) -> None:
        """Ask the kernel when the last bytes came, where a heartbeat found them waiting."""
        if self.before_drain is None:
            return
        last_recv, progress = self.before_drain
        self.before_drain = None
        info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        (ago_ms,) = _TCP_INFO_LAST_DATA_RECV.unpack_from(info)
        arrived = self.owner.now_us - ago_ms * 1000
        if self.last_recv is not None:
            self.last_recv = max(last_recv or 0, min(self.last_recv, arrived))
        if self.progress is not None:
            self.progress = max(progress or 0, min(self.progress, arrived))

    # --- texts of the log

    def _local(self) -> Address:
        try:
            address, port = self.sock.getsockname()[:2]
        except OSError:
            return Address(None, None, 0)
        return Address.of_ip(address, port)

    def transport_text(self) -> str:
        """Return the transport as TGen prints it."""
        return (
            f"[fd={self.fd},local={self._local()},proxy={self.proxy or 'NULL:0.0.0.0:0'},"
            f"remote={self.remote},state={self.transport_state},error={self.transport_error}]"
        )

    def stream_text(self) -> str:
        """Return the stream as TGen prints it."""
        return (
            f"[id={self.id},vertexid={self.vertex},name={self.owner.name},"
            f"peername={self.peer_name},sendsize={self.send_bytes or 0},"
            f"recvsize={self.recv_bytes or 0},sendstate={self.send_state},"
            f"recvstate={self.recv_state},error={self.error}]"
        )

    def _bytes_text(self) -> str:
        return (
            f"[total-bytes-recv={self.total_recv},total-bytes-send={self.total_send},"
            f"payload-bytes-recv={self.payload_recv},payload-bytes-send={self.payload_send},"
            f"payload-progress-recv="
            f"{_progress(self.payload_recv, self.recv_bytes, self.recv_state == 'RECV_SUCCESS')},"
            f"payload-progress-send="
            f"{_progress(self.payload_send, self.send_bytes, self.send_state == 'SEND_SUCCESS')}]"
        )

    def _times_text(self) -> str:
        since = self._since_start
        return (
            f"[created-ts={self.started},usecs-to-socket-create=0,"
            f"usecs-to-socket-connect={since(self.connected)},"
            f"usecs-to-proxy-init={since(self.proxy_init)},"
            f"usecs-to-proxy-choice={since(self.proxy_choice)},"
            f"usecs-to-proxy-request={since(self.proxy_request)},"
            f"usecs-to-proxy-response={since(self.proxy_response)},"
            f"usecs-to-command={since(self.command_at)},"
            f"usecs-to-response={since(self.response_at)},"
            f"usecs-to-first-byte-recv={since(self.first_recv)},"
            f"usecs-to-last-byte-recv={since(self.last_recv)},"
            f"usecs-to-checksum-recv={since(self.checksum_recv)},"
            f"usecs-to-first-byte-send={since(self.first_send)},"
            f"usecs-to-last-byte-send={since(self.last_send)},"
            f"usecs-to-checksum-send={since(self.checksum_send)},now-ts={self.owner.now_us}]"
        )

    def _since_start(self, time_us: int | None) -> int:
        return -1 if time_us is None else time_us - self.started

    def _log_status(self) -> None:
        self.owner.log.info(
            "[tgen-stream.c:1754] [_tgenstream_log]",
            f"[stream-status] transport {self.transport_text()} stream {self.stream_text()} "
            f"bytes {self._bytes_text()}",
        )


def _progress(done: int, whole: int | None, succeeded: bool) -> str:
    if whole:
        return f"{done / whole * 100:.2f}%"
    return "100.00%" if succeeded or whole is None else "?"


def _at_most_255(text: str | None) -> bytes:
    return b"\x00" if text is None else text.encode()[:255]


def _os_error(error: OSError) -> str:
    number = error.errno or errno.EIO
    return f"error {number}: {os.strerror(number)}"
