"""The messages of TGen's protocol, and a stream on a socket that splits bytes at any position."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import re
import select
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onionlab.engines.uml.traffic import wire
from onionlab.engines.uml.traffic.action_graph import Start
from onionlab.engines.uml.traffic.markov_model import INTERNAL_PACKET_MODEL, Event
from onionlab.engines.uml.traffic.markov_walk import PACKET_BYTES, PacketSchedule
from onionlab.engines.uml.traffic.options import LogLevel
from onionlab.engines.uml.traffic.stream import Stream
from onionlab.engines.uml.traffic.transport import Address, Transport

from .markov_support import Script
from .traffic_support import OPTIONS, FakeHost

PAYLOAD, REQUEST = OPTIONS.recv_bytes, OPTIONS.send_bytes
SERVER_SAYS = (
    wire.response("server1")
    + wire.PAYLOAD_LETTER * PAYLOAD
    + wire.checksum_line(PAYLOAD)
    + b"FIN\n"
)
CHOICE = b"\x05\x00"
GRANTED = b"\x05\x00\x00\x01\x0b\x00\x00\x05\x00\x50"
TO_CLIENT = CHOICE + GRANTED + SERVER_SAYS
COMMAND = wire.command("client1", OPTIONS, model_seed=7)
CLIENT_SENDS = COMMAND + wire.PAYLOAD_LETTER * REQUEST + wire.checksum_line(REQUEST) + b"FIN\n"
START = Start(
    id="start",
    server_port=80,
    delay_us=0,
    heartbeat_us=0,
    log_level=LogLevel.MESSAGE,
    timeout_us=0,
    stallout_us=0,
)
SOCKS = b"\x05\x01\x00" + b"\x05\x01\x00\x01\x0b\x00\x00\x09\x00\x50"


class FakeSocket:
    """A socket that returns received bytes, and then an end or an error.

    room: number of bytes that can be sent before the socket is full. None means any number. sizes:
    number of bytes that each call of send() was given.
    """

    def __init__(self, room: int | None = None) -> None:
        self.arrived = bytearray()
        self.end: OSError | str | None = None
        self.room = room
        self.sent = bytearray()
        self.sizes: list[int] = []
        self.low_water = 1
        self.broken = False
        self.last_data_recv_ms = 0

    def fileno(self) -> int:
        return 7

    def _check(self) -> None:
        if not self.arrived:
            if isinstance(self.end, OSError):
                error, self.end = self.end, "end"
                raise error
            if self.end is None:
                raise BlockingIOError

    def recv(self, size: int, flags: int = 0) -> bytes:
        assert flags & socket.MSG_DONTWAIT
        self._check()
        data = bytes(self.arrived[:size])
        del self.arrived[:size]
        return data

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        assert flags & socket.MSG_TRUNC
        assert 0 < size <= len(buffer)
        return len(self.recv(size, flags))

    def send(self, data: Any, flags: int = 0) -> int:
        self.sizes.append(len(data))
        if self.broken:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        count = len(data) if self.room is None else min(len(data), self.room)
        if count == 0:
            raise BlockingIOError
        self.sent += bytes(data[:count])
        if self.room is not None:
            self.room -= count
        return count

    def setsockopt(self, level: int, option: int, value: int) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.low_water = value

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert option == socket.TCP_INFO
        return bytes(52) + self.last_data_recv_ms.to_bytes(4, "little") + bytes(size - 56)

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 4000)


Played = tuple[Any, FakeSocket, Stream]


def client(
    *, low_water: int = 1, info: bool = False, room: int | None = None, **changes: Any
) -> Played:
    """Return a client's stream through a proxy. changes: options that differ from OPTIONS."""
    host: Any = FakeHost(low_water=low_water, info=info)
    sock = FakeSocket(room)
    options = replace(OPTIONS, **changes)
    transport = Transport(
        cast(socket.socket, sock),
        Address("server9", None, 80),
        host.resolve,
        Address("localhost", "127.0.0.1", 9000),
        options.username,
        options.password,
    )
    return host, sock, Stream(host, transport, 0, options, model_seed=7)


