"""Shadow's configuration for properties that no generated network of the tests has."""

from __future__ import annotations

import yaml

from onionlab.engines.base import Process, Simulation
from onionlab.engines.shadow.engine import ShadowEngine
from onionlab.network.layout import Host, Link, Network, Place


def test_a_path_a_host_and_a_program_may_have_properties_of_their_own(
    shadow_engine: ShadowEngine,
) -> None:
    network = Network(
        hosts=(
            Host("a", "server", None, "here", "100.0.0.1"),
            Host("b", "server", None, "here", "77.1.2.3", link=Link(5000, 6000)),
        ),
        places=(Place("here", "region", 1000, 2000), Place("there", "region", 3000, 4000)),
        latency_us={("here", "here"): 7, ("here", "there"): 20_000, ("there", "there"): 9},
        packet_loss=0.25,
        path_loss={("here", "there"): 0.5, ("there", "there"): 0.0},
    )
    processes = {
        "a": (Process("tgen", ("one",), 1000),),
        "b": (Process("tgen", ("two",), 2000, runs_to_end=False),),
    }
    files = shadow_engine.configuration(
        Simulation(network, processes, seed=1, stop_ms=9000, options={})
    )
    graph = files["conf/network.gml"].decode()
    losses = [line.split()[1] for line in graph.splitlines() if "packet_loss" in line]
    assert losses == ["0.25", "0.5", "0.0"]
    a, b = yaml.safe_load(files["shadow.config.yaml"])["hosts"].values()
    assert (b["bandwidth_up"], b["bandwidth_down"]) == ("5000 bit", "6000 bit")
    assert not {"bandwidth_up", "bandwidth_down"} & set(a)
    # A program that may end must end with exit status 0.
    assert a["processes"][0]["expected_final_state"] == "running"
    assert b["processes"][0]["expected_final_state"] == {"exited": 0}
