"""The cost model: its coefficients come from measured runs, and it holds on runs not seen."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import AnalysisError
from analysis.formats.json_files import read_json
from onionlab.engines import ENGINES
from onionlab.runs.costs.calibration import Calibration
from onionlab.runs.costs.features import FEATURES, Features
from onionlab.runs.costs.fitting import (
    COLUMNS,
    FIRST,
    HELD_OUT,
    SPEED,
    TRAINING,
    TRUTH,
    Measured,
    fit,
    main,
    read_measured,
    told,
)
from onionlab.runs.costs.model import (
    CPU,
    MODEL_FILE,
    OVERHEAD,
    QUANTITIES,
    CostModel,
    Miss,
    Range,
    around,
    load_model,
    slowness,
    terms_of,
    value_of,
)

REPOSITORY = Path(__file__).resolve().parents[2]
TRAINED = read_measured(REPOSITORY / TRAINING)
UNSEEN = read_measured(REPOSITORY / HELD_OUT)
MADE_FIRST = read_measured(REPOSITORY / FIRST)
MODEL = load_model(REPOSITORY)

HERE = Calibration(switch_us=2.0, call_us=0.2, aes_ns_per_byte=0.5)


def test_the_shipped_coefficients_are_those_of_the_measured_runs() -> None:
    assert fit(TRAINED).content() == read_json(REPOSITORY / MODEL_FILE)


def test_the_command_that_fits_writes_the_shipped_file(tmp_path: Path) -> None:
    table = tmp_path / TRAINING
    table.parent.mkdir(parents=True)
    table.write_bytes((REPOSITORY / TRAINING).read_bytes())
    assert main(tmp_path) == 0
    assert (tmp_path / MODEL_FILE).read_bytes() == (REPOSITORY / MODEL_FILE).read_bytes()


def test_every_engine_has_its_costs() -> None:
    assert set(MODEL.engines) == set(ENGINES) == set(SPEED)
    for engine, costs in MODEL.engines.items():
        assert set(costs.quantities) == set(QUANTITIES)
        assert sum(costs.speed.values()) == pytest.approx(1)
        assert sum(costs.machines.values()) == pytest.approx(0, abs=1e-3)
        for quantity, fitted in costs.quantities.items():
            assert sorted(fitted.coefficients) == sorted(terms_of(engine, quantity))
            assert all(value >= 0 for value in fitted.coefficients.values())
            assert fitted.factor >= 1


def place(run: Measured) -> tuple[str, str, str, str, float]:
    return run.engine, run.experiment, run.level, run.variant, run.scale


def test_no_run_is_both_fitted_and_held_out() -> None:
    unseen = [place(run) for run in (*UNSEEN, *read_measured(REPOSITORY / TRUTH))]
    fitted = {(place(run), run.machine_name) for run in TRAINED}
    assert len(set(unseen)) == len(unseen)
    assert len(fitted) == len(TRAINED)
    assert not {place(run) for run in (*TRAINED, *MADE_FIRST)} & set(unseen)


def near(engine: str, made: list[Measured]) -> tuple[int, int]:
    """How many of an engine's unseen runs are told within half as much again, and of how many."""
    ratios = [
        run.took[CPU] / told(MODEL, run, made).middle
        for run in UNSEEN
        if run.engine == engine and CPU in run.took
    ]
    return sum(1 / 1.5 <= ratio <= 1.5 for ratio in ratios), len(ratios)


# docs/explanation/cost.md has the table.
@pytest.mark.parametrize(
    ("engine", "made", "least", "of"),
    [("uml", [], 13, 13), ("shadow", MADE_FIRST, 18, 20), ("shadow", [], 17, 20)],
)
def test_unseen_runs_are_told_within_half_as_much_again(
    engine: str, made: list[Measured], least: int, of: int
) -> None:
    found, all_of_them = near(engine, made)
    assert all_of_them == of
    assert found >= least


# A truth that is known


KNOWN = {
    "run": 0.5, "tors": 0.2, "tor_s": 0.002, "flowing_bytes": 1e-7, "stalling_bytes": 2e-7,
    "paced_bytes": 3e-8, "unbundled_bytes": 4e-8, "crowded_bytes": 5e-8, "kist_rounds": 3e-5,
    "streams": 0.01, "traced_bytes": 5e-9, "peer_bytes": 2e-7, "peer_wakes": 1e-4,
    "hashed_bytes": 4e-9,
}  # fmt: skip


