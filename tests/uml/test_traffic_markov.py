"""TGen's Markov models: parsing, random numbers, walks and bursts of packets."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onionlab.engines.uml.traffic.draws import MAX_DELAY_US, PARAMETERS, Distribution, GlibRandom
from onionlab.engines.uml.traffic.graph_walk import FlowGenerator
from onionlab.engines.uml.traffic.graphml import parse_graphml
from onionlab.engines.uml.traffic.markov_model import (
    INTERNAL_FLOW_MODEL,
    INTERNAL_PACKET_MODEL,
    INTERNAL_STREAM_MODEL,
    Event,
    MarkovModel,
    load_model,
    parse_model,
)
from onionlab.engines.uml.traffic.markov_walk import (
    AT_ONCE_US,
    BURST_BYTES,
    PACKET_BYTES,
    Burst,
    MarkovWalk,
    PacketSchedule,
    Step,
)
from onionlab.errors import UserError

from .markov_support import SIMPLE_EDGES, SIMPLE_STATES, ModelEdge, Script, emits, model_graphml, to
from .traffic_support import FakeHost

# Distribution -> its parameters, and the SHA-256 of 100,000 delays, one per line, in TGen 1.1.2's
# test/expected-results/<distribution>-123.
DELAYS_OF_TGEN: dict[str, tuple[dict[str, float], str]] = {
    "normal": (
        {"location": 25, "scale": 10},
        "bb41a752f4c1e23c31022a10f5fc69d09195c0c58f3344ed7edb4899185187ce",
    ),
    "lognormal": (
        {"location": 0, "scale": 1},
        "afbf2d8263a1f59855f202854070fa35490d56f01a96cb25ebf22e9b55d135a8",
    ),
    "exponential": (
        {"rate": 1},
        "86db99049b82c4ead7d54cc0da2e4ac56101bcef6f673f7f1bb8602e1c8dcf64",
    ),
    "pareto": (
        {"scale": 1, "shape": 1},
        "6dbc09ae39c240e0e1916eee98430e6f027d1218d04e06ea7345ec998b355555",
    ),
}
ENDLESS = (to("s0", "s1"), to("s1", "s1"))
NO_DELAY: Mapping[str, float] = {"low": 0, "high": 0}


def model(*edges: ModelEdge, states: tuple[str, ...] = SIMPLE_STATES) -> MarkovModel:
    return parse_model("some", model_graphml(states, edges).encode())


# --- random numbers


@pytest.mark.parametrize("distribution", DELAYS_OF_TGEN)
def test_delays_equal_those_of_tgen(distribution: str) -> None:
    parameters, sha256 = DELAYS_OF_TGEN[distribution]
    walk = MarkovWalk(model(*ENDLESS, emits("s1", "+", distribution, **parameters)), 123)
    delays = b"".join(b"%d\n" % walk.step().delay_us for _ in range(100_000))
    assert hashlib.sha256(delays).hexdigest() == sha256


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


def test_edges_are_in_igraphs_order() -> None:
    """Edges are in the file's order of their targets, and parallel edges are in reverse order."""
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


def test_internal_models_equal_those_of_tgen() -> None:
    # The size and the MD5 sum are those of the graph that TGen 1.1.2 with igraph 0.10.2 sent.
    assert len(INTERNAL_PACKET_MODEL.text) == 1970
    digest = hashlib.md5(INTERNAL_PACKET_MODEL.text).hexdigest()
    assert digest == "e64a68a112f324d71f0dc044d9acda2c"
    for some, values in ((INTERNAL_STREAM_MODEL, (10e6, 4e6)), (INTERNAL_FLOW_MODEL, (60e6, 15e6))):
        assert some.states[0].emissions.options[0].delay == Distribution("normal", values)
    assert INTERNAL_FLOW_MODEL.name == "internal-flow-model"


def test_a_model_with_quotes_in_a_name_can_be_sent() -> None:
    key = '<key id="note" for="node" attr.name="my &quot;note&quot;" attr.type="string"/>'
    text = model_graphml(SIMPLE_STATES, SIMPLE_EDGES).replace("<graph ", f"{key}<graph ")
    some = parse_model("some", text.encode())
    assert parse_model("some", some.text).states == some.states


def test_a_model_sent_has_15_digits() -> None:
    weight = 0.1 + 0.2
    some = model(*SIMPLE_EDGES[:2], emits("s1", "+", "exponential", weight, rate=1 / 3))
    sent = parse_model("some", some.text)
    assert some.states[1].emissions.cumulative == (weight,)
    assert sent.states[1].emissions.cumulative == (0.3,)
    assert sent.states[1].emissions.options[0].delay.parameters == (0.333333333333333,)
    assert sent.text == some.text


