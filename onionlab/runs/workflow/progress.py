"""Show the progress of runs: a live table on a terminal, otherwise plain lines."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from itertools import starmap
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from analysis.formats.attempt import RunState
from onionlab.engines.examination import format_bytes

PLAIN_INTERVAL_S = 30.0
RECENT_S = 120.0
"""Wall time over which a run's pace is measured. Earlier progress does not count, because a
network's bootstrap is simulated many times faster than its traffic."""
MIN_PACE_S = 10.0
"""Minimum wall time for measuring a pace. Over a shorter time, the pace would be inaccurate."""


class ProgressView:
    """Context manager that shows the state of a command's runs. total: the number of the runs."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        self._total = total
        self._console = console or Console(file=getattr(sys.stdout, "terminal", None))
        is_terminal = self._console.is_terminal
        self._live = Live(console=self._console, refresh_per_second=2, transient=True)
        self._live_block = self._live if is_terminal else contextlib.nullcontext()
        self._started = self._last_shown = time.monotonic()
        self._worked_s = 0.0
        self._last_plain = self._started - PLAIN_INTERVAL_S
        self._last_finished = 0
        self._last_waiting: set[str] = set()
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def __enter__(self) -> Self:
        self._live_block.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live_block.__exit__(None, None, None)

    def show(
        self, finished: int, states: Mapping[str, RunState], owners: Sequence[object] = ()
    ) -> None:
        """Show the current state.

        Without a terminal, this prints a line every 30 s, and when a run is finished or begins to
        wait. Errors of the output, such as a full disk, are ignored. finished: the number of
        finished runs. states: the states of the runs in progress, by the runs' names, because runs
        of several engines may have the same title. owners: the processes that hold the CPUs for
        which runs wait.
        """
        now = time.monotonic()
        waiting = {run_id for run_id, state in states.items() if state.waiting}
        below = list(map(str, owners)) if waiting else []
        # A run makes no progress while it waits for a CPU. Multiply the time since the last call by
        # the share of runs that do not wait.
        working = 1 - len(waiting) / len(states) if states else 1.0
        self._worked_s += (now - self._last_shown) * working
        self._last_shown = now
        self._seen = {run_id: self._recent(run_id, state) for run_id, state in states.items()}
        elapsed = _duration(now - self._started)
        left = self._left(finished, states.values())
        with contextlib.suppress(OSError):
            if self._console.is_terminal:
                title = f"{finished} of {self._total} runs done, {elapsed}{left and f'; {left}'}"
                self._live.update(self._table(title, states, below))
            elif (
                finished != self._last_finished
                or waiting - self._last_waiting
                or now - self._last_plain >= PLAIN_INTERVAL_S
            ):
                self._last_finished, self._last_plain = finished, now
                text = f"[{elapsed}] {finished}/{self._total} runs done{left and f', {left}'}"
                parts = [text, *starmap(self._line, states.items()), *below]
                self._console.print("; ".join(parts), markup=False, highlight=False, soft_wrap=True)
        self._last_waiting = waiting

    def _recent(self, run_id: str, state: RunState) -> deque[tuple[float, float]]:
        """Return pairs (wall time, simulated time) of a run, oldest first.

        If any pair is at least `RECENT_S` of wall time old, the first pair is the newest such pair.
        """
        seen = self._seen.get(run_id, deque())
        if seen and state.wall_s < seen[-1][0]:
            seen = deque()  # the run was started again
        if not seen or state.wall_s > seen[-1][0]:
            seen.append((state.wall_s, state.simulated_s))
        while len(seen) > 1 and state.wall_s - seen[1][0] >= RECENT_S:
            seen.popleft()
        return seen

    def _pace(self, run_id: str, state: RunState) -> tuple[str, str]:
        """Return a run's simulated seconds per wall second, and the wall time left at this pace.

        Both are strings. The time is "" if the run makes no progress.
        """
        wall_s, simulated_s = self._seen[run_id][0]
        passed_s, pace = state.wall_s - wall_s, state.speed
        if passed_s >= MIN_PACE_S:
            pace = (state.simulated_s - simulated_s) / passed_s
        left = _duration((state.stop_s - state.simulated_s) / pace) if pace > 0 else ""
        return f"{pace:.2g}" if pace < 99.5 else f"{pace:.0f}", left

    def _left(self, finished: int, states: Collection[RunState]) -> str:
        """Return the remaining time of all runs as a string such as "about 5:00 left".

        Assume that a remaining run takes as long as a finished run. The string is empty if no run
        is finished, if all runs are finished, or if at most a minute remains.
        """
        if not finished or finished == self._total:
            return ""
        done = finished + sum(s.simulated_s / s.stop_s for s in states if not s.waiting)
        left_s = self._worked_s / done * (self._total - done)
        return f"about {_duration(60 * round(left_s / 60))} left" if left_s > 60 else ""

    def _table(self, title: str, states: Mapping[str, RunState], below: Sequence[str]) -> Table:
        caption = escape("\n".join(below)) or None
        table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
        table.add_column("running")
        for name in ("simulated", "speed", "left", "memory"):
            table.add_column(name, justify="right")
        for run_id, state in states.items():
            if state.waiting:
                table.add_row(state.title, "waits for a CPU")
                continue
            pace, left = self._pace(run_id, state)
            simulated = f"{state.simulated_s:.0f} of {state.stop_s:.0f} s"
            memory = format_bytes(state.memory_bytes)
            table.add_row(state.title, simulated, f"{pace} s/s", left or "-", memory)
        return table

    def _line(self, run_id: str, state: RunState) -> str:
        if state.waiting:
            return f"{state.title}: waits for a CPU"
        pace, left = self._pace(run_id, state)
        simulated = f"{state.simulated_s:.0f}/{state.stop_s:.0f} s simulated at {pace} s/s"
        parts = [f"{state.title}: {simulated}", left and f"{left} left"]
        return ", ".join(filter(None, [*parts, format_bytes(state.memory_bytes)]))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
