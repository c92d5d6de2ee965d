"""Run builders: variants, Tor options and capacities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.formats.plan_file import Request
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.experiment.experiment import Level
from onionlab.experiment.load import resolve_experiment
from onionlab.experiment.settings import Torrc
from onionlab.network.sample import sample_network
from onionlab.programs.tor.build import BuiltTor
from onionlab.programs.tor.tor_source import TorSource
from onionlab.programs.tor.variants import TorBuild
from onionlab.rundir.compose import network_request, variant_program
from onionlab.runs import run_builder as builders
from onionlab.runs.run_builder import (
    DrawnRunBuilder,
    PeersRunBuilder,
    RunBuilder,
    open_run_builder,
    run_builder,
)
from onionlab.runs.study_file import describe_level

from .checkout import REPOSITORY, extended


def make_builder(*variants: str, name: str = "quick") -> RunBuilder:
    return run_builder(REPOSITORY, Request(name, variants=variants))


def test_requested_variants_have_the_experiments_order_and_others_follow() -> None:
    own = list(load("quick", root=REPOSITORY).variants)
    for asked, selected, added in (
        ((), own, []),
        (("ewma", "rr", "rr"), [one for one in own if one in ("ewma", "rr")], []),
        (
            ("swrr-logarithmic", "stream-list", "ewma"),
            ["ewma"],
            ["swrr-logarithmic", "stream-list"],
        ),
    ):
        builder = make_builder(*asked)
        assert (builder.selected, builder.added_variants) == ([*selected, *added], added)
    assert make_builder("rr").needed == ["ewma", "rr"]


def test_a_job_uses_the_settings_of_its_plan_and_reads_no_experiment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = load("quick", root=REPOSITORY).with_overrides(scale=0.5, seeds=[3])
    monkeypatch.delattr(builders, "load")
    request = Request("quick", variants=("ewma", "stream-list"))
    builder = run_builder(REPOSITORY, request, resolve_experiment(experiment))
    assert builder.experiment.levels == experiment.levels
    assert builder.experiment.seeds == (3,)
    assert builder.added_variants == ["stream-list"]
    older = resolve_experiment(experiment)
    del older["levels"]["quick"]["settings"]["time"]["drain_s"]
    with pytest.raises(UserError, match="another version of onionlab made it"):
        run_builder(REPOSITORY, Request("quick"), older)


@pytest.mark.parametrize(
    "damage",
    [{"kind": []}, {"levels": None}, {"levels": {}}, {"levels": {"quick": 1}}, {"seeds": 1}],
)
def test_a_damaged_plan_is_reported(damage: dict[str, Any]) -> None:
    resolved = resolve_experiment(load("quick", root=REPOSITORY)) | damage
    with pytest.raises(UserError, match="the plan is damaged"):
        run_builder(REPOSITORY, Request("quick"), resolved)


OLD_TOR = "Tor 0.4.5.9 (stock, commit 0123456789ab)"


class OldTor(BuiltTor):
    """A Tor that has only a few torrc options, and reads only one consensus parameter."""

    @property
    def torrc_options(self) -> frozenset[str]:
        return frozenset({"CircuitPriorityHalflife", "DataDirectory", "NumCPUs", "ORPort"})

    def unread_parameters(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name != "circwindow"]


@pytest.fixture
def with_old_tor(monkeypatch: pytest.MonkeyPatch, shadow_engine: Any) -> Any:
    """Return a function that opens a run builder whose stock Tor is an ``OldTor``."""

    def opened(torrc: Mapping[str, str], parameters: Mapping[str, int] = {}) -> DrawnRunBuilder:
        source = {"tor": {"commit": "0123456789abcdef"}}
        tor = OldTor(Path("tor-stock"), "0.4.5.9", "a" * 64, source, None)
        monkeypatch.setattr(DrawnRunBuilder, "build", lambda self: {"tor-stock": tor})
        monkeypatch.setattr(builders, "open_engine", lambda *args, **more: shadow_engine)
        experiment = load("quick", root=REPOSITORY)
        (name, level) = next(iter(experiment.levels.items()))

        def with_tor(parameters: Mapping[str, int]) -> Level:
            changes = {
                "variants": ("stock",),
                "baseline": "stock",
                "torrc": Torrc.model_validate({"all": torrc}),
                "consensus_params": parameters,
            }
            tor = level.settings.tor.model_copy(update=changes)
            return replace(level, settings=level.settings.model_copy(update={"tor": tor}))

        # A second level sets all parameters to 0. The value 0 is accepted even for a parameter that
        # Tor does not read. The first level's values must be checked nevertheless.
        levels = {name: with_tor(parameters), "without": with_tor(dict.fromkeys(parameters, 0))}
        experiment = replace(experiment, levels=levels, variants=("stock",), baseline="stock")
        builder = DrawnRunBuilder(REPOSITORY, experiment, ())
        builder.open(Request("quick"))
        return builder

    return opened


def test_a_default_that_tor_does_not_know_is_left_out(with_old_tor: Any) -> None:
    builder = with_old_tor({"NumCPUs": "2"})
    level, _ = builder.experiment.levels
    common = builder.compose(level, "stock", 1).files["conf/tor.common.torrc"].decode()
    assert "DataDirectory ." in common
    assert "OverloadStatistics" not in common


def test_an_option_that_tor_does_not_know_is_refused_before_a_run(with_old_tor: Any) -> None:
    with pytest.raises(UserError) as refused:
        with_old_tor({"OverloadStatistics": "1", "NumCPU": "2"})
    assert refused.value.message == (
        f"tor.torrc.all: {OLD_TOR} has no option OverloadStatistics\n"
        f'tor.torrc.all: {OLD_TOR} has no option NumCPU; did you mean "NumCPUs"?'
    )


def test_a_parameter_that_tor_does_not_read_is_refused_before_a_run(with_old_tor: Any) -> None:
    with pytest.raises(UserError) as refused:
        with_old_tor({}, {"cc_alg": 2, "cfx_enabled": 0, "circwindow": 500})
    assert refused.value.message == (
        f"tor.consensus_params.cc_alg: {OLD_TOR} does not read this parameter"
    )


def test_a_parameter_that_one_of_the_tors_reads_is_accepted(
    with_old_tor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = with_old_tor({})
    patched = BuiltTor(Path("tor-own"), "0.4.5.9", "b" * 64, {}, "own")
    monkeypatch.setattr(BuiltTor, "unread_parameters", lambda self, names: ["cc_alg"])
    builder.programs = {**builder.programs, "tor-own": patched}
    assert builder._describe_unread(["cc_alg", "own-parameter"]) == [
        f"cc_alg: Tor 0.4.5.9 (own), {OLD_TOR} does not read this parameter"
    ]


def test_a_parameter_that_only_one_side_reads_is_noted(
    with_old_tor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = with_old_tor({}, {"circwindow": 500})
    newer = {"cc_alg": 2, "cc_xoff_client": 9, "cfx_enabled": 0, "circwindow": 500}
    (name, level) = next(iter(builder.experiment.levels.items()))
    tor = level.settings.tor.model_copy(update={"consensus_params": newer})
    level = replace(level, settings=level.settings.model_copy(update={"tor": tor}))
    builder.experiment = replace(builder.experiment, levels={name: level})
    assert isinstance(builder.programs["tor-stock"], OldTor)
    stock = builder.variants["stock"]
    patched = BuiltTor(Path("tor-stock-1234"), "0.4.9", "b" * 64, {"tor": {}}, None, "1234")
    monkeypatch.setattr(BuiltTor, "unread_parameters", lambda self, names: [])
    builder.programs = {**builder.programs, "tor-stock-1234": patched}
    own = {"name": "tor-b", "source_id": "1234"}
    builder.variants = {"stock": stock, "tor-b": stock.model_copy(update=own)}
    builder.needed = ["stock", "tor-b"]
    unread = "cc_alg, cc_xoff_client"
    assert builder.notes == [f"stock does not read {unread}: it runs with its own values"]
    same = stock.model_copy(update={"name": "same", "torrc": {"NumCPUs": "2"}})
    builder.variants, builder.needed = {**builder.variants, "same": same}, ["same", "stock"]
    assert builder.notes == [f"same and stock do not read {unread}: they run with their own values"]


def test_variants_with_sources_of_their_own_have_their_own_programs(
    with_old_tor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = with_old_tor({})
    monkeypatch.undo()
    stock = builder.variants["stock"]
    a, b, c = (TorSource(git="/tor", ref=ref) for ref in "abc")
    builder.variants = {
        name: stock.model_copy(update={"name": name, "source": source})
        for name, source in (("one", a), ("same", b), ("other", c), ("stock", None))
    }
    builder.needed = list(builder.variants)
    built = {
        TorBuild(None, source): BuiltTor(
            Path(f"tor-stock{end}"), "0.4.9", sha256, {"tor": facts}, None, end.lstrip("-")
        )
        for source, end, sha256, facts in (
            (a, "-1234", "a", {"changed": "f"}), (b, "-5678", "a", {}), (c, "-9abc", "b", {}),
            (None, "", "b", {}),
        )
    }  # fmt: skip

    def ensure_builds(root: Path, wanted: Mapping[TorBuild, Any]) -> Mapping[TorBuild, BuiltTor]:
        assert list(wanted.values()) == [["one"], ["same"], ["other"], ["stock"]]
        return {build: built[build] for build in wanted}

    monkeypatch.setattr(builders, "ensure_builds", ensure_builds)
    builder.programs = builder._build_tor()
    ends = ("", "-1234", "-5678", "-9abc")
    assert sorted(builder.programs) == [f"tor-stock{end}" for end in ends]
    assert variant_program(builder.variants["same"]) == "tor-stock-5678"
    assert variant_program(builder.variants["stock"]) == "tor-stock"
    assert variant_program(builder.variants["one"], traced=True) == "tor-cell-trace-1234"
    assert builder.notes == [
        "one is built with uncommitted changes of its work tree",
        "one and same are the same program with the same options",
        "other and stock are the same program with the same options",
    ]


def test_an_experiment_without_tor_has_no_options_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builders, "open_engine", lambda *args, **more: None)
    monkeypatch.setattr(PeersRunBuilder, "build", lambda self: {})
    assert open_run_builder(REPOSITORY, Request("slowstart")).known_options is None


def test_a_variant_that_an_experiment_excludes_is_refused(tmp_path: Path) -> None:
    own = {"variants": ["stream-list"], "baseline": "stream-list"}
    parameters = {"CircuitPriorityHalflifeMsec": 9}
    path = extended(tmp_path, "quick", tor={**own, "consensus_params": parameters})
    make_builder(name=str(path))
    with pytest.raises(UserError, match="variant ewma sets CircuitPriorityHalflife 30"):
        make_builder("ewma", name=str(path))


def test_a_variant_can_be_added_to_an_experiment_with_peers(tmp_path: Path) -> None:
    own = {"variants": ["rate-only"], "baseline": "rate-only"}
    path = extended(tmp_path, "slowstart", libtorrent=own)
    assert make_builder("slow-start", name=str(path)).selected == ["slow-start"]


def test_a_variant_that_is_nowhere_is_named() -> None:
    with pytest.raises(UserError) as refused:
        make_builder("ewma", "swr-linear")
    assert refused.value.message == 'unknown variant "swr-linear"; did you mean "swrr-linear"?'
    assert "Variants of quick: " in str(refused.value.hint)
    assert "stream-lrs" in str(refused.value.hint)


def test_the_total_capacity_of_relays_comes_from_the_drawn_network() -> None:
    settings = make_builder(name="configs/costs/links.yaml").settings("5mid")
    carried = describe_level(REPOSITORY, "5mid", "", settings).capacities_bytes_per_s
    # The level has five middle relays. Their mean capacity of 928.939 KiB/s is doubled
    # (docs/explanation/calibration.md).
    assert carried["middle"] == pytest.approx(5 * 2 * 928.939 * 1024, rel=1e-6)
    drawn = sample_network(network_request(REPOSITORY, settings), 1)
    for role, bytes_per_s in carried.items():
        links = [drawn.place_of(host).up_bit_per_s for host in drawn.by_role(role)]
        assert sum(links) / 8 == pytest.approx(bytes_per_s, rel=1e-3)
