"""TGen's Markov models: states, the events that states emit, and the delays after these events.

There are three kinds of models with one format (doc/TGen-Markov-Models.md of TGen 1.1.2). A flow
model determines when flows start. A stream model determines when the streams of a flow start. A
packet model determines when each side of a stream sends. The parser follows tgen-markovmodel.c.

The parser rejects the models that TGen rejects. It also rejects faulty models, with which TGen
would abort or never stop sending:

- A walk can reach a state without an emission, or get stuck before END.
- A state has the name of an observation.
- A parameter is not finite.
- There are two start states.

A model without the event END is not faulty. It continues until a timeout or the simulation's end.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from onionlab.errors import UserError

from .draws import PARAMETERS, Distribution
from .graphml import NUMERIC_TYPES, Edge, Graphml, Key, igraph_text, parse_graphml, reachable

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)

# TGen compares only the first letters of a string with these words, and ignores case.
_START, _STATE, _OBSERVATION = "start", "state", "observation"
_TRANSITION, _EMISSION = "transition", "emission"

_NOT_NEGATIVE = ("param_location", "param_scale")
_POSITIVE = ("param_rate", "param_shape")


class Event(enum.Enum):
    """The events of a walk through a model. The values are prefixes of the observations' names.

    In a packet model, TO_SERVER means that the client sends a packet, and TO_ORIGIN that the server
    sends a packet. In a stream model, each of the two starts a stream. In a flow model, each starts
    a flow. After END, no more events follow.
    """

    TO_SERVER = "+"
    TO_ORIGIN = "-"
    END = "F"


@dataclass(frozen=True)
class Emission:
    """An event that a state can emit, and the delay after it."""

    event: Event
    delay: Distribution


Option = TypeVar("Option")


@dataclass(frozen=True)
class Choice(Generic[Option]):
    """Options, one of which is chosen randomly according to weights.

    cumulative: for each option, the sum of its weight and all previous weights. The options are in
    igraph's order of edges. This order determines which option a random number selects.
    """

    options: tuple[Option, ...] = ()
    cumulative: tuple[float, ...] = ()


@dataclass(frozen=True)
class State:
    """A state of a model.

    transitions: the possible next states, as indices in `MarkovModel.states`. emissions: the
    possible emissions. When a walk reaches this state, one of them is chosen.
    """

    name: str
    transitions: Choice[int]
    emissions: Choice[Emission]


@dataclass(frozen=True)
class MarkovModel:
    """A model. start: the index of the start state. graph: the content of the model's file.

    name: TGen's name for the model, which is the name of its file without the directory.
    """

    name: str
    states: tuple[State, ...]
    start: int
    graph: Graphml = field(repr=False)

    @property
    def ends(self) -> bool:
        """True if a state can emit END, which ends a walk."""
        return any(
            emission.event is Event.END
            for state in self.states
            for emission in state.emissions.options
        )

    @functools.cached_property
    def text(self) -> bytes:
        """The model in the format in which TGen sends it to a server."""
        return igraph_text(self.graph)


def load_model(path: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> MarkovModel:
    """Read a model's file. Raises UserError if it cannot be read or the model is rejected."""
    try:
        return parse_model(path.name, read(path))
    except OSError as error:
        raise UserError(
            f"{path}: cannot read this Markov model of TGen: {error.strerror}",
            "Paths in a TGen graph are relative to the directory that TGen is started in.",
        ) from error
    except ValueError as error:
        raise UserError(
            f"{path}: {error}",
            "The format is described in doc/TGen-Markov-Models.md in TGen's repository.",
        ) from error


@functools.lru_cache(maxsize=64)
def parse_model(name: str, content: bytes) -> MarkovModel:
    """Parse a model from GraphML. Raises ValueError if the model is rejected."""
    return _model(name, parse_graphml(content))


