"""TGen's Markov models: their reading, their random numbers, walks and bursts of packets."""

from __future__ import annotations

import contextlib
import hashlib
import math
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onionlab.engines.uml.traffic import wire
from onionlab.engines.uml.traffic.delays import MAX_DELAY_US, PARAMETERS, Distribution
from onionlab.engines.uml.traffic.generator import FlowGenerator
from onionlab.engines.uml.traffic.glib_random import GlibRandom
from onionlab.engines.uml.traffic.graphml import igraph_text, parse_graphml
from onionlab.engines.uml.traffic.markov_model import (
    INTERNAL_FLOW_MODEL,
    INTERNAL_PACKET_MODEL,
    INTERNAL_STREAM_MODEL,
    Event,
    MarkovModel,
    load_model,
    parse_model,
)
from onionlab.engines.uml.traffic.markov_walk import MarkovWalk, Step
from onionlab.engines.uml.traffic.packet_schedule import (
    AT_ONCE_US,
    BURST_BYTES,
    PACKET_BYTES,
    Burst,
    PacketSchedule,
)
from onionlab.errors import UserError

from .markov_support import (
    OBSERVATIONS,
    SIMPLE_EDGES,
    SIMPLE_STATES,
    ModelEdge,
    Values,
    emits,
    model_graphml,
    to,
)

# The first numbers of MT19937 for the seed 5489, by its authors' own program, and the 10,000th, by
# which the C++ standard defines it (rand.predef).
FIRST = [3499211612, 581869302, 3890346734, 3586334585, 545404204]
TEN_THOUSANDTH = 4123659995

# SHA-256 of the 100,000 delays, one a line, that TGen 1.1.2 ships as what its test must give:
# test/expected-results/<distribution>-<seed>.
DELAYS_OF_TGEN = {
    ("normal", 123): "bb41a752f4c1e23c31022a10f5fc69d09195c0c58f3344ed7edb4899185187ce",
    ("normal", 321): "395dc56bafcebadb9a089564caa4231ff3483b61352735361b62dd6a8a7e6f6b",
    ("lognormal", 123): "afbf2d8263a1f59855f202854070fa35490d56f01a96cb25ebf22e9b55d135a8",
    ("lognormal", 321): "1f02c91f2e24efcc557162a5a5fef69c14240d49d40320ae26ecfa53458d6566",
    ("exponential", 123): "86db99049b82c4ead7d54cc0da2e4ac56101bcef6f673f7f1bb8602e1c8dcf64",
    ("exponential", 321): "ea31f167d475a9613ad1e4077de1e0557718b629118f30a69afd13aab5e6ab51",
    ("pareto", 123): "6dbc09ae39c240e0e1916eee98430e6f027d1218d04e06ea7345ec998b355555",
    ("pareto", 321): "08cf99a6b478fab6e482b6a21d75efea8a91ca811b735232fa31b1bea130c6e0",
}
ITS_PARAMETERS = {
    "normal": {"location": 25, "scale": 10},
    "lognormal": {"location": 0, "scale": 1},
    "exponential": {"rate": 1},
    "pareto": {"scale": 1, "shape": 1},
}


def model(*edges: ModelEdge, states: tuple[str, ...] = SIMPLE_STATES) -> MarkovModel:
    return parse_model("some", model_graphml(states, edges).encode())


def refusal(*edges: ModelEdge, states: tuple[str, ...] = SIMPLE_STATES) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        model(*edges, states=states)
    return str(caught.value)


# --- random numbers


def test_the_generator_is_the_one_of_its_authors() -> None:
    numbers = GlibRandom(5489)
    drawn = [numbers.integer() for _ in range(10_000)]
    assert drawn[:5] == FIRST
    assert drawn[-1] == TEN_THOUSANDTH
    assert drawn[:5] != [random.Random(5489).getrandbits(32) for _ in range(5)]


def test_a_real_number_is_of_two_integers_the_low_one_first() -> None:
    low, high = FIRST[:2]
    assert GlibRandom(5489).real() == (low / 2**32 + high) / 2**32


