"""Comparison of two sets of runs: differences between their inputs, and the answer."""

from __future__ import annotations

import csv
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from analysis_synthetic import known
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from runset_synthetic import ENGINE, FILES, USUAL, make_set

from analysis.comparison.comparing import Comparison, Conclusion, compare_sets
from analysis.comparison.differences import ASPECTS, classify_file
from analysis.comparison.run_sets import RunSet, TorBuild, read_run_set
from analysis.errors import AnalysisError
from analysis.formats.format_model import LARGEST_VALUE
from analysis.formats.study import Looks
from analysis.judgement.verdicts import Grade
from analysis.pages.comparison import comparison_csv, html_text, table_text, write

HOST = "shadow.data.template/hosts/relay9"
NEW_TOR = {"tor-circuit-policy": TorBuild(version="0.4.9.12", sha256="cd" * 32)}


def require_valid_numbers(comparison: Comparison) -> None:
    pages = [write_text(comparison) for write_text in (table_text, comparison_csv, html_text)]
    text = "\n".join([comparison.sentence, *pages])
    assert re.search(r"\b(nan|inf|NaN|None)\b", text) is None


def test_slower_is_a_regression() -> None:
    a, b = make_set(), make_set("quick:rr", variant="rr", effect=1.2)
    result = compare_sets(a, b)
    assert result.about == ("variant",)
    assert result.conclusion is Conclusion.REGRESSION
    worse = {row.judgement.metric.name for row in result.regressions}
    assert worse == {"time_to_320kib_p50_s", "ttfb_p50_s"}
    assert result.sentence.startswith("Regression: of 4 endpoints 2 worse")
    require_valid_numbers(result)
    faster = compare_sets(b, a)
    assert faster.conclusion is Conclusion.NO_REGRESSION
    assert "2 better" in faster.sentence


def test_networks_with_repeats_are_pairs_by_network() -> None:
    def repeated(made: RunSet) -> RunSet:
        other_seed = {"shadow.config.yaml": "another seed"}
        second = (
            run.model_copy(update={"repeat": 2, "files": {**run.files, **other_seed}})
            for run in made.runs
        )
        return made.model_copy(update={"runs": (*made.runs, *second)})

    a, b = (repeated(made) for made in (make_set(), make_set("quick:rr", variant="rr", effect=1.2)))
    result = compare_sets(a, b)
    assert (result.pairs, result.about, result.identical) == (8, ("variant",), False)
    assert result.conclusion is Conclusion.REGRESSION
    assert compare_sets(a, a.model_copy(update={"name": "again"})).identical
    # If one set has only first repeats, the files of second repeats are not compared.
    assert compare_sets(a, make_set("quick:rr", variant="rr")).about == ("variant",)


def test_interim_analyses_that_both_sets_had_count() -> None:
    def p_value(looks_a: Looks | None, looks_b: Looks | None) -> float:
        a, b = make_set(noise=0.1), make_set("quick:rr", variant="rr", effect=1.2, noise=0.1)
        a, b = (
            made.model_copy(update={"looks": looks}) for made, looks in ((a, looks_a), (b, looks_b))
        )
        return known(compare_sets(a, b).endpoints[0].judgement.verdict.p_different)

    looked = Looks(sizes=(3, 5, 8), budget=20)
    once = p_value(None, None)
    assert p_value(looked, looked) > once
    assert p_value(looked, None) == once


def test_the_same_and_unsettled() -> None:
    close = compare_sets(make_set(), make_set("later", noise_seed=2, noise=0.002))
    assert close.conclusion is Conclusion.NO_REGRESSION
    wide = compare_sets(make_set(noise=0.05), make_set("later", noise_seed=2, noise=0.05))
    assert wide.conclusion is Conclusion.UNSETTLED
    assert any(row.judgement.verdict.more for row in wide.unsettled)


