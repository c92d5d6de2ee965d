"""What clients of Markov models ask for: the models' own means, and what a walk gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tornet.tiny import TinyTornet

from onionlab.engines.markov_load import (
    LONGEST_S,
    MOST_STREAM_BYTES,
    expected_events,
    markov_load,
)
from onionlab.engines.uml.traffic.markov_model import Event, parse_model
from onionlab.engines.uml.traffic.markov_walk import MarkovWalk
from onionlab.engines.uml.traffic.packet_schedule import PACKET_BYTES
from onionlab.runs.costs.markov_load import tornet_load
from onionlab.tornet import import_tornets

HEAD = """<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="name" for="node" attr.name="name" attr.type="string"/>
<key id="kind" for="node" attr.name="type" attr.type="string"/>
<key id="type" for="edge" attr.name="type" attr.type="string"/>
<key id="weight" for="edge" attr.name="weight" attr.type="double"/>
<key id="distribution" for="edge" attr.name="distribution" attr.type="string"/>
<key id="param_low" for="edge" attr.name="param_low" attr.type="double"/>
<key id="param_high" for="edge" attr.name="param_high" attr.type="double"/>
<graph edgedefault="directed">"""


def model(
    transitions: Iterable[tuple[str, str, float]],
    emissions: Mapping[str, Mapping[str, float]],
    delay_us: float = 1000.0,
) -> bytes:
    """A model; emissions: state -> observation -> weight."""
    transitions = list(transitions)
    states = list(dict.fromkeys(one for a, b, _ in transitions for one in (a, b)))
    lines = [HEAD]
    for state in states:
        lines.append(
            f'<node id="{state}"><data key="name">{state}</data>'
            '<data key="kind">state</data></node>'
        )
    for event in ("+", "-", "F"):
        lines.append(
            f'<node id="o{event}"><data key="name">{event}</data>'
            '<data key="kind">observation</data></node>'
        )
    for a, b, weight in transitions:
        lines.append(
            f'<edge source="{a}" target="{b}"><data key="type">transition</data>'
            f'<data key="weight">{weight}</data></edge>'
        )
    for state, observed in emissions.items():
        for event, weight in observed.items():
            lines.append(
                f'<edge source="{state}" target="o{event}"><data key="type">emission</data>'
                f'<data key="weight">{weight}</data><data key="distribution">uniform</data>'
                f'<data key="param_low">{delay_us}</data>'
                f'<data key="param_high">{delay_us}</data></edge>'
            )
    return "\n".join([*lines, "</graph></graphml>"]).encode()


def ending(share: float, event: str = "-", delay_us: float = 1000.0) -> bytes:
    """A walk that ends with this chance at each step: 1 / share - 1 events in the mean."""
    return model(
        [("start", "a", 1), ("a", "a", 1)], {"a": {event: 1 - share, "F": share}}, delay_us
    )


ENDLESS = model([("start", "a", 1), ("a", "a", 1)], {"a": {"+": 1}}, 60e6)


def test_a_load_is_flows_times_streams_times_packets() -> None:
    load = markov_load(ENDLESS, ending(1 / 5, "+"), ending(1 / 101))
    assert load.streams_per_s == pytest.approx(4 / 60)
    assert load.stream_bytes == pytest.approx(100 * PACKET_BYTES)
    assert load.bytes_per_s == pytest.approx(4 / 60 * 100 * PACKET_BYTES)


def test_what_a_client_sends_is_not_what_it_gets() -> None:
    assert markov_load(ENDLESS, ending(0.5, "+"), ending(0.01, "+")).stream_bytes == 0


def test_streams_of_a_model_that_need_not_end_last_as_long_as_they_may() -> None:
    endless = model([("start", "a", 1), ("a", "a", 1)], {"a": {"+": 1}}, 10e6)
    load = markov_load(ENDLESS, endless, ending(0.5))
    assert load.streams_per_s == pytest.approx(LONGEST_S / 10 / 60)
    assert markov_load(ENDLESS, endless, None).stream_bytes == MOST_STREAM_BYTES


def test_a_broken_model_is_an_error() -> None:
    with pytest.raises(ValueError, match="GraphML"):
        markov_load(b"<x/>", None, None)


SHARE = st.floats(0.05, 0.95)


@given(SHARE, SHARE, SHARE)
@settings(max_examples=10, deadline=None)
def test_the_mean_is_that_of_walks(forth: float, back: float, ends: float) -> None:
    content = model(
        [
            *(("start", "a", forth), ("start", "b", 1 - forth)),
            *(("a", "a", back), ("a", "b", 1 - back), ("b", "a", 1)),
        ],
        {"a": {"-": 1 - ends, "F": ends}, "b": {"+": 1, "-": 1}},
    )
    found = parse_model("m", content)
    walks = 1500
    counted = 0
    for seed in range(walks):
        walk = MarkovWalk(found, seed)
        while not walk.ended:
            counted += walk.step().event is Event.TO_ORIGIN
    expected = expected_events(found, (Event.TO_ORIGIN,))
    assert counted / walks == pytest.approx(expected, rel=0.25, abs=0.15)


def test_an_imported_network_asks_for_what_its_clients_models_say(tmp_path: Path) -> None:
    tiny = TinyTornet()
    tiny.files |= {
        "conf/flow.graphml": ENDLESS,
        "conf/stream.graphml": ending(1 / 5, "+"),
        "conf/packet.graphml": ending(1 / 101),
    }
    (kept,) = import_tornets(tmp_path, "tiny", [tiny.write(tmp_path / "tornet")])
    load = tornet_load(tmp_path, "tiny")
    clients = kept.tornet.counts["markov-client"]
    assert load.streams_per_s == pytest.approx(clients * 4 / 60)
    assert load.bytes_per_s == pytest.approx(clients * 4 / 60 * 100 * PACKET_BYTES)
    relays = [host for host in kept.tornet.hosts.values() if host.role in ("guard", "middle")]
    relays += [host for host in kept.tornet.hosts.values() if host.role == "exitguard"]
    carried = sum(min(h.up_bit_per_s / 8, h.rate_bytes_per_s or 1e12) for h in relays)
    assert load.relays_bytes_per_s == pytest.approx(carried), "authorities carry nothing"