def synthetic(engine: str, number: int, slow: float, noise: float = 0.0) -> Measured:
    draw = random.Random(f"{engine} {number}")
    features = Features(
        **{name: draw.uniform(1, 100) * 10 ** _SIZES.get(name, 1) for name in FEATURES}
    )
    cpu_s = slow * sum(KNOWN[term] * value_of(features, term) for term in terms_of(engine, CPU))
    calibration = Calibration(*(slow * value for value in (2.0, 0.2, 0.5)))
    took = dict.fromkeys(QUANTITIES, 1.0) | {CPU: cpu_s * math.exp(noise * draw.gauss(0, 1))}
    machine = "slow" if slow > 1 else "fast"
    return Measured(engine, f"e{number}", "l", "v", 1.0, machine, features, calibration, took)


_SIZES = {
    "tor_s": 3, "carried_bytes": 9, "stalling_bytes": 7, "paced_bytes": 8, "unbundled_bytes": 8,
    "crowded_bytes": 8, "kist_rounds": 5, "traced_bytes": 8, "peer_bytes": 6, "peer_wakes": 4,
    "hashed_bytes": 8,
}  # fmt: skip


def test_known_coefficients_are_found_again_whatever_the_machine() -> None:
    # Half of the runs on a machine that is three times slower in all things.
    runs = [synthetic(e, i, 3.0 if i % 2 else 1.0) for e in SPEED for i in range(21)]
    model = fit(runs)
    for engine, costs in model.engines.items():
        fitted = costs.quantities[CPU]
        assert fitted.factor == pytest.approx(1, abs=1e-3)
        # The reference is the machine of most runs: the fast one.
        known = {term: KNOWN[term] for term in terms_of(engine, CPU)}
        assert fitted.coefficients == pytest.approx(known, rel=1e-3)


def test_the_range_tells_what_was_missed() -> None:
    runs = [synthetic(e, i, 1.0, noise=0.2) for e in SPEED for i in range(40)]
    fitted = fit(runs).engines["uml"].quantities[CPU]
    assert 0.12 < fitted.deviation < 0.35
    assert fitted.factor >= math.exp(fitted.deviation)


def test_a_coefficient_is_never_negative() -> None:
    # The second run is larger in all and takes less.
    runs = [synthetic(e, i, 1.0) for e in SPEED for i in range(8)]
    odd = [replace(run, took=run.took | {CPU: 1 / run.took[CPU]}) for run in runs]
    for costs in fit(odd).engines.values():
        assert all(value >= 0 for value in costs.quantities[CPU].coefficients.values())


def test_a_factor_of_a_machine_that_its_measures_do_not_tell_is_found() -> None:
    runs = [synthetic(e, i, 3.0 if i % 2 else 1.0) for e in SPEED for i in range(41)]
    odd = [
        replace(run, took=run.took | {CPU: run.took[CPU] * 1.5})
        if run.machine_name == "slow"
        else run
        for run in runs
    ]
    half = math.log(1.5) / 2
    for costs in fit(odd).engines.values():
        assert costs.machines == pytest.approx({"fast": -half, "slow": half}, abs=1e-3)
        assert costs.quantities[CPU].factor == pytest.approx(1, abs=1e-2)


HERE_RUNS = replace(TRAINED[0].features, tors=20)


def cpu_s(misses: list[Miss], place: tuple[str, str] = ("e", "l"), tors: float = 20) -> Range:
    return MODEL.cpu_s("shadow", replace(HERE_RUNS, tors=tors), MODEL.reference, place, misses)


def test_a_range_is_wider_beyond_all_that_was_measured() -> None:
    largest = MODEL.engines["shadow"].largest_tors
    factors = [
        told.high / told.middle
        for times in (0.5, 1, 2, 10, 100)
        for told in [cpu_s([], tors=times * largest)]
    ]
    assert factors[0] == pytest.approx(factors[1])
    assert factors[1] < factors[2] < factors[3] < factors[4]


def test_what_a_machine_was_missed_by_is_taken_over_in_part() -> None:
    twice = [Miss((f"e{number}", "l"), 20, math.log(2)) for number in range(50)]
    none, few, many = (cpu_s(twice[1:count]) for count in (1, 2, 50))
    assert none.middle < few.middle < many.middle < 2 * none.middle
    factors = [told.high / told.middle for told in (none, few, many)]
    assert factors[0] > factors[1] > factors[2]
    # What only this run can tell stays open.
    deviation = MODEL.engines["shadow"].quantities[CPU].deviation
    assert factors[2] > math.exp(2 * deviation * math.sqrt(1 - MODEL.level_share))


def test_runs_of_a_level_tell_more_of_it_than_others_do() -> None:
    one, other = (Miss((name, "l"), 20, math.log(2)) for name in ("e", "x"))
    assert cpu_s([other]).middle < cpu_s([one]).middle