def server(*, room: int | None = None) -> Played:
    host: Any = FakeHost()
    sock = FakeSocket(room)
    host.name = "server1"
    client_address = Address("exit", "11.0.0.3", 999)
    transport = Transport(cast(socket.socket, sock), client_address, host.resolve)
    return host, sock, Stream(host, transport, 0, START)


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    at = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(at)]


def play(stream: Stream, arriving: Sequence[bytes], rooms: Sequence[int] = ()) -> None:
    """Deliver pieces of bytes to a stream, one every 10 us.

    rooms: number of bytes that the socket accepts, for each time that the stream waits to send.
    """
    host: Any = stream.host
    sock: Any = stream.sock
    room = iter(rooms)

    def give_room() -> None:
        while host.writable_wanted and not host.ended:
            host.writable_wanted = False
            if sock.room is not None:
                sock.room = next(room, None)
            stream.on_event(select.EPOLLOUT)

    stream.begin()
    give_room()
    for piece in arriving:
        sock.arrived += piece
        host.now_us += 10
        if not host.ended and (
            len(sock.arrived) >= sock.low_water or stream.receive.state != "PAYLOAD"
        ):
            stream.on_event(select.EPOLLIN)
        give_room()


def outcome(line: str) -> str:
    """Return a log line about a stream, without its times."""
    return line.partition(" times ")[0]


SUCCESS = (
    "[stream-success] transport [fd=7,local=localhost:127.0.0.1:4000,"
    "proxy=localhost:127.0.0.1:9000,remote=server9:11.0.0.9:80,state=SUCCESS_OPEN,error=NONE] "
    "stream [id=0,vertexid=stream,"
    "name=client1,peername=server1,sendsize=200,recvsize=3000,sendstate=SEND_SUCCESS,"
    f"recvstate=RECV_SUCCESS,error=NONE] bytes [total-bytes-recv={len(SERVER_SAYS)},"
    f"total-bytes-send={len(CLIENT_SENDS)},"
    "payload-bytes-recv=3000,payload-bytes-send=200,payload-progress-recv=100.00%,"
    "payload-progress-send=100.00%]"
)

cuts = st.lists(st.integers(0, 10000), max_size=40)
rooms = st.lists(st.integers(1, 400), max_size=30)


@given(cuts, rooms, st.sampled_from([1, 100, 1000, 100000]), st.booleans())
def test_a_client_handles_bytes_in_any_pieces(
    at: list[int], room: list[int], low_water: int, info: bool
) -> None:
    # If the driver logs status lines (``info``), it sets no low-water mark.
    low_water = 1 if info else low_water
    host, sock, stream = client(low_water=low_water, info=info, room=0 if room else None)
    play(stream, pieces(TO_CLIENT, at), room)
    assert len(host.ended) == 1
    assert outcome(host.lines[-1]) == SUCCESS
    assert bytes(sock.sent) == SOCKS + CLIENT_SENDS
    assert (host.read, host.written) == (len(TO_CLIENT), len(SOCKS + CLIENT_SENDS))


@given(cuts, rooms)
def test_a_server_handles_bytes_in_any_pieces(at: list[int], room: list[int]) -> None:
    host, sock, stream = server(room=0 if room else None)
    play(stream, pieces(CLIENT_SENDS, at), room)
    assert len(host.ended) == 1
    assert stream.fault == "NONE"
    assert "vertexid=passive-stream:stream,name=server1,peername=client1" in host.lines[-1]
    assert bytes(sock.sent) == SERVER_SAYS


@given(st.integers(0, len(TO_CLIENT) - 1), cuts, st.sampled_from(["end", "reset"]))
def test_a_connection_that_ends_anywhere_has_the_error_of_tgen(
    length: int, at: list[int], how: str
) -> None:
    host, sock, stream = client()
    play(stream, pieces(TO_CLIENT[:length], at))
    assert not host.ended
    if how == "end":
        sock.end = "end"
        stream.on_event(select.EPOLLIN | select.EPOLLRDHUP)
    else:
        sock.end = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        sock.broken = True
        stream.on_event(
            select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR | select.EPOLLOUT
        )
    assert host.ended == [stream]
    fields = dict(re.findall(r"(\w+)=(\w+)", outcome(host.lines[-1]).partition(" stream ")[2]))
    if length < len(CHOICE + GRANTED):
        assert fields["error"] == "PROXY"
        assert stream.transport.fault == "READ"
    else:
        assert fields["error"] == ("READEOF" if how == "end" else "READ")
        assert fields["recvstate"] == "RECV_ERROR"
        assert stream.transport.state == ("SUCCESS_EOF" if how == "end" else "ERROR")
    received = max(0, length - len(CHOICE + GRANTED))
    assert f"total-bytes-recv={received}," in host.lines[-1]