def test_endpoints_that_are_not_judged_are_named() -> None:
    def with_few_streams(made: RunSet) -> RunSet:
        values = [
            {**value.model_dump(by_alias=True), **({"value": 72.0} if value.metric == name else {})}
            for value in made.values
        ]
        return RunSet.model_validate(made.model_dump(by_alias=True) | {"values": values})

    name = "streams_started"
    a, b = (with_few_streams(make_set(noise_seed=seed, noise=0.002)) for seed in (1, 2))
    result = compare_sets(a, b)
    assert result.conclusion is Conclusion.NO_REGRESSION
    assert result.sentence == (
        "No regression: of 3 endpoints 3 same. "
        "Not judged: Timeout rate (all): too few streams (72 of 100)."
    )
    assert "Not judged" not in compare_sets(make_set(), make_set(noise_seed=2)).sentence


def test_a_suggestion_does_not_count_as_a_regression() -> None:
    later = make_set("later", effect=1.2, noise=0.05, noise_seed=2)
    result = compare_sets(make_set(noise=0.05), later, error_level=1e-6)
    suggested = [row for row in result.judged if row.judgement.verdict.grade is Grade.SUGGESTED]
    assert {row.judgement.verdict.direction for row in suggested} == {"worse"}
    assert (result.conclusion, result.regressions) == (Conclusion.UNSETTLED, [])


def test_same_bytes_need_no_test() -> None:
    a = make_set(records="same")
    result = compare_sets(a, make_set("later", records="same", project="0.1.0 decaf"))
    assert result.identical
    assert result.conclusion is Conclusion.NO_REGRESSION
    assert "byte-identical" in result.sentence
    one_more = make_set("later", records="same", seeds=range(1, 10))
    assert not compare_sets(a, one_more).identical
    assert not compare_sets(a, make_set("later")).identical
    unknown = [run.model_copy(update={"records": {}}) for run in a.runs]
    blank = a.model_copy(update={"runs": tuple(unknown)})
    assert not compare_sets(blank, blank).identical


@pytest.mark.parametrize(
    ("changed", "aspect"),
    [
        ({"engine": {**ENGINE, "version": "3.4.0"}}, "engine"),
        ({"tor": NEW_TOR}, "tor"),
        ({"files": {**FILES, "conf/network.gml": "n2"}}, "network"),
        ({"files": {**FILES, "clients.json": "c2", "shadow.config.yaml": "s2"}}, "network"),
        # Another host's torrc counts as a change of the network, not of the configuration.
        ({"files": {**FILES, f"{HOST}/torrc": "x", f"{HOST}/torrc-defaults": "y"}}, "network"),
        ({"files": {**FILES, "conf/tgen.web.graphml": "l2"}}, "load"),
        ({"files": {**FILES, "run.json": "r2"}}, "time"),
        ({"files": {**FILES, "conf/tor.common.torrc": "t2"}}, "configuration"),
        ({"files": {**FILES, "shadow.config.yaml": "s2"}}, "engine"),
        ({"variant": "rr"}, "variant"),
    ],
)
def test_the_one_difference_is_found(changed: dict[str, Any], aspect: str) -> None:
    result = compare_sets(make_set(), make_set("b", **changed))
    assert result.about == (aspect,)
    other = next(name for name in ASPECTS if name not in (aspect, "project", "network"))
    with pytest.raises(AnalysisError, match=f"differ in more than {other}:\n  {aspect}: "):
        compare_sets(make_set(), make_set("b", **changed), [other])


def test_an_update_of_a_library_is_reported_and_allowed() -> None:
    before = make_set(machine={"libevent.so": "a" * 64, "aes": "True"})
    after = {"libevent.so": "b" * 64, "aes": "True", "libz.so": "c" * 64}
    difference = ("libevent.so: aaaaaaaaaaaa / bbbbbbbbbbbb",)
    alone = compare_sets(before, make_set("b", machine=after))
    assert (alone.about, alone.found["machine"]) == (("machine",), difference)
    newer = compare_sets(before, make_set("b", tor=NEW_TOR, machine=after))
    assert (newer.about, newer.found["machine"]) == (("tor",), difference)


