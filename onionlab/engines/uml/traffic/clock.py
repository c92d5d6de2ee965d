"""The time of one turn of the event loop."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """The monotonic clock, read once per turn of the event loop.

    In virtual time nothing else would be seen: time stands still while a process computes. The wall
    clock follows from the monotonic one; nobody adjusts it during a simulation.
    """

    def __init__(self) -> None:
        self.now_us = time.monotonic_ns() // 1000
        self._wall_ahead_us = time.time_ns() // 1000 - self.now_us
        self._stamp = ""
        self._stamp_us = -1
        self._second = -1
        self._second_text = ""

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