def test_times_and_pieces_equal_those_of_tgen() -> None:
    host, sock, stream = client()
    header = SERVER_SAYS.index(b"\n") + 1
    cut = [2, 12, 12 + header, 12 + header + 1, 12 + header + PAYLOAD, 12 + header + PAYLOAD + 37]
    play(stream, pieces(TO_CLIENT, cut))
    times = dict(re.findall(r"usecs-to-([a-z-]+)=(-?\d+)", host.lines[-1]))
    assert times == {
        "socket-create": "0",
        "socket-connect": "0",
        "proxy-init": "0",
        "proxy-choice": "10",
        "proxy-request": "10",
        "proxy-response": "20",
        "command": "20",
        "first-byte-send": "20",
        "last-byte-send": "20",
        "checksum-send": "20",
        "response": "30",
        "first-byte-recv": "40",
        "last-byte-recv": "50",
        "checksum-recv": "60",
    }
    assert "created-ts=1000000," in host.lines[-1]
    assert "now-ts=1000070]" in host.lines[-1]
    assert sock.sizes == [3, 10, len(COMMAND), REQUEST, 37, 4]


@pytest.mark.parametrize(
    ("username", "password", "login"),
    [
        ("me", "secret", b"\x01\x02me\x06secret"),
        ("me", None, b"\x01\x02me\x01\x00"),
        (None, "secret", b"\x01\x01\x00\x06secret"),
    ],
)
def test_login_at_the_proxy(username: str | None, password: str | None, login: bytes) -> None:
    _host, sock, stream = client(username=username, password=password)
    play(stream, [b"\x05\x02", b"\x01\x00", TO_CLIENT[2:]])
    assert bytes(sock.sent) == b"\x05\x01\x02" + login + SOCKS[3:] + CLIENT_SENDS
    assert stream.fault == "NONE"


@pytest.mark.parametrize(
    ("answers", "error", "warning"),
    [
        (b"\x05\xff", "CHOICE", ""),
        (CHOICE + b"\x05\x04", "STATUS", "error status 4: host unreachable"),
        (CHOICE + b"\x05\xf0", "STATUS", "(tor) onion service descriptor can not be found"),
        (CHOICE + b"\x05\x77", "STATUS", "error status 77: unknown error"),
        (CHOICE + b"\x05\x00\x00\x04", "ADDR", ""),
    ],
)
def test_a_proxy_that_rejects_a_client(answers: bytes, error: str, warning: str) -> None:
    host, _sock, stream = client()
    play(stream, [answers])
    transport = stream.transport
    assert (transport.state, transport.fault, stream.fault) == ("ERROR", error, "PROXY")
    assert warning in "\n".join(host.lines)
    assert "transport connection or proxy handshake failed" in host.lines[-2]


def test_an_address_bound_by_name() -> None:
    _host, _sock, stream = client()
    play(stream, [CHOICE + b"\x05\x00\x00\x03\x04host\x00\x50" + SERVER_SAYS])
    assert stream.fault == "NONE"


def test_an_unknown_name_is_requested_as_0() -> None:
    _host, sock, stream = client()
    stream.transport.remote.name = "nobody"
    play(stream, [CHOICE])
    assert bytes(sock.sent).endswith(b"\x05\x01\x00\x01\x00\x00\x00\x00\x00\x50")