def test_options_of_tor_that_differ_are_named() -> None:
    torrc = {
        "t1": "# Tor\nSchedulers KIST\nKISTSchedRunInterval 10 msec\nLog notice\nLog info\n",
        "t2": "Schedulers KIST\nKISTSchedRunInterval 100 msec # x\nLog notice\nCellStatistics 1\n",
    }
    a = make_set().model_copy(update={"texts": {"t1": torrc["t1"]}})
    b = make_set("b", files={**FILES, "conf/tor.common.torrc": "t2"})
    named = compare_sets(a, b.model_copy(update={"texts": {"t2": torrc["t2"]}}))
    assert named.found["configuration"] == (
        "conf/tor.common.torrc (KISTSchedRunInterval: 10 msec / 100 msec; "
        "Log: notice, info / notice; CellStatistics: not set / 1)",
    )
    # Without the text of a torrc file, only the file is named.
    assert compare_sets(a, b).found["configuration"] == ("conf/tor.common.torrc",)


def test_two_differences_are_refused_unless_asked_about() -> None:
    a, b = make_set(), make_set("b", variant="rr", tor=NEW_TOR)
    with pytest.raises(AnalysisError, match="in more than one aspect") as refused:
        compare_sets(a, b)
    assert "variant: ewma / rr" in refused.value.message
    assert "tor: version: 0.4.9.11 / 0.4.9.12" in refused.value.message
    assert "--allow-diff variant,tor" in (refused.value.hint or "")
    assert compare_sets(a, b, ["variant", "tor"]).about == ("variant", "tor")


def test_a_project_may_write_other_files() -> None:
    b = make_set("b", files={name: f"{value}x" for name, value in FILES.items()})
    with pytest.raises(AnalysisError, match="in more than one aspect"):
        compare_sets(make_set(), b)
    assert compare_sets(make_set(), b, ["project"]).about == ("project",)
    with pytest.raises(AnalysisError, match="more than project"):
        compare_sets(make_set(), make_set("b", tor=NEW_TOR), ["project"])


def test_no_network_in_common_makes_two_samples() -> None:
    """Different seeds give different networks, so different network files are not reported."""
    far = make_set("b", seeds=range(20, 28), effect=2.0, files={**FILES, "conf/network.gml": "n2"})
    result = compare_sets(make_set(), far)
    assert not result.paired
    assert result.conclusion is Conclusion.REGRESSION
    assert result.about == ()
    assert "no network in common" in result.notes[0]


def test_streams_that_all_timed_out() -> None:
    times = tuple(name for name in USUAL if name.startswith(("ttfb", "time_to")))
    result = compare_sets(make_set(), make_set("b", missing=times))
    assert result.conclusion is Conclusion.UNSETTLED
    assert "the curve ends at 12.0%" in comparison_csv(result)
    assert "8 of 8 pairs lack a value" in table_text(result)
    require_valid_numbers(result)
    both = compare_sets(make_set(missing=times), make_set("b", missing=times))
    assert both.conclusion is Conclusion.UNSETTLED
    require_valid_numbers(both)


def test_variants_that_do_not_match() -> None:
    one, other = make_set(), make_set(variant="rr")
    update = {"runs": one.runs + other.runs, "values": one.values + other.values}
    both = one.model_copy(update={"name": "both", **update})
    with pytest.raises(AnalysisError, match="do not match in their variants"):
        compare_sets(both, make_set())
    result = compare_sets(both, both)
    assert {row.match.label for row in result.rows} == {"ewma", "rr"}
    assert "Time to first byte, median (s), rr, web" in table_text(result)
    assert [run.variant for run in both.only("rr").runs] == ["rr"] * 8


