"""The clock of the event loop, which is read once per turn."""

from __future__ import annotations

import ctypes
import struct
import time

_EVEN_NS = 10_000_000
_TIMER_ABSTIME = 1


class Clock:
    """The monotonic clock, read once per turn of the event loop.

    In virtual time this makes no difference, because time stops while a process computes. The wall
    clock is derived from the monotonic one, because nothing adjusts it during a simulation.
    """

    def __init__(self) -> None:
        self._compare()
        self._stamp = ""
        self._stamp_us = -1
        self._second = -1
        self._second_text = ""

    def start(self) -> None:
        """Wait for the next hundredth of a second of the monotonic clock.

        All later waits are in whole milliseconds from this point. They must not depend on the time
        of the start, which depends on the checkout (on whether Python finds its modules compiled).
        """
        second, nanosecond = divmod((time.monotonic_ns() // _EVEN_NS + 1) * _EVEN_NS, 10**9)
        moment = ctypes.create_string_buffer(struct.pack("=qq", second, nanosecond), 16)
        # time.sleep() uses a duration, and the clock advances before the call begins.
        ctypes.CDLL(None).clock_nanosleep(time.CLOCK_MONOTONIC, _TIMER_ABSTIME, moment, None)
        self._compare()

    def _compare(self) -> None:
        self.now_us = time.monotonic_ns() // 1000
        self._wall_ahead_us = time.time_ns() // 1000 - self.now_us

    def read(self) -> int:
        """Read the clock and return its microseconds."""
        self.now_us = time.monotonic_ns() // 1000
        return self.now_us

    def monotonic_of_unix(self, unix_us: int) -> int:
        """Return the time of the monotonic clock at a Unix time."""
        return unix_us - self._wall_ahead_us

    def stamp(self) -> str:
        """Return the current time in the format at the start of each line of TGen's log."""
        if self._stamp_us != self.now_us:
            self._stamp_us = self.now_us
            second, micro = divmod(self.now_us + self._wall_ahead_us, 1_000_000)
            if second != self._second:
                self._second = second
                self._second_text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
            self._stamp = f"{self._second_text} {second}.{micro:06d}"
        return self._stamp
