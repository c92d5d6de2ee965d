"""Run directories have the same bytes on all machines, and their files are consistent."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from onionlab.engines.base import Process, Simulation
from onionlab.engines.shadow.engine import ShadowEngine
from onionlab.experiment import load
from onionlab.experiment.settings import Deployment
from onionlab.network.layout import Host, Link, Network, Place
from onionlab.programs.tor.build import BuiltTor
from onionlab.programs.tor.variants import load_variants
from onionlab.rundir import RunDirectory, compose, torrc

REPOSITORY = Path(__file__).resolve().parents[2]
VARIANTS = load_variants(REPOSITORY)


def composed(
    engine: ShadowEngine, variant: str = "rr", seed: int = 1, repeat: int = 1, **tor: Any
) -> RunDirectory:
    settings = next(iter(load("quick", root=REPOSITORY).levels.values())).settings
    if tor:
        settings = settings.model_copy(update={"tor": settings.tor.model_copy(update=tor)})
    return compose(
        REPOSITORY,
        settings,
        variant=VARIANTS[variant],
        baseline=VARIANTS["ewma"],
        seed=seed,
        repeat=repeat,
        engine=engine,
    )


def test_the_same_inputs_give_the_same_bytes_on_any_machine(shadow_engine: ShadowEngine) -> None:
    """The hash covers keys, draws, GraphML, GML and YAML. It was computed on another machine.

    The hash changes with quick.yaml, with configs/ and with the code that writes run directories.
    After such a change, look at the files (`make generate NAME=quick`), and insert the new hash
    here.
    """
    files = composed(shadow_engine).files
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(f"{path}\0{hashlib.sha256(files[path]).hexdigest()}\n".encode())
    assert whole.hexdigest() == "bab21d3155102c3f1bad321a7c76a351c4963edd1d51acd03ad25f095f4dccd4"


def test_variants_of_a_seed_differ_only_in_their_options(shadow_engine: ShadowEngine) -> None:
    rr, swrr = (composed(shadow_engine, name).files for name in ("rr", "swrr-linear"))
    different = {
        path
        for path in rr.keys() | swrr.keys()
        if rr.get(path) != swrr.get(path) and not path.endswith("torrc-defaults")
    }
    assert different == {"conf/tor.variant.rr.torrc", "conf/tor.variant.swrr-linear.torrc"}
    assert b"CircuitPolicy RR" in rr["conf/tor.variant.rr.torrc"]
    assert b"SWRRWeightFunction linear" in swrr["conf/tor.variant.swrr-linear.torrc"]


def test_seeds_differ_in_keys_network_and_starts(shadow_engine: ShadowEngine) -> None:
    one, two = (composed(shadow_engine, seed=seed) for seed in (1, 2))
    for path in (
        "conf/network.gml",
        "shadow.data.template/hosts/relay1exitguard/keys/secret_id_key",
    ):
        assert one.files[path] != two.files[path]
    for host, process in (("webclient1", 1), ("relay1exitguard", 0)):
        a, b = (run.simulation.processes[host][process].start_ms for run in (one, two))
        assert a != b


def test_repeats_share_the_network_and_nothing_that_is_random_in_a_run(
    shadow_engine: ShadowEngine,
) -> None:
    one, two = (composed(shadow_engine, repeat=repeat) for repeat in (1, 2))
    different = {path for path, content in one.files.items() if two.files[path] != content}
    assert one.files.keys() == two.files.keys()
    assert different == {"shadow.config.yaml"}
    assert {"conf/network.gml", torrc.BANDWIDTH_FILE} <= one.files.keys()

    def starts(name: str) -> list[tuple[int, int]]:
        pairs = zip(*(run.simulation.processes[name] for run in (one, two)), strict=True)
        return [(a.start_ms, b.start_ms) for a, b in pairs]

    for name in ("authority1", "relay1exitguard", "server1"):
        assert all(a == b for a, b in starts(name))
    assert all(a != b for a, b in starts("webclient1"))
    assert one.simulation.network == two.simulation.network
    assert one.simulation.seed == 1 != two.simulation.seed


def test_a_run_has_its_resolved_settings_which_do_not_name_it(
    shadow_engine: ShadowEngine, tmp_path: Path
) -> None:
    run = composed(shadow_engine)
    run.write(tmp_path)
    resolved = yaml.safe_load((tmp_path / "resolved.yaml").read_text())
    assert [resolved[key] for key in ("variant", "seed", "repeat")] == ["rr", 1, 1]
    assert resolved["tor"]["scheduler"] == {"name": "KIST", "run_interval_s": 0.01}
    assert "resolved.yaml" not in run.files


def test_the_tgen_graphs_match_the_experiment(shadow_engine: ShadowEngine) -> None:
    files = composed(shadow_engine).files
    web = vertices(files["conf/tgen.web.graphml"])
    assert web["stream"]["recvsize"] == "327680 bytes"
    assert web["stream"]["timeout"] == "60 seconds"
    assert web["stream"]["stallout"] == "0 seconds"
    assert web["pause"]["time"].split(",")[0] == "1 seconds"
    assert len(web["pause"]["time"].split(",")) == 20
    assert web["start"]["peers"] == "server1:80,server2:80,server3:80,server4:80"
    assert "pause" not in vertices(files["conf/tgen.bulk.graphml"])


def vertices(graphml: bytes) -> dict[str, dict[str, str]]:
    space = {"g": "http://graphml.graphdrawing.org/xmlns"}
    tree = ElementTree.fromstring(graphml)
    names = {key.get("id"): key.get("attr.name") or "" for key in tree.findall("g:key", space)}
    return {
        node.get("id") or "": {
            names[data.get("key")]: data.text or "" for data in node.findall("g:data", space)
        }
        for node in tree.iterfind(".//g:node", space)
    }


@pytest.mark.parametrize(("fraction", "deployed"), [(0.0, 0), (0.5, 2), (1.0, 4)])
def test_a_fraction_of_the_relays_runs_the_variant(
    shadow_engine: ShadowEngine, fraction: float, deployed: int
) -> None:
    run = composed(shadow_engine, deployment=Deployment("relays", fraction))
    proofs = {name: e.proof for name, e in run.expectations.items() if name.startswith("relay")}
    assert sum(proof == VARIANTS["rr"].proof for proof in proofs.values()) == deployed
    assert sum(proof == VARIANTS["ewma"].proof for proof in proofs.values()) == 4 - deployed
    for name, proof in proofs.items():
        variant = "rr" if proof == VARIANTS["rr"].proof else "ewma"
        included = run.files[f"shadow.data.template/hosts/{name}/torrc-defaults"]
        assert f"conf/tor.variant.{variant}.torrc".encode() in included
    assert run.expectations["webclient1"].proof == VARIANTS["ewma"].proof


def test_dedicated_middles_make_guards_and_exits_scarce(shadow_engine: ShadowEngine) -> None:
    run = composed(shadow_engine)
    text = run.files["shadow.data.template/hosts/bwauthority/v3bw"].decode()
    weight: dict[str, int] = {}
    for bw, role in re.findall(r"bw=(\d+)\tnick=relay\d+([a-z]+)", text):
        weight[role] = weight.get(role, 0) + int(bw)
    total = sum(weight.values())
    # By dir-spec, "Computing Bandwidth Weights", a position is scarce if its share is below a
    # third.
    assert weight["guard"] + weight["exitguard"] < total / 3
    assert weight["exit"] + weight["exitguard"] < total / 3


def test_the_name_of_a_run_depends_on_all_its_inputs(shadow_engine: ShadowEngine) -> None:
    run = composed(shadow_engine)
    other_engine = copy.copy(shadow_engine)
    other_engine._shadow = dataclasses.replace(shadow_engine._shadow, version="3.4.0")
    tor = BuiltTor(Path("tor"), "0.4.9.11", "a" * 64, {}, "circuit-policy")
    other_tor = BuiltTor(Path("tor"), "0.4.9.11", "b" * 64, {}, "circuit-policy")
    elsewhere = BuiltTor(Path("/elsewhere/tor"), "0.4.9.11", "a" * 64, {}, "circuit-policy")
    name = run.run_id({"tor-circuit-policy": tor}, shadow_engine)
    assert re.fullmatch("[0-9a-f]{16}", name)
    assert run.run_id({"tor-circuit-policy": elsewhere}, shadow_engine) == name
    other_seed = composed(shadow_engine, seed=2)
    for one, its_tor, its_engine in (
        (run, other_tor, shadow_engine),
        (other_seed, tor, shadow_engine),
        (run, tor, other_engine),
    ):
        assert one.run_id({"tor-circuit-policy": its_tor}, its_engine) != name


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
