"""Markov models for the tests of the traffic driver."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import networkx as nx

from onionlab.engines.uml.traffic.markov_model import Event, MarkovModel
from onionlab.engines.uml.traffic.markov_walk import PACKET_BYTES, MarkovWalk, Step

Values = Mapping[str, float | str]
ModelEdge = tuple[str, str, Values]

OBSERVATIONS = {"+": "o1", "-": "o2", "F": "o3"}


def to(source: str, target: str, weight: float = 1.0) -> ModelEdge:
    """Return a transition between two states."""
    return source, target, {"type": "transition", "weight": float(weight)}


def emits(
    source: str, event: str, distribution: str, weight: float = 1.0, **parameters: float
) -> ModelEdge:
    """Return an emission of an event, which is "+", "-" or "F".

    distribution, parameters: the distribution of the delay after the event.
    """
    numbers = {"weight": weight, **{f"param_{name}": at for name, at in parameters.items()}}
    values: dict[str, float | str] = {name: float(number) for name, number in numbers.items()}
    return source, OBSERVATIONS[event], {"type": "emission", "distribution": distribution, **values}


def model_graphml(states: Sequence[str], edges: Sequence[ModelEdge]) -> str:
    """Return a model with these states and edges. The first state is the start."""
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    for state in states:
        graph.add_node(state, name="start" if state == states[0] else state, type="state")
    for name, vertex in OBSERVATIONS.items():
        graph.add_node(vertex, name=name, type="observation")
    for source, target, values in edges:
        graph.add_edge(source, target, **values)
    return "\n".join(nx.generate_graphml(graph))


class Script:
    """A walk with fixed steps, each an event and a delay in us.

    The last step is repeated forever, unless it is the event "F", which ends the walk.
    """

    def __init__(self, *steps: tuple[str, int]) -> None:
        self.steps = [Step(Event(event), delay_us) for event, delay_us in steps]
        self.at = 0
        self.ended = False

    def step(self) -> Step:
        if self.ended:
            return Step(Event.END, 0)
        step = self.steps[min(self.at, len(self.steps) - 1)]
        self.at += 1
        self.ended = step.event is Event.END
        return step


SIMPLE_STATES = ("s0", "s1")
SIMPLE_EDGES = (to("s0", "s1"), to("s1", "s1"), emits("s1", "+", "exponential", rate=0.001))
"""A model that emits "+" endlessly, at random intervals of a millisecond on average."""


def drawn_payload(model: MarkovModel, seed: int) -> tuple[int, int]:
    """Return the bytes that a client sends and receives with a packet model."""
    walk = MarkovWalk(model, seed)
    packets = dict.fromkeys(Event, 0)
    while not walk.ended:
        packets[walk.step().event] += PACKET_BYTES
    return packets[Event.TO_SERVER], packets[Event.TO_ORIGIN]


def logged_payloads(log: str) -> dict[int, tuple[int, int]]:
    """Return (sent, received) payload bytes of each successful stream by its ID, in this order."""
    counts = r"payload-bytes-recv=(\d+),payload-bytes-send=(\d+)"
    found = re.findall(rf"\[stream-success\].*stream \[id=(\d+),.*{counts}", log)
    return dict(sorted((int(number), (int(sent), int(got))) for number, got, sent in found))
