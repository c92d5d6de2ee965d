"""Run directories of a `tornettools` experiment with an imported network."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from harness.conftest import make_shadow_engine
from harness.torrc_dump import dump, plain

from analysis.formats.run_files import TracePlan
from onionlab.cli import main
from onionlab.commands import doctor, estimate
from onionlab.engines.base import Engine
from onionlab.engines.shadow.engine import FIXED_ENVIRONMENT
from onionlab.engines.uml.engine import UmlEngine
from onionlab.errors import UserError
from onionlab.experiment import Experiment, load
from onionlab.experiment.settings import Deployment
from onionlab.experiment.tornettools import TornetSettings
from onionlab.experiment.tornettools_networks import require_networks
from onionlab.programs.tor.build import BuiltTor
from onionlab.programs.tor.variants import TorVariant, load_variants
from onionlab.rundir import RunDirectory
from onionlab.rundir.tornet import addresses, compose_tornet
from onionlab.rundir.trace import deployed_hosts
from onionlab.rundir.verify import ProofRequirement
from onionlab.runs import run_builder
from onionlab.runs.costs.run_cost import IMPORTED, RunSize, estimate_level_cost
from onionlab.runs.run_builder import TornetRunBuilder
from onionlab.tornet.keeping import KeptTornet, import_tornets, load_tornet

from .tiny import HOSTS, TOR_ARGUMENTS, TinyTornet, process

REPOSITORY = Path(__file__).resolve().parents[2]
EWMA: dict[str, Any] = {"variants": ["ewma"], "baseline": "ewma"}
STOCK: dict[str, Any] = {"variants": ["stock", "rr"], "baseline": "stock"}

Loaded = Callable[..., Experiment]
Settings = Callable[..., TornetSettings]
Composed = Callable[..., RunDirectory]

TEXT = """\
kind: tornettools
title: a tiny network
description: for a test
network: {name: tiny}
tor: {variants: [ewma, rr], baseline: ewma}
seeds: 2
"""


def many_users(seed: int, users: int) -> TinyTornet:
    """Return a network with additional Markov clients; ``users`` is their number."""
    tiny = TinyTornet(seed)
    for number in range(users):
        name = f"user{number}"
        tiny.config["hosts"][name] = {
            **tiny.host("user"),
            "processes": [
                process("tor", TOR_ARGUMENTS, 240),
                process("tgen", "tgenrc.graphml", 300),
            ],
        }
        for file in ("torrc", "torrc-defaults", "tgenrc.graphml"):
            tiny.files[f"{HOSTS}/{name}/{file}"] = tiny.files[f"{HOSTS}/user/{file}"]
    return tiny


@pytest.fixture(scope="module")
def imported_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Import two tiny networks once. Return the folder `networks`, which the tests copy."""
    folder = tmp_path_factory.mktemp("imported")
    written = [many_users(seed, 9).write(folder / f"tornet-{seed}") for seed in (1, 2)]
    import_tornets(folder, "tiny", written)
    return folder / "networks"


