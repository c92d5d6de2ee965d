"""Markov models for the tests of the traffic driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from onionlab.engines.uml.traffic.markov_model import Event
from onionlab.engines.uml.traffic.markov_walk import Step

Values = Mapping[str, float | str]
ModelEdge = tuple[str, str, Values]

OBSERVATIONS = {"+": "o1", "-": "o2", "F": "o3"}

NUMBERS = ("weight", "location", "scale", "rate", "shape", "low", "high")


def to(source: str, target: str, weight: float = 1.0) -> ModelEdge:
    """Return a transition between two states."""
    return source, target, {"type": "transition", "weight": weight}


def emits(
    source: str, event: str, distribution: str, weight: float = 1.0, **parameters: float
) -> ModelEdge:
    """Return an emission of an event, which is "+", "-" or "F".

    distribution, parameters: the distribution of the delay after the event.
    """
    named = {f"param_{name}": value for name, value in parameters.items()}
    values: dict[str, float | str] = {"type": "emission", "distribution": distribution}
    return source, OBSERVATIONS[event], {**values, "weight": weight, **named}


def model_graphml(states: Sequence[str], edges: Sequence[ModelEdge]) -> str:
    """Return a model with these states and edges. The first state is the start."""
    lines = ["<graphml xmlns='http://graphml.graphdrawing.org/xmlns'>"]
    for name in ("name", "type"):
        lines.append(f"<key id='n{name}' for='node' attr.name='{name}' attr.type='string'/>")
    for name in ("type", "distribution"):
        lines.append(f"<key id='e{name}' for='edge' attr.name='{name}' attr.type='string'/>")
    for name in NUMBERS:
        name = name if name == "weight" else f"param_{name}"
        lines.append(f"<key id='e{name}' for='edge' attr.name='{name}' attr.type='double'/>")
    lines.append("<graph edgedefault='directed'>")
    vertices = [(state, state, "state") for state in states]
    vertices[0] = (states[0], "start", "state")
    vertices += [(vertex, name, "observation") for name, vertex in OBSERVATIONS.items()]
    for vertex, name, kind in vertices:
        data = f"<data key='nname'>{escape(name)}</data><data key='ntype'>{kind}</data>"
        lines.append(f"<node id='{escape(vertex)}'>{data}</node>")
    for source, target, values in edges:
        data = "".join(
            f"<data key='e{name}'>{escape(str(value))}</data>" for name, value in values.items()
        )
        lines.append(f"<edge source='{source}' target='{target}'>{data}</edge>")
    return "\n".join([*lines, "</graph>", "</graphml>"])


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
