"""The receiving side of a stream: payload is counted and discarded, other data is buffered.

It needs fewer system calls than TGen:

- Payload is discarded in the kernel (MSG_TRUNC), without a checksum unless requested.
- Between the first and the last byte of a payload, the socket wakes up the process only when a
  large piece has arrived (SO_RCVLOWAT). Each heartbeat also reads the available bytes, so that its
  counts are correct.
"""

from __future__ import annotations

import hashlib
import socket
import struct
from typing import TYPE_CHECKING

from .states import ReceiveState, TransportState

if TYPE_CHECKING:
    from .stream import Stream

READ_BYTES = 1 << 16
DISCARD_BYTES = 1 << 24

_OPEN = TransportState.OPEN
_PAYLOAD, _SUCCESS = ReceiveState.PAYLOAD, ReceiveState.SUCCESS

# Use plain numbers, because combining two flags of the socket module calls Python code.
_DONTWAIT = int(socket.MSG_DONTWAIT)
_DISCARD_FLAGS = _DONTWAIT | int(getattr(socket, "MSG_TRUNC", 0))

# The kernel does not touch this buffer when it truncates, so its pages are never allocated.
_DISCARD = memoryview(bytearray(DISCARD_BYTES))

_TCP_INFO_LAST_DATA_RECV = struct.Struct("52xI")
_TCP_INFO_BYTES = 104


class Receiving:
    """One direction of a stream.

    wanted_bytes: the payload's size; 0: until the packet model ends; None: the peer does not even
    send a checksum. total_bytes: since the transport is open. Times are microseconds of the
    monotonic clock, None if they have not happened. before_drain: the values of `last_at` and the
    stream's `progress` before a read that was caused by a heartbeat instead of an arrival; None if
    no such read followed the last arrival.
    """

    def __init__(self, stream: Stream, state: ReceiveState, wanted_bytes: int) -> None:
        self.state = state
        self.wanted_bytes: int | None = wanted_bytes
        self.total_bytes = 0
        self.payload_bytes = 0
        self.first_at: int | None = None
        self.last_at: int | None = None
        self.checksum_at: int | None = None
        self.before_drain: tuple[int | None, int | None] | None = None
        self.buffer = bytearray()
        self._stream = stream
        self._owner = stream.owner
        self._sock = stream.sock
        self._low_water = 1
        verify = stream.owner.verify_payload
        self._digest = hashlib.md5(usedforsecurity=False) if verify else None

    def read(self, *, to_the_end: bool) -> None:
        """Read the available bytes; to_the_end: including a following end of file or error.

        Data other than payload advances the stream's state.
        """
        stream, owner = self._stream, self._owner
        while not stream.over and not (self.wanted_bytes == 0 and self.state is _SUCCESS):
            discard = self.state is _PAYLOAD and not self.buffer and self._digest is None
            try:
                if discard:
                    at_most = READ_BYTES if owner.wants_info else DISCARD_BYTES
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
                if self.wanted_bytes == 0 and self.state is _PAYLOAD:
                    self.state = _SUCCESS
                    stream.end_if_complete()
                else:
                    stream.end_of_file()
                return
            owner.count_bytes(got, 0)
            if stream.transport.state is _OPEN:
                self.total_bytes += got
            stream.progress = owner.now_us
            self.before_drain = None
            if discard:
                self._count_payload(got)
            else:
                stream.process()
            if got < at_most and not to_the_end:
                return

    def take(self, count: int) -> bytes | None:
        """Remove the first bytes from the buffer and return them, or None if there are fewer."""
        if len(self.buffer) < count:
            return None
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    def take_payload(self) -> None:
        """Remove the payload from the buffer."""
        count = len(self.buffer)
        if self.wanted_bytes:
            count = min(count, self.wanted_bytes - self.payload_bytes)
        if count:
            taken = self.take(count)
            if self._digest is not None and taken is not None:
                self._digest.update(taken)
            self._count_payload(count)

    def payload_md5(self) -> str | None:
        """Return the MD5 sum of the payload as hexadecimal digits, or None if not requested."""
        return None if self._digest is None else self._digest.hexdigest()

    def _count_payload(self, count: int) -> None:
        owner = self._owner
        now = owner.now_us
        if self.payload_bytes == 0:
            self.first_at = now
        self.last_at = now
        self.payload_bytes += count
        if not self.wanted_bytes:
            if owner.wants_info:
                self._stream.log_status()
            self._stream.end_if_complete()
            return
        left = self.wanted_bytes - self.payload_bytes
        if left == 0:
            self.state = ReceiveState.CHECKSUM
        elif owner.wants_info:
            self._stream.log_status()
        # Wake up the process when the rest of the payload or a large piece of it has arrived.
        low_water = max(1, min(left, owner.low_water_bytes))
        if low_water != self._low_water:
            self._low_water = low_water
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    def drain(self) -> None:
        """Count bytes that have arrived without a wake-up."""
        if self._low_water > 1 and self.state is _PAYLOAD:
            before = self.before_drain or (self.last_at, self._stream.progress)
            bytes_before = self.payload_bytes
            self.read(to_the_end=False)
            if self.payload_bytes > bytes_before and self.state is _PAYLOAD:
                self.before_drain = before

    def correct_drained_times(self) -> None:
        """Ask the kernel for the arrival time of the last bytes if a heartbeat found them."""
        if self.before_drain is None:
            return
        last_at, progress = self.before_drain
        self.before_drain = None
        info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        (ago_ms,) = _TCP_INFO_LAST_DATA_RECV.unpack_from(info)
        arrived = self._owner.now_us - ago_ms * 1000
        if self.last_at is not None:
            self.last_at = max(last_at or 0, min(self.last_at, arrived))
        if self._stream.progress is not None:
            self._stream.progress = max(progress or 0, min(self._stream.progress, arrived))