@pytest.fixture
def root(tmp_path: Path, imported_once: Path) -> Path:
    """Return a checkout with two tiny networks."""
    (tmp_path / "experiments").mkdir()
    for name in ("tor-patches", "configs"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    shutil.copytree(imported_once, tmp_path / "networks")
    return tmp_path


@pytest.fixture
def loaded(root: Path) -> Loaded:
    def load_it(text: str = TEXT, **more: Any) -> Experiment:
        content = {**yaml.safe_load(text), **more}
        path = root / "experiments/tiny.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return load("tiny", root=root)

    return load_it


@pytest.fixture
def settings(loaded: Loaded) -> Settings:
    def of_the_only_level(**more: Any) -> TornetSettings:
        (level,) = loaded(**more).levels.values()
        assert isinstance(level.settings, TornetSettings)
        return level.settings

    return of_the_only_level


@pytest.fixture
def kept(root: Path) -> KeptTornet:
    return load_tornet(root, "tiny", 1)


def variant(name: str) -> TorVariant:
    return load_variants(REPOSITORY)[name]


def compose(
    settings: TornetSettings,
    kept: KeptTornet,
    name: str = "stock",
    baseline: str = "stock",
    made: Engine | None = None,
) -> RunDirectory:
    return compose_tornet(
        settings,
        kept,
        variant=variant(name),
        baseline=variant(baseline),
        engine=made or make_shadow_engine(),
    )


@pytest.fixture
def composed(settings: Settings, kept: KeptTornet) -> Composed:
    """Return a function that composes a run on the first network.

    Its arguments are the variant, the baseline, and keys of the experiment that are changed.
    """
    return lambda *variants, **more: compose(settings(**more), kept, *variants)


def test_a_graph_that_the_embedded_engine_cannot_play(settings: Settings, root: Path) -> None:
    tiny = TinyTornet()
    del tiny.host("hidden")["processes"][0]["environment"]
    (kept,) = import_tornets(root, "other", [tiny.write(root / "other")])
    with pytest.raises(UserError) as refused:
        compose(settings(), kept, made=UmlEngine.__new__(UmlEngine))
    assert refused.value.message == (
        "host peek: the embedded engine does not support its graph of TGen: conf/perf-hs.graphml: "
        "vertex 'stream' is not connected to the others"
    )
    assert refused.value.hint == "run it on Shadow: ENGINE=shadow"


def test_one_line_of_each_tor_is_added_to_tornettools_files(
    composed: Composed, kept: KeptTornet
) -> None:
    run = composed()
    original = kept.contents()
    own = "conf/onionlab.variant.stock.torrc"
    added = {"clients.json", "hosts.json", "run.json", "shadow.config.yaml", own}
    assert run.files.keys() == original.keys() | added
    changed = {path for path in original if run.files[path] != original[path]}
    defaults = {f"{HOSTS}/{name}/torrc-defaults" for name in run.expectations}
    assert changed == {"conf/network.gml", *defaults}
    line = f"%include ../../../{own}\n".encode()
    assert {run.files[path].removeprefix(original[path]) for path in defaults} == {line}


def test_shadow_gets_the_configuration_of_tornettools(composed: Composed) -> None:
    actual = yaml.safe_load(composed().files["shadow.config.yaml"])
    assert actual["general"]["seed"] == 1
    assert actual["general"]["stop_time"] == "3600000 ms"
    assert actual["general"]["bootstrap_end_time"] == "300000 ms"
    original = many_users(1, 9).config["hosts"]
    assert actual["hosts"].keys() == original.keys()
    for name, host in actual["hosts"].items():
        theirs = original[name]
        assert host["bandwidth_up"] == "1000000000 bit"
        assert host.get("ip_addr") == theirs.get("ip_addr", host["ip_addr"])
        for mine, its in zip(host["processes"], theirs["processes"], strict=True):
            program = its["path"].rpartition("/")[2]
            assert mine["path"] == {"tor": "tor-stock"}.get(program, program)
            assert mine["args"] == its["args"].split()
            assert mine["start_time"] == f"{its['start_time'] * 1000} ms"
            assert mine["expected_final_state"] == "running"
            assert mine["environment"] == FIXED_ENVIRONMENT | its.get("environment", {})
    graph = composed().files["conf/network.gml"].decode()
    assert 'latency "307 us"\n    packet_loss 0.0025' in graph
    # Two hosts may be on the same node, which therefore has a path to itself.
    assert 'latency "303 us"' in graph


def test_a_variant_runs_in_place_of_stock_tor(composed: Composed, root: Path) -> None:
    run = composed("rr", "ewma")
    assert b"CircuitPolicy RR" in run.files["conf/onionlab.variant.rr.torrc"]
    assert run.tor_programs == ("oniontrace", "tor-circuit-policy")
    assert composed("rr", "ewma").files == run.files
    assert composed("rr", "ewma", network={"name": "tiny", "oniontrace": "none"}).tor_programs == (
        "tor-circuit-policy",
    )


def test_the_analysis_gets_classes_and_roles(composed: Composed, settings: Settings) -> None:
    assert settings().classes == {
        "markov-exit": {"count": 10, "load": True},
        "perf-exit": {"count": 1, "load": False},
        "perf-onion": {"count": 1, "load": False},
    }
    files = composed().files
    clients = yaml.safe_load(files["clients.json"])
    found = [clients[name] for name in ("user", "probe", "peek")]
    assert found == ["markov-exit", "perf-exit", "perf-onion"]
    hosts = yaml.safe_load(files["hosts.json"])["hosts"]
    assert hosts["bob"] == {"role": "guard", "oniontrace": True}
    assert hosts["probe"] == {"role": "perf-client", "oniontrace": False}


def test_addresses_match_shadows_assignment(kept: KeptTornet) -> None:
    hosts = dict.fromkeys([f"h{number:04}" for number in range(600)])
    host = kept.tornet.hosts["web"]
    moved = host.model_copy(update={"address": "11.0.0.3"})
    tornet = kept.tornet.model_copy(update={"hosts": {**dict.fromkeys(hosts, host), "z": moved}})
    found = addresses(tornet)
    assert [found["h0000"], found["h0001"], found["h0002"]] == ["11.0.0.1", "11.0.0.2", "11.0.0.4"]
    assert found["h0252"] == "11.0.0.254"
    assert found["h0253"] == "11.0.1.1"
    assert len(set(found.values())) == len(found)
    assert not any(address.endswith((".0", ".255")) for address in found.values())


def test_options_of_an_experiment_reach_their_hosts(composed: Composed) -> None:
    policy = ["reject *:25", "accept *:*"]
    of_relays = {"exitpolicy": policy, "Log": "info file x", "BandwidthRate": "1 MB"}
    tor = STOCK | {
        "scheduler": {"name": "Vanilla"},
        "consensus_params": {"cc_alg": 0},
        "torrc": {"relay": of_relays, "client": {"ConfluxEnabled": "0"}},
    }
    run = composed(tor=tor)
    included = {
        name: run.files[f"{HOSTS}/{name}/torrc-defaults"].decode().count("onionlab.")
        for name in ("alice", "bob", "user", "hidden")
    }
    assert included == {"alice": 4, "bob": 3, "user": 3, "hidden": 3}
    assert b"Schedulers Vanilla" in run.files["conf/onionlab.scheduler.torrc"]
    assert run.files["conf/onionlab.authority.torrc"] == (
        b"/ConsensusParams\nConsensusParams cc_alg=0\n"
    )
    # The first matching line of a policy applies, so the experiment's lines replace the network's.
    assert run.files["conf/onionlab.relay.torrc"] == (
        b"/exitpolicy\nexitpolicy reject *:25\nexitpolicy accept *:*\n"
        b"Log info file x\nBandwidthRate 1 MB\n"
    )
    assert run.files["conf/onionlab.client.torrc"] == b"ConfluxEnabled 0\n"


def test_shadow_gets_the_networks_options_below_the_experiments(
    root: Path, settings: Settings
) -> None:
    tiny = TinyTornet(5)
    tiny.config["experimental"] = {"runahead": "1 ms", "use_worker_spinning": True}
    (kept,) = import_tornets(root, "optioned", [tiny.write(root / "optioned")])
    own = {"shadow": {"experimental": {"use_worker_spinning": False}}}
    run = compose(settings(engine=own), kept)
    options = yaml.safe_load(run.files["shadow.config.yaml"])["experimental"]
    assert (options["runahead"], options["use_worker_spinning"]) == ("1 ms", False)


HALFLIFE = {"CircuitPriorityHalflife": 3}
NETWORK = {
    "conf/common.torrc": "CircuitPriorityHalflife 5\nDoSConnectionEnabled 0\nSchedulers Vanilla\n",
    f"{HOSTS}/bob/torrc": "MaxMemInQueues 1 GB\nControlPort 9052\n/ExitPolicy\n",
}


def imported_with(root: Path, added: dict[str, str]) -> KeptTornet:
    """Import a network whose files have additional lines."""
    tiny = TinyTornet(7)
    for path, lines in added.items():
        tiny.files[path] += lines.encode()
    (kept,) = import_tornets(root, "changed", [tiny.write(root / "changed")])
    return kept


def test_an_experiment_wins_over_the_variant_and_the_network(
    root: Path, settings: Settings, tmp_path: Path
) -> None:
    own = {**HALFLIFE, "BandwidthRate": "90000 bytes", "ControlPort": 9051}
    tor = EWMA | {"torrc": {"all": own}, "scheduler": {"run_interval": "7 ms"}}
    expected: dict[str, Any] = {
        "CircuitPriorityHalflife": [3],
        "Schedulers": ["KIST"],
        "KISTSchedRunInterval": [7],
        "BandwidthRate": [90_000],
        "ControlPort": [9051, 9052],
        "DNSPort": [9054],
    }
    network = {
        "conf/common.torrc": NETWORK["conf/common.torrc"] + "DNSPort 9053\n",
        "conf/relay.torrc": "CircuitPriorityHalflife 30\n",
        f"{HOSTS}/bob/torrc": "+ControlPort 9052\nDNSPort 9054\n",
    }
    run = compose(settings(tor=tor), imported_with(root, network), "ewma", "ewma")
    assert dump(run.files, "bob", expected, tmp_path / "dump") == expected
    actual = {**run.tor_options["all"], **run.tor_options["guard"]}
    assert {name: list(map(plain, actual[name].value.split(", "))) for name in expected} == expected


IGNORED = "Tor ignores it, because"
BOB = f"{HOSTS}/bob/torrc sets "


@pytest.mark.parametrize(
    ("tor", "message"),
    [
        (
            {},
            "conf/common.torrc sets CircuitPriorityHalflife 5, and variant ewma sets "
            "CircuitPriorityHalflife 30",
        ),
        (
            {"torrc": {"all": {"maxmeminqueues": "2 GB"}}},
            f"{BOB}MaxMemInQueues 1 GB, which overrides maxmeminqueues 2 GB of tor.torrc.all",
        ),
        (
            {"torrc": {"all": {"ControlPort": 9051}}},
            f"{BOB}ControlPort 9052, which overrides ControlPort 9051 of tor.torrc.all",
        ),
        (
            {"torrc": {"relay": {"ExitPolicy": "accept *:80"}}},
            f"{BOB}/ExitPolicy, which overrides ExitPolicy accept *:80 of tor.torrc.relay",
        ),
        (
            {"consensus_params": {"DoSConnectionConnectRate": 5}},
            f"tor.consensus_params.DoSConnectionConnectRate: {IGNORED} conf/common.torrc sets "
            "DoSConnectionEnabled 0; remove it, or set DoSConnectionEnabled to 1 in tor.torrc",
        ),
        (
            {"torrc": {"client": {"HiddenServiceMaxStreams": 9}}},
            "tor.torrc.client.HiddenServiceMaxStreams: Tor does not start with it on a "
            "markov-client, which has no HiddenServiceDir; remove it",
        ),
        (
            {"torrc": {"relay": {"MaxCircuitDirtiness": 20}}},
            f"tor.torrc.relay.MaxCircuitDirtiness: {IGNORED} conf/relay.torrc sets ORPort 9001 "
            "IPv4Only; remove it",
        ),
        (
            {"torrc": {"client": {"SocksPort": "9000 IsolateDestAddr"}}},
            "tor.torrc.client.SocksPort is 9000 IsolateDestAddr, and conf/client.torrc sets "
            "SocksPort 9050",
        ),
    ],
)
def test_options_that_a_network_overrides_are_refused(
    tor: dict[str, Any], message: str, root: Path, settings: Settings
) -> None:
    torrc = tor.get("torrc", {})
    of_all = {**HALFLIFE, **torrc.get("all", {})}
    asked = {**EWMA, **tor, "torrc": {**torrc, "all": of_all}} if tor else EWMA
    with pytest.raises(UserError) as refused:
        compose(settings(tor=asked), imported_with(root, NETWORK), "ewma", "ewma")
    assert refused.value.message == message


def test_the_command_line_of_each_host_is_checked(root: Path, settings: Settings) -> None:
    tiny = TinyTornet(7)
    # `probe` and `peek` have the same files, so their options differ only in the command line.
    tiny.host("probe")["processes"][0]["args"] += " --NumCPUs 4"
    (kept,) = import_tornets(root, "changed", [tiny.write(root / "changed")])
    tor = EWMA | {"torrc": {"client": {"NumCPUs": 2}}}
    with pytest.raises(UserError, match="its command line sets NumCPUs 4, which overrides"):
        compose(settings(tor=tor), kept, "ewma", "ewma")


def test_traced_relays_run_a_tracing_build_with_a_path(composed: Composed) -> None:
    run = composed(tor=STOCK | {"trace": {"hosts": ["bob"]}})
    assert run.files["conf/onionlab.trace.torrc"] == b"CellTraceFile cells.stdtrace\n"
    assert [name for name, one in run.expectations.items() if one.traced] == ["bob"]
    for name, program in (("alice", "tor-stock"), ("bob", "tor-cell-trace"), ("user", "tor-stock")):
        *_, last = run.files[f"{HOSTS}/{name}/torrc-defaults"].splitlines()
        assert last.endswith(b"/onionlab.trace.torrc") == (name == "bob")
        assert program in [one.program for one in run.simulation.processes[name]]
        assert program in run.tor_programs
    plan = TracePlan.model_validate_json(run.files["trace.json"])
    assert plan.traced == ("bob",)
    assert plan.hosts["bob"].role == "guard"
    assert plan.hosts["alice"].address == "100.0.0.1"


def test_of_traced_relays_authorities_are_none(composed: Composed) -> None:
    run = composed(tor=STOCK | {"trace": "relays"})
    assert {name for name, one in run.expectations.items() if one.traced} == {"bob", "eve", "mo"}
    with pytest.raises(UserError, match="unknown relay 'alice'"):
        composed(tor=STOCK | {"trace": {"hosts": ["alice"]}})


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        ("all", None),
        ("relays", {"bob", "eve", "mo"}),
        ("exits", {"eve"}),
        ("clients", {"user", "probe", "peek", *(f"user{number}" for number in range(9))}),
    ],
)
def test_where_the_variant_runs(
    composed: Composed, kept: KeptTornet, deployment: str, expected: set[str] | None
) -> None:
    run = composed("rr", tor=STOCK | {"deployment": deployment})
    runs_it = {
        name
        for name, each in run.simulation.processes.items()
        if any(one.program == "tor-circuit-policy" for one in each)
    }
    with_tor = {name for name, host in kept.tornet.hosts.items() if name != "web"}
    assert runs_it == (with_tor if expected is None else expected)
    assert {name for name, its in run.expectations.items() if its.proof} == runs_it


