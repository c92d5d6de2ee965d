"""The state of a stream, with TGen's names (tgen-stream.c), and how a stream ends."""

from __future__ import annotations

import abc
import errno
import os
from collections.abc import Callable, Mapping
from typing import Generic, Literal, Protocol, TypeVar

from .action_graph import StreamOptions
from .log_writer import TgenLogWriter
from .loop import Loop
from .markov_model import MarkovModel
from .markov_walk import PacketSchedule
from .transport import Address, Transport, TransportFault

SendState = Literal[
    "NONE", "COMMAND", "RESPONSE", "PAYLOAD", "CHECKSUM", "FOOTER", "SUCCESS", "ERROR"
]
"""The message that a stream sends next. In FOOTER, it waits for the other side's checksum."""


ReceiveState = Literal[
    "NONE", "AUTHENTICATE", "HEADER", "MODEL", "PAYLOAD", "CHECKSUM", "FOOTER", "SUCCESS", "ERROR"
]
"""The message that a stream expects next."""


StreamFault = Literal[
    "NONE", "PROXY", "AUTH", "HEADER", "READ", "READEOF", "WRITE", "TIMEOUT", "STALLOUT", "MISC"
]
"""The error of a stream.

PROXY: the transport could not be established. MISC: epoll reports an error or a hang-up of the
socket, but neither a read nor a write has failed.
"""


State = TypeVar("State", SendState, ReceiveState)
WhenOver = Callable[["StreamState"], None]


class Direction(Generic[State]):
    """One direction of a stream.

    wanted_bytes: the payload's size, or 0 if the packet model determines the size. total_bytes: the
    number of all bytes since the transport was opened. first_at, last_at: the times of the
    payload's first and last byte so far. checksum_at: the time of the checksum. A time is None
    until its event has happened.
    """

    def __init__(self, stream: StreamState, state: State, wanted_bytes: int) -> None:
        self._stream: StreamState = stream
        self._sock = stream.sock
        self.state: State = state
        self.wanted_bytes = wanted_bytes
        self.total_bytes = 0
        self.payload_bytes = 0
        self.first_at: int | None = None
        self.last_at: int | None = None
        self.checksum_at: int | None = None

    def count_payload(self, count: int, now_us: int) -> None:
        """Count bytes of the payload."""
        if self.payload_bytes == 0:
            self.first_at = now_us
        self.last_at = now_us
        self.payload_bytes += count

    def correct_drained_times(self) -> None:
        """If only heartbeats have read the last bytes, correct the recorded time of these bytes.

        The correct time is the time at which the kernel received the bytes.
        """


class StreamHost(Protocol):
    """The interface of the host that streams and a walk belong to.

    low_water_bytes: the number of payload bytes that must have arrived before a stream wakes up the
    process. packet_models: the packet models that clients may request, by their paths.
    """

    name: str
    log: TgenLogWriter
    loop: Loop
    low_water_bytes: int
    packet_models: Mapping[str, MarkovModel]

    def open_stream(
        self,
        options: StreamOptions,
        remote: Address,
        proxy: Address | None,
        model_seed: int,
        when_over: WhenOver,
    ) -> bool:
        """Start a stream. Return False if the connection fails immediately.

        proxy: None for a direct connection. model_seed: the seed for the packet model. when_over: a
        function to call when the stream has ended.
        """

    def count(self, what: str) -> None:
        """Count an event of the given kind, such as "flows-created"."""

    def count_bytes(self, read: int, written: int) -> None:
        """Add bytes to the counters of the next heartbeat."""

    def stream_ended(self, stream: StreamState) -> None:
        """Close the socket of a stream that has ended, and continue the walk."""


