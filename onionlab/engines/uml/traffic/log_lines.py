"""The lines of a stream in TGen 1.1.2's log, in exactly TGen's words, which the analysis parses.

Each function returns a line without its time and level: the place in TGen's source that writes it
("[FILE:LINE] [FUNCTION]") and its text.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from .states import ReceiveState, SendState, StreamFault

if TYPE_CHECKING:
    from .generator import FlowGenerator
    from .socks import SocksTransport
    from .stream import Stream
    from .transport import Address, Transport

Line = tuple[str, str]

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

# --- what happens to a stream


def created(stream: Stream) -> Line:
    """Return the line for the start of a stream."""
    return (
        "[tgen-stream.c:2125] [tgenstream_new]",
        f"Created new stream {_stream(stream)} on transport {_transport(stream.transport)}",
    )


def status(stream: Stream) -> Line:
    """Return the line for sent or received payload."""
    return (
        "[tgen-stream.c:1754] [_tgenstream_log]",
        f"[stream-status] transport {_transport(stream.transport)} stream {_stream(stream)} "
        f"bytes {_bytes(stream)}",
    )


def ended(stream: Stream) -> Line:
    """Return the line with all results of a stream that has ended."""
    kind, number = ("success", 1738) if stream.fault is StreamFault.NONE else ("error", 1721)
    return (
        f"[tgen-stream.c:{number}] [_tgenstream_log]",
        f"[stream-{kind}] transport {_transport(stream.transport)} stream {_stream(stream)} "
        f"bytes {_bytes(stream)} times {_times(stream)}",
    )


def transport_failed() -> Line:
    """Return the line for a failed connection to the other TGen."""
    return (
        "[tgen-stream.c:1787] [_tgenstream_runTransportEventLoop]",
        "transport connection or proxy handshake failed, stream cannot begin",
    )


def unknown_model(name: str) -> Line:
    """Return the line for a request that this driver does not support."""
    return (
        "[tgen-stream.c:933] [_tgenstream_readModel]",
        f"We received model '{name}', but not with two sizes or none",
    )


def bad_model(name: str) -> Line:
    """Return the line for an invalid model of a client."""
    return (
        "[tgen-stream.c:933] [_tgenstream_readModel]",
        f"We received model '{name}', but could not instantiate it",
    )


def no_model_at_path(path: str) -> Line:
    """Return the line for a client's reference to a missing model."""
    return (
        "[tgen-stream.c:838] [_tgenstream_readHeader]",
        f"Failure loading Markov model from path {path}",
    )


def wrong_checksum(computed: str, received: str) -> Line:
    """Return the line for a payload with a wrong checksum."""
    return (
        "[tgen-stream.c:1038] [_tgenstream_readChecksum]",
        f"MD5 checksums failed: computed={computed} received={received}",
    )


def malformed_footer(stream: Stream) -> Line:
    """Return the line for a final message that is not the one that ends a stream."""
    return (
        "[tgen-stream.c:1078] [_tgenstream_readFooter]",
        f"transport {_transport(stream.transport)} stream {_stream(stream)} received malformed "
        "FIN, graceful shutdown failed.",
    )


def closed_unexpectedly(stream: Stream) -> Line:
    """Return the line for a connection that the other side has closed too early."""
    return (
        "[tgen-stream.c:492] [_tgenstream_read]",
        f"read(): transport {_transport(stream.transport)} stream {_stream(stream)} closed "
        "unexpectedly",
    )


def read_failed(stream: Stream, error: OSError) -> Line:
    """Return the line for a failed read."""
    return (
        "[tgen-stream.c:483] [_tgenstream_read]",
        f"read(): transport {_transport(stream.transport)} stream {_stream(stream)} "
        f"{_os_error(error)}",
    )


def write_failed(stream: Stream, error: OSError) -> Line:
    """Return the line for a failed write."""
    return (
        "[tgen-stream.c:1186] [_tgenstream_flushOut]",
        f"write(): transport {_transport(stream.transport)} stream {_stream(stream)} "
        f"{_os_error(error)}",
    )


# --- what a proxy answers


def proxy_login_version(proxy: Address, version: int) -> Line:
    """Return the line for an answer to a login in another protocol version."""
    return (
        "[tgen-transport.c:769] [_tgentransport_receiveSocksAuth]",
        f"socks server {proxy} returned unexpected version {version}",
    )


def proxy_login_failed(proxy: Address, username: str | None, password: str | None) -> Line:
    """Return the line for a login that the proxy rejects."""
    return (
        "[tgen-transport.c:777] [_tgentransport_receiveSocksAuth]",
        f"socks server {proxy} authentication failed with "
        f"username='{username or ''}' and password='{password or ''}'",
    )


def proxy_refused(transport: SocksTransport, status: int) -> Line:
    """Return the line for a connection that the proxy does not grant."""
    return _no_connection(
        transport,
        f"our request was not granted by the SOCKS server: error status {status:X}: "
        + _SOCKS_STATUS.get(status, "unknown error"),
    )


def proxy_version(transport: SocksTransport, version: int) -> Line:
    """Return the line for an answer to the request in another protocol version."""
    return _no_connection(
        transport, f"we support version 5 but the SOCKS server wants version {version:X}"
    )


def proxy_address_type(transport: SocksTransport, kind: int) -> Line:
    """Return the line for an address type that TGen does not support."""
    place = "[tgen-transport.c:1016] [_tgentransport_receiveSocksResponseType]"
    return place, _connection_failed(transport, f"unsupported address type 0x{kind:X}")


def _no_connection(transport: SocksTransport, reason: str) -> Line:
    place = "[tgen-transport.c:1160] [_tgentransport_receiveSocksResponseStatus]"
    return place, _connection_failed(transport, reason)