def test_a_smaller_deployment_is_part_of_a_larger_one(kept: KeptTornet) -> None:
    def hosts(where: str, fraction: float) -> set[str]:
        roles = {name: host.role for name, host in kept.tornet.hosts.items()}
        return deployed_hosts(Deployment(where, fraction), roles, kept.seed)

    half, most = hosts("clients", 0.5), hosts("clients", 0.8)
    assert len(half) == 6
    assert half < most < hosts("clients", 1.0)
    assert hosts("relays", 0.0) == set()
    with pytest.raises(UserError, match=r"tor\.deployment: 0\.01 of \d+ exits is less than one"):
        hosts("exits", 0.01)


def test_fewer_markov_clients_are_some_of_them_and_perf_clients_stay(composed: Composed) -> None:
    def users(share: str) -> set[str]:
        run = composed(traffic={"markov_clients": share})
        assert {"probe", "peek", "web"} <= run.simulation.processes.keys()
        left = {name for name in run.simulation.processes if name.startswith("user")}
        there = {path.split("/")[2] for path in run.files if path.startswith(f"{HOSTS}/user")}
        assert there == left
        return left

    few, more = users("30 %"), users("60 %")
    assert (len(few), len(more), len(users("100 %"))) == (3, 6, 10)
    assert few < more
    assert len(users("1 %")) == 1


