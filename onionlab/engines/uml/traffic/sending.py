"""The sending side of a stream: messages, in the same pieces as TGen's, and payload.

A proxy may put each piece that it reads into separate cells. Each message is therefore sent alone,
in one piece. Payload is passed to the kernel in larger pieces than TGen's 32 KiB, because this
needs fewer system calls. If the log gets a status line for each piece, pieces have TGen's size.
With a packet model, payload is sent in the model's bursts.
"""

from __future__ import annotations

import socket

from . import wire
from .markov_walk import PacketSchedule
from .stream_state import Direction, SendState, StreamState

SEND_BYTES = 1 << 18
STATUS_SEND_BYTES = 1 << 15

_DONTWAIT = int(socket.MSG_DONTWAIT)
_LETTERS = memoryview(wire.PAYLOAD_LETTER * SEND_BYTES)


class Sender(Direction[SendState]):
    """Sends a stream's messages and payload."""

    def __init__(self, stream: StreamState, state: SendState, wanted_bytes: int) -> None:
        super().__init__(stream, state, wanted_bytes)
        self._message: memoryview | None = None
        self._burst_bytes = 0
        self._pauses = False

    def next(self, message: bytes) -> None:
        """Set the message that `flush` sends next."""
        self._message = memoryview(message)

    def flush(self) -> None:
        """Send as much pending data as the socket accepts."""
        stream = self._stream
        try:
            while not stream.over:
                if self._message is not None:
                    if not self.count_message(self._sock.send(self._message, _DONTWAIT)):
                        return
                elif self.state == "PAYLOAD":
                    if stream.schedule is not None:
                        if not self._send_burst(stream.schedule):
                            return
                    elif not self._send_payload():
                        return
                elif self.state == "FOOTER":
                    # The footer is the answer to the other side's checksum.
                    if stream.receive.state not in ("FOOTER", "SUCCESS"):
                        return
                    self.next(wire.FOOTER)
                else:
                    return
        except BlockingIOError:
            stream.want_writable()
        except OSError as error:
            stream.write_failed(error)

    def count_message(self, sent: int) -> bool:
        """Count sent bytes of the message. Return False if the rest of the message has to wait."""
        self._count(sent)
        assert self._message is not None
        self._message = self._message[sent:]
        if self._message:
            self._stream.want_writable()
            return False
        self._message = None
        self._message_sent()
        return True

    def end_pause(self) -> None:
        """End a pause of the packet model, so that `flush` writes and notices a socket error."""
        self._pauses = False

    def _count(self, sent: int) -> None:
        stream = self._stream
        stream.host.count_bytes(0, sent)
        if stream.transport.state == "SUCCESS_OPEN":
            self.total_bytes += sent
        stream.progress = stream.sent_at = stream.now_us

    def _message_sent(self) -> None:
        stream, now = self._stream, self._stream.now_us
        if stream.transport.state != "SUCCESS_OPEN" and stream.transport.message_sent(now):
            return
        if self.state == "COMMAND":
            stream.command_at = now
            self.state, stream.receive.state = "PAYLOAD", "AUTHENTICATE"
        elif self.state == "RESPONSE":
            stream.response_at = now
            self.state = "PAYLOAD"
        elif self.state == "CHECKSUM":
            self.checksum_at = now
            self.state = "FOOTER"
        elif self.state == "FOOTER":
            self.state = "SUCCESS"
            stream.end_if_complete()

    def _send_payload(self) -> bool:
        """Send a piece of payload. Return False if the socket is full."""
        at_once = STATUS_SEND_BYTES if self._stream.host.log.wants_info else SEND_BYTES
        at_most = min(self.wanted_bytes - self.payload_bytes, at_once)
        sent = self._send_letters(at_most)
        if self.payload_bytes == self.wanted_bytes:
            self._send_checksum()
        if sent < at_most:
            self._stream.want_writable()
            return False
        return True

    def _send_letters(self, at_most: int) -> int:
        sent = self._sock.send(_LETTERS[:at_most], _DONTWAIT)
        self._count(sent)
        self.count_payload(sent, self._stream.now_us)
        if self._stream.host.log.wants_info:
            self._stream.log_status()
        return sent

    def _send_burst(self, schedule: PacketSchedule) -> bool:
        """Send a burst of a packet model. Return False if the socket is full or a pause starts."""
        if self._pauses:
            return False
        stream = self._stream
        left = self.wanted_bytes - self.payload_bytes if self.wanted_bytes else None
        if not self._burst_bytes:
            if left == 0:
                self._send_checksum()
                return True
            if left is None and schedule.ended:
                # If the model determines the size, neither a checksum nor a closing line is sent.
                # Like TGen, do not shut down this half of the connection, because Tor would then
                # also close the other half.
                self.state = "SUCCESS"
                stream.end_if_complete()
                return True
            self._burst_bytes, pause_us = schedule.next_burst(left)
            if pause_us:
                # Send the burst now, at the start of the pause. Bytes of the burst that the socket
                # does not accept are sent after the pause.
                self._pauses = True
                stream.host.loop.at(stream.now_us + pause_us, self._resume)
        if self._burst_bytes:
            at_most = self._burst_bytes
            sent = self._send_letters(at_most)
            self._burst_bytes -= sent
            if sent < at_most and not self._pauses:
                stream.want_writable()
                return False
        return not self._pauses

    def _send_checksum(self) -> None:
        self.state = "CHECKSUM"
        self.next(wire.checksum_line(self.wanted_bytes))

    def _resume(self) -> None:
        self._pauses = False
        if not self._stream.over:
            self.flush()
