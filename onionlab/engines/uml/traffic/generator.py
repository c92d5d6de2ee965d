"""Flows and traffics: what begins streams or flows, as a Markov model says (tgen-generator.c)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from . import log_lines
from .log_writer import TgenLogWriter
from .markov_model import Event
from .markov_walk import MarkovWalk


class Clockwork(Protocol):
    """What a generator needs of its host."""

    log: TgenLogWriter

    @property
    def now_us(self) -> int:
        """Current time of the monotonic clock."""

    def call_at(self, time_us: int, callback: Callable[[], None]) -> None:
        """Call back at a time of the monotonic clock."""


class Generator:
    """One visit of a flow's or traffic's vertex: begins children until its model ends.

    vertex: its id. kind, child_kind: "flow" of "stream", or "traffic" of "flow". begin_child:
    begins one that will call `child_over`, or returns False. when_over: called once, when the model
    has ended and all children are over. begun, completed: numbers of children.
    """

    def __init__(
        self,
        host: Clockwork,
        walk: MarkovWalk,
        *,
        vertex: str,
        kind: str,
        child_kind: str,
        begin_child: Callable[[Generator], bool],
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
        """Begin the first child, if the model does not end at once."""
        step = self._walk.step()
        log = self._host.log
        if step.event is Event.END:
            log.info(*log_lines.generator_at_end(self))
            self._end_if_complete()
            return
        # A child may be over before it has begun, as when its connection is refused at once.
        self.begun += 1
        if self._begin_child(self):
            log.info(*log_lines.generated(self))
        else:
            self.begun -= 1
            log.warning(*log_lines.not_generated(self, step.delay_us))
        # Never at this very moment, as in TGen, whose timers have a nanosecond at least.
        self._host.call_at(self._host.now_us + max(1, step.delay_us), self._next)
        log.info(*log_lines.timer_set(self, step.delay_us))
        log.info(*log_lines.generator_waits(self, step.delay_us))

    def _next(self) -> None:
        self._host.log.info(*log_lines.timer_expired(self))
        self.start()

    def child_over(self) -> None:
        """A child has come to its end, in whatever way."""
        self.completed += 1
        if not self._end_if_complete():
            self._host.log.info(*log_lines.generator_status(self, complete=False))

    def _end_if_complete(self) -> bool:
        if not self._walk.ended or self.completed < self.begun:
            return False
        self._host.log.message(*log_lines.generator_status(self, complete=True))
        self._when_over()
        return True