def test_the_required_log_lines_of_a_host(composed: Composed) -> None:
    expected = composed("rr", "ewma").expectations
    assert "web" not in expected
    assert not expected["bob"].is_client
    assert expected["hidden"].is_client
    assert expected["bob"].requirement is ProofRequirement.MUST
    assert expected["hidden"].requirement is ProofRequirement.MAY


def test_folders_that_tor_made_are_for_their_owner_and_no_others(
    composed: Composed, kept: KeptTornet, tmp_path: Path
) -> None:
    composed().write(tmp_path / "run")
    folders = [path for path in (tmp_path / "run" / HOSTS).rglob("*") if path.is_dir()]
    closed = {
        path.relative_to(tmp_path / "run" / HOSTS).as_posix()
        for path in folders
        if path.stat().st_mode & 0o777 == 0o700
    }
    relays = ("alice", "bob", "eve", "mo")
    assert closed == {*relays, *(f"{name}/keys" for name in relays), "hidden/hs"}
    assert len(folders) > len(closed)


@pytest.mark.parametrize("path", ["./torrc", "../probe/torrc-defaults"])
def test_a_file_of_defaults_belongs_to_one_host(
    settings: Settings, kept: KeptTornet, path: str
) -> None:
    user = kept.tornet.hosts["user"]
    arguments = ("--defaults-torrc", path, "-f", "torrc")
    processes = tuple(
        one.model_copy(update={"arguments": arguments}) if one.program == "tor" else one
        for one in user.processes
    )
    hosts = {**kept.tornet.hosts, "user": user.model_copy(update={"processes": processes})}
    changed = replace(kept, tornet=kept.tornet.model_copy(update={"hosts": hosts}))
    if path.startswith("../"):
        with pytest.raises(UserError, match=r"user: .*torrc-defaults, is not in its own folder"):
            compose(settings(), changed)
        return
    run = compose(settings(), changed, "rr")
    assert b"onionlab.variant.rr.torrc" in run.files[f"{HOSTS}/user/torrc"]


