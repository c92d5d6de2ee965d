"""The receiving side of a stream: payload is counted and discarded, other data is buffered.

The driver needs fewer system calls for this than TGen:

- Payload is discarded in the kernel (MSG_TRUNC), and its checksum is not compared.
- Between the first and the last byte of a payload, the socket wakes up the process only when a
  large piece has arrived (SO_RCVLOWAT). Each heartbeat also reads the available bytes, so that the
  heartbeat's counts are correct.
"""

from __future__ import annotations

import socket
import struct

from .stream_state import Direction, ReceiveState, StreamState

READ_BYTES = 1 << 16
DISCARD_BYTES = 1 << 24

# Use plain numbers, because combining two flags of the socket module calls Python code.
_DONTWAIT = int(socket.MSG_DONTWAIT)
_DISCARD_FLAGS = _DONTWAIT | int(getattr(socket, "MSG_TRUNC", 0))

# With MSG_TRUNC, the kernel does not write to this buffer, so its pages are never allocated.
_DISCARD = memoryview(bytearray(DISCARD_BYTES))

_TCP_INFO_LAST_DATA_RECV = struct.Struct("52xI")
_TCP_INFO_BYTES = 104


class Receiver(Direction[ReceiveState]):
    """Receives a stream's messages and payload. buffer: received bytes that are not yet processed.

    _before_drain: None if the process was woken up for the bytes that it read last. If heartbeats
    read them without such a wake-up, these are the values of `last_at` and of the stream's
    `progress` before the first of these heartbeats.
    """

    def __init__(self, stream: StreamState, state: ReceiveState, wanted_bytes: int) -> None:
        super().__init__(stream, state, wanted_bytes)
        self.buffer = bytearray()
        self._low_water = 1
        self._before_drain: tuple[int | None, int | None] | None = None

    def read(self, *, to_the_end: bool) -> None:
        """Read the available bytes.

        to_the_end: whether an end of file or an error follows the available bytes. In this case,
        continue until the end of file or the error is read as well.
        """
        stream = self._stream
        while not stream.over and not (self.wanted_bytes == 0 and self.state == "SUCCESS"):
            discard = self.state == "PAYLOAD" and not self.buffer
            try:
                if discard:
                    at_most = READ_BYTES if stream.host.log.wants_info else DISCARD_BYTES
                    if self.wanted_bytes:
                        at_most = min(self.wanted_bytes - self.payload_bytes, at_most)
                    got = self._sock.recv_into(_DISCARD, at_most, _DISCARD_FLAGS)
                else:
                    at_most = READ_BYTES
                    data = self._sock.recv(at_most, _DONTWAIT)
                    got = len(data)
                    self.buffer += data
            except BlockingIOError:
                return
            except OSError as error:
                stream.read_failed(error)
                return
            if got == 0:
                if self.wanted_bytes == 0 and self.state == "PAYLOAD":
                    self.state = "SUCCESS"
                    stream.end_if_complete()
                else:
                    stream.end_of_file()
                return
            stream.host.count_bytes(got, 0)
            if stream.transport.state == "SUCCESS_OPEN":
                self.total_bytes += got
            stream.progress = stream.now_us
            self._before_drain = None
            if discard:
                self._count_payload(got)
            else:
                stream.process()
            if got < at_most and not to_the_end:
                return

    def take_payload(self) -> None:
        """Remove payload from the buffer and count it."""
        count = len(self.buffer)
        if self.wanted_bytes:
            count = min(count, self.wanted_bytes - self.payload_bytes)
        if count:
            del self.buffer[:count]
            self._count_payload(count)

    def _count_payload(self, count: int) -> None:
        stream = self._stream
        wants_info = stream.host.log.wants_info
        self.count_payload(count, stream.now_us)
        if not self.wanted_bytes:
            if wants_info:
                stream.log_status()
            stream.end_if_complete()
            return
        left = self.wanted_bytes - self.payload_bytes
        if left == 0:
            self.state = "CHECKSUM"
        elif wants_info:
            stream.log_status()
        # Wake up the process when the rest of the payload or a large piece of it has arrived.
        low_water = max(1, min(left, stream.host.low_water_bytes))
        if low_water != self._low_water:
            self._low_water = low_water
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    def drain(self) -> None:
        """Read and count payload that has arrived without a wake-up."""
        if self._low_water > 1 and self.state == "PAYLOAD":
            before = self._before_drain or (self.last_at, self._stream.progress)
            bytes_before = self.payload_bytes
            self.read(to_the_end=False)
            if self.payload_bytes > bytes_before and self.state == "PAYLOAD":
                self._before_drain = before

    def last_wake_up(self) -> int | None:
        """Return the time of the last byte that was sent or that woke up the process on arrival.

        Bytes that only a heartbeat has read do not count. Return None before the connection is
        established.
        """
        if self._before_drain is not None and self._before_drain[1] is not None:
            return max(self._before_drain[1], self._stream.sent_at or 0)
        return self._stream.progress

    def correct_drained_times(self) -> None:
        if self._before_drain is None:
            return
        stream = self._stream
        last_at, progress = self._before_drain
        self._before_drain = None
        info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        (ago_ms,) = _TCP_INFO_LAST_DATA_RECV.unpack_from(info)
        arrived = stream.now_us - ago_ms * 1000
        if self.last_at is not None:
            self.last_at = max(last_at or 0, min(self.last_at, arrived))
        if stream.progress is not None:
            arrived = min(stream.progress, arrived)
            stream.progress = max(progress or 0, stream.sent_at or 0, arrived)
