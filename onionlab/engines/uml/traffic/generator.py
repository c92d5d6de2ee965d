"""Flows and traffics, which start streams or flows by a Markov model (tgen-generator.c)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from . import log_lines
from .log_writer import TgenLogWriter
from .markov_model import Event
from .markov_walk import MarkovWalk


class TimerHost(Protocol):
    """The interface that a generator needs from its host."""

    log: TgenLogWriter

    @property
    def now_us(self) -> int:
        """The current time of the monotonic clock."""

    def call_at(self, time_us: int, callback: Callable[[], None]) -> None:
        """Call back at a time of the monotonic clock."""


class FlowGenerator:
    """One visit of a flow or traffic vertex, which starts children until its model ends.

    vertex: the vertex's id. kind, child_kind: "flow" and "stream", or "traffic" and "flow".
    begin_child: starts a child that will call `child_over`, or returns False. when_over: called
    once when the model and all children have ended. begun, completed: numbers of children.
    """

    def __init__(
        self,
        host: TimerHost,
        walk: MarkovWalk,
        *,
        vertex: str,
        kind: str,
        child_kind: str,
        begin_child: Callable[[FlowGenerator], bool],
        when_over: Callable[[], None],
    ) -> None:
        self.vertex = vertex
        self.kind = kind
        self.child_kind = child_kind
        self.begun = 0
        self.completed = 0
        self._host = host
        self._walk = walk
        self._begin_child = begin_child
        self._when_over = when_over

    def start(self) -> None:
        """Start the first child, unless the model ends immediately."""
        step = self._walk.step()
        log = self._host.log
        if step.event is Event.END:
            log.info(*log_lines.generator_at_end(self))
            self._end_if_complete()
            return
        # A child may end while it starts, for example if its connection is refused immediately.
        self.begun += 1
        if self._begin_child(self):
            log.info(*log_lines.generated(self))
        else:
            self.begun -= 1
            log.warning(*log_lines.not_generated(self, step.delay_us))
        # Never call back at this very moment: like TGen, whose timers run at least one nanosecond.
        self._host.call_at(self._host.now_us + max(1, step.delay_us), self._next)
        log.info(*log_lines.timer_set(self, step.delay_us))
        log.info(*log_lines.generator_waits(self, step.delay_us))

    def _next(self) -> None:
        self._host.log.info(*log_lines.timer_expired(self))
        self.start()

    def child_over(self) -> None:
        """Count a child that has ended, successfully or not."""
        self.completed += 1
        if not self._end_if_complete():
            self._host.log.info(*log_lines.generator_status(self, complete=False))

    def _end_if_complete(self) -> bool:
        if not self._walk.ended or self.completed < self.begun:
            return False
        self._host.log.message(*log_lines.generator_status(self, complete=True))
        self._when_over()
        return True
