"""Progress of the runs: a live table on a terminal, otherwise plain lines."""

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
"""Wall time over which a run's pace is measured: a bootstrap is many times as fast as load."""
MIN_PACE_S = 10.0
"""A pace over a shorter time would be random."""


class _Paces:
    """Recent speeds of the runs: simulated seconds per second of wall time."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def take(self, states: Sequence[RunState]) -> None:
        """Record the states of the runs under way."""
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
        """Return the recent pace of a run, or that over all its time if it was seen briefly."""
        wall_s, simulated_s = self._seen[state.title][0]
        passed_s = state.wall_s - wall_s
        return (
            state.speed if passed_s < MIN_PACE_S else (state.simulated_s - simulated_s) / passed_s
        )

    def left(self, state: RunState) -> str | None:
        """Return the wall time to a run's end at its pace; None without a pace."""
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
        owners: Sequence[object] = (),
        notes: Sequence[str] = (),
    ) -> None:
        """Show the present state.

        Without a terminal, this prints a line every 30 s, and when a run is finished or begins to
        wait. Errors of a full disk are ignored.

        Args:
            finished: Number of finished runs.
            states: States of the runs under way.
            owners: Processes that hold the CPUs for which some of them wait.
            notes: Further lines.
        """
        now = time.monotonic()
        elapsed_s = now - self._started
        waiting = {state.title for state in states if state.waiting}
        below = [*(owners if waiting else ()), *notes]
        self._worked_s += (now - self._last_shown) * _share_at_work(states)
        self._last_shown = now
        self._paces.take(states)
        with contextlib.suppress(OSError):
            if self._live:
                self._live.update(self._table(finished, states, below, elapsed_s))
            elif (
                finished != self._last_finished
                or waiting - self._last_waiting
                or now - self._last_plain >= PLAIN_INTERVAL_S
            ):
                self._last_finished, self._last_plain = finished, now
                parts = [self._line(state) for state in states]
                parts += map(str, below)
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
        """Return the remaining time if the other runs are like those so far, without waiting."""
        if not finished or finished == self._total:
            return ""
        done = finished + sum(s.simulated_s / s.stop_s for s in states if not s.waiting)
        left_s = self._worked_s / done * (self._total - done)
        return f"{before}about {_duration(60 * round(left_s / 60))} left" if left_s > 60 else ""

    def _table(
        self,
        finished: int,
        states: Sequence[RunState],
        below: Sequence[object],
        elapsed_s: float,
    ) -> Table:
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
    """Return the share of the runs under way that do not wait."""
    if not states:
        return 1.0
    return sum(not state.waiting for state in states) / len(states)


def _two_digits(number: float) -> str:
    return f"{number:.2g}" if number < 99.5 else f"{number:.0f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
