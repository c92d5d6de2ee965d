"""Clients with traffic of kind `markov`: rejected values, files, and runs on both engines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from uml.markov_support import emits, model_graphml, to

from onionlab.engines.markov_models import mean_streams_per_s
from onionlab.engines.shadow.engine import ShadowEngine
from onionlab.engines.uml import memory
from onionlab.errors import UserError
from onionlab.experiment import Experiment, load
from onionlab.programs.tor.variants import load_variants
from onionlab.rundir import RunDirectory, compose
from onionlab.rundir.circuits import Rendezvous
from onionlab.rundir.keys import make_onion_service_keys
from onionlab.runs.costs.estimate import estimate_resources

from .checkout import REPOSITORY, TINY, Checkout, arguments, extended
from .markov_models import MODELS, drawn_streams, logged_streams, seed_of, write_models
from .test_end_to_end import ENGINES
from .test_rundir import vertices

CLASS = {"kind": "markov", "count": 2, "timeout": "60 s", "stallout": "30 s"}
HOSTS = "shadow.data.template/hosts"
FIRST_STREAMS = 4


def write_experiment(folder: Path, **traffic: Any) -> Path:
    """Write an experiment with further classes of clients, without the keys that are None."""
    path = folder / "one.yaml"
    classes = {
        name: {key: value for key, value in entry.items() if value is not None}
        for name, entry in traffic.items()
    }
    # The experiment also inherits TINY's bulk client and its four web clients.
    path.write_text(yaml.safe_dump({"extends": str(TINY), "traffic": classes}))
    return path


def loaded(folder: Path, **changes: Any) -> Experiment:
    users = {**CLASS, **write_models(folder / "models"), **changes}
    return load(str(write_experiment(folder, users=users)), root=REPOSITORY)


def composed(experiment: Experiment, engine: ShadowEngine, seed: int = 1) -> RunDirectory:
    (level,) = experiment.levels.values()
    variant = load_variants(REPOSITORY)["ewma"]
    return compose(
        REPOSITORY, level.settings, variant=variant, baseline=variant, seed=seed, engine=engine
    )


def test_a_client_has_a_graph_of_its_own_and_its_class_the_models(
    tmp_path: Path, shadow_engine: ShadowEngine
) -> None:
    run = composed(loaded(tmp_path), shadow_engine)
    for kind, text in MODELS.items():
        assert run.files[f"conf/tgen.users.{kind}-model.graphml"] == text.encode()
    assert "conf/tgen.users.graphml" not in run.files
    graphs = [run.files[f"{HOSTS}/usersclient{number}/tgen.graphml"] for number in (1, 2)]
    nodes = [vertices(graph) for graph in graphs]
    assert nodes[0]["start"]["peers"] == "server1:80,server2:80"
    assert nodes[0]["start"]["timeout"] == "60 seconds"
    assert nodes[0]["start"]["stallout"] == "30 seconds"
    for name in ("markovmodelseed", "socksauthseed"):
        assert nodes[0]["traffic"].pop(name) != nodes[1]["traffic"].pop(name)
    assert nodes[0] == nodes[1]
    assert nodes[0]["traffic"] == {
        "packetmodelmode": "path",
        **{f"{kind}modelpath": f"../../../conf/tgen.users.{kind}-model.graphml" for kind in MODELS},
    }
    _, tgen = run.simulation.processes["usersclient1"]
    assert tgen.arguments == ("tgen.graphml",)
    assert tgen.start_ms >= 80_000


def test_a_class_can_ask_onion_services(tmp_path: Path, shadow_engine: ShadowEngine) -> None:
    users = {**CLASS, **write_models(tmp_path / "models"), "to": "onion-services"}
    path = extended(tmp_path, "minimal-tor", traffic={"users": users})
    run = composed(load(str(path), root=REPOSITORY), shadow_engine)
    address = make_onion_service_keys(1, "onionservice1").address
    nodes = vertices(run.files[f"{HOSTS}/usersclient1/tgen.graphml"])
    assert nodes["start"]["peers"] == f"{address}:80"
    # Markov clients' streams are checked for rendezvous circuits, like other clients' streams.
    assert isinstance(run.expectations["usersclient1"].circuit, Rendezvous)
    assert b"[app,rend]info" in run.files[f"{HOSTS}/usersclient1/torrc"]


def test_seeds_depend_only_on_the_runs_seed_and_the_host(
    tmp_path: Path, shadow_engine: ShadowEngine
) -> None:
    def seeds(seed: int, count: int) -> list[int]:
        files = composed(loaded(tmp_path, count=count), shadow_engine, seed).files
        numbers = range(1, count + 1)
        return [seed_of(files[f"{HOSTS}/usersclient{n}/tgen.graphml"]) for n in numbers]

    three = seeds(1, 3)
    assert seeds(1, 2) == three[:2]
    assert not set(three) & set(seeds(2, 3))


def test_the_class_is_load(tmp_path: Path) -> None:
    (level,) = loaded(tmp_path).levels.values()
    classes = level.settings.classes
    assert classes["users"] == {
        **{"timeout_s": 60.0, "stallout_s": 30.0, "request_bytes": None},
        **{"count": 2, "load": True},
    }
    assert "load" not in classes["web"]


def test_streams_are_flows_times_the_streams_of_a_flow() -> None:
    def ending(share: float) -> bytes:
        """Return a model with 1 / share - 1 streams on average; for a share of 0, it never ends."""
        return model_graphml(
            ("s0", "s1"),
            [
                *(to("s0", "s1"), to("s1", "s1")),
                emits("s1", "+", "uniform", 1 - share, low=10e6, high=10e6),
                emits("s1", "F", "uniform", share, low=0, high=0),
            ],
        ).encode()

    # One flow with one stream starts every two seconds.
    flow, stream = MODELS["flow"].encode(), MODELS["stream"].encode()
    assert mean_streams_per_s(flow, stream) == pytest.approx(0.5, rel=0.05)
    assert mean_streams_per_s(flow, ending(0.2)) == pytest.approx(2, rel=0.1)
    # A flow that never ends is assumed to last 600 s. It starts a stream every ten seconds, 60 in
    # all.
    assert mean_streams_per_s(flow, ending(0.0)) == pytest.approx(30, rel=0.05)
    with pytest.raises(ValueError, match="GraphML"):
        mean_streams_per_s(b"<x/>", None)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        *(
            ({key: value}, f"users.{key}: cannot be set with kind: markov")
            for key, value in {
                **{"request": "1 MiB", "pause": "none", "streams": 2, "stagger": "1 s"},
                **{"repeat": "once", "circuit": "one"},
            }.items()
        ),
        ({"request_rule": "slow-start"}, "users.request_rule: only read with kind: pieces"),
        ({"flow_model": None}, "users.flow_model: missing; with kind: markov"),
        ({"packet_model": "no/such.graphml"}, 'there is no file "no/such.graphml"'),
        ({"packet_model": "experiments"}, 'there is no file "experiments"'),
        ({"stream_model": 3}, "users.stream_model: expected"),
        ({"timeout": None}, "users.timeout: missing"),
    ],
)
def test_unsuitable_keys_are_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UserError, match=re.escape(problem)):
        loaded(tmp_path, **changes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"packet_model": "README.md"}, "extra.packet_model: only read with kind: markov"),
        ({"request": None}, "extra.request: missing: size of each download"),
    ],
)
def test_other_kinds_are_as_before(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    entry = {"count": 1, "request": "1 MiB", "timeout": "none", "stallout": "none", **changes}
    with pytest.raises(UserError, match=re.escape(problem)):
        load(str(write_experiment(tmp_path, extra=entry)), root=REPOSITORY)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not a valid Markov model of TGen"),
        (b"\xff\x00", "not a valid Markov model of TGen"),
        (MODELS["packet"][:700].encode(), "not a valid Markov model of TGen"),
        (MODELS["packet"].replace(">start<", ">begin<").encode(), "needs one state"),
        (MODELS["packet"].replace("exponential", "poisson").encode(), "'distribution'"),
    ],
)
def test_a_broken_model_is_one_error_that_names_it(
    tmp_path: Path, shadow_engine: ShadowEngine, content: bytes, problem: str
) -> None:
    experiment = loaded(tmp_path)
    (tmp_path / "models" / "packet.graphml").write_bytes(content)
    with pytest.raises(UserError) as caught:
        composed(experiment, shadow_engine)
    assert caught.value.message.startswith("traffic.users.packet_model: ")
    assert problem in caught.value.message
    assert caught.value.hint


def test_an_endless_packet_model_needs_a_timeout_and_memory(
    tmp_path: Path, shadow_engine: ShadowEngine
) -> None:
    endless = model_graphml(
        ("s0", "s1"), [to("s0", "s1"), to("s1", "s1"), emits("s1", "-", "exponential", rate=50)]
    )
    with_timeout = loaded(tmp_path)
    ending = composed(with_timeout, shadow_engine).simulation
    (tmp_path / "tor-patches").symlink_to(REPOSITORY / "tor-patches")
    before = estimate_resources(tmp_path, with_timeout, "uml")
    (tmp_path / "models" / "packet.graphml").write_text(endless)
    simulation = composed(with_timeout, shadow_engine).simulation
    # Each of two clients starts a stream about every two seconds, for 45 s.
    assert (ending.endless_streams, simulation.endless_streams) == (0, 45)
    assert memory.expected_bytes(simulation) - memory.expected_bytes(ending) == 45 * 6 * 2**20
    after = estimate_resources(tmp_path, with_timeout, "uml")
    assert after.memory_bytes - before.memory_bytes == 1.5 * 45 * 6 * 2**20
    without = loaded(tmp_path, timeout="none")
    (tmp_path / "models" / "packet.graphml").write_text(endless)
    with pytest.raises(UserError, match=r"users\.packet_model: .* never ends: TGen would send"):
        composed(without, shadow_engine)


@pytest.mark.slow
@pytest.mark.tor
@ENGINES
def test_both_engines_play_the_streams_of_the_seeds(engine: str, checkout: Checkout) -> None:
    """On each engine, the first streams agree with the models and the seeds."""
    users = {**CLASS, **write_models(checkout.root / "models")}
    path = write_experiment(checkout.root, users=users)
    checkout.onionlab("experiment", *arguments(engine, experiment=path))
    (run_id,) = checkout.run_names("one")
    run = checkout.store.run(run_id)
    parse = json.loads(next(run.glob("records-*/parse.json")).read_text())
    assert parse["malformed_lines"] == 0
    assert parse["streams"]["users"]["success"] >= 2 * FIRST_STREAMS
    for number in (1, 2):
        name = f"usersclient{number}"
        (log,) = (run / "shadow.data" / "hosts" / name).glob("tgen.*.stdout")
        expected = drawn_streams(
            seed_of((run / HOSTS / name / "tgen.graphml").read_bytes()), FIRST_STREAMS
        )
        assert logged_streams(log.read_text(), FIRST_STREAMS) == expected
    summary = (checkout.results("one") / "summary.csv").read_text()
    assert "users,goodput" in summary
    assert "users,ttfb" not in summary
    assert "web,ttfb" in summary
