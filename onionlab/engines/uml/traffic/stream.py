"""One stream: TGen's protocol over a transport.

The states, times and errors are those of tgen-stream.c. At the end of a stream, one log line
contains them all (log_lines.py). receiving.py handles incoming bytes, sending.py outgoing bytes.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from . import log_lines, wire
from .markov_model import INTERNAL_PACKET_MODEL, Event, MarkovModel, parse_model
from .markov_walk import MarkovWalk
from .packet_schedule import PacketSchedule
from .receiving import Receiving
from .sending import Sending
from .socks import SocksTransport
from .states import ReceiveState, SendState, StreamFault, TransportFault, TransportState
from .transport import Address, HandshakeError, Transport

if TYPE_CHECKING:
    from .action_graph import StreamOptions
    from .log_writer import TgenLogWriter

MAX_LINE_BYTES = 1 << 16

_CONNECT, _OPEN = TransportState.CONNECT, TransportState.OPEN

_DONTWAIT = int(socket.MSG_DONTWAIT)
_HANGUP = select.EPOLLHUP | select.EPOLLERR
_TO_THE_END = _HANGUP | select.EPOLLRDHUP
_READABLE = select.EPOLLIN | _TO_THE_END

_MD5_DIGITS = 32


class StreamContext(Protocol):
    """The interface of the host that a stream belongs to."""

    name: str
    log: TgenLogWriter
    verify_payload: bool
    low_water_bytes: int
    wants_info: bool

    @property
    def now_us(self) -> int:
        """The current time of the monotonic clock."""

    def count_bytes(self, read: int, written: int) -> None:
        """Add bytes to the counters of the next heartbeat."""

    def want_writable(self, stream: Stream) -> None:
        """Notify the stream when its socket is writable again."""

    def resolve(self, name: str) -> str | None:
        """Return the IPv4 address of a name."""

    def call_at(self, time_us: int, callback: Callable[[], None]) -> None:
        """Call back at a time of the monotonic clock."""

    def model_at(self, path: str) -> MarkovModel | None:
        """Return the packet model that a client requests, or None if it does not exist."""

    def stream_ended(self, stream: Stream) -> None:
        """Handle the end of a stream; its socket can be closed."""


class Stream:
    """A stream in progress. `on_event` handles epoll's events of its socket (edge-triggered).

    Times are microseconds of the monotonic clock, as in TGen, None if they have not happened.
    progress: the time of the last byte in either direction.
    """

    def __init__(
        self,
        owner: StreamContext,
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
        """Create a stream. options, proxy, model_seed: of a client; timeouts: 0 for none."""
        self.owner = owner
        self.sock = sock
        self.fd = sock.fileno()
        self.id = stream_id
        self.vertex = vertex
        self.options = options
        self.model_seed = model_seed
        self.timeout_us = timeout_us
        self.stallout_us = stallout_us
        self.over = False
        self.fault = StreamFault.NONE
        self.peer_name = "(null)"
        self.started = owner.now_us
        self.command_at: int | None = None
        self.response_at: int | None = None
        self.progress: int | None = None
        self.transport: Transport
        if options is None:
            self.transport = Transport(sock, remote)
            self.receiving = Receiving(self, ReceiveState.AUTHENTICATE, 0)
            self.sending = Sending(self, SendState.NONE, 0)
        else:
            self.transport = (
                Transport(sock, remote)
                if proxy is None
                else SocksTransport(
                    sock,
                    remote,
                    proxy,
                    username=options.username,
                    password=options.password,
                    resolve=owner.resolve,
                )
            )
            self.receiving = Receiving(self, ReceiveState.NONE, options.recv_bytes)
            self.sending = Sending(self, SendState.COMMAND, options.send_bytes)
            self._follow(options.packet_model, Event.TO_SERVER)
        self._asked: wire.Command | None = None

    def _follow(self, model: MarkovModel, mine: Event) -> None:
        """Send according to a packet model. TGen's own model has no effect if sizes are given."""
        if model is not INTERNAL_PACKET_MODEL or not self.sending.wanted_bytes:
            self.sending.schedule = PacketSchedule(MarkovWalk(model, self.model_seed), mine)

    # --- events

    def begin(self) -> None:
        """Proceed as far as possible after connect() or accept(), without waiting for an event."""
        if self.options is None:
            self._connected()
        elif self.transport.greeting:
            # Over loopback a connection is established immediately; otherwise this raises
            # BlockingIOError.
            self._try_greeting()
        else:
            self.owner.want_writable(self)

    def on_event(self, events: int) -> None:
        """Handle epoll's events of the socket."""
        if self.transport.state is _CONNECT:
            if events & _HANGUP:
                self._fail_transport(TransportFault.CONNECT)
            elif events & select.EPOLLOUT:
                self._connected()
                self.sending.send()
            return
        if events & _READABLE:
            self.receiving.read(to_the_end=bool(events & _TO_THE_END))
        if not self.over and events & (select.EPOLLOUT | _HANGUP):
            if events & _HANGUP:
                self.sending.end_pause()
            self.sending.send()
            # A peer may have answered before the request, and no event will report this again.
            self.process()
        if not self.over and events & _HANGUP:
            if self.receiving.state not in (ReceiveState.NONE, ReceiveState.SUCCESS):
                self.receiving.state = ReceiveState.ERROR
            self._fail(StreamFault.MISC)

    def check_timeouts(self) -> None:
        """End the stream if it is too old or has stalled, which TGen checks at each heartbeat."""
        if self.over:
            return
        now = self.owner.now_us
        age_us = now - self.started
        too_old = 0 < self.timeout_us <= age_us
        if self.transport.state is _CONNECT:
            if 0 < self.stallout_us <= age_us:
                self.transport.fault = TransportFault.STALLOUT
            elif too_old:
                self.transport.fault = TransportFault.TIMEOUT
            else:
                return
            self._fail(StreamFault.PROXY)
        elif self._has_stalled(now):
            self._fail(StreamFault.STALLOUT)
        elif too_old:
            self._fail(StreamFault.TIMEOUT)

    def _has_stalled(self, now_us: int) -> bool:
        if self.stallout_us == 0 or self.progress is None:
            return False
        since = self.progress
        before_drain = self.receiving.before_drain
        if before_drain is not None and before_drain[1] is not None:
            since = before_drain[1]
        if now_us - since < self.stallout_us:
            return False
        self.receiving.correct_drained_times()
        return now_us - self.progress >= self.stallout_us

    # --- the transport

    def _try_greeting(self) -> None:
        """Greet the proxy if connect() has succeeded immediately, as it does over loopback."""
        try:
            sent = self.sock.send(self.transport.greeting, _DONTWAIT)
        except BlockingIOError:
            self.owner.want_writable(self)
        except OSError:
            self._fail_transport(TransportFault.CONNECT)
        else:
            self._connected()
            self.sending.went_out(sent)

    def _connected(self) -> None:
        """Handle an established connection to the proxy or to the other TGen."""
        self.progress = self.owner.now_us
        self.transport.connected(self.progress)
        if self.transport.greeting:
            self.sending.next(self.transport.greeting)
        else:
            self._open()

    def _process_answer_of_proxy(self) -> None:
        try:
            message = self.transport.received(self.receiving.buffer, self.owner.now_us)
        except HandshakeError as error:
            if error.line is not None:
                self.owner.log.warning(*error.line)
            self._fail_transport(error.fault)
            return
        if message:
            self.sending.next(message)
            self.sending.send()
        elif self.transport.state is _OPEN:
            self.receiving.total_bytes = len(self.receiving.buffer)
            self._open()

    def _open(self) -> None:
        """Start TGen's protocol on the established connection to the other TGen."""
        self.progress = self.owner.now_us
        options = self.options
        if options is not None:
            path = options.packet_model_path or options.packet_model.name
            self.sending.next(
                wire.command(
                    hostname=self.owner.name,
                    transfer_id=self.vertex,
                    send_bytes=options.send_bytes,
                    recv_bytes=options.recv_bytes,
                    model_seed=self.model_seed,
                    model=options.packet_model,
                    model_path=path if options.packet_model_by_path else None,
                )
            )
            self.sending.send()

    # --- the protocol

    def process(self) -> None:
        """Advance through the states as far as the available bytes allow."""
        receiving = self.receiving
        while not self.over:
            transport_state, state = self.transport.state, receiving.state
            available = len(receiving.buffer)
            if transport_state is not _OPEN:
                self._process_answer_of_proxy()
            elif (step := _STEPS.get(state)) is not None:
                step(self)
            if (
                receiving.state is state
                and len(receiving.buffer) == available
                and self.transport.state is transport_state
            ):
                return

    def _line(self) -> bytes | None:
        """Remove a line from the buffer. Return it without its end, or None if incomplete."""
        buffer = self.receiving.buffer
        end = buffer.find(b"\n", 0, MAX_LINE_BYTES)
        if end < 0:
            if len(buffer) >= MAX_LINE_BYTES:
                self._fail_to_receive(StreamFault.HEADER)
            return None
        line = self.receiving.take(end + 1)
        assert line is not None
        return line[:-1]

    def _process_password(self) -> None:
        buffer = self.receiving.buffer
        available = bytes(buffer[: len(wire.AUTH_BYTES)])
        password = wire.AUTH_BYTES[:-1]
        if available[: len(password)] != password[: len(available)]:
            self._fail_to_receive(StreamFault.AUTH)
        elif len(available) == len(wire.AUTH_BYTES):
            del buffer[: len(available)]
            self.receiving.state = ReceiveState.HEADER

    def _process_header(self) -> None:
        line = self._line()
        if line is None:
            return
        if self.options is None:
            self._take_command(line)
        else:
            self._take_response(line)

    def _take_response(self, line: bytes) -> None:
        """As a client, handle the server's response to the command."""
        try:
            self.peer_name = wire.parse_response(line)
        except wire.HeaderError as error:
            self.sending.state = SendState.SUCCESS
            self._fail_to_receive(error.fault)
            return
        self.response_at = self.owner.now_us
        self._expect_payload()

    def _take_command(self, line: bytes) -> None:
        """As a server, handle the client's command."""
        try:
            asked = wire.parse_command(line)
        except wire.HeaderError as error:
            self._refuse(error.fault)
            return
        self.peer_name = asked.hostname
        self.vertex = f"{self.vertex}:{asked.transfer_id}"
        self.receiving.wanted_bytes = asked.receive_bytes
        self.sending.wanted_bytes = asked.send_bytes
        self.model_seed = asked.model_seed
        if (asked.receive_bytes == 0) != (asked.send_bytes == 0):
            self.owner.log.critical(*log_lines.unknown_model(asked.model_name))
            self._refuse(StreamFault.MODEL)
            return
        self._asked = asked
        self.receiving.state = ReceiveState.MODEL
        self._process_model()

    def _refuse(self, fault: StreamFault) -> None:
        """Send the client the error in its command, if that is possible immediately, and end."""
        self.sending.state = SendState.RESPONSE
        with contextlib.suppress(OSError):
            self.sending.send_last_message(wire.response(self.owner.name, fault))
            self.response_at = self.owner.now_us
            self.sending.state = SendState.SUCCESS
        self._fail_to_receive(fault)

    def _process_model(self) -> None:
        """As a server, select the packet model."""
        asked, owner = self._asked, self.owner
        assert asked is not None
        model: MarkovModel | None
        if asked.model_path is not None:
            model = self._model_by_path(asked.model_path)
            if model is None:
                owner.log.warning(*log_lines.no_model_at_path(asked.model_path))
                self._refuse(StreamFault.HEADER_MODEL_PATH)
                return
        else:
            text = self.receiving.take(asked.model_bytes)
            if text is None:
                return
            self.command_at = owner.now_us
            try:
                model = (
                    INTERNAL_PACKET_MODEL
                    if asked.model_name == wire.MODEL_NAME
                    else parse_model(asked.model_name, text)
                )
            except ValueError:
                owner.log.critical(*log_lines.bad_model(asked.model_name))
                self._refuse(StreamFault.MODEL)
                return
        self._follow(model, Event.TO_ORIGIN)
        self.sending.state = SendState.RESPONSE
        self.sending.next(wire.response(owner.name))
        self._expect_payload()
        self.sending.send()

    def _model_by_path(self, path: str) -> MarkovModel | None:
        if path.lower() == wire.MODEL_NAME:
            return INTERNAL_PACKET_MODEL
        return self.owner.model_at(path)

    def _expect_payload(self) -> None:
        wanted = self.receiving.wanted_bytes
        self.receiving.state = ReceiveState.FOOTER if wanted is None else ReceiveState.PAYLOAD

    def _process_checksum(self) -> None:
        line = self._line()
        if line is None:
            return
        self.receiving.checksum_at = self.owner.now_us
        _, space, rest = line.partition(b" ")
        received = rest[:_MD5_DIGITS].decode("ascii", "replace").lower()
        computed = self.receiving.payload_md5() or received
        if space and received == computed and len(received) == _MD5_DIGITS:
            self.receiving.state = ReceiveState.FOOTER
            self.sending.send()
        else:
            self.owner.log.message(*log_lines.wrong_checksum(computed, received))
            self._fail_to_receive(StreamFault.CHECKSUM)

    def _process_footer(self) -> None:
        line = self._line()
        if line is None:
            return
        if line[:3].upper() == wire.FOOTER[:3]:
            self.receiving.state = ReceiveState.SUCCESS
            self.sending.send()
            self.end_if_complete()
        else:
            self.owner.log.message(*log_lines.malformed_footer(self))
            self._fail_to_receive(StreamFault.FOOTER)

    # --- the end

    def end_if_complete(self) -> None:
        """End the stream if both directions have ended."""
        receiving, schedule = self.receiving, self.sending.schedule
        # The model determines how much was to be received: a client that expects nothing does not
        # wait for the response.
        if (
            receiving.wanted_bytes == 0
            and receiving.state is not ReceiveState.ERROR
            and self.sending.state is SendState.SUCCESS
            and schedule is not None
            and receiving.payload_bytes >= schedule.expected_bytes
        ):
            receiving.state = ReceiveState.SUCCESS
        if self.receiving.state is ReceiveState.SUCCESS and self.sending.state is SendState.SUCCESS:
            self._finish()

    def end_of_file(self) -> None:
        """Handle the end of file: the other side has closed the connection too early."""
        if self.transport.state is not _OPEN:
            self._fail_transport(TransportFault.READ)
            return
        self.transport.state = TransportState.END_OF_FILE
        self.owner.log.critical(*log_lines.closed_unexpectedly(self))
        self._fail_to_receive(StreamFault.END_OF_FILE)

    def read_failed(self, error: OSError) -> None:
        """Handle a read error."""
        if self.transport.state is not _OPEN:
            self._fail_transport(TransportFault.READ)
            return
        self.transport.fail(TransportFault.READ)
        self.receiving.state, self.fault = ReceiveState.ERROR, StreamFault.READ
        self.owner.log.critical(*log_lines.read_failed(self, error))
        # A server is usually writing when a connection breaks. TGen then tries to write, and keeps
        # that error.
        if self.sending.state in (SendState.RESPONSE, SendState.PAYLOAD, SendState.CHECKSUM):
            self.sending.end_pause()
            self.sending.send()
        if not self.over:
            self._fail(StreamFault.READ)

    def write_failed(self, error: OSError) -> None:
        """Handle a write error."""
        if self.transport.state is not _OPEN and self.fault is StreamFault.NONE:
            self._fail_transport(TransportFault.WRITE)
            return
        self.transport.fail(TransportFault.WRITE)
        self.sending.state, self.fault = SendState.ERROR, StreamFault.WRITE
        self.owner.log.critical(*log_lines.write_failed(self, error))
        self._fail(StreamFault.WRITE)

    def _fail_transport(self, fault: TransportFault) -> None:
        self.transport.fail(fault)
        self.owner.log.critical(*log_lines.transport_failed())
        self._fail(StreamFault.PROXY)

    def _fail_to_receive(self, fault: StreamFault) -> None:
        self.receiving.state = ReceiveState.ERROR
        self._fail(fault)

    def _fail(self, fault: StreamFault) -> None:
        self.fault = fault
        self._finish()

    def _finish(self) -> None:
        if self.over:
            return
        self.over = True
        if self.fault is not StreamFault.NONE:
            self.receiving.correct_drained_times()
        self.owner.log.message(*log_lines.ended(self))
        self.owner.stream_ended(self)

    def log_status(self) -> None:
        """Log the progress of the payload."""
        self.owner.log.info(*log_lines.status(self))


_STEPS: dict[ReceiveState, Callable[[Stream], None]] = {
    ReceiveState.AUTHENTICATE: Stream._process_password,
    ReceiveState.HEADER: Stream._process_header,
    ReceiveState.MODEL: Stream._process_model,
    ReceiveState.PAYLOAD: lambda stream: stream.receiving.take_payload(),
    ReceiveState.CHECKSUM: Stream._process_checksum,
    ReceiveState.FOOTER: Stream._process_footer,
}
