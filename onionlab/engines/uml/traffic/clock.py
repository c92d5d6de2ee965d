"""The time of one turn of the event loop."""

from __future__ import annotations

import ctypes
import struct
import time

_EVEN_NS = 10_000_000
_TIMER_ABSTIME = 1


class Clock:
    """The monotonic clock, read once per turn of the event loop.

    In virtual time nothing else would be seen: time stands still while a process computes. The wall
    clock follows from the monotonic one; nobody adjusts it during a simulation.
    """

    def __init__(self) -> None:
        self._compare()
        self._stamp = ""
        self._stamp_us = -1
        self._second = -1
        self._second_text = ""

    def start(self) -> None:
        """Wait for the next hundredth of a second of the monotonic clock.

        All later waiting is in whole milliseconds from here. How long it took to get here must not
        show in it: that depends on the checkout, on whether Python finds its modules compiled.
        """
        second, nanosecond = divmod((time.monotonic_ns() // _EVEN_NS + 1) * _EVEN_NS, 10**9)
        moment = ctypes.create_string_buffer(struct.pack("=qq", second, nanosecond), 16)
        # time.sleep() takes a duration, and the clock has moved on by the time that it gets it.
        ctypes.CDLL(None).clock_nanosleep(time.CLOCK_MONOTONIC, _TIMER_ABSTIME, moment, None)
        self._compare()

    def _compare(self) -> None:
        self.now_us = time.monotonic_ns() // 1000
        self._wall_ahead_us = time.time_ns() // 1000 - self.now_us

    def read(self) -> int:
        """Read the clock anew and return its microseconds."""
        self.now_us = time.monotonic_ns() // 1000
        return self.now_us

    def monotonic_of_unix(self, unix_us: int) -> int:
        """Return what the monotonic clock says at a Unix time."""
        return unix_us - self._wall_ahead_us

    def stamp(self) -> str:
        """Return the current time as each line of TGen's log starts with it."""
        if self._stamp_us != self.now_us:
            self._stamp_us = self.now_us
            second, micro = divmod(self.now_us + self._wall_ahead_us, 1_000_000)
            if second != self._second:
                self._second = second
                self._second_text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
            self._stamp = f"{self._second_text} {second}.{micro:06d}"
        return self._stamp
