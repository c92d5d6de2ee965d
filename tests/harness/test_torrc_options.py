"""The precedence of settings of the same Tor option, for each pair of places with a setting.

These tests use generated networks. Pairs that are rejected are in
tests/experiment/test_messages.py, and pairs with an imported network are in
tests/tornet/test_compose.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onionlab.engines.shadow.engine import ShadowEngine
from onionlab.experiment import load
from onionlab.experiment.settings import Scheduler, Settings, Torrc
from onionlab.experiment.tor_options import (
    HostOptions,
    Layer,
    describe_settings,
    parse_options,
    resolve_options,
)
from onionlab.programs.tor.variants import load_variants
from onionlab.rundir import RunDirectory, compose

from .torrc_dump import REPOSITORY, dump, plain

VARIANTS = load_variants(REPOSITORY)
RELAY, MIDDLE = "relay1exitguard", "relay4middle"
CLIENT, AUTHORITY = "webclient1", "authority1"


def composed(engine: ShadowEngine, *, options: dict[str, str], **tor: Any) -> RunDirectory:
    """Compose a run of `quick` in which the middle relays limit themselves to 100 KiB/s.

    options: Tor options to add to the variant. tor: changed keys of the experiment's section `tor`.
    """
    settings = next(iter(load("quick", root=REPOSITORY).levels.values())).settings
    assert isinstance(settings, Settings)
    relays = settings.network.relays
    middle = relays.middle.model_copy(update={"bandwidth_rate_bit_per_s": 8 * 102_400})
    network = settings.network.model_copy(
        update={"relays": relays.model_copy(update={"middle": middle})}
    )
    changed = {
        "scheduler": Scheduler.model_validate(tor.get("scheduler", {})),
        "torrc": Torrc.model_validate(tor.get("torrc", {})),
        "consensus_params": tor.get("consensus_params", {}),
    }
    return compose(
        REPOSITORY,
        settings.model_copy(
            update={"network": network, "tor": settings.tor.model_copy(update=changed)}
        ),
        variant=VARIANTS["ewma"].model_copy(
            update={"torrc": {**VARIANTS["ewma"].torrc, **options}, "name": "changed"}
        ),
        baseline=VARIANTS["ewma"],
        seed=1,
        engine=engine,
    )


# "lower layer, higher layer" -> (host, resulting options, keys of `tor`, options of the variant).
# The last two may be left out.
PAIRS: dict[str, tuple[Any, ...]] = {
    "defaults, scheduler": (
        RELAY,
        {"Schedulers": ["KISTLite"], "KISTSchedRunInterval": [3]},
        {"scheduler": {"name": "KISTLite", "run_interval": "3 ms"}},
    ),
    "defaults, the last line of an experiment": (
        CLIENT,
        {"NumCPUs": [3]},
        {"torrc": {"all": {"NumCPUs": [2, 3]}}},
    ),
    "defaults, variant": (CLIENT, {"NumCPUs": [2]}, {}, {"NumCPUs": "2"}),
    "defaults of a role, variant": (
        RELAY,
        {"ServerDNSAllowBrokenConfig": [0]},
        {},
        {"ServerDNSAllowBrokenConfig": "0"},
    ),
    "scheduler, variant": (
        RELAY,
        {"Schedulers": ["Vanilla"], "KISTSchedRunInterval": [5]},
        {"scheduler": {"name": "KIST"}},
        {"Schedulers": "Vanilla", "KISTSchedRunInterval": "5 msec"},
    ),
    "defaults of a role, experiment": (
        RELAY,
        {"ServerDNSDetectHijacking": [1]},
        {"torrc": {"all": {"ServerDNSDetectHijacking": 1, "ClientOnly": 0}}},
    ),
    "defaults of authorities, experiment": (
        AUTHORITY,
        {"AuthDirTestReachability": [1]},
        {"torrc": {"relay": {"AuthDirTestReachability": 1}}},
    ),
    "a list of defaults, experiment": (
        RELAY,
        {"ExitPolicy": ["reject *:25", "accept *:*"]},
        {"torrc": {"relay": {"ExitPolicy": ["reject *:25", "accept *:*"]}}},
    ),
    "logs of defaults, experiment": (
        RELAY,
        {"Log": ["notice stdout", "info file x"]},
        {"torrc": {"relay": {"Log": "info file x"}}},
    ),
    "a list of defaults, variant": (
        RELAY,
        {"ExitPolicy": ["reject *:25"]},
        {},
        {"ExitPolicy": "reject *:25"},
    ),
    "other ports of the experiment for all, for some": (
        RELAY,
        {"ControlPort": [9051, 9052, 9053]},
        {"torrc": {"all": {"ControlPort": [9051, 9052]}, "relay": {"controlport": 9053}}},
    ),
    "the port of defaults, experiment": (
        CLIENT,
        {"SocksPort": ["9000 IsolateDestAddr"]},
        {"torrc": {"client": {"SocksPort": "9000 IsolateDestAddr"}}},
    ),
    "variant, experiment": (
        RELAY,
        {"CircuitPriorityHalflife": [3]},
        {"torrc": {"relay": {"CircuitPriorityHalflife": 3}}},
    ),
    "variant, experiment for others": (
        CLIENT,
        {"CircuitPriorityHalflife": [30]},
        {"torrc": {"relay": {"CircuitPriorityHalflife": 3}}},
    ),
    "experiment for all, for some": (
        AUTHORITY,
        {"NumCPUs": [5]},
        {"torrc": {"all": {"NumCPUs": 3}, "relay": {"numcpus": 4}, "authority": {"NUMCPUS": 5}}},
        {"NumCPUs": "2"},
    ),
    "defaults, host": (MIDDLE, {"BandwidthRate": [102_400.0], "BandwidthBurst": [102_400.0]}),
    "defaults, consensus": (
        RELAY,
        {
            "DoSConnectionEnabled": [],
            "PathBiasCircThreshold": [],
            "PathBiasUseThreshold": [10_000],
            "DoSCircuitCreationEnabled": [0],
        },
        {"consensus_params": {"DoSConnectionEnabled": 1, "pb_warnpct": 9}},
    ),
    "consensus, experiment": (
        RELAY,
        {"CircuitPriorityHalflife": [-1]},
        {
            "consensus_params": {"CircuitPriorityHalflifeMsec": 9000},
            "torrc": {"all": {"CircuitPriorityHalflife": -1}},
        },
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_the_higher_layer_wins(pair: str, shadow_engine: ShadowEngine, tmp_path: Path) -> None:
    host, expected, tor, options = (*PAIRS[pair], {}, {})[:4]
    run = composed(shadow_engine, options=options, **tor)
    assert dump(run.files, host, expected, tmp_path) == expected
    role = {RELAY: "exitguard", CLIENT: "client", MIDDLE: "middle", AUTHORITY: "authority"}[host]
    effective = {**run.tor_options["all"], **run.tor_options[role]}
    values = {name.lower(): one.value.split(", ") for name, one in effective.items()}
    assert expected == {
        name: [plain(value) for value in values.get(name.lower(), [])] for name in expected
    }


def test_lists_in_a_hosts_own_torrc_replace_its_defaults() -> None:
    defaults = Layer("defaults", parse_options("Log a\nControlPort 1\nControlPort 2\nNumCPUs 1"))
    own = Layer("own", parse_options("+Log b\nControlPort 3\nNumCPUs 2"), file="torrc")
    found = resolve_options([defaults, own])
    assert {name: (*one.values, one.source) for name, one in found.items()} == {
        "log": ("a", "b", "own"),
        "controlport": ("3", "own"),
        "numcpus": ("2", "own"),
    }


def test_a_manifest_has_options_by_role_and_variant() -> None:
    rr, ewma = VARIANTS["rr"], VARIANTS["ewma"]
    base = Layer("common", {"NumCPUs": ("1",), "Log": ("notice stdout",)})
    fast, slow = (Layer("host", {"bandwidthrate": (rate,)}) for rate in ("9", "1"))
    relay = Layer("tor.torrc.relay", {"Log": ("info file x",)})
    hosts = [
        HostOptions("exit", rr, [base], [relay], [fast]),
        HostOptions("exit", rr, [base], [], [slow]),
        HostOptions("client", ewma, [base], []),
    ]
    found = describe_settings(hosts)
    assert {
        kind: {k: (v.value, v.set_by) for k, v in its.items()} for kind, its in found.items()
    } == {
        "all": {"NumCPUs": ("1", "common")},
        "client, ewma": {"Log": ("notice stdout", "common")},
        "exit, rr": {
            "Log": ("differs by host", "common"),
            "bandwidthrate": ("differs by host", "host"),
        },
    }
    assert describe_settings(hosts[2:]).keys() == {"all", "client"}