def _model(name: str, graph: Graphml) -> MarkovModel:
    _check_keys(graph)
    names = {}
    for vertex, data in graph.vertices.items():
        if "name" not in data:
            raise ValueError(f"vertex {vertex!r} needs an attribute 'name'")
        names[vertex] = data["name"]
    events = {
        vertex: _event(vertex, names[vertex], data.get("type", ""))
        for vertex, data in graph.vertices.items()
    }
    observations = {vertex: event for vertex, event in events.items() if event is not None}
    starts = [vertex for vertex, text in names.items() if _begins(text, _START)]
    if len(starts) != 1:
        raise ValueError(f"needs one state with the name {_START!r}, has {len(starts)}")
    for edge in graph.edges:
        _check_ends(edge, observations)
    vertices = [vertex for vertex in graph.vertices if vertex not in observations]
    numbers = {vertex: number for number, vertex in enumerate(vertices)}
    states = []
    for vertex in vertices:
        edges = graph.out_edges[vertex]
        transitions = [edge for edge in edges if edge.target in numbers]
        emissions = [edge for edge in edges if edge.target in observations]
        states.append(
            State(
                names[vertex],
                _choice(transitions, lambda edge: numbers[edge.target]),
                _choice(
                    emissions, lambda edge: Emission(observations[edge.target], _distribution(edge))
                ),
            )
        )
    model = MarkovModel(name, tuple(states), numbers[starts[0]], graph)
    _check_exits(model)
    return model


def _check_keys(graph: Graphml) -> None:
    declared = [key[:2] for key in graph.keys]
    for key in graph.keys:
        if declared.count(key[:2]) > 1:
            raise ValueError(
                f"attribute {key.name!r} of {key.owner}s is declared twice; write all its values "
                "as numbers of one type"
            )
        if key.owner not in ("node", "edge"):
            raise ValueError(f"attribute {key.name!r}: only nodes and edges have attributes here")
        allowed: tuple[str, ...] = ("string", *NUMERIC_TYPES)
        if key.owner == "edge" and (key.name == "weight" or key.name.startswith("param_")):
            allowed = NUMERIC_TYPES
        elif key.name in ("name", "type", "distribution"):
            allowed = ("string",)
        if key.type not in allowed:
            raise ValueError(
                f"attribute {key.name!r} has the type {key.type!r}, but must be a {allowed[0]}: "
                f"attr.type='{allowed[0]}'"
            )
    numbers = [key.name for key in graph.keys if key.type in NUMERIC_TYPES]
    owners = [(f"vertex {vertex!r}", data) for vertex, data in graph.vertices.items()]
    for owner, data in (*owners, *((str(edge), edge.data) for edge in graph.edges)):
        for name in numbers:
            if name in data:
                _number(owner, name, data[name])


def _event(vertex: str, name: str, kind: str) -> Event | None:
    """Return the event that a vertex represents, or None for a state."""
    event = next((event for event in Event if _begins(name, event.value)), None)
    start = _begins(name, _START)
    if _begins(kind, _OBSERVATION) and not start:
        if event is None:
            raise ValueError(
                f"vertex {vertex!r}: an observation's 'name' begins with '+', '-' or 'F', "
                f"not {name!r}"
            )
        return event
    if not start and not _begins(kind, _STATE):
        raise ValueError(
            f"vertex {vertex!r}: attribute 'type' is {kind!r}, must be {_STATE!r} or "
            f"{_OBSERVATION!r}"
        )
    if event is not None:
        raise ValueError(
            f"vertex {vertex!r}: a state's 'name' must not start with '+', '-', 'F' or 'f' as "
            f"{name!r} does: TGen would treat it as an observation"
        )
    return None


def _check_ends(edge: Edge, observations: Mapping[str, Event]) -> None:
    kind = edge.data.get("type", "")
    emission = _begins(kind, _EMISSION)
    if not emission and not _begins(kind, _TRANSITION):
        raise ValueError(
            f"{edge}: attribute 'type' is {kind!r}, must be {_TRANSITION!r} or {_EMISSION!r}"
        )
    if edge.source in observations:
        raise ValueError(f"{edge}: an observation must not have outgoing edges")
    if emission != (edge.target in observations):
        raise ValueError(
            f"{edge}: an emission has to lead to an observation"
            if emission
            else f"{edge}: a transition has to lead to a state"
        )


def _choice(edges: Sequence[Edge], option: Callable[[Edge], Option]) -> Choice[Option]:
    weights = [_parameter(edge, "weight") for edge in edges]
    for edge, weight in zip(edges, weights, strict=True):
        if weight < 0:
            raise ValueError(f"{edge}: attribute 'weight' must not be negative")
    cumulative = tuple(itertools.accumulate(weights))
    if cumulative and not math.isfinite(cumulative[-1]):
        raise ValueError(f"{edges[0]}: the sum of this and other weights is not finite")
    return Choice(tuple(map(option, edges)), cumulative)


