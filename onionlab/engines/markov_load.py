"""What clients that play TGen's Markov models ask for, in the mean: from the models themselves."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from onionlab.engines.uml.traffic.markov_model import (
    INTERNAL_FLOW_MODEL,
    INTERNAL_PACKET_MODEL,
    INTERNAL_STREAM_MODEL,
    Choice,
    Event,
    MarkovModel,
    parse_model,
)
from onionlab.engines.uml.traffic.markov_walk import MarkovWalk
from onionlab.engines.uml.traffic.packet_schedule import PACKET_BYTES

WALK_STEPS = 2000
"""Of a walk from which a mean delay is told: to a few per cent."""

LONGEST_S = 600.0
"""A flow or a stream whose model need not end is taken to last so long: the longest timeout of
tornettools' Markov clients."""

MOST_STREAM_BYTES = 2.0**30

Target = TypeVar("Target")


@dataclass(frozen=True)
class MarkovLoad:
    """What one client asks for in the mean, where nothing holds it up.

    streams_per_s: that it begins; stream_bytes: that one of them brings it, in payload.
    """

    streams_per_s: float
    stream_bytes: float

    @property
    def bytes_per_s(self) -> float:
        """Payload that the client gets."""
        return self.streams_per_s * self.stream_bytes


MEASURED = MarkovLoad(0.0397, 278_700.0)
"""What each of 29 Markov clients of tornettools got in a run of 3,600 s of one network (tornettools
1848691, tmodel's models of 2018, Shadow 3.3.0). For models that cannot be read."""


@functools.lru_cache(maxsize=256)
def markov_load(flow: bytes | None, stream: bytes | None, packet: bytes | None) -> MarkovLoad:
    """What a client with these models asks for; None: TGen's own model of that kind.

    Raises ValueError where one is no model that can be played.
    """
    flows = INTERNAL_FLOW_MODEL if flow is None else parse_model("flow", flow)
    streams = INTERNAL_STREAM_MODEL if stream is None else parse_model("stream", stream)
    packets = INTERNAL_PACKET_MODEL if packet is None else parse_model("packet", packet)
    begun = (Event.TO_SERVER, Event.TO_ORIGIN)
    return MarkovLoad(
        streams_per_s=_per_s(flows, begun) * expected_events(streams, begun),
        stream_bytes=min(
            PACKET_BYTES * expected_events(packets, (Event.TO_ORIGIN,)), MOST_STREAM_BYTES
        ),
    )


def expected_events(model: MarkovModel, kinds: tuple[Event, ...]) -> float:
    """How many events of these kinds one walk has in the mean, or in LONGEST_S where none ends.

    A walk visits each state so often in the mean: visits = first + visits * on, with `on` from a
    state to the next unless the walk has ended there.
    """
    states = model.states
    on = np.zeros((len(states), len(states)))
    emitted = np.zeros(len(states))
    for number, state in enumerate(states):
        stays = 1.0
        for emission, share in _shares(state.emissions):
            emitted[number] += share * (emission.event in kinds)
            stays -= share * (emission.event is Event.END)
        for target, share in _shares(state.transitions):
            on[number, target] += share * stays
    try:
        visits = np.linalg.solve((np.eye(len(states)) - on).T, _first(model, len(states)))
    except np.linalg.LinAlgError:
        visits = np.full(len(states), math.inf)
    if np.all(np.isfinite(visits)) and np.all(visits > -1e-9):
        return float(visits @ emitted)
    return LONGEST_S * _per_s(model, kinds)


def _first(model: MarkovModel, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    first = np.zeros(count)
    for target, share in _shares(model.states[model.start].transitions):
        first[target] += share
    return first


def _shares(choice: Choice[Target]) -> list[tuple[Target, float]]:
    """Each option and how likely it is."""
    weights = np.diff((0.0, *choice.cumulative))
    total = weights.sum()
    return [
        (option, float(weight / total))
        for option, weight in zip(choice.options, weights, strict=True)
        if total
    ]


def _per_s(model: MarkovModel, kinds: tuple[Event, ...]) -> float:
    """How many events of these kinds come in a second, walk after walk."""
    walk = MarkovWalk(model, seed=1)
    found, took_us = 0, 0
    for _ in range(WALK_STEPS):
        step = walk.step()
        found += step.event in kinds
        took_us += step.delay_us
        if walk.ended:
            walk.reset()
    return found / max(took_us / 1e6, 1e-6)