WRONG_EMISSIONS: tuple[tuple[str, str, dict[str, float]], ...] = (
    (" needs an attribute 'param_rate'", "exponential", {}),
    (": attribute 'param_rate' must be more than 0", "exponential", {"rate": 0}),
    (": attribute 'param_high' is 'inf', not a finite", "uniform", {"low": 1, "high": math.inf}),
    (": 'param_low' is more than 'param_high'", "uniform", {"low": 2, "high": 1}),
    (": attribute 'distribution' is 'poisson', must be one of normal", "poisson", {"rate": 1}),
)
REFUSED: dict[str, tuple[ModelEdge, ...]] = {
    "edge s0 -> s1 needs an attribute 'weight'": (("s0", "s1", {"type": "transition"}),),
    "edge o1 -> s1: an observation must not have outgoing edges": (to("o1", "s1"),),
    "edge s0 -> s1: an emission has to lead to an observation": (
        ("s0", "s1", {"type": "emission", "weight": 1}),
    ),
    "state 's1' can be reached but has no emission": ENDLESS,
    "state 's1' can be reached but has no transition": (
        to("s0", "s1"),
        emits("s1", "F", "uniform", **NO_DELAY),
        emits("s1", "+", "uniform", **NO_DELAY),
    ),
    "state 'start' can be reached but has no transition": (),
}
for fault, distribution, parameters in WRONG_EMISSIONS:
    emission = emits("s1", "+", distribution, **parameters)
    REFUSED[f"edge s1 -> o1{fault}"] = (*ENDLESS, emission)


@pytest.mark.parametrize("reason", REFUSED)
def test_invalid_models_are_rejected(reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        model(*REFUSED[reason])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (">start<", ">begin<", "has 0"),
        (">s1<", ">Start2<", "has 2"),
        (">s1<", ">first<", "'first' does"),
        ('<data key="d0">s1</data>', "", "vertex 's1' needs an attribute 'name'"),
        ('<data key="d1">state</data>', "", "'type'"),
        (">+<", ">*<", "begins with '+', '-' or 'F'"),
        ('"weight" attr.type="double"', '"weight" attr.type="string"', "must be a double"),
        ('attr.name="type" attr.type="string"', 'attr.name="type" attr.type="int"', "'string'"),
        ("<graph ", '<key id="x" for="edge" attr.name="weight" attr.type="int"/><graph ', "twice"),
        (">1.0<", ">1_0<", "'1_0', not a finite"),
        ("directed", "undirected", "directed edges"),
    ],
)
def test_invalid_files_are_rejected(tmp_path: Path, old: str, new: str, reason: str) -> None:
    text = model_graphml(SIMPLE_STATES, SIMPLE_EDGES)
    assert old in text
    path = tmp_path / "some.graphml"
    path.write_text(text.replace(old, new))
    with pytest.raises(UserError) as caught:
        load_model(path)
    assert str(path) in caught.value.message
    assert reason in caught.value.message


PIECES = st.sampled_from(
    ["s0", "s1", "o1", "F", "1", "-1", "nan", "1e999", "\u0661", "state", "emission", "start", ""]
)


@given(
    st.binary(max_size=200)
    | st.text(alphabet="<>/='\" abgnopdehrmlk", max_size=100).map(str.encode)
)
def test_random_files_are_rejected(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_model("some", content)


@pytest.mark.parametrize("encoding", ["nonsense", "utf-7", "utf-32", "idna"])
def test_unsupported_encodings_are_rejected(encoding: str) -> None:
    with pytest.raises(ValueError, match="not GraphML"):
        parse_graphml(f"<?xml version='1.0' encoding='{encoding}'?><graphml/>".encode())


@given(st.data())
def test_a_modified_model_is_rejected_or_playable(data: st.DataObject) -> None:
    """A part of a valid file is replaced by something else."""
    text = model_graphml(SIMPLE_STATES, SIMPLE_EDGES)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    broken = text[:start] + data.draw(PIECES | st.text(max_size=5)) + text[end:]
    with contextlib.suppress(ValueError):
        MarkovWalk(parse_model("broken", broken.encode("utf-8", "replace")), 1).step()


# --- walks


def test_a_walk_can_be_reset() -> None:
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


# --- bursts


def schedule(*steps: tuple[str, int], mine: Event = Event.TO_SERVER) -> PacketSchedule:
    return PacketSchedule(Script(*steps), mine)  # type: ignore[arg-type]


def test_packets_without_a_pause_form_a_burst() -> None:
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
    # Without a delay between packets and an end, TGen would loop endlessly. The driver pauses.
    assert schedule(("-", 0)).next_burst(None).pause_us == AT_ONCE_US


@given(st.integers(0, 2**32 - 1), st.floats(1e-5, 1), st.floats(0.01, 0.2))
def test_both_sides_expect_the_bytes_of_the_other(seed: int, rate: float, end: float) -> None:
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


def test_a_flow_starts_streams_after_delays() -> None:
    host: Any = FakeHost()
    walk: Any = Script(("+", 700), ("-", 0), ("+", 5), ("F", 99))
    over: list[str] = []
    generator = FlowGenerator(
        *(host, walk),
        vertex="flow_a",
        kind="flow",
        begin_child=lambda generator: True,
        when_over=lambda: over.append("over"),
    )
    generator.start()
    assert generator.begun == 1
    assert [host.wait() for _ in range(3)] == [700, 1, 5]
    assert (generator.begun, host.timers, over) == (3, [], [])
    assert host.lines[-1].endswith("end observation on flow 'flow_a' after generating 3 streams.")
    for _ in range(2):
        generator.child_over()
    assert over == []
    assert "completed 2 of 3 streams, flow is still active" in host.lines[-1]
    generator.child_over()
    assert (over, host.counts) == (["over"], {"flows-succeeded": 1})
    assert "completed 3 of 3 streams, flow is complete" in host.lines[-1]