def test_matches_share_the_error_level() -> None:
    """A difference that is barely shown for one variant is not shown if there are two variants.

    Each of the two variants has half of the error level.
    """
    a, b = make_set(noise=0.04), make_set("b", noise=0.04, noise_seed=7, effect=1.2)
    p_values = [row.judgement.verdict.p_different for row in compare_sets(a, b).regressions]
    barely = 1.5 * min(map(known, p_values))

    def doubled(one: RunSet) -> RunSet:
        def both(items: Any) -> Any:
            return (*items, *(item.model_copy(update={"variant": "rr"}) for item in items))

        return one.model_copy(update={"runs": both(one.runs), "values": both(one.values)})

    assert compare_sets(a, b, error_level=barely).regressions
    assert not compare_sets(doubled(a), doubled(b), error_level=barely).regressions


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:200], "is not valid JSON"),
        (lambda text: "[]", "is not a valid set"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "format"),
        (lambda text: text.replace("ttfb_p50_s", "ttfb_p51_s"), "unknown metric"),
        (lambda text: text.replace('"value": 0.02', '"value": NaN', 1), "not a valid set"),
        (lambda text: text.replace('"seed": 2', '"seed": 1', 1), "not a valid set"),
    ],
)
def test_a_damaged_set_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(change(make_set().text()))
    with pytest.raises(AnalysisError, match=message):
        read_run_set(path)


@given(st.text(max_size=40))
def test_every_file_has_an_aspect(name: str) -> None:
    assert classify_file(name) in {*ASPECTS, "engine files"}


def test_repeats_of_one_network_are_called_repeats() -> None:
    scope = {"scope": "one network: the replicates are its repeats"}
    a, b = (make_set(name, noise_seed=n).model_copy(update=scope) for n, name in enumerate("ab"))
    assert {row.judgement.verdict.replicate for row in compare_sets(a, b).rows} == {"repeat"}
    mixed = compare_sets(a, make_set("b", noise_seed=1))
    assert {row.judgement.verdict.replicate for row in mixed.rows} == {"network"}


def test_pairs_are_by_network() -> None:
    """The networks differ by 10%, so only a paired test finds an effect of 2%."""
    a, b = make_set(noise=0.001), make_set("b", effect=1.02, noise=0.001, noise_seed=2)
    unpaired = a.model_copy(update={"paired": False})
    p_values = [
        row.judgement.verdict.p_different or 0.0
        for result in (compare_sets(a, b), compare_sets(unpaired, b))
        for row in result.rows
        if row.judgement.metric.name == "ttfb_p50_s"
    ]
    assert p_values[0] < 0.001 < 0.2 < p_values[1]
    some = compare_sets(make_set(), make_set("b", seeds=range(3, 12)))
    assert (some.pairs, some.notes) == (6, ("networks without a pair: 1, 2, 9, 10, 11",))
    one = compare_sets(make_set(seeds=(1,)), make_set("b", seeds=(1,), effect=3.0))
    assert one.conclusion is Conclusion.UNSETTLED
    assert "one pair: no spread to judge by" in table_text(one)
    require_valid_numbers(one)


def test_other_spans_and_loads_are_found() -> None:
    b = make_set("b")
    moved = b.spans["quick"].model_copy(update={"measured_start_s": 300.0})
    found = compare_sets(make_set(), b.model_copy(update={"spans": {"quick": moved}})).found
    assert found["time"] == ("measured_start_s: 420 / 300",)
    more = b.spans["quick"].model_copy(update={"load": {"web": {"count": 9}, "bulk": {"count": 1}}})
    found = compare_sets(make_set(), b.model_copy(update={"spans": {"quick": more}})).found
    assert found["load"] == ("bulk count: none / 1", "web count: 8 / 9")