@pytest.mark.parametrize(
    ("who", "says", "error"),
    [
        (client, b"HTTP/1.1 400 Bad Request\r\n\r\n", "AUTH"),
        (client, SERVER_SAYS.replace(b"CODE=NONE", b"CODE=MODEL"), "HEADER"),
        (client, SERVER_SAYS.replace(b"=2.0", b"=1.0"), "HEADER"),
        (client, wire.AUTH_BYTES + b"x" * 70000, "HEADER"),
        (server, b"GET / HTTP/1.0\r\n\r\n", "AUTH"),
        (server, CLIENT_SENDS.replace(b"SEND_SIZE=200 ", b""), "HEADER"),
        (server, CLIENT_SENDS.replace(b"graphml MODEL_SIZE", b"path MODEL_PATH"), "HEADER"),
        (server, CLIENT_SENDS.replace(b"internal-", b"my-").replace(b"<graph ", b"<g "), "HEADER"),
    ],
)
def test_invalid_messages(who: Callable[[], Played], says: bytes, error: str) -> None:
    _host, sock, stream = who()
    play(stream, [(CHOICE + GRANTED if who is client else b"") + says])
    assert (stream.fault, stream.receive.state) == (error, "ERROR")
    assert who is client or not sock.sent


def test_a_client_that_expects_nothing_does_not_wait_for_the_response() -> None:
    """TGen ends such a stream before it receives anything (_tgenstream_computeWantedEvents)."""
    host, _sock, stream = client(send_bytes=0, recv_bytes=0)
    walk = Script(("+", 0), ("F", 0))
    stream.schedule = PacketSchedule(walk, Event.TO_SERVER)  # type: ignore[arg-type]
    play(stream, [CHOICE + GRANTED])
    assert host.ended == [stream]
    assert stream.send.payload_bytes == PACKET_BYTES
    assert "sendstate=SEND_SUCCESS,recvstate=RECV_SUCCESS,error=NONE]" in host.lines[-1]
    assert "usecs-to-response=-1," in host.lines[-1]


def test_a_server_fails_to_write_after_a_reset() -> None:
    host, sock, stream = server(room=500)
    stream.begin()
    sock.arrived += CLIENT_SENDS[:-4]
    stream.on_event(select.EPOLLIN)
    assert stream.send.state == "PAYLOAD"
    sock.end = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
    sock.broken = True
    stream.on_event(select.EPOLLIN | select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR)
    assert host.ended == [stream]
    assert (stream.fault, stream.transport.fault) == ("WRITE", "WRITE")


# --- time limits, which TGen checks at each heartbeat


def test_a_timeout_counts_from_the_start() -> None:
    host, _sock, stream = client(timeout_us=5_000_000)
    play(stream, [CHOICE])
    host.now_us = 1_000_000 + 4_999_999
    stream.on_heartbeat()
    assert not host.ended
    host.now_us += 1
    stream.on_heartbeat()
    assert (stream.transport.state, stream.transport.fault) == ("RESPONSE_STATUS", "NONE")
    assert "sendstate=SEND_COMMAND,recvstate=RECV_NONE,error=TIMEOUT]" in host.lines[-1]


@pytest.mark.parametrize("limit", ["timeout", "stallout"])
def test_time_limits_while_connecting(limit: str) -> None:
    limits: dict[str, Any] = {f"{limit}_us": 3_000_000}
    host, _, stream = client(room=0, **limits)
    stream.begin()
    host.now_us += 3_000_000
    stream.on_heartbeat()
    assert (stream.transport.state, stream.transport.fault) == ("CONNECT", limit.upper())
    assert stream.fault == "PROXY"


def test_a_stallout_counts_from_the_last_progress() -> None:
    host, _sock, stream = client(stallout_us=3_000_000)
    play(stream, [TO_CLIENT[:500]])
    progress = host.now_us
    host.now_us = progress + 2_999_999
    stream.on_heartbeat()
    assert not host.ended
    host.now_us += 1
    stream.on_heartbeat()
    assert stream.fault == "STALLOUT"
    assert "sendstate=SEND_FOOTER,recvstate=RECV_PAYLOAD,error=STALLOUT]" in host.lines[-1]


def test_bytes_found_by_a_heartbeat_have_their_arrival_time() -> None:
    host, sock, stream = client(low_water=100_000, stallout_us=3_000_000)
    play(stream, [TO_CLIENT[:500]])
    first = host.now_us
    before = stream.receive.payload_bytes
    # These bytes cause no wake-up. The heartbeat finds them 0.4 s after their arrival.
    sock.arrived += b"x" * 100
    host.now_us += 1_000_000
    stream.on_heartbeat()
    assert stream.receive.payload_bytes == before + 100
    assert host.read == 600
    # The heartbeat found the bytes at +1 s, but the limit starts with their arrival at +0.6 s.
    host.now_us = first + 3_599_000
    sock.last_data_recv_ms = 2999
    stream.on_heartbeat()
    assert not host.ended
    host.now_us += 1_000
    sock.last_data_recv_ms = 3000
    stream.on_heartbeat()
    assert stream.fault == "STALLOUT"
    assert stream.receive.last_at == first + 600_000