class StreamState(abc.ABC):
    """A stream's data. Times are microseconds of the monotonic clock, as in TGen.

    progress: the time of the last byte in either direction. Before the first byte, it is the time
    at which the connection was established. sent_at: the time of the last sent byte. schedule: the
    bursts to send; None to send the whole payload without pauses. when_over: a function to call at
    the end, or None. command_at, response_at: the times of the client's command and of the server's
    response; None if not yet sent or received.
    """

    send: Direction[SendState]
    receive: Direction[ReceiveState]

    def __init__(
        self,
        host: StreamHost,
        transport: Transport,
        stream_id: int,
        vertex: str,
        when_over: WhenOver | None,
    ) -> None:
        self.host = host
        self.transport = transport
        self.sock = transport.sock
        self.id = stream_id
        self.vertex = vertex
        self.when_over = when_over
        self.schedule: PacketSchedule | None = None
        self.peer_name = "(null)"
        self.over = False
        self.fault: StreamFault = "NONE"
        self.started = self.now_us
        self.command_at: int | None = None
        self.response_at: int | None = None
        self.progress: int | None = None
        self.sent_at: int | None = None

    @property
    def now_us(self) -> int:
        """The current time of the monotonic clock."""
        return self.host.loop.now_us

    def want_writable(self) -> None:
        """Ask the event loop to report when the socket is writable again."""
        self.host.loop.want_writable(self.sock.fileno())

    @abc.abstractmethod
    def process(self) -> None:
        """Advance the stream's protocol by the received bytes."""

    # --- the end

    def end_if_complete(self) -> None:
        """End the stream if both directions have ended."""
        receive, schedule = self.receive, self.schedule
        # If the model determines the size, it also determines how many bytes the other side sends.
        # When this side has received this number of bytes, it has received everything. If the
        # number is 0, this side does not even wait for the response.
        if (
            receive.wanted_bytes == 0
            and receive.state != "ERROR"
            and self.send.state == "SUCCESS"
            and schedule is not None
            and receive.payload_bytes >= schedule.expected_bytes
        ):
            receive.state = "SUCCESS"
        if receive.state == "SUCCESS" and self.send.state == "SUCCESS":
            self.finish()

    def end_of_file(self) -> None:
        """End the stream because the other side has closed the connection too early."""
        if self.transport.state != "SUCCESS_OPEN":
            self.fail_transport("READ")
            return
        self.transport.state = "SUCCESS_EOF"
        self.host.log.critical(
            "[tgen-stream.c:492] [_tgenstream_read]",
            f"read(): transport {self.transport} stream {self} closed unexpectedly",
        )
        self.fail_to_receive("READEOF")

    def read_failed(self, error: OSError) -> None:
        """Record and log a read error. The subclass also ends the stream."""
        self.transport.fail("READ")
        self.receive.state, self.fault = "ERROR", "READ"
        self.host.log.critical(
            "[tgen-stream.c:483] [_tgenstream_read]",
            f"read(): transport {self.transport} stream {self} {_describe(error)}",
        )

    def write_failed(self, error: OSError) -> None:
        """End the stream with a write error."""
        if self.transport.state != "SUCCESS_OPEN" and self.fault == "NONE":
            self.fail_transport("WRITE")
            return
        self.transport.fail("WRITE")
        self.send.state, self.fault = "ERROR", "WRITE"
        self.host.log.critical(
            "[tgen-stream.c:1186] [_tgenstream_flushOut]",
            f"write(): transport {self.transport} stream {self} {_describe(error)}",
        )
        self.fail("WRITE")

    def fail_transport(self, fault: TransportFault) -> None:
        """End the stream because the connection to the other TGen could not be established."""
        self.transport.fail(fault)
        self.host.log.critical(
            "[tgen-stream.c:1787] [_tgenstream_runTransportEventLoop]",
            "transport connection or proxy handshake failed, stream cannot begin",
        )
        self.fail("PROXY")

    def fail_to_receive(self, fault: StreamFault) -> None:
        """End the stream because of an error in the bytes that arrived."""
        self.receive.state = "ERROR"
        self.fail(fault)

    def fail(self, fault: StreamFault) -> None:
        """End the stream with an error, unless it is over."""
        if not self.over:
            self.fault = fault
            self.receive.correct_drained_times()
            self.finish()

    def finish(self) -> None:
        """End the stream and log its results in one line, unless it is over."""
        if self.over:
            return
        self.over = True
        kind, number = ("success", 1738) if self.fault == "NONE" else ("error", 1721)
        self.host.log.message(
            f"[tgen-stream.c:{number}] [_tgenstream_log]",
            f"[stream-{kind}] transport {self.transport} stream {self} bytes {self._bytes()} "
            f"times {self._times()}",
        )
        self.host.stream_ended(self)

    # --- the log

    def log_created(self) -> None:
        """Log the start of the stream."""
        self.host.log.info(
            "[tgen-stream.c:2125] [tgenstream_new]",
            f"Created new stream {self} on transport {self.transport}",
        )

    def log_status(self) -> None:
        """Log the progress of the payload."""
        self.host.log.info(
            "[tgen-stream.c:1754] [_tgenstream_log]",
            f"[stream-status] transport {self.transport} stream {self} bytes {self._bytes()}",
        )

    def __str__(self) -> str:
        """Describe the stream as TGen's log does."""
        return (
            f"[id={self.id},vertexid={self.vertex},name={self.host.name},"
            f"peername={self.peer_name},sendsize={self.send.wanted_bytes},"
            f"recvsize={self.receive.wanted_bytes},sendstate=SEND_{self.send.state},"
            f"recvstate=RECV_{self.receive.state},error={self.fault}]"
        )

    def _bytes(self) -> str:
        receive, send = self.receive, self.send
        return (
            f"[total-bytes-recv={receive.total_bytes},total-bytes-send={send.total_bytes},"
            f"payload-bytes-recv={receive.payload_bytes},payload-bytes-send={send.payload_bytes},"
            f"payload-progress-recv={_progress(receive)},payload-progress-send={_progress(send)}]"
        )

    def _times(self) -> str:
        def since(time_us: int | None) -> int:
            return -1 if time_us is None else time_us - self.started

        transport, receive, send = self.transport, self.receive, self.send
        return (
            f"[created-ts={self.started},usecs-to-socket-create=0,"
            f"usecs-to-socket-connect={since(transport.connected_at)},"
            f"usecs-to-proxy-init={since(transport.proxy_init)},"
            f"usecs-to-proxy-choice={since(transport.proxy_choice)},"
            f"usecs-to-proxy-request={since(transport.proxy_request)},"
            f"usecs-to-proxy-response={since(transport.proxy_response)},"
            f"usecs-to-command={since(self.command_at)},"
            f"usecs-to-response={since(self.response_at)},"
            f"usecs-to-first-byte-recv={since(receive.first_at)},"
            f"usecs-to-last-byte-recv={since(receive.last_at)},"
            f"usecs-to-checksum-recv={since(receive.checksum_at)},"
            f"usecs-to-first-byte-send={since(send.first_at)},"
            f"usecs-to-last-byte-send={since(send.last_at)},"
            f"usecs-to-checksum-send={since(send.checksum_at)},now-ts={self.now_us}]"
        )


def _progress(direction: Direction[State]) -> str:
    if direction.wanted_bytes:
        return f"{direction.payload_bytes / direction.wanted_bytes * 100:.2f}%"
    return "100.00%" if direction.state == "SUCCESS" else "?"


def _describe(error: OSError) -> str:
    number = error.errno or errno.EIO
    return f"error {number}: {os.strerror(number)}"
