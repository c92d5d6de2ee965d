"""How far the runs are: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from analysis.formats.attempt import RunState

PLAIN_INTERVAL_S = 30.0
RECENT_S = 120.0
"""Wall time over which a run's pace is told: a bootstrap goes many times as fast as load."""
LEAST_S = 10.0
"""Over less of it a pace is chance."""


class _Paces:
    """How fast runs go of late: simulated seconds per second of wall time."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def take(self, states: Sequence[RunState]) -> None:
        """Note how far the runs under way are."""
        self._seen = {state.title: self._with(state) for state in states}

    def _with(self, state: RunState) -> deque[tuple[float, float]]:
        seen = self._seen.get(state.title, deque())
        if seen and state.wall_s < seen[-1][0]:
            seen = deque()  # it began again
        if not seen or state.wall_s > seen[-1][0]:
            seen.append((state.wall_s, state.simulated_s))
        while len(seen) > 1 and state.wall_s - seen[1][0] >= RECENT_S:
            seen.popleft()
        return seen

    def of(self, state: RunState) -> float:
        """The pace of a run that was taken; over all its time where it was not seen for long."""
        wall_s, simulated_s = self._seen[state.title][0]
        passed_s = state.wall_s - wall_s
        return state.speed if passed_s < LEAST_S else (state.simulated_s - simulated_s) / passed_s

    def left(self, state: RunState) -> str | None:
        """The wall time to a run's end at its pace; None while it has none."""
        pace = self.of(state)
        return _duration((state.stop_s - state.simulated_s) / pace) if pace > 0 else None


class ProgressView:
    """Shows the state of the runs until its block ends."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        self._total = total
        self._console = console or Console(file=getattr(sys.stdout, "terminal", None))
        self._live = (
            Live(console=self._console, refresh_per_second=2, transient=True)
            if self._console.is_terminal
            else None
        )
        self._started = self._last_shown = time.monotonic()
        self._worked_s = 0.0
        self._last_plain = self._started - PLAIN_INTERVAL_S
        self._last_finished = 0
        self._last_waiting: set[str] = set()
        self._paces = _Paces()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def show(
        self,
        finished: int,
        states: Sequence[RunState],
        holders: Sequence[object] = (),
        notes: Sequence[str] = (),
    ) -> None:
        """Show the present state.

        On no terminal that is a line now and then, at each run that is finished, and where one
        begins to wait. On a full disk nothing is shown, and the runs go on.

        Args:
            finished: how many runs are.
            states: of the runs under way.
            holders: who has what some of them wait for.
            notes: what else there is to say, as of the queue of a cluster.
        """
        now = time.monotonic()
        elapsed_s = now - self._started
        waiting = {state.title for state in states if state.waiting}
        self._worked_s += (now - self._last_shown) * _share_at_work(states)
        self._last_shown = now
        self._paces.take(states)
        with contextlib.suppress(OSError):
            if self._live:
                self._live.update(self._table(finished, states, holders, notes, elapsed_s))
            elif (
                finished != self._last_finished
                or waiting - self._last_waiting
                or now - self._last_plain >= PLAIN_INTERVAL_S
            ):
                self._last_finished, self._last_plain = finished, now
                parts = [self._line(state) for state in states]
                if waiting:
                    parts += map(str, holders)
                parts += notes
                self._console.print(
                    f"[{_duration(elapsed_s)}] {finished}/{self._total} runs done"
                    + self._left(finished, states, ", ")
                    + "".join(f"; {part}" for part in parts),
                    markup=False,
                    highlight=False,
                    soft_wrap=True,
                )
        self._last_waiting = waiting

    def _left(self, finished: int, states: Sequence[RunState], before: str) -> str:
        """The time that all of it still takes, if the other runs are as those so far.

        Waiting is no part of that: nobody knows how long it will last.
        """
        if not finished or finished == self._total:
            return ""
        done = finished + sum(s.simulated_s / s.stop_s for s in states if not s.waiting)
        left_s = self._worked_s / done * (self._total - done)
        return f"{before}about {_duration(60 * round(left_s / 60))} left" if left_s > 60 else ""

    def _table(
        self,
        finished: int,
        states: Sequence[RunState],
        holders: Sequence[object],
        notes: Sequence[str],
        elapsed_s: float,
    ) -> Table:
        below = [*(holders if any(state.waiting for state in states) else ()), *notes]
        table = Table(
            title=f"{finished} of {self._total} runs done, {_duration(elapsed_s)}"
            + self._left(finished, states, "; "),
            title_justify="left",
            caption="\n".join(escape(str(line)) for line in below) or None,
            caption_justify="left",
        )
        table.add_column("running")
        for name in ("simulated", "speed", "left", "memory"):
            table.add_column(name, justify="right")
        for state in states:
            if state.waiting:
                table.add_row(state.title, "waits for a CPU")
                continue
            table.add_row(
                state.title,
                f"{state.simulated_s:.0f} of {state.stop_s:.0f} s",
                f"{_two_digits(self._paces.of(state))} s/s",
                self._paces.left(state) or "-",
                f"{state.memory_bytes / 2**20:.0f} MiB",
            )
        return table

    def _line(self, state: RunState) -> str:
        if state.waiting:
            return f"{state.title}: waits for a CPU"
        left = self._paces.left(state)
        return (
            f"{state.title}: {state.simulated_s:.0f}/{state.stop_s:.0f} s simulated at "
            f"{_two_digits(self._paces.of(state))} s/s{f', {left} left' if left else ''}, "
            f"{state.memory_bytes / 2**20:.0f} MiB"
        )


def _share_at_work(states: Sequence[RunState]) -> float:
    """How many of the runs under way are at work and do not wait, as a share."""
    if not states:
        return 1.0
    return sum(not state.waiting for state in states) / len(states)


def _two_digits(number: float) -> str:
    return f"{number:.2g}" if number < 99.5 else f"{number:.0f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