@pytest.mark.parametrize(("distribution", "seed"), DELAYS_OF_TGEN)
def test_the_delays_are_tgens(distribution: str, seed: int) -> None:
    edges = [to("s0", "s1"), to("s1", "s1")]
    emission = emits("s1", "+", distribution, **ITS_PARAMETERS[distribution])
    walk = MarkovWalk(model(*edges, emission), seed)
    digest = hashlib.sha256()
    for _ in range(100_000):
        digest.update(b"%d\n" % walk.step().delay_us)
    assert digest.hexdigest() == DELAYS_OF_TGEN[distribution, seed]


@given(
    st.sampled_from(sorted(PARAMETERS)),
    st.lists(st.floats(0, allow_infinity=False), min_size=2, max_size=2),
    st.integers(0, 2**32 - 1),
)
def test_a_delay_is_never_more_than_ten_minutes(name: str, values: list[float], seed: int) -> None:
    if name == "uniform":
        values = sorted(values)
    positive = [v or 5e-324 for v in values[: len(PARAMETERS[name])]]
    delay_us = Distribution(name, tuple(positive)).draw_us(GlibRandom(seed))
    assert 0 <= delay_us <= MAX_DELAY_US


@pytest.mark.parametrize(
    ("value", "whole"),
    [(0.5, 1), (1.5, 2), (2.5, 3), (2.4999, 2), (-0.6, 0), (1e300, MAX_DELAY_US)],
)
def test_halves_are_rounded_up(value: float, whole: int) -> None:
    assert Distribution("uniform", (value, value)).draw_us(GlibRandom(1)) == whole


# --- models


def test_a_model_of_tgens_documentation() -> None:
    some = model(
        to("s0", "s1"),
        to("s1", "s1"),
        emits("s1", "+", "normal", 0.5, location=5000000, scale=1000000),
        emits("s1", "-", "exponential", 0.5, rate=0.001),
    )
    start, state = some.states
    assert (some.start, start.name, state.name) == (0, "start", "s1")
    assert start.transitions.options == state.transitions.options == (1,)
    assert state.emissions.cumulative == (0.5, 1.0)
    assert state.emissions.options[1].event is Event.TO_ORIGIN
    assert state.emissions.options[1].delay == Distribution("exponential", (0.001,))


def test_edges_are_in_igraphs_order() -> None:
    """By the target's place in the file, and of parallel edges the last one first."""
    some = model(
        to("s0", "s2", 1),
        to("s0", "s1", 2),
        to("s0", "s1", 4),
        to("s1", "s1"),
        to("s2", "s1"),
        emits("s1", "+", "uniform", low=0, high=0),
        emits("s2", "-", "uniform", low=0, high=0),
        states=("s0", "s1", "s2"),
    )
    assert some.states[0].transitions.options == (1, 1, 2)
    assert some.states[0].transitions.cumulative == (4, 6, 7)


def test_the_internal_models_are_tgens() -> None:
    # The MD5 sum is in test_traffic_wire.py: what TGen sent.
    assert igraph_text(INTERNAL_PACKET_MODEL.graph) == wire.MODEL
    assert INTERNAL_STREAM_MODEL.states[0].emissions.options[0].delay == Distribution(
        "normal", (10e6, 4e6)
    )
    assert INTERNAL_FLOW_MODEL.states[0].emissions.options[0].delay == Distribution(
        "normal", (60e6, 15e6)
    )
    assert INTERNAL_FLOW_MODEL.name == "internal-flow-model"


def test_a_model_sent_has_15_digits() -> None:
    weight = 0.1 + 0.2
    some = model(*SIMPLE_EDGES[:2], emits("s1", "+", "exponential", weight, rate=1 / 3))
    sent = parse_model("some", some.text)
    assert some.states[1].emissions.cumulative == (weight,)
    assert sent.states[1].emissions.cumulative == (0.3,)
    assert sent.states[1].emissions.options[0].delay.parameters == (0.333333333333333,)
    assert sent.text == some.text