def _connection_failed(transport: SocksTransport, reason: str) -> str:
    return (
        f"connection from {transport.local} through socks proxy {transport.proxy} to "
        f"{transport.remote} failed: {reason}"
    )


# --- flows and traffics


def generator_status(generator: FlowGenerator, *, complete: bool) -> Line:
    """Return the line for the end of a child or of the model."""
    number, state = (287, "complete") if complete else (309, "still active")
    return (
        f"[tgen-generator.c:{number}] [_tgengenerator_onCompleteHelper]",
        f"Generator status for action '{generator.vertex}': completed {generator.completed} of "
        f"{generator.begun} {generator.child_kind}s, {generator.kind} is {state}",
    )


def generated(generator: FlowGenerator) -> Line:
    """Return the line for a stream or flow that has started."""
    return (
        "[tgen-generator.c:509] [_tgengenerator_generateNext]",
        f"Generated new {generator.child_kind} successfully on {generator.kind} action "
        f"'{generator.vertex}'",
    )


def not_generated(generator: FlowGenerator, delay_us: int) -> Line:
    """Return the line for a stream that could not be started."""
    return (
        "[tgen-generator.c:512] [_tgengenerator_generateNext]",
        f"Failed to create a {generator.child_kind} on {generator.kind} action "
        f"'{generator.vertex}', delaying {delay_us} microseconds before the next try",
    )


def timer_set(generator: FlowGenerator, delay_us: int) -> Line:
    """Return the line for the time of the next stream or flow."""
    return (
        "[tgen-generator.c:471] [_tgengenerator_setTimer]",
        f"Set timer of {delay_us} microseconds for {generator.kind} '{generator.vertex}'",
    )


def generator_waits(generator: FlowGenerator, delay_us: int) -> Line:
    """Return TGen's second line for the time of the next stream or flow."""
    return (
        "[tgen-generator.c:519] [_tgengenerator_generateNext]",
        f"Generator for {generator.kind} action '{generator.vertex}' will generate the next "
        f"{generator.child_kind} in {delay_us} microseconds",
    )


def timer_expired(generator: FlowGenerator) -> Line:
    """Return the line for an expired timer."""
    return (
        "[tgen-generator.c:449] [_tgengenerator_onTimerExpired]",
        f"Inter-event delay timer expired on {generator.kind} '{generator.vertex}'",
    )


def generator_at_end(generator: FlowGenerator) -> Line:
    """Return the line for the end of a flow's or traffic's model."""
    return (
        "[tgen-generator.c:533] [_tgengenerator_generateNext]",
        f"Found {generator.child_kind} end observation on {generator.kind} '{generator.vertex}' "
        f"after generating {generator.begun} {generator.child_kind}s.",
    )


# --- parts of lines


def _transport(transport: Transport) -> str:
    return (
        f"[fd={transport.fd},local={transport.local},proxy={transport.proxy or 'NULL:0.0.0.0:0'},"
        f"remote={transport.remote},state={transport.state},error={transport.fault}]"
    )


def _stream(stream: Stream) -> str:
    return (
        f"[id={stream.id},vertexid={stream.vertex},name={stream.owner.name},"
        f"peername={stream.peer_name},sendsize={stream.sending.wanted_bytes or 0},"
        f"recvsize={stream.receiving.wanted_bytes or 0},sendstate={stream.sending.state},"
        f"recvstate={stream.receiving.state},error={stream.fault}]"
    )


def _bytes(stream: Stream) -> str:
    receiving, sending = stream.receiving, stream.sending
    received = _progress(
        receiving.payload_bytes,
        receiving.wanted_bytes,
        receiving.state is ReceiveState.SUCCESS,
    )
    sent = _progress(
        sending.payload_bytes, sending.wanted_bytes, sending.state is SendState.SUCCESS
    )
    return (
        f"[total-bytes-recv={receiving.total_bytes},total-bytes-send={sending.total_bytes},"
        f"payload-bytes-recv={receiving.payload_bytes},payload-bytes-send={sending.payload_bytes},"
        f"payload-progress-recv={received},payload-progress-send={sent}]"
    )


def _progress(done: int, whole: int | None, succeeded: bool) -> str:
    if whole:
        return f"{done / whole * 100:.2f}%"
    return "100.00%" if succeeded or whole is None else "?"


def _times(stream: Stream) -> str:
    start_us = stream.started

    def since(time_us: int | None) -> int:
        return -1 if time_us is None else time_us - start_us

    transport, receiving, sending = stream.transport, stream.receiving, stream.sending
    return (
        f"[created-ts={start_us},usecs-to-socket-create=0,"
        f"usecs-to-socket-connect={since(transport.connected_at)},"
        f"usecs-to-proxy-init={since(transport.proxy_init)},"
        f"usecs-to-proxy-choice={since(transport.proxy_choice)},"
        f"usecs-to-proxy-request={since(transport.proxy_request)},"
        f"usecs-to-proxy-response={since(transport.proxy_response)},"
        f"usecs-to-command={since(stream.command_at)},"
        f"usecs-to-response={since(stream.response_at)},"
        f"usecs-to-first-byte-recv={since(receiving.first_at)},"
        f"usecs-to-last-byte-recv={since(receiving.last_at)},"
        f"usecs-to-checksum-recv={since(receiving.checksum_at)},"
        f"usecs-to-first-byte-send={since(sending.first_at)},"
        f"usecs-to-last-byte-send={since(sending.last_at)},"
        f"usecs-to-checksum-send={since(sending.checksum_at)},now-ts={stream.owner.now_us}]"
    )


def _os_error(error: OSError) -> str:
    number = error.errno or errno.EIO
    return f"error {number}: {os.strerror(number)}"
