"""Walks through TGen's Markov models (tgen-markovmodel.c), and the bursts of a packet model.

The random choices are TGen's.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from .draws import GlibRandom
from .markov_model import Choice, Event, MarkovModel, Option

PACKET_BYTES = 1434
"""The payload of a packet in a model."""

AT_ONCE_US = 10_000
"""Packets with at most this interval between them are sent together."""

BURST_BYTES = 1 << 15
"""TGen's limit: it sends this many bytes without looking further ahead."""

_MAX_STEPS = 100_000
"""The limit of steps per burst. With this many packets of the other side in an instant, TGen might
never continue.
"""


class Step(NamedTuple):
    """An event of a walk and the delay after it, in microseconds."""

    event: Event
    delay_us: int


class MarkovWalk:
    """A walk with the same steps as TGen's for the same model and seed.

    seed: 0 to 2**32 - 1. ended: whether END was observed, after which every step is END.
    """

    def __init__(self, model: MarkovModel, seed: int) -> None:
        self.model = model
        self.seed = seed
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
        # TGen also draws the delay after the end, although nothing waits for it. A walk after a
        # reset continues with the following numbers.
        delay_us = emission.delay.draw_us(self._random)
        self.ended = emission.event is Event.END
        return Step(emission.event, delay_us)

    def reset(self) -> None:
        """Return to the start state. The random numbers continue."""
        self.ended = False
        self._state = self.model.start

    def _choose(self, choice: Choice[Option]) -> Option:
        cumulative = choice.cumulative
        return choice.options[bisect_left(cumulative, self._random.real() * cumulative[-1])]


class Burst(NamedTuple):
    """The bytes to send now, possibly none, and the pause before the next burst."""

    send_bytes: int
    pause_us: int


class PacketSchedule:
    """The bursts of one side. Both sides walk through the same model and see the same packets.

    mine: the event for a packet of this side. expected_bytes: the bytes that the other side has
    sent up to this point of the walk. ended: whether the model has ended, after which no more
    bursts follow.
    """

    def __init__(self, walk: MarkovWalk, mine: Event) -> None:
        self.expected_bytes = 0
        self._walk = walk
        self._mine = mine

    @property
    def ended(self) -> bool:
        """True if the model has ended."""
        return self._walk.ended

    def next_burst(self, left_bytes: int | None) -> Burst:
        """Walk until there is something to send or to wait for.

        left_bytes: the remaining bytes to send, even if the model ends before; None if the model
        determines the size.
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
        # If the size is known, cut a full burst; otherwise send all of it, because the other side
        # counts whole packets. A delay that is shorter than the limit is dropped, as in TGen.
        if left_bytes is not None:
            send_bytes = min(send_bytes, limit)
        return Burst(send_bytes, delay_us if delay_us > AT_ONCE_US else 0)
