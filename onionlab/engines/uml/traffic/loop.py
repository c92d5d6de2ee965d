"""The event loop: one epoll object, one heap of timers, and a clock that is read once per turn.

A turn is one wait for events and the callbacks for these events and for expired timers.
"""

from __future__ import annotations

import ctypes
import heapq
import select
import struct
import time
from collections import deque
from collections.abc import Callable

from onionlab.errors import UserError

LEVEL_IN = select.EPOLLIN
EDGE_IN = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
EDGE_IN_OUT = EDGE_IN | select.EPOLLOUT

MAX_TURNS_IN_AN_INSTANT = 1_000_000
"""The maximum number of turns without time passing. If there are more, `run` raises UserError. The
guest's virtual time stands still while a process computes, so endless turns could stop it forever.
"""

_START_STEP_NS = 10_000_000
_TIMER_ABSTIME = 1


class Loop:
    """An event loop, which invokes the callbacks of sockets and timers until `stop` is called.

    now_us: the time of the monotonic clock in microseconds, read once per turn. One reading is
    enough, because the guest's virtual time stands still while a process computes. The wall clock
    is read only at the start. Later its time is computed from the monotonic clock. This is exact,
    because nothing adjusts the wall clock during a simulation. turns: the number of turns so far.

    Sockets of streams are watched edge-triggered: unhandled events are not reported again, so
    half-closed or idle sockets cost nothing.
    """

    def __init__(self) -> None:
        self.turns = 0
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._soon: deque[Callable[[], None]] = deque()
        self._stopped = False
        self._compare_clocks()
        self._stamp = ""
        self._stamp_us = -1
        self._second = -1
        self._second_text = ""

    # --- the clock

    def wait_for_start(self) -> None:
        """Wait until the monotonic clock reaches the next multiple of 10 ms.

        All later waits end a whole number of milliseconds after this time. The rounding makes this
        time independent of how long Python takes to start. This duration differs between checkouts,
        for example if Python has to compile its modules.
        """
        start_ns = (time.monotonic_ns() // _START_STEP_NS + 1) * _START_STEP_NS
        moment = ctypes.create_string_buffer(struct.pack("=qq", *divmod(start_ns, 10**9)), 16)
        # This call sleeps until a given time. time.sleep() would need a duration, and the clock
        # could advance between the computation of the duration and the call.
        ctypes.CDLL(None).clock_nanosleep(time.CLOCK_MONOTONIC, _TIMER_ABSTIME, moment, None)
        self._compare_clocks()

    def _compare_clocks(self) -> None:
        self.now_us = time.monotonic_ns() // 1000
        self._wall_ahead_us = time.time_ns() // 1000 - self.now_us

    def monotonic_from_unix(self, unix_us: int) -> int:
        """Return the time of the monotonic clock at a Unix time."""
        return unix_us - self._wall_ahead_us

    def stamp(self) -> str:
        """Return the current time in the format with which each line of TGen's log starts."""
        if self._stamp_us != self.now_us:
            self._stamp_us = self.now_us
            second, micro = divmod(self.now_us + self._wall_ahead_us, 1_000_000)
            if second != self._second:
                self._second = second
                self._second_text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
            self._stamp = f"{self._second_text} {second}.{micro:06d}"
        return self._stamp

    # --- events

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Invoke `callback` when a descriptor has one of `events`.

        The callback gets the mask of all events that epoll reports for the descriptor.
        """
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def want_writable(self, fd: int) -> None:
        """Also invoke the callback of a watched socket when the socket is writable again."""
        self._epoll.modify(fd, EDGE_IN_OUT)

    def forget(self, fd: int) -> None:
        """Forget a descriptor's callback. The caller closes the descriptor.

        The kernel then removes the descriptor from the epoll object.
        """
        self._callbacks.pop(fd, None)

    def at(self, time_us: int, callback: Callable[[], None]) -> None:
        """Invoke `callback` once, when the monotonic clock reaches `time_us`."""
        self._timer_count += 1
        heapq.heappush(self._timers, (time_us, self._timer_count, callback))

    def soon(self, callback: Callable[[], None]) -> None:
        """Invoke `callback` once in this turn, after the current callback has returned."""
        self._soon.append(callback)

    def stop(self) -> None:
        """Make `run` return after this turn."""
        self._stopped = True

    def run(self) -> None:
        """Run the loop until `stop` is called. Raises UserError if time does not advance."""
        callbacks, timers, soon = self._callbacks, self._timers, self._soon
        instant_us, turns_in_instant = -1, 0
        while not self._stopped:
            # poll() rounds the timeout up to a whole millisecond, so a timer may expire late, but
            # by less than a millisecond.
            timeout_s = max(0, timers[0][0] - self.now_us) / 1_000_000 if timers else None
            events = self._epoll.poll(timeout_s)
            now = self.now_us = time.monotonic_ns() // 1000
            self.turns += 1
            turns_in_instant = turns_in_instant + 1 if now == instant_us else 0
            instant_us = now
            if turns_in_instant >= MAX_TURNS_IN_AN_INSTANT:
                raise UserError(
                    f"{turns_in_instant} events of sockets and timers without time passing",
                    "This is a bug in the traffic driver, or the clock does not advance.",
                )
            for fd, mask in events:
                # An earlier event of this turn may have closed this descriptor.
                callback = callbacks.get(fd)
                if callback is not None:
                    callback(mask)
                while soon:
                    soon.popleft()()
            while timers and timers[0][0] <= now:
                heapq.heappop(timers)[2]()
                while soon:
                    soon.popleft()()

    def close(self) -> None:
        """Close the epoll descriptor."""
        self._epoll.close()
