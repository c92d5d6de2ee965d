"""Which variants an experiment's runs have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.formats.plan_file import Request
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.experiment.settings import Torrc
from onionlab.network import sample_network
from onionlab.programs.tor.build import BuiltTor
from onionlab.rundir.compose import network_request
from onionlab.runs import bench as benches
from onionlab.runs.bench import PeersBench, Workbench
from onionlab.runs.planning import _composed

from .conftest import REPOSITORY


class NothingBuilt(Workbench):
    """A bench whose programs nobody runs."""

    def build(self, say: Any) -> Mapping[str, Any]:
        return {}


@pytest.fixture
def open_bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(benches, "open_engine", lambda *args, **more: None)

    def opened(*variants: str, name: str = "quick") -> tuple[NothingBuilt, list[str]]:
        said: list[str] = []
        experiment = load(name, root=REPOSITORY)
        request = Request(name, variants=variants)
        return NothingBuilt(REPOSITORY, experiment, request, said.append), said

    return opened


def test_an_experiments_variants_are_those_asked_for_in_its_order(open_bench: Any) -> None:
    own = list(load("quick", root=REPOSITORY).variants)
    assert open_bench()[0].selected == own
    bench, said = open_bench("ewma", "rr", "rr")
    assert (bench.selected, said) == ([one for one in own if one in ("ewma", "rr")], [])
    assert open_bench("rr")[0].needed == ["ewma", "rr"]


def test_any_variant_can_be_taken_into_an_experiment(open_bench: Any, tmp_path: Path) -> None:
    bench, said = open_bench("swrr-logarithmic", "stream-list", "ewma")
    assert bench.selected == ["ewma", "swrr-logarithmic", "stream-list"]
    assert said == [
        "note: not in quick's own list of variants: swrr-logarithmic, stream-list",
    ]
    assert [variant for _, variant in _composed(bench)] == bench.selected
    several, _ = open_bench("rr", "stream-list", name="starvation")
    levels = several.experiment.levels
    assert _composed(several) == [
        (level, name) for level in levels for name in ("stream-list", "rr")
    ]


def test_a_job_uses_the_settings_of_its_plan_and_reads_no_experiment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = load("quick", root=REPOSITORY).with_overrides(scale=0.5, seeds=[3])
    monkeypatch.delattr(benches, "load")
    bench = benches._bench(REPOSITORY, Request("quick"), print, experiment.resolved)
    assert bench.experiment.levels == experiment.levels
    assert bench.experiment.seeds == (3,)
    older = experiment.resolved
    del older["levels"]["quick"]["settings"]["time"]["drain_s"]
    with pytest.raises(UserError, match="another version of onionlab made the plan"):
        benches._bench(REPOSITORY, Request("quick"), print, older)


class OldTor(BuiltTor):
    """A Tor that knows few options and one parameter."""

    @property
    def torrc_options(self) -> frozenset[str]:
        return frozenset({"CircuitPriorityHalflife", "DataDirectory", "NumCPUs", "ORPort"})

    def unread_parameters(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name != "circwindow"]


@pytest.fixture
def with_old_tor(monkeypatch: pytest.MonkeyPatch, shadow_engine: Any) -> Any:
    """Opens a bench of stock Tor with such a build, and options and parameters for it."""

    def opened(torrc: Mapping[str, str], parameters: Mapping[str, int] = {}) -> Workbench:
        tor = OldTor(None, Path("tor-stock"), "a" * 64, "0.4.5.9", {})
        monkeypatch.setattr(Workbench, "build", lambda self, say: {"tor-stock": tor})
        monkeypatch.setattr(benches, "open_engine", lambda *args, **more: shadow_engine)
        experiment = load("quick", root=REPOSITORY)
        (name, level) = next(iter(experiment.levels.items()))
        settings = level.settings.model_copy(
            update={
                "tor": level.settings.tor.model_copy(
                    update={
                        "variants": ("stock",),
                        "baseline": "stock",
                        "torrc": Torrc.model_validate({"all": torrc}),
                        "consensus_params": parameters,
                    }
                )
            }
        )
        # A later level may switch off what an earlier one uses.
        parameters_off = dict.fromkeys(parameters, 0)
        tor_off = settings.tor.model_copy(update={"consensus_params": parameters_off})
        off = replace(level, settings=settings.model_copy(update={"tor": tor_off}))
        experiment = replace(
            experiment,
            levels={name: replace(level, settings=settings), "without": off},
            variants=("stock",),
            baseline="stock",
        )
        request = Request("quick")
        bench = Workbench(REPOSITORY, experiment, request, lambda line: None)
        bench.open(request, lambda line: None)
        return bench

    return opened


def test_a_default_that_tor_does_not_know_is_left_out(with_old_tor: Any) -> None:
    bench = with_old_tor({"NumCPUs": "2"})
    level, _ = bench.experiment.levels
    common = bench.compose(level, "stock", 1).files["conf/tor.common.torrc"].decode()
    assert "DataDirectory ." in common
    assert "OverloadStatistics" not in common


def test_an_option_that_tor_does_not_know_is_refused_before_a_run(with_old_tor: Any) -> None:
    with pytest.raises(UserError) as refused:
        with_old_tor({"OverloadStatistics": "1", "NumCPU": "2"})
    assert refused.value.message == (
        "tor.torrc.all: Tor 0.4.5.9 (stock) has no option OverloadStatistics\n"
        'tor.torrc.all: Tor 0.4.5.9 (stock) has no option NumCPU; did you mean "NumCPUs"?'
    )


def test_a_parameter_that_tor_does_not_read_is_refused_before_a_run(with_old_tor: Any) -> None:
    with pytest.raises(UserError) as refused:
        with_old_tor({}, {"cc_alg": 2, "cfx_enabled": 0, "circwindow": 500})
    assert refused.value.message == (
        "tor.consensus_params.cc_alg: Tor 0.4.5.9 (stock) does not read this parameter"
    )


def test_a_parameter_that_one_of_the_tors_reads_is_accepted(
    with_old_tor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = with_old_tor({})
    patched = BuiltTor("own", Path("tor-own"), "b" * 64, "0.4.5.9", {})
    monkeypatch.setattr(BuiltTor, "unread_parameters", lambda self, names: ["cc_alg"])
    bench.programs = {**bench.programs, "tor-own": patched}
    assert bench._describe_unread({"cc_alg": 2, "own-parameter": 5}) == [
        "cc_alg: Tor 0.4.5.9 (own), Tor 0.4.5.9 (stock) does not read this parameter"
    ]


def test_an_experiment_without_tor_has_no_options_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benches, "open_engine", lambda *args, **more: None)
    monkeypatch.setattr(PeersBench, "build", lambda self, say: {})
    bench = benches.open_bench(REPOSITORY, Request("slowstart"), print)
    assert bench.known_options is None


def test_a_variant_that_an_experiment_excludes_is_refused(open_bench: Any, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        f"extends: {REPOSITORY}/experiments/quick.yaml\n"
        "tor: {variants: [stream-list], baseline: stream-list, "
        "consensus_params: {CircuitPriorityHalflifeMsec: 9}}\n"
    )
    open_bench(name=str(path))
    with pytest.raises(UserError, match="variant ewma sets CircuitPriorityHalflife 30"):
        open_bench("ewma", name=str(path))


def test_a_variant_can_be_added_to_an_experiment_with_peers(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        f"extends: {REPOSITORY}/experiments/slowstart.yaml\n"
        "libtorrent: {variants: [rate-only], baseline: rate-only}\n"
    )
    request = Request(str(path), variants=("slow-start",))
    assert benches._bench(REPOSITORY, request, lambda line: None).selected == ["slow-start"]


def test_a_variant_that_is_nowhere_is_named(open_bench: Any) -> None:
    with pytest.raises(UserError) as refused:
        open_bench("ewma", "swr-linear")
    assert refused.value.message == (
        'there is no variant "swr-linear"; did you mean "swrr-linear"?'
    )
    assert "quick has " in str(refused.value.hint)
    assert "stream-lrs" in str(refused.value.hint)


def test_what_relays_carry_together_is_the_networks_own_draw(open_bench: Any) -> None:
    bench, _ = open_bench(name="configs/costs/links.yaml")
    level = "5mid"
    carried = bench.capacities_bytes_per_s(level)
    # Five middles of 928.939 KiB/s, doubled (docs/explanation/calibration.md).
    assert carried["middle"] == pytest.approx(5 * 2 * 928.939 * 1024, rel=1e-6)
    drawn = sample_network(network_request(REPOSITORY, bench.settings(level)), 1)
    for role, bytes_per_s in carried.items():
        links = [drawn.place_of(host).up_bit_per_s for host in drawn.by_role(role)]
        assert sum(links) / 8 == pytest.approx(bytes_per_s, rel=1e-3)


def test_relays_that_tor_limits_carry_no_more_than_that(open_bench: Any) -> None:
    bench, _ = open_bench(name="starvation")
    assert bench.capacities_bytes_per_s("r200-s9") == {
        "guard": 630 * 1024, "middle": 200 * 1024, "exit": 720 * 1024
    }  # fmt: skip


def test_what_limits_a_networks_relays_is_known_before_its_runs() -> None:
    bench = benches._bench(REPOSITORY, Request("swrr-capacities"), lambda line: None)
    middles = {
        level: [bench.network_facts(level, seed)["middle"] for seed in (1, 2)]
        for level in ("random", "representative")
    }
    assert [round(one.limited, 2) for one in middles["random"]] == [0.07, 0.93]
    assert middles["representative"][0] == middles["representative"][1]
