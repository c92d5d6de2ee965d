"""Shadow's configuration of a simulation: the graph, the hosts, and the end of the bootstrap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from onionlab.engines.base import Process, Simulation
from onionlab.engines.shadow.engine import ShadowEngine
from onionlab.network.layout import Host, Link, Network, Place

PLACES = (Place("here", "region", 1000, 2000), Place("there", "region", 3000, 4000))
PAIRS = {("here", "here"): 700, ("here", "there"): 20_000, ("there", "there"): 900}


def simulation(**changes: Any) -> Simulation:
    network = Network(
        hosts=(
            Host("a", "server", None, "here", "100.0.0.1"),
            Host("b", "server", None, "here", "77.1.2.3", link=Link(5000, 6000)),
        ),
        places=PLACES,
        latency_us=PAIRS,
        packet_loss=0.25,
        path_loss={("here", "there"): 0.5, ("there", "there"): 0.0},
    )
    processes = {
        "a": (Process("tgen", ("one",), 1000),),
        "b": (Process("tgen", ("two",), 2000, runs_to_end=False),),
    }
    return replace(Simulation(network, processes, seed=1, stop_ms=9000, options={}), **changes)


def configured(shadow_engine: ShadowEngine, **changes: Any) -> dict[str, Any]:
    files = shadow_engine.configuration(simulation(**changes))
    told: dict[str, Any] = yaml.safe_load(files["shadow.config.yaml"])
    return told


def test_each_path_has_its_own_loss(shadow_engine: ShadowEngine) -> None:
    graph = shadow_engine.configuration(simulation())["conf/network.gml"].decode()
    losses = [line.split()[1] for line in graph.splitlines() if "packet_loss" in line]
    assert losses == ["0.25", "0.5", "0.0"]


def test_a_host_with_a_link_of_its_own_has_its_bandwidths(shadow_engine: ShadowEngine) -> None:
    hosts = configured(shadow_engine)["hosts"]
    assert hosts["b"]["bandwidth_up"] == "5000 bit"
    assert hosts["b"]["bandwidth_down"] == "6000 bit"
    assert not {"bandwidth_up", "bandwidth_down"} & set(hosts["a"])


def test_a_program_that_may_end_has_to_end_well(shadow_engine: ShadowEngine) -> None:
    hosts = configured(shadow_engine)["hosts"]
    assert hosts["a"]["processes"][0]["expected_final_state"] == "running"
    assert hosts["b"]["processes"][0]["expected_final_state"] == {"exited": 0}


@pytest.mark.parametrize(("end_ms", "told"), [(0, None), (3500, "3500 ms")])
def test_the_bootstrap_ends_at_the_configured_time(
    shadow_engine: ShadowEngine, end_ms: int, told: str | None
) -> None:
    general = configured(shadow_engine, bootstrap_end_ms=end_ms)["general"]
    assert general.get("bootstrap_end_time") == told
