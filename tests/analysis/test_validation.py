"""The validation sees a broken method, and says the same thing twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.errors import AnalysisError
from analysis.inference import effects
from analysis.inference.effects import Effect, paired_effect
from analysis.judgement import verdicts
from analysis.judgement.judging import RUNS_COLUMNS, Statistics
from analysis.judgement.validation import coverage, error_rates, parts, shapes
from analysis.judgement.validation.error_rates import nights, repeated_looks
from analysis.judgement.validation.parts import MIN_REPETITIONS, validate
from analysis.judgement.validation.rates import rates
from analysis.judgement.validation.real_runs import pairing_gain, pairing_on_runs, validate_on_runs
from analysis.judgement.validation.rows import Row, format_rows, rows_of
from analysis.measures.metric import Statistic
from onionlab.cli import main

FEW = 150
"""Enough to tell a family's uncorrected error from its corrected one."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_rates, "BUDGET", 8)
    monkeypatch.setattr(error_rates, "LOOKED_AT", ("normal", "exponential"))
    monkeypatch.setattr(shapes, "NETWORKS", (10,))
    monkeypatch.setattr(shapes, "SHAPES", {name: shapes.SHAPES[name] for name in ("exponential",)})


def test_the_methods_pass_and_repeat(small: None) -> None:
    rows = rows_of(shapes.shapes(), FEW)
    assert all(row.holds for row in rows)
    assert rows == rows_of(shapes.shapes(), FEW)


def test_weights_taken_the_wrong_way_are_caught(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "adjusted", lambda p, weights: np.multiply(p, weights))
    assert not all(row.holds for row in rows_of(shapes.shapes(), FEW))


def test_nights_that_test_at_another_level_are_caught(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(row.holds for row in rows_of(nights(), FEW))
    monkeypatch.setattr(verdicts, "adjusted", lambda p, weights: np.asarray(p) / 4)
    assert not all(row.holds for row in rows_of(nights(), FEW))


def test_looks_without_correction_are_caught(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(row.holds for row in rows_of(repeated_looks(), FEW))
    monkeypatch.setattr(verdicts, "sequential_p", lambda p, looks: min(p))
    monkeypatch.setattr(effects, "trusted", lambda p, *_, **__: p)
    assert not all(row.holds for row in rows_of(repeated_looks(), FEW))


def test_intervals_that_are_too_narrow_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(x: np.ndarray, step: float) -> Effect:
        return paired_effect(0.7 * x + 0.3 * x.mean(), step)

    monkeypatch.setattr(coverage, "paired_effect", narrow)
    monkeypatch.setattr(coverage, "_SHAPES", {"normal": coverage._SHAPES["normal"]})
    rows = [row for row in rows_of(coverage.coverage(), FEW) if row.quantity == "paired interval"]
    assert len(rows) == 5
    assert not all(row.holds for row in rows)


def test_too_few_repetitions_are_refused() -> None:
    with pytest.raises(AnalysisError, match="100 repetitions cannot tell"):
        validate(100)


def test_processes_side_by_side_give_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = list(rates())[:2]
    monkeypatch.setattr(parts, "PARTS", (lambda: cells,))
    told: list[tuple[int, int]] = []
    rows = validate(MIN_REPETITIONS, 2, lambda *so_far: told.append(so_far))
    assert told == [(done, len(cells)) for done in range(1, len(cells) + 1)]
    assert rows == rows_of(cells, MIN_REPETITIONS)


def test_the_table_names_what_is_broken() -> None:
    rows = [
        Row("a", "x", "rate", 0.09, 0.01, 0.05),
        Row("b", "x", "rate", 0.07, 0.01, 0.05),
        Row("c", "x", "rate", 0.90, 0.01, 0.94, "at least"),
        Row("d", "x", "count", 12.0),
    ]
    assert [row.holds for row in rows] == [False, True, False, True]
    lines = format_rows(rows).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["BROKEN", "holds", "BROKEN", "12"]


def runs(values: np.ndarray) -> Statistics:
    return {
        ("5mid", "all"): {
            (name, "ewma"): {seed: Statistic(float(v)) for seed, v in enumerate(row)}
            for name, row in zip(("goodput_bytes_per_s", "timeout_rate"), values, strict=True)
        }
    }


def test_real_runs_against_themselves() -> None:
    values = np.random.default_rng(1).lognormal(0, 0.1, (2, 12))
    (row,) = validate_on_runs(runs(values), "5mid", "ewma", FEW)
    assert row.holds
    assert "2 endpoints, 6 pairs of 12 runs" in row.setting
    with pytest.raises(AnalysisError, match="at least 6 runs"):
        next(validate_on_runs(runs(values[:, :5]), "5mid", "ewma", FEW))
    with pytest.raises(AnalysisError, match="at least 6 runs"):
        next(validate_on_runs({}, "5mid", "ewma", FEW))


def test_the_gain_of_pairing_in_runs() -> None:
    base = np.random.default_rng(1).lognormal(0, 1, (2, 12))
    statistics = runs(base)
    noise = np.random.default_rng(2).lognormal(0, 0.1, (2, 12))
    for of_class in runs(base * noise).values():
        for (metric, _), by_seed in of_class.items():
            statistics["5mid", "all"][metric, "rr"] = by_seed
    (row,) = pairing_on_runs(statistics, "5mid", "rr", "ewma")
    assert row.value > 30
    assert "median of 2 metrics" in row.setting
    assert list(pairing_on_runs(statistics, "5mid", "swrr", "ewma")) == []


@pytest.mark.parametrize(("seeds", "status"), [(2, 2), (4, 0), (8, 0)])
def test_the_command_on_a_table_of_runs(
    seeds: int, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.random.default_rng(3).lognormal(0, 1, (2, seeds))
    lines = [",".join(RUNS_COLUMNS)]
    for variant, factor in (("ewma", 1.0), ("rr", 1.1)):
        for metric, row in zip(("goodput_bytes_per_s", "timeout_rate"), values, strict=True):
            for seed, value in enumerate(row * factor ** (row < 1)):
                lines.append(f"r,5mid,{variant},{seed},1,all,{metric},,{value},")
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    assert main(["validate-statistics", "--runs", str(path), "--repetitions", str(FEW)]) == status
    printed = capsys.readouterr()
    assert ("at least 6 runs" in printed.err) == (status == 2)
    assert ("A/A, real runs" in printed.out) == (seeds >= 6)
    assert ("pairing, real runs" in printed.out) == (seeds >= 3)


def test_the_gain_of_pairing() -> None:
    assert pairing_gain([2.0, 4.0], [1.0, 2.0]) is None
    base = np.random.default_rng(2).lognormal(0, 1, 200)
    noise = np.random.default_rng(3).lognormal(0, 0.1, 200)
    # (1 + 1.01) / 0.01 times fewer seeds.
    assert pairing_gain(list(base * noise), list(base)) == pytest.approx(201, rel=0.2)