def test_latencies_that_engines_do_not_support(
    composed: Composed, kept: KeptTornet, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = kept.path_graph()
    paths = {pair: replace(path, latency_ns=2_500) for pair, path in graph.paths.items()}
    monkeypatch.setattr(KeptTornet, "path_graph", lambda self: replace(graph, paths=paths))
    with pytest.raises(UserError, match="a latency of 2500 ns"):
        composed()


@pytest.mark.parametrize(
    ("time", "problem"),
    [
        ({"stop": "20 min"}, "time.measured_from: nothing would be measured"),
        ({"measured_from": "200 s"}, "time.measured_from: until 300 s the networks bootstrap"),
        ({"stop": "2 h"}, "time.stop: the networks were made for 3600 s"),
    ],
)
def test_times_that_do_not_fit_the_network(
    loaded: Loaded, time: dict[str, str], problem: str
) -> None:
    with pytest.raises(UserError, match=re.escape(problem)):
        loaded(time=time)


def test_a_program_that_would_start_after_the_end(settings: Settings, kept: KeptTornet) -> None:
    asked = settings()
    late = asked.time.model_copy(update={"given_stop_s": 250.0})
    with pytest.raises(UserError, match="starts tgen after 300 s"):
        compose(asked.model_copy(update={"time": late}), kept)


def test_seeds_without_a_network_are_named(loaded: Loaded, root: Path) -> None:
    require_networks(root, loaded())
    with pytest.raises(UserError) as caught:
        require_networks(root, loaded(seeds=4))
    assert caught.value.message == "tiny: the networks tiny have no seed 3, 4: they have 1, 2"
    assert "NETWORKS=2" in (caught.value.hint or "")
    assert "make import-network" in (caught.value.hint or "")


def test_keys_that_the_kind_does_not_have(loaded: Loaded) -> None:
    for more, problem in (
        ({"tor": {"variants": ["rr", "nobody"], "baseline": "rr"}}, 'unknown variant "nobody"'),
        ({"tor": {"variants": ["arti"], "baseline": "arti"}}, "arti has clients of Arti, and"),
        ({"tor": {"variants": ["rr"], "baseline": "ewma"}}, "expected one of this experiment's"),
        ({"network": {"name": "tiny", "relays": {}}}, "relays"),
        ({"network": {"name": "../tiny"}}, "expected text that matches"),
        ({"traffic": {"markov_clients": "0 %"}}, "markov_clients"),
        ({"network": {"name": "tiny", "oniontrace": "some"}}, "as-imported, none"),
    ):
        with pytest.raises(UserError) as caught:
            loaded(**more)
        assert problem in caught.value.message, more


def test_a_missing_oniontrace_is_named(
    loaded: Loaded, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_builder, "ensure_builds", lambda *args, **more: {})
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("ONIONTRACE", raising=False)
    with pytest.raises(UserError) as caught:
        TornetRunBuilder(root, loaded(), ()).build()
    assert "OnionTrace is not installed" in caught.value.message
    assert "ONIONTRACE=/path/to/oniontrace" in (caught.value.hint or "")
    assert "--oniontrace" not in (caught.value.hint or "")
    without = loaded(network={"name": "tiny", "oniontrace": "none"})
    assert TornetRunBuilder(root, without, ()).build() == {}


class OldTor(BuiltTor):
    """A Tor that reads no consensus parameter except circwindow."""

    def unread_parameters(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name != "circwindow"]


def test_a_networks_own_parameter_that_no_tor_reads_is_refused(loaded: Loaded, root: Path) -> None:
    tiny = many_users(1, 9)
    tiny.files["conf/common.torrc"] += b"ConsensusParams circwindow=500 cc_alg=2 cfx_enabled=0\n"
    import_tornets(root, "voting", [tiny.write(root / "voting")])
    experiment = loaded(network={"name": "voting"}, seeds=[1])
    builder = TornetRunBuilder(root, experiment, ())
    builder.engine = make_shadow_engine()
    builder.programs = {"tor-stock": OldTor(Path("tor-stock"), "0.4.5.9", "a" * 64, {}, None)}
    with pytest.raises(UserError) as refused:
        builder.compose(next(iter(experiment.levels)), "stock", 1)
    assert refused.value.message == (
        "network voting: cc_alg: Tor 0.4.5.9 (stock) does not read this parameter"
    )


def test_a_cost_follows_from_tors_and_simulated_time(settings: Settings, root: Path) -> None:
    whole, half = (
        estimate_level_cost(root, "tiny", settings(traffic={"markov_clients": share}), "uml", [])
        for share in ("100 %", "50 %")
    )
    assert whole.expected == RunSize("uml", "tiny", IMPORTED, 17, 3600.0).predict()
    assert half.expected.cpu_s < whole.expected.cpu_s < 2 * half.expected.cpu_s


@pytest.mark.parametrize("verb", [estimate, doctor])
def test_commands_without_runs_report_missing_networks(
    verb: ModuleType,
    loaded: Loaded,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    loaded(network={"name": "other"})
    (root / "requirements.lock").symlink_to(REPOSITORY / "requirements.lock")
    monkeypatch.setattr(verb, "working_root", lambda: root)
    status = main([verb.__name__.rpartition(".")[2], "tiny", "--engine", "uml"])
    actual = "".join(capsys.readouterr())
    assert status == (1 if verb is doctor else 2), actual
    assert 'tiny: there are no networks "other"' in actual
    assert "make import-network FROM='directory ...' NAME=other" in actual


def test_levels_may_differ_in_keys_of_the_kind(loaded: Loaded, kept: KeptTornet) -> None:
    levels = {
        "whole": {"label": "all users"},
        "half": {"label": "half", "overrides": {"traffic": {"markov_clients": "50 %"}}},
    }
    experiment = loaded(levels=levels)
    hosts = {
        name: len(compose(level.settings, kept).simulation.processes)
        for name, level in experiment.levels.items()
    }
    assert hosts == {"whole": 18, "half": 13}
    # The settings state the same numbers, because these are part of a run's identity and are used
    # to estimate the cost of a run.
    for name, level in experiment.levels.items():
        torrcs = [path for path in compose(level.settings, kept).files if path.endswith("/torrc")]
        assert (level.settings.hosts, level.settings.tors) == (hosts[name], len(torrcs))


def test_endpoints_are_those_of_the_networks_clients(loaded: Loaded) -> None:
    endpoints = [{"class": "perf-exit", "metric": "ttfb_p50_s"}]
    assert loaded(endpoints=endpoints).header.endpoints[0].class_name == "perf-exit"
    with pytest.raises(UserError, match=r"endpoints\[1\]\.class: expected one of all, markov-exit"):
        loaded(endpoints=[{**endpoints[0], "class": "web"}])
    # The classes of a network that is missing are not known.
    assert loaded(endpoints=endpoints, network={"name": "elsewhere"}).header.endpoints