def test_full_size_runs_tell_of_full_size_and_little_of_small_ones() -> None:
    large = 10 * MODEL.engines["shadow"].largest_tors
    missed = [Miss(("x", "l"), large, math.log(2))]
    small, full = (
        cpu_s(missed, tors=tors).middle / cpu_s([], tors=tors).middle for tors in (20, large)
    )
    assert 1 < small < full < 2


# Machines


def test_a_machine_that_is_slower_in_all_is_slower_by_as_much() -> None:
    twice = Calibration(switch_us=4.0, call_us=0.4, aes_ns_per_byte=1.0)
    for speed in SPEED.values():
        assert slowness(speed, twice, HERE) == pytest.approx(2)
        assert slowness(speed, HERE, HERE) == 1


@given(
    *(st.floats(0.1, 10) for _ in range(3)),
    st.floats(1.01, 10),
    st.sampled_from(["switch_us", "call_us", "aes_ns_per_byte"]),
)
def test_no_measure_of_a_machine_makes_runs_cheaper_when_it_grows(
    switch: float, call: float, aes: float, factor: float, name: str
) -> None:
    one = Calibration(switch_us=switch, call_us=call, aes_ns_per_byte=aes)
    values = {"switch_us": switch, "call_us": call, "aes_ns_per_byte": aes}
    other = Calibration(**{**values, name: values[name] * factor})
    features = TRAINED[0].features
    for engine in ENGINES:
        for quantity in (CPU, OVERHEAD):
            before = MODEL.time(engine, quantity, features, one)
            assert MODEL.time(engine, quantity, features, other).middle >= before.middle


def test_an_engine_that_was_never_measured_counts_as_the_one_that_costs_most() -> None:
    features = Features(tors=10, tor_s=1e4)
    known = [MODEL.need(engine, CPU, features).middle for engine in MODEL.engines]
    assert MODEL.need("another", CPU, features).middle == max(known)


# Ranges


@given(st.floats(0, 1e12), st.floats(1, 100), st.floats(0, 1000))
def test_a_range_holds_its_middle(middle: float, factor: float, times: float) -> None:
    one = around(middle, factor)
    for found in (one, one + one, one * times):
        assert found.low <= found.middle <= found.high


@pytest.mark.parametrize("ends", [(2.0, 1.0, 3.0), (-1.0, 0.0, 1.0), (0.0, 1.0, math.inf)])
def test_what_is_no_range_is_refused(ends: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="no range"):
        Range(*ends)


# Files


def test_times_need_the_machine_that_they_were_measured_on(tmp_path: Path) -> None:
    lines = (REPOSITORY / TRAINING).read_text().splitlines()
    cells = dict(zip(COLUMNS, lines[1].split(","), strict=True))
    cells |= dict.fromkeys(("switch_us", "call_us", "aes_ns_per_byte"), "")
    (tmp_path / "t.csv").write_text(f"{lines[0]}\n{','.join(cells.values())}\n")
    with pytest.raises(AnalysisError, match=r"t\.csv:2: "):
        read_measured(tmp_path / "t.csv")
    # Memory and disk do not.
    cells |= {CPU: "", OVERHEAD: ""}
    (tmp_path / "t.csv").write_text(f"{lines[0]}\n{','.join(cells.values())}\n")
    (run,) = read_measured(tmp_path / "t.csv")
    assert run.calibration is None
    assert set(run.took) <= {"memory_bytes", "disk_bytes"}
    with pytest.raises(ValueError, match="without a calibration"):
        run.machine  # noqa: B018


def test_a_table_with_other_columns_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("engine,experiment\numl,quick\n")
    with pytest.raises(AnalysisError, match=r"t\.csv: expected the columns engine, "):
        read_measured(tmp_path / "t.csv")


@pytest.mark.parametrize("value", ["", "x", "nan", "-1"])
def test_a_cell_that_is_wrong_is_named_with_its_line(tmp_path: Path, value: str) -> None:
    cells = ["1"] * len(COLUMNS)
    cells[COLUMNS.index("switch_us")] = value
    (tmp_path / "t.csv").write_text(f"{','.join(COLUMNS)}\n{','.join(cells)}\n")
    with pytest.raises(AnalysisError, match=r"t\.csv:2: "):
        read_measured(tmp_path / "t.csv")


def test_a_model_that_is_broken_is_named(tmp_path: Path) -> None:
    (tmp_path / MODEL_FILE).parent.mkdir(parents=True)
    (tmp_path / MODEL_FILE).write_text('{"format": 1}')
    with pytest.raises(AnalysisError, match="cost model"):
        load_model(tmp_path)


def test_the_model_says_what_its_keys_are() -> None:
    schema = CostModel.model_json_schema()
    assert all("description" in entry for entry in schema["properties"].values())
