"""Walks through TGen's Markov models (tgen-markovmodel.c), and the bursts of a packet model.

A burst consists of the bytes that one side of a stream sends at once.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from .draws import GlibRandom
from .markov_model import Choice, Event, MarkovModel, Option

PACKET_BYTES = 1434
"""The payload size of each packet in a packet model."""

AT_ONCE_US = 10_000
"""The maximum interval between two packets that are sent in one burst."""

BURST_BYTES = 1 << 15
"""The size at which TGen sends a burst immediately, without further steps of the walk."""

_MAX_STEPS = 100_000
"""The maximum number of steps per burst. TGen has no such limit. It would walk forever through a
model in which only the other side sends packets, without delays.
"""


class Step(NamedTuple):
    """An event of a walk and the delay after it, in microseconds."""

    event: Event
    delay_us: int


class MarkovWalk:
    """A walk with the same steps as TGen's walk for the same model and seed.

    seed: 0 to 2**32 - 1. ended: whether the walk has emitted END. After END, all steps are END.
    """

    def __init__(self, model: MarkovModel, seed: int) -> None:
        self.model = model
        self.ended = False
        self._random = GlibRandom(seed)
        self._state = model.start

    def step(self) -> Step:
        """Go to the next state and return its emission."""
        if self.ended:
            return Step(Event.END, 0)
        states = self.model.states
        self._state = self._choose(states[self._state].transitions)
        emission = self._choose(states[self._state].emissions)
        # Like TGen, draw a delay even for END, although it is not used. This matters because a walk
        # after a reset continues with the next random numbers.
        delay_us = emission.delay.draw_us(self._random)
        self.ended = emission.event is Event.END
        return Step(emission.event, delay_us)

    def reset(self) -> None:
        """Return to the start state, without restarting the random numbers."""
        self.ended = False
        self._state = self.model.start

    def _choose(self, choice: Choice[Option]) -> Option:
        cumulative = choice.cumulative
        return choice.options[bisect_left(cumulative, self._random.real() * cumulative[-1])]


class Burst(NamedTuple):
    """The number of bytes to send now (may be 0), and the pause before the next burst."""

    send_bytes: int
    pause_us: int


class PacketSchedule:
    """The bursts of one side of a stream.

    Both sides walk through the same model with the same seed, so each side knows which packets the
    other side sends.

    mine: the event for a packet that this side sends. expected_bytes: the number of bytes that the
    other side sends up to this point of the walk.
    """

    def __init__(self, walk: MarkovWalk, mine: Event) -> None:
        self.expected_bytes = 0
        self._walk = walk
        self._mine = mine

    @property
    def ended(self) -> bool:
        """True if the model has emitted END. No more bursts follow."""
        return self._walk.ended

    def next_burst(self, left_bytes: int | None) -> Burst:
        """Walk until there is something to send or to wait for.

        left_bytes: the number of bytes that remain to be sent, or None if the model determines the
        size. If it is given and the model ends, the walk restarts.
        """
        limit = BURST_BYTES if left_bytes is None else min(left_bytes, BURST_BYTES)
        send_bytes = delay_us = 0
        steps = 0
        while send_bytes < limit:
            event, step_us = self._walk.step()
            steps += 1
            if steps > _MAX_STEPS:
                return Burst(send_bytes, AT_ONCE_US)
            if event is Event.END:
                if left_bytes is None:
                    break
                self._walk.reset()
            elif event is self._mine:
                send_bytes += PACKET_BYTES
                delay_us = step_us
            else:
                self.expected_bytes += PACKET_BYTES
                delay_us += step_us
            if delay_us > AT_ONCE_US:
                break
        # If the size is known, cut the burst at the limit. Otherwise send the whole burst, because
        # the other side counts whole packets. As in TGen, ignore a delay of at most AT_ONCE_US.
        if left_bytes is not None:
            send_bytes = min(send_bytes, limit)
        return Burst(send_bytes, delay_us if delay_us > AT_ONCE_US else 0)
