"""How far the runs are: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from analysis.formats.attempt import RunState

PLAIN_INTERVAL_S = 30.0


class ProgressView:
    """Shows the state of the runs until its block ends."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        self._total = total
        self._console = console or Console()
        self._live = (
            Live(console=self._console, refresh_per_second=2, transient=True)
            if self._console.is_terminal
            else None
        )
        self._started = time.monotonic()
        self._last_plain = -PLAIN_INTERVAL_S
        self._last_finished = 0

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

    def show(self, finished: int, running: Sequence[RunState]) -> None:
        """Show the present state; on no terminal, a line now and then and at each finished run."""
        if self._live:
            self._live.update(self._table(finished, running))
            return
        now = time.monotonic()
        if finished != self._last_finished or now - self._last_plain >= PLAIN_INTERVAL_S:
            self._last_finished, self._last_plain = finished, now
            states = "; ".join(_line(state) for state in running)
            self._console.print(
                f"[{_duration(now - self._started)}] {finished}/{self._total} runs done"
                + self._left(finished, running, ", ")
                + (f"; {states}" if states else ""),
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def _left(self, finished: int, running: Sequence[RunState], before: str) -> str:
        """The time that all of it still takes, if the other runs are as those so far."""
        if not finished or finished == self._total:
            return ""
        done = finished + sum(state.simulated_s / state.stop_s for state in running)
        left_s = (time.monotonic() - self._started) / done * (self._total - done)
        return f"{before}about {_duration(60 * round(left_s / 60))} left" if left_s > 60 else ""

    def _table(self, finished: int, running: Sequence[RunState]) -> Table:
        elapsed = _duration(time.monotonic() - self._started)
        table = Table(
            title=f"{finished} of {self._total} runs done, {elapsed}"
            + self._left(finished, running, "; "),
            title_justify="left",
        )
        table.add_column("running")
        for name in ("simulated", "speed", "left", "memory"):
            table.add_column(name, justify="right")
        for state in running:
            table.add_row(
                state.title,
                f"{state.simulated_s:.0f} of {state.stop_s:.0f} s",
                f"{state.speed:.1f} s/s",
                _duration(state.left_s) if state.left_s is not None else "-",
                f"{state.memory_bytes / 2**20:.0f} MiB",
            )
        return table


def _line(state: RunState) -> str:
    left = f", {_duration(state.left_s)} left" if state.left_s is not None else ""
    return (
        f"{state.title}: {state.simulated_s:.0f}/{state.stop_s:.0f} s simulated at "
        f"{state.speed:.1f} s/s{left}, {state.memory_bytes / 2**20:.0f} MiB"
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