ENDLESS = (to("s0", "s1"), to("s1", "s1"))
NO_DELAY: Mapping[str, float] = {"low": 0, "high": 0}
REFUSED: dict[str, tuple[ModelEdge, ...]] = {
    "edge s1 -> o1 needs an attribute 'param_rate'": (*ENDLESS, emits("s1", "+", "exponential")),
    "edge s1 -> o1: attribute 'param_rate' must be more than 0": (
        *ENDLESS,
        emits("s1", "+", "exponential", rate=0),
    ),
    "edge s1 -> o1: attribute 'param_scale' must not be negative": (
        *ENDLESS,
        emits("s1", "+", "normal", location=1, scale=-1),
    ),
    "edge s1 -> o1: attribute 'param_high' is 'inf', not a finite number": (
        *ENDLESS,
        emits("s1", "+", "uniform", low=1, high=math.inf),
    ),
    "edge s1 -> o1: 'param_low' is more than 'param_high'": (
        *ENDLESS,
        emits("s1", "+", "uniform", low=2, high=1),
    ),
    "edge s1 -> o1: attribute 'distribution' is 'poisson', must be one of normal": (
        *ENDLESS,
        emits("s1", "+", "poisson", rate=1),
    ),
    "edge s1 -> o1: attribute 'weight' must not be negative": (
        *ENDLESS,
        emits("s1", "+", "exponential", -1, rate=1),
    ),
    "edge s0 -> s1 needs an attribute 'weight'": (("s0", "s1", {"type": "transition"}),),
    "edge s0 -> s1: attribute 'type' is '', must be": (("s0", "s1", {"weight": 1}),),
    "edge o1 -> s1: an observation must not have outgoing edges": (to("o1", "s1"),),
    "edge s0 -> o1: a transition has to lead to a state": (to("s0", "o1"),),
    "edge s0 -> s1: an emission has to lead to an observation": (
        ("s0", "s1", {"type": "emission", "weight": 1}),
    ),
    "edge s0 -> s9: the edge precedes one of its vertices": (to("s0", "s9"),),
    "state 's1' can be reached but has no emission": ENDLESS,
    "state 's1' can be reached but has no transition": (
        to("s0", "s1"),
        emits("s1", "F", "uniform", **NO_DELAY),
        emits("s1", "+", "uniform", **NO_DELAY),
    ),
    "state 'start' can be reached but has no transition": (),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_bad_models_are_refused_by_name(reason: str) -> None:
    assert reason in refusal(*REFUSED[reason])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("<data key='nname'>start</data>", "<data key='nname'>begin</data>", "has 0"),
        ("<data key='nname'>s1</data>", "<data key='nname'>Start2</data>", "has 2"),
        ("<data key='nname'>s1</data>", "<data key='nname'>first</data>", "'first' does"),
        ("<data key='nname'>s1</data>", "", "vertex 's1' needs an attribute 'name'"),
        ("<data key='ntype'>state</data></node>\n<node id='o1", "</node>\n<node id='o1", "'type'"),
        ("<data key='nname'>+</data>", "<data key='nname'>*</data>", "begins with '+', '-' or 'F'"),
        ("'weight' attr.type='double'", "'weight' attr.type='string'", "must be a number"),
        ("attr.name='type' attr.type='string'", "attr.name='type' attr.type='int'", "'string'"),
        ("<key id='eparam_low'", "<key id='more' for='edge' attr.name='weight' attr.type='int'/>"
         "<key id='eparam_low'", "declared twice"),
        ("<data key='eweight'>1.0</data>", "<data key='eweight'>1_0</data>", "'1_0', not a finite"),
        ("directed", "undirected", "directed edges"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_by_name(tmp_path: Path, old: str, new: str, reason: str) -> None:
    text = model_graphml(SIMPLE_STATES, SIMPLE_EDGES)
    assert old in text
    path = tmp_path / "some.graphml"
    path.write_text(text.replace(old, new))
    with pytest.raises(UserError) as caught:
        load_model(path)
    assert str(path) in caught.value.message
    assert reason in caught.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.graphml: cannot read this Markov model"):
        load_model(tmp_path / "none.graphml")


PIECES = st.sampled_from(
    ["s0", "s1", "o1", "F", "1", "-1", "nan", "1e999", "\u0661", "state", "emission", "start", ""]
)
VALUES = st.dictionaries(
    st.sampled_from(["type", "weight", "distribution", "param_rate", "param_low"]), PIECES
)
EDGES = st.tuples(
    st.sampled_from(["s0", "s1", "o1", "x"]), st.sampled_from(["s0", "s1", "o1", "o3", "x"]), VALUES
)


@given(st.lists(EDGES, max_size=5))
def test_no_edges_are_more_than_refused(edges: list[tuple[str, str, Values]]) -> None:
    with contextlib.suppress(ValueError):
        model(*edges)


@given(
    st.binary(max_size=200)
    | st.text(alphabet="<>/='\" abgnopdehrmlk", max_size=100).map(str.encode)
)
def test_no_file_is_more_than_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.graphml"
        path.write_bytes(content)
        with pytest.raises(UserError):
            load_model(path)
    with pytest.raises(ValueError, match=r"."):
        parse_graphml(content)


@pytest.mark.parametrize("encoding", ["nonsense", "utf-7", "utf-32", "idna"])
def test_odd_encodings_are_refused(encoding: str) -> None:
    text = f"<?xml version='1.0' encoding='{encoding}'?><graphml/>"
    with pytest.raises(ValueError, match="not GraphML"):
        parse_graphml(text.encode())


@given(st.data())
def test_a_broken_model_is_refused_or_read(data: st.DataObject) -> None:
    """Cut out a part of a good file, put something else in its place."""
    text = model_graphml(SIMPLE_STATES, SIMPLE_EDGES)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    broken = text[:start] + data.draw(PIECES | st.text(max_size=5)) + text[end:]
    with contextlib.suppress(ValueError):
        MarkovWalk(parse_model("broken", broken.encode("utf-8", "replace")), 1).step()


# --- walks


def test_a_walk_ends_and_begins_anew() -> None:
    walk = MarkovWalk(
        model(
            to("s0", "s1"),
            to("s1", "s2"),
            emits("s1", "-", "uniform", low=7, high=7),
            emits("s2", "F", "uniform", low=9, high=9),
            states=("s0", "s1", "s2"),
        ),
        3,
    )
    for _ in range(3):
        steps = [walk.step() for _ in range(3)]
        assert steps == [Step(Event.TO_ORIGIN, 7), Step(Event.END, 9), Step(Event.END, 0)]
        assert walk.ended
        walk.reset()
        assert not walk.ended


# A share of the least number that there is rounds to nothing, and TGen takes the first event then.
WEIGHTS = st.lists(st.floats(0, 10, allow_subnormal=False), min_size=3, max_size=3).filter(
    lambda w: sum(w) > 0
)


@settings(max_examples=30)
@given(WEIGHTS, st.integers(0, 2**32 - 1))
def test_events_come_by_weight(weights: list[float], seed: int) -> None:
    emissions = [
        emits("s1", event, "uniform", weight, **NO_DELAY)
        for event, weight in zip(OBSERVATIONS, weights, strict=True)
    ]
    walk = MarkovWalk(model(*ENDLESS, *emissions), seed)
    counts = dict.fromkeys(Event, 0)
    for _ in range(400):
        counts[walk.step().event] += 1
        walk.reset()
    for event, weight in zip(Event, weights, strict=True):
        expected = 400 * weight / sum(weights)
        assert abs(counts[event] - expected) < 60


# --- bursts


class Script:
    """A walk of given steps; the last one again and again."""

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

    def reset(self) -> None:
        self.ended = False


def schedule(*steps: tuple[str, int], mine: Event = Event.TO_SERVER) -> PacketSchedule:
    return PacketSchedule(Script(*steps), mine)  # type: ignore[arg-type]


def test_packets_that_are_close_leave_together_until_a_pause() -> None:
    some = schedule(("+", 10_000), ("+", 500), ("+", 10_001), ("+", 3), ("F", 99_999))
    assert some.next_burst(None) == Burst(3 * PACKET_BYTES, 10_001)
    assert some.next_burst(None) == Burst(PACKET_BYTES, 0)
    assert some.ended


def test_the_other_sides_packets_only_take_time() -> None:
    steps = ("-", 6000), ("-", 4000), ("+", 1), ("-", 9000), ("-", 2000), ("F", 0)
    some = schedule(*steps)
    assert some.next_burst(None) == Burst(PACKET_BYTES, 11_001)
    assert some.expected_bytes == 4 * PACKET_BYTES
    assert some.next_burst(None) == Burst(0, 0)
    other = schedule(*steps, mine=Event.TO_ORIGIN)
    assert other.next_burst(None) == Burst(4 * PACKET_BYTES, 0)
    assert (other.expected_bytes, other.ended) == (PACKET_BYTES, True)


def test_a_burst_has_an_end() -> None:
    assert schedule(("+", 1)).next_burst(None) == Burst(23 * PACKET_BYTES, 0)
    assert schedule(("+", 1)).next_burst(10**9) == Burst(BURST_BYTES, 0)
    assert schedule(("+", 1)).next_burst(2000) == Burst(2000, 0)
    # TGen would not come back from this.
    assert schedule(("-", 0)).next_burst(None).pause_us == AT_ONCE_US


def test_a_size_repeats_the_model() -> None:
    some = schedule(("F", 99_999), ("F", 99_999), ("+", 20_000), ("F", 0))
    assert some.next_burst(5000) == Burst(PACKET_BYTES, 20_000)
    assert not some.ended


@given(st.integers(0, 2**32 - 1), st.floats(1e-5, 1), st.floats(0.01, 0.2))
def test_both_sides_expect_what_the_other_sends(seed: int, rate: float, end: float) -> None:
    some = model(
        *ENDLESS,
        emits("s1", "+", "exponential", 0.3, rate=rate),
        emits("s1", "-", "exponential", 0.7, rate=rate),
        emits("s1", "F", "uniform", end, **NO_DELAY),
    )
    sides = [PacketSchedule(MarkovWalk(some, seed), mine) for mine in list(Event)[:2]]
    sent = [0, 0]
    for side, each in enumerate(sides):
        while not each.ended:
            burst = each.next_burst(None)
            assert burst.pause_us == 0 or burst.pause_us > AT_ONCE_US
            sent[side] += burst.send_bytes
    assert sent == [sides[1].expected_bytes, sides[0].expected_bytes]


# --- flows


class TimerHost:
    """A host that keeps what a generator asks of it; it is its own log."""

    def __init__(self) -> None:
        self.now_us = 5_000_000
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.lines: list[str] = []
        self.log: Any = self

    def call_at(self, time_us: int, callback: Callable[[], None]) -> None:
        self.timers.append((time_us, callback))

    def message(self, place: str, text: str) -> None:
        self.lines.append(text)

    info = warning = message

    def wait(self) -> int:
        """Let the next timer expire; how long that took, in microseconds."""
        before = self.now_us
        self.now_us, callback = self.timers.pop(0)
        callback()
        return self.now_us - before


def flow(
    host: TimerHost, *steps: tuple[str, int], begin: bool = True
) -> tuple[FlowGenerator, list[str]]:
    over: list[str] = []
    generator = FlowGenerator(
        host,
        Script(*steps),  # type: ignore[arg-type]
        vertex="flow_a",
        kind="flow",
        child_kind="stream",
        begin_child=lambda generator: begin,
        when_over=lambda: over.append("over"),
    )
    return generator, over


def test_a_flow_begins_streams_a_delay_apart() -> None:
    host = TimerHost()
    generator, over = flow(host, ("+", 700), ("-", 0), ("+", 5), ("F", 99))
    generator.start()
    assert generator.begun == 1
    assert [host.wait() for _ in range(3)] == [700, 1, 5]
    assert (generator.begun, host.timers, over) == (3, [], [])
    assert (
        host.lines[-1]
        == "Found stream end observation on flow 'flow_a' after generating 3 streams."
    )
    for _ in range(2):
        generator.child_over()
    assert over == []
    assert "completed 2 of 3 streams, flow is still active" in host.lines[-1]
    generator.child_over()
    assert over == ["over"]
    assert "completed 3 of 3 streams, flow is complete" in host.lines[-1]


def test_a_flow_is_not_over_before_its_model_ends() -> None:
    host = TimerHost()
    generator, over = flow(host, ("+", 700), ("F", 0))
    generator.start()
    generator.child_over()
    assert over == []
    host.wait()
    assert over == ["over"]


def test_a_flow_tries_again_after_the_delay() -> None:
    host = TimerHost()
    generator, over = flow(host, ("+", 700), ("F", 0), begin=False)
    generator.start()
    assert "Failed to create a stream on flow action 'flow_a', delaying 700" in host.lines[0]
    assert host.wait() == 700
    assert (generator.begun, over) == (0, ["over"])
