"""NETWORKS=auto: when it adds networks, when it stops, and its messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analysis.formats.plan_file import Request, Resources
from analysis.formats.study import Looks, Study, write_study
from analysis.inference.sequential import schedule
from analysis.judgement.estimates import Statistics
from analysis.measures.metric import Statistic
from onionlab.errors import UserError
from onionlab.questions import auto_seeds
from onionlab.runs.plan import Plan

from .test_engine_comparison import study


class FakeRunner:
    """Replaces the functions that make plans, runs and reports.

    In each network, rr's goodput is ewma's goodput, times ``ratio``, times log-normal noise whose
    logarithm has the standard deviation ``sd``. If ``missing`` is true, one network has no timeout
    rate.
    """

    def __init__(self, tmp_path: Path, ratio: float, sd: float, missing: bool = False) -> None:
        self.tmp_path = tmp_path
        self.ratio, self.sd, self.missing = ratio, sd, missing
        self.planned: list[Looks | None] = []
        self.made: list[int] = []

    def make_plan(self, root: Path, request: Request, *, looks: Looks) -> Plan:
        assert isinstance(request.seeds, int)
        self.planned.append(looks)
        made = study("shadow").model_copy(update={"looks": looks})
        write_study(self.tmp_path / "study.json", made)
        return Plan(request, (), self.tmp_path, self.tmp_path, 1, Resources(1, 1, 1))

    def make_runs(self, root: Path, plans: list[Plan], where: None) -> None:
        (plan,) = plans
        assert isinstance(plan.request.seeds, int)
        self.made.append(plan.request.seeds)

    def make_report(self, root: Path, plan: Plan, where: None) -> Path:
        return plan.out / f"report-{plan.request.seeds}.html"

    def read_statistics(self, study: Study, store: Path) -> Statistics:
        rng = np.random.default_rng(4)
        base = rng.lognormal(14, 0.4, 100)
        noise = rng.normal(0, self.sd, 100)
        own = base * self.ratio * np.exp(noise)
        n = self.made[-1]

        def values(of: np.ndarray) -> dict[int, Statistic]:
            return {seed + 1: Statistic(float(of[seed])) for seed in range(n)}

        rates = values(np.zeros(100))
        if self.missing:
            rates[2] = Statistic(None, "no stream with a known outcome")
        started = values(np.full(100, 900.0))
        return {
            ("quick", "all"): {
                ("goodput_bytes_per_s", "ewma"): values(base),
                ("goodput_bytes_per_s", "rr"): values(own),
                ("timeout_rate", "ewma"): values(np.zeros(100)),
                ("timeout_rate", "rr"): rates,
                ("streams_started", "ewma"): started,
                ("streams_started", "rr"): started,
            }
        }

    def run(self, budget: int) -> Path:
        return auto_seeds.auto_seeds(self.tmp_path, Request("quick"), None, budget=budget)


Bench = Callable[..., FakeRunner]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    def make(ratio: float, sd: float, missing: bool = False) -> FakeRunner:
        made = FakeRunner(tmp_path, ratio, sd, missing)
        for name in ("make_plan", "make_runs", "make_report", "read_statistics"):
            monkeypatch.setattr(auto_seeds, name, getattr(made, name))
        return made

    return make


def test_a_large_difference_stops_early(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    made = bench(0.8, 0.05)
    report = made.run(20)
    assert made.made[0] == 3
    assert 5 <= made.made[-1] < 15
    assert report.name == f"report-{made.made[-1]}.html"
    assert [looks.sizes for looks in made.planned if looks] == [
        schedule(20)[: k + 1] for k in range(len(made.made))
    ]
    assert caplog.messages[0] == "look 1 of at most 15, 3 networks"
    assert "quick, rr: 1 worse, 1 same" in caplog.messages[-2]
    assert caplog.messages[-1].startswith("more networks cannot settle more")


def test_undecidable_endpoints_use_the_whole_budget(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(1.02, 0.2)
    made.run(8)
    assert made.made == [3, 4, 5, 6, 7, 8]
    assert caplog.messages[-1] == "the budget of 8 networks is spent"
    assert "1 open, 1 same: all goodput_bytes_per_s, about" in caplog.messages[-2]


def test_a_metric_without_a_value_is_not_waited_for(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(0.7, 0.02, missing=True)
    made.run(20)
    assert made.made[-1] < 10
    assert "(1 lack a value in some run, which no network adds)" in caplog.messages[-2]


def test_bad_requests(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(1.0, 0.1)
    with pytest.raises(UserError, match="MAX_NETWORKS: at least 3"):
        made.run(2)
    monkeypatch.setattr(
        auto_seeds, "load_study", lambda path: study("shadow").model_copy(update={"baseline": None})
    )
    with pytest.raises(UserError, match="nothing to compare"):
        made.run(5)
    assert made.made == []