def test_bytes_sent_after_a_heartbeat_found_bytes_are_progress() -> None:
    host, sock, stream = client(
        low_water=100_000, room=10_000, stallout_us=3_000_000, send_bytes=100_000
    )
    stream.begin()
    sock.arrived += TO_CLIENT[:500]
    stream.on_event(select.EPOLLIN)
    first = host.now_us
    sock.arrived += b"x" * 100
    host.now_us += 1_000_000
    stream.on_heartbeat()
    # The last bytes arrived at +0.6 s. The stream sends bytes at +2.5 s, so the limit counts from
    # then on.
    host.now_us, sock.room = first + 2_500_000, 1000
    stream.on_event(select.EPOLLOUT)
    for after_ms, ended in ((4000, False), (5499, False), (5500, True)):
        host.now_us, sock.last_data_recv_ms = first + after_ms * 1000, after_ms - 600
        stream.on_heartbeat()
        assert bool(host.ended) == ended
    assert stream.fault == "STALLOUT"
    assert stream.receive.last_at == first + 600_000


def test_the_last_byte_always_causes_a_wake_up() -> None:
    """The low-water mark does not exceed the payload that is still missing, but is at least 1."""
    _host, sock, stream = client(low_water=1000)
    header = len(CHOICE + GRANTED) + SERVER_SAYS.index(b"\n") + 1
    play(stream, [TO_CLIENT[:header]])
    assert sock.low_water == 1
    for left in range(PAYLOAD - 1, -1, -1):
        sock.arrived += b"x"
        stream.on_event(select.EPOLLIN)
        assert sock.low_water == max(1, min(1000, left))
    assert stream.receive.state == "CHECKSUM"


# --- messages, which equal those of TGen byte for byte

TGENS_COMMAND = (
    b"PROTOCOL_VERSION=2.0 HOSTNAME=web1 TRANSFER_ID=stream SEND_SIZE=1000 RECV_SIZE=327680 "
    b"MODEL_NAME=internal-packet-model MODEL_SEED=1963204280 MODEL_MODE="
)


@pytest.mark.parametrize("path", [None, "../conf/packet.graphml"])
def test_a_command_equals_that_of_tgen(path: str | None) -> None:
    options = replace(OPTIONS, send_bytes=1000, recv_bytes=327680, packet_model_path=path)
    message = wire.command("web1", options, 1963204280)
    line, _, model = message.partition(b"\n")
    mode = b"graphml MODEL_SIZE=1970" if path is None else b"path MODEL_PATH=../conf/packet.graphml"
    assert line == wire.AUTH_BYTES + TGENS_COMMAND + mode
    assert model == (INTERNAL_PACKET_MODEL.text if path is None else b"")
    assert wire.parse_command(TGENS_COMMAND + mode) == wire.Command(
        hostname="web1",
        transfer_id="stream",
        receive_bytes=1000,
        send_bytes=327680,
        model_name="internal-packet-model",
        model_bytes=1970 if path is None else 0,
        model_seed=1963204280,
        model_path=path,
    )


def test_a_response_equals_that_of_tgen() -> None:
    line = b"PROTOCOL_VERSION=2.0 HOSTNAME=server1 CODE=NONE"
    assert wire.response("server1") == wire.AUTH_BYTES + line + b"\n"
    assert wire.parse_response(line) == "server1"


@given(st.binary(max_size=300))
def test_any_line_is_parsed_or_rejected(line: bytes) -> None:
    for parse in (wire.parse_command, wire.parse_response):
        with contextlib.suppress(KeyError, ValueError):
            parse(line)


@pytest.mark.parametrize("size", [1, 65535, 65536, 65537, 327680])
def test_the_checksum_is_that_of_the_payload(size: int) -> None:
    digest = hashlib.md5(wire.PAYLOAD_LETTER * size).hexdigest()
    assert wire.checksum_line(size) == b"MD5 " + digest.encode() + b"\n"
