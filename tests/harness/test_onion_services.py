"""Onion services of generated networks: their files, and downloads from them on both engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onionlab.engines.shadow.engine import ShadowEngine
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.rundir.keys import make_onion_service_keys

from .checkout import REPOSITORY, Checkout, extended
from .test_end_to_end import ENGINES
from .test_markov_traffic import composed
from .test_rundir import vertices

TEMPLATE = "shadow.data.template/hosts/onionservice1"


def test_a_service_has_its_keys_and_a_server_that_only_its_tor_reaches(
    tmp_path: Path, shadow_engine: ShadowEngine
) -> None:
    run = composed(load("minimal-tor", root=REPOSITORY), shadow_engine)
    run.write(tmp_path)
    # Tor requires that only the owner may read the service's folder.
    assert (tmp_path / TEMPLATE / "hs").stat().st_mode & 0o777 == 0o700
    keys = make_onion_service_keys(1, "onionservice1")
    for name, content in keys.files.items():
        assert run.files[f"{TEMPLATE}/hs/{name}"] == content
    assert b"conf/tor.onion-service.torrc" in run.files[f"{TEMPLATE}/torrc-defaults"]
    assert b"HiddenServiceDir hs\n" in run.files["conf/tor.onion-service.torrc"]
    tor, server = run.simulation.processes["onionservice1"]
    assert server.environment["TGENIP"] == "127.0.0.1"
    assert tor.start_ms < min(
        run.simulation.processes[host.name][0].start_ms
        for host in run.simulation.network.by_role("client")
    )


def test_clients_ask_for_whom_their_class_names(shadow_engine: ShadowEngine) -> None:
    files = composed(load("minimal-tor", root=REPOSITORY), shadow_engine).files
    address = make_onion_service_keys(1, "onionservice1").address
    for name, peers in (("web", "server1:80,server2:80"), ("onion", f"{address}:80")):
        assert vertices(files[f"conf/tgen.{name}.graphml"])["start"]["peers"] == peers
    assert b"[app,rend]info" in files["shadow.data.template/hosts/onionclient1/torrc"]
    assert b"Log" not in files["shadow.data.template/hosts/webclient1/torrc"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"network": {"onion_services": 0}}, "no onion service: network.onion_services is 0"),
        ({"traffic": {"onion": {"kind": "pieces"}}}, "fetches from servers alone"),
        ({"traffic": {"onion": {"circuit": "one", "repeat": "once"}}}, "onion services have none"),
        ({"network": {"onion_services": 64_001}}, "more onion services than addresses"),
    ],
)
def test_impossible_settings_are_refused(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    path = extended(tmp_path, "minimal-tor", **changes)
    with pytest.raises(UserError) as caught:
        load(str(path), root=REPOSITORY)
    assert problem in str(caught.value)


@pytest.mark.slow
@pytest.mark.tor
@ENGINES
def test_downloads_from_an_onion_service_take_rendezvous_circuits(
    engine: str, checkout: Checkout, circuit_policy_build: None
) -> None:
    """The command rejects the run if a client's log does not show its rendezvous circuit."""
    checkout.onionlab("run", "--engine", engine, "minimal-tor")
    (run_id,) = checkout.run_names("minimal-tor")
    parse = json.loads(next(checkout.store.run(run_id).glob("records-*/parse.json")).read_text())
    assert parse["streams"]["onion"]["success"] >= 20
    assert parse["streams"]["web"]["success"] >= 20
    hosts = checkout.store.run(run_id) / "shadow.data/hosts"
    # The service builds the other half of each circuit: three relays, and then the rendezvous
    # point, which the client chose.
    (log,) = (hosts / "onionservice1").glob("tor-*.stdout")
    assert "Rendezvous circuit " in log.read_text()
