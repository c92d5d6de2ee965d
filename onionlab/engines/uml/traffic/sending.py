"""The sending side of a stream: messages in TGen's pieces, and payload.

A proxy may put each piece into separate cells, so a message is one piece that is sent alone. A
server passes more payload to the kernel at once than TGen's 32 KiB, which needs fewer system calls.
With a packet model, payload is sent in the model's bursts.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from . import wire
from .states import ReceiveState, SendState, TransportState

if TYPE_CHECKING:
    from .packet_schedule import PacketSchedule
    from .stream import Stream

SEND_BYTES = 1 << 18
STATUS_SEND_BYTES = 1 << 15

_OPEN = TransportState.OPEN
_PAYLOAD, _FOOTER = SendState.PAYLOAD, SendState.FOOTER

_DONTWAIT = int(socket.MSG_DONTWAIT)
_LETTERS = memoryview(wire.PAYLOAD_LETTER * SEND_BYTES)


class Sending:
    """The other direction of a stream; see `Receiving`.

    wanted_bytes: the payload's size; 0: until the model ends; None: the peer expects neither
    payload nor a checksum. schedule: the bursts; None to send all at once.
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
        self.schedule: PacketSchedule | None = None
        self._burst_bytes = 0
        self._pauses = False

    def next(self, message: bytes) -> None:
        """Set the next message to send."""
        self._message = memoryview(message)

    def send(self) -> None:
        """Send as much pending data as the socket accepts."""
        stream = self._stream
        try:
            while not stream.over:
                if self._message is not None:
                    if not self.went_out(self._sock.send(self._message, _DONTWAIT)):
                        return
                elif self.state is _PAYLOAD:
                    if self.schedule is not None:
                        if not self._send_packets(self.schedule):
                            return
                    elif not self._send_payload():
                        return
                elif self.state is _FOOTER:
                    # The footer answers the other side's checksum.
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
        """Send the last message of a stream. Raises OSError if it cannot be sent immediately."""
        self._count(self._sock.send(message, _DONTWAIT))

    def went_out(self, sent: int) -> bool:
        """Count sent bytes of the message. Return False if the rest of it has to wait."""
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
            self.state = SendState.FOOTER if self.wanted_bytes is None else SendState.PAYLOAD
        elif self.state is SendState.CHECKSUM:
            self.checksum_at = now
            self.state = SendState.FOOTER
        elif self.state is _FOOTER:
            self.state = SendState.SUCCESS
            stream.end_if_complete()

    def _send_payload(self) -> bool:
        """Send a piece of payload. Return False if the socket is full."""
        assert self.wanted_bytes is not None
        owner = self._owner
        at_once = STATUS_SEND_BYTES if owner.wants_info else SEND_BYTES
        at_most = min(self.wanted_bytes - self.payload_bytes, at_once)
        sent = self._send_letters(at_most)
        if self.payload_bytes == self.wanted_bytes:
            self.state = SendState.CHECKSUM
            self.next(wire.checksum_line(self.wanted_bytes))
        if sent < at_most:
            owner.want_writable(self._stream)
            return False
        return True

    def _send_letters(self, at_most: int) -> int:
        owner = self._owner
        sent = self._sock.send(_LETTERS[:at_most], _DONTWAIT)
        self._count(sent)
        now = owner.now_us
        if self.payload_bytes == 0:
            self.first_at = now
        self.last_at = now
        self.payload_bytes += sent
        if owner.wants_info:
            self._stream.log_status()
        return sent

    def _send_packets(self, schedule: PacketSchedule) -> bool:
        """Send a burst of a packet model. Return False if the socket is full or a pause starts."""
        if self._pauses:
            return False
        left = self.wanted_bytes - self.payload_bytes if self.wanted_bytes else None
        if not self._burst_bytes:
            if left == 0 or (left is None and schedule.ended):
                self._payload_sent()
                return True
            self._burst_bytes, pause_us = schedule.next_burst(left)
            if pause_us:
                # The burst is sent before the pause, and bytes that the socket does not accept
                # after it.
                self._pauses = True
                self._owner.call_at(self._owner.now_us + pause_us, self._resume)
        if self._burst_bytes:
            at_most = self._burst_bytes
            sent = self._send_letters(at_most)
            self._burst_bytes -= sent
            if sent < at_most and not self._pauses:
                self._owner.want_writable(self._stream)
                return False
        return not self._pauses

    def end_pause(self) -> None:
        """End a packet model's pause: the connection has ended, and a write shows the error."""
        self._pauses = False

    def _resume(self) -> None:
        self._pauses = False
        if not self._stream.over:
            self.send()

    def _payload_sent(self) -> None:
        if self.wanted_bytes:
            self.state = SendState.CHECKSUM
            self.next(wire.checksum_line(self.wanted_bytes))
            return
        # If the model determines the size, neither checksum nor closing line is sent. Like TGen, do
        # not shut down this half of the connection: Tor would close the other one, too.
        self.state = SendState.SUCCESS
        self._stream.end_if_complete()