def test_incomparable_sets_are_refused() -> None:
    with pytest.raises(AnalysisError, match="cannot be about 'weather'") as refused:
        compare_sets(make_set(), make_set("b"), ["weather"])
    assert all(name in str(refused.value.hint) for name in ASPECTS)
    empty = make_set().model_copy(update={"values": ()})
    with pytest.raises(AnalysisError, match="have no statistic"):
        compare_sets(empty, empty)
    with pytest.raises(AnalysisError, match="different formats"):
        compare_sets(make_set(), make_set().model_copy(update={"records_format": 2}))


@pytest.mark.usefixtures("svg_only")
def test_written_files_and_sets_are_read_again(tmp_path: Path) -> None:
    a, b = make_set(), make_set("b", variant="rr", effect=1.1, missing=("ttfb_p99_s",))
    for folder in ("1", "2"):
        write(compare_sets(a, b), tmp_path / folder)
    names = ("report.html", "comparison.csv", "answer.txt", "answer.png", "answer.csv")
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    rows = list(csv.DictReader((tmp_path / "1" / "comparison.csv").open()))
    endpoints = {row["endpoint"]: row["metric"] for row in rows if row["endpoint"]}
    assert list(endpoints) == ["1", "2", "3", "4"]
    assert endpoints["1"] == "time_to_320kib_p50_s"
    (tmp_path / "x.json").write_text(b.text())
    assert read_run_set(tmp_path / "x.json") == b


Pairs = list[tuple[float | None, float | None]]
VALUE = st.floats(0, LARGEST_VALUE, allow_subnormal=False) | st.none()


@example([(1.8e-193, 1.0), (1.8e-193, 1.0)], False)
@example([(4e-308, 1.0)], False)  # the margin is a share of 4e-308, so it is almost 0
@given(st.lists(st.tuples(VALUE, VALUE), min_size=1, max_size=5), st.booleans())
def test_any_values_give_an_answer(pairs: Pairs, paired: bool) -> None:
    def side(number: int) -> RunSet:
        places = [{"level": "l", "variant": "v", "seed": n} for n in range(len(pairs))]
        other = {"class": "web", "metric": "ttfb_p50_s", "reason": "because"}
        values = [places[n] | other | {"value": pair[number]} for n, pair in enumerate(pairs)]
        runs = [{"run_id": str(n), **place} for n, place in enumerate(places)]
        content = {"name": "s", "paired": paired, "runs": runs, "values": values}
        return RunSet.model_validate(content)

    result = compare_sets(side(0), side(1))
    assert isinstance(result.conclusion, Conclusion)
    require_valid_numbers(result)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "last_three_lead", "value": -1.0}, None),
        ({"metric": "last_three_lead", "value": -1.5}, "last_three_lead is -1.5, not "),
        ({"metric": "ttfb_p50_s", "value": -1.0}, "ttfb_p50_s is -1.0, not "),
        ({"metric": "failure_rate", "value": 1.0}, None),
        ({"metric": "failure_rate", "value": 1.5}, "failure_rate is 1.5, not "),
        # A mean is arithmetic or geometric.
        ({"value": 2.5, "repeats": [1.0, 4.0]}, None),
        ({"value": 2.0, "repeats": [1.0, 4.0]}, None),
        ({"value": 2.2, "repeats": [1.0, 4.0]}, "not the mean of its repeats"),
        ({"value": None, "repeats": [0.5]}, "not the mean of its repeats"),
        ({"value": 0.5, "repeats": [0.5, 0.5, 0.5]}, "more repeats than its network has runs"),
        ({"value": True}, "valid number"),
        ({"value": 0.5, "repeats": ["0.5"]}, "valid number"),
    ],
)
def test_a_value_is_a_possible_number(change: dict[str, Any], message: str | None) -> None:
    content = make_set().content()
    content["runs"] = [content["runs"][0], content["runs"][0] | {"repeat": 2}]
    content["values"] = [content["values"][0] | change]
    with pytest.raises(ValidationError, match=message) if message else nullcontext():
        assert RunSet.model_validate(content).values[0].value == change["value"]
