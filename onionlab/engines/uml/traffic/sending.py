"""What goes out over a stream: messages in TGen's pieces, and payload.

A proxy may pack each piece into cells of its own, so a message is one piece and nothing is sent
together with it. A server offers the kernel more payload at once than TGen's 32 KiB, which takes
fewer system calls.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from . import wire
from .states import ReceiveState, SendState, TransportState

if TYPE_CHECKING:
    from .stream import Stream

SEND_BYTES = 1 << 18
STATUS_SEND_BYTES = 1 << 15

_OPEN = TransportState.OPEN
_PAYLOAD, _FOOTER = SendState.PAYLOAD, SendState.FOOTER

_DONTWAIT = int(socket.MSG_DONTWAIT)
_LETTERS = memoryview(wire.PAYLOAD_LETTER * SEND_BYTES)


class Sending:
    """The other direction of a stream; see `Receiving`.

    wanted_bytes: of payload; None: the peer wants none, and no checksum either.
    """

    def __init__(self, stream: Stream, state: SendState, wanted_bytes: int) -> None:
        self.state = state
        self.wanted_bytes: int | None = wanted_bytes
        self.total_bytes = 0
        self.payload_bytes = 0
        self.first_at: int | None = None
        self.last_at: int | None = None
        self.checksum_at: int | None = None
        self._stream = stream
        self._owner = stream.owner
        self._sock = stream.sock
        self._message: memoryview | None = None

    def next(self, message: bytes) -> None:
        """Let a message be the next to be sent."""
        self._message = memoryview(message)

    def send(self) -> None:
        """Send as much as the socket takes of what is to be sent."""
        stream = self._stream
        try:
            while not stream.over:
                if self._message is not None:
                    if not self.went_out(self._sock.send(self._message, _DONTWAIT)):
                        return
                elif self.state is _PAYLOAD:
                    if not self._send_payload():
                        return
                elif self.state is _FOOTER:
                    # It answers the other side's checksum.
                    if stream.receiving.state not in (ReceiveState.FOOTER, ReceiveState.SUCCESS):
                        return
                    self.next(wire.FOOTER)
                else:
                    return
        except BlockingIOError:
            self._owner.want_writable(stream)
        except OSError as error:
            stream.write_failed(error)

    def send_last_message(self, message: bytes) -> None:
        """Send a message after which nothing follows. Raises OSError where it does not go now."""
        self._count(self._sock.send(message, _DONTWAIT))

    def went_out(self, sent: int) -> bool:
        """Take note of so many bytes of the message; False when the rest of it has to wait."""
        self._count(sent)
        assert self._message is not None
        self._message = self._message[sent:]
        if self._message:
            self._owner.want_writable(self._stream)
            return False
        self._message = None
        self._message_sent()
        return True

    def _count(self, sent: int) -> None:
        self._owner.count_bytes(0, sent)
        if self._stream.transport.state is _OPEN:
            self.total_bytes += sent
        self._stream.progress = self._owner.now_us

    def _message_sent(self) -> None:
        stream, now = self._stream, self._owner.now_us
        if stream.transport.state is not _OPEN and stream.transport.message_sent(now):
            return
        if self.state is SendState.COMMAND:
            stream.command_at = now
            self.state, stream.receiving.state = SendState.PAYLOAD, ReceiveState.AUTHENTICATE
        elif self.state is SendState.RESPONSE:
            stream.response_at = now
            self.state = SendState.PAYLOAD if self.wanted_bytes else SendState.FOOTER
        elif self.state is SendState.CHECKSUM:
            self.checksum_at = now
            self.state = SendState.FOOTER
        elif self.state is _FOOTER:
            self.state = SendState.SUCCESS
            stream.end_if_complete()

    def _send_payload(self) -> bool:
        """Send a piece of payload; False when the socket is full."""
        assert self.wanted_bytes is not None
        owner = self._owner
        at_once = STATUS_SEND_BYTES if owner.wants_info else SEND_BYTES
        at_most = min(self.wanted_bytes - self.payload_bytes, at_once)
        sent = self._sock.send(_LETTERS[:at_most], _DONTWAIT)
        self._count(sent)
        now = owner.now_us
        if self.payload_bytes == 0:
            self.first_at = now
        self.last_at = now
        self.payload_bytes += sent
        if owner.wants_info:
            self._stream.log_status()
        if self.payload_bytes == self.wanted_bytes:
            self.state = SendState.CHECKSUM
            self.next(wire.checksum_line(self.wanted_bytes))
        if sent < at_most:
            owner.want_writable(self._stream)
            return False
        return True
