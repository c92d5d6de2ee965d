"""When a side of a stream sends how much, by a packet model (tgen-stream.c)."""

from __future__ import annotations

from typing import NamedTuple

from .markov_model import Event
from .markov_walk import MarkovWalk

PACKET_BYTES = 1434
"""The payload of a packet of a model."""

AT_ONCE_US = 10_000
"""Packets that are no further apart than this leave together."""

BURST_BYTES = 1 << 15
"""TGen looks no further ahead: when so much is to be sent, it is sent."""


_MAX_STEPS = 100_000
"""So many packets of the other side in an instant, and TGen would perhaps never come back."""


class Burst(NamedTuple):
    """What to send now, maybe nothing, and how long to wait then before the next burst."""

    send_bytes: int
    pause_us: int


class PacketSchedule:
    """One side's bursts. Both sides walk through the same model and see the same packets.

    mine: the event that is a packet of this side. expected_bytes: what the other side sends, as far
    as this walk has come. ended: whether the model has come to its end, after which there are no
    more bursts.
    """

    def __init__(self, walk: MarkovWalk, mine: Event) -> None:
        self.expected_bytes = 0
        self._walk = walk
        self._mine = mine

    @property
    def ended(self) -> bool:
        """Whether the model's end was reached."""
        return self._walk.ended

    def next_burst(self, left_bytes: int | None) -> Burst:
        """Walk on until there is something to send, or to wait for.

        left_bytes: as much is to be sent in all, however often the model ends before; None: the
        model says how much.
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
        # A full burst is cut where the size is known, and otherwise complete: the other side counts
        # on whole packets. A delay that is shorter than the limit is forgotten, as in TGen.
        if left_bytes is not None:
            send_bytes = min(send_bytes, limit)
        return Burst(send_bytes, delay_us if delay_us > AT_ONCE_US else 0)