def _distribution(edge: Edge) -> Distribution:
    text = edge.data.get("distribution", "")
    name = next((name for name in PARAMETERS if _begins(text, name)), None)
    if name is None:
        raise ValueError(
            f"{edge}: attribute 'distribution' is {text!r}, must be one of {', '.join(PARAMETERS)}"
        )
    values = tuple(_parameter(edge, parameter) for parameter in PARAMETERS[name])
    for parameter, value in zip(PARAMETERS[name], values, strict=True):
        if value < 0 and parameter in _NOT_NEGATIVE:
            raise ValueError(f"{edge}: attribute {parameter!r} must not be negative")
        if value <= 0 and parameter in _POSITIVE:
            raise ValueError(f"{edge}: attribute {parameter!r} must be more than 0")
    if name == "uniform" and values[0] > values[1]:
        raise ValueError(f"{edge}: 'param_low' is more than 'param_high'")
    return Distribution(name, values)


def _parameter(edge: Edge, name: str) -> float:
    if name not in edge.data:
        raise ValueError(f"{edge} needs an attribute {name!r}")
    return _number(str(edge), name, edge.data[name])


def _number(owner: str, name: str, text: str) -> float:
    # float() alone would accept strings that are invalid in GraphML, such as "1_000".
    value = float(text) if _NUMBER.fullmatch(text.strip()) else math.nan
    if not math.isfinite(value):
        raise ValueError(f"{owner}: attribute {name!r} is {text!r}, not a finite number")
    return value


def _check_exits(model: MarkovModel) -> None:
    """Raise ValueError if a walk can reach a state in which it cannot continue.

    A walk cannot continue in a state that has no emission. It also cannot continue in a state that
    has no transition, unless the state emits only END. In such a state, TGen ends a flow but
    continues a stream forever. The start state needs a transition, but no emission.
    """
    reached = reachable(model.start, lambda number: model.states[number].transitions.options)
    targets = {n for s in reached for n in model.states[s].transitions.options}
    for number in sorted(reached):
        state = model.states[number]
        ends = all(emission.event is Event.END for emission in state.emissions.options)
        if number in targets and not state.emissions.options:
            raise ValueError(f"state {state.name!r} can be reached but has no emission")
        if not state.transitions.options and (number not in targets or not ends):
            raise ValueError(
                f"state {state.name!r} can be reached but has no transition, and emits not only 'F'"
            )


def _begins(text: str, word: str) -> bool:
    return text[: len(word)].lower() == word.lower()


def _internal(kind: str, state: str, events: str, distribution: str, *values: float) -> MarkovModel:
    """Return a model whose only state after the start state emits events forever.

    events: the names of the events, which have equal weights. values: the parameters of the
    distribution of all delays.
    """
    parameters = PARAMETERS[distribution]
    # These keys are in the order in which TGen's source code lists them (tgen-config.c). igraph
    # keeps the order, so the order affects the bytes that are sent.
    keys = [Key("edge", name, "double") for name in parameters]
    keys += [Key("edge", "distribution", "string"), Key("edge", "weight", "double")]
    keys += [Key(*key, "string") for key in (("edge", "type"), ("node", "name"), ("node", "type"))]
    vertices = {
        "s1": {"name": state, "type": _STATE},
        "s0": {"name": _START, "type": _STATE},
        **{event: {"name": event, "type": _OBSERVATION} for event in events},
    }
    emission = {
        **{name: str(value) for name, value in zip(parameters, values, strict=True)},
        **{"distribution": distribution, "weight": str(1 / len(events)), "type": _EMISSION},
    }
    transition = {"weight": "1", "type": _TRANSITION}
    edges = [
        Edge("s1", "s1", transition),
        *(Edge("s1", event, emission) for event in events),
        Edge("s0", "s1", transition),
    ]
    return _model(f"internal-{kind}-model", Graphml(tuple(keys), vertices, tuple(edges)))


INTERNAL_PACKET_MODEL = _internal("packet", "nonstop", "-+", "exponential", 100.0)
"""TGen's default packet model: both sides send immediately and never end."""

INTERNAL_STREAM_MODEL = _internal("stream", "default", "+", "normal", 10e6, 4e6)
"""TGen's default stream model: a stream about every 10 s, forever."""

INTERNAL_FLOW_MODEL = _internal("flow", "default", "+", "normal", 60e6, 15e6)
"""TGen's default flow model: a flow about every minute, forever."""
