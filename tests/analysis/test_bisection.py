"""The search for the first bad commit, its decisions, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from analysis_synthetic import known
from validate_bisection import candidates

from analysis.figures.bisection import draw
from analysis.formats.study import Looks
from analysis.judgement.bisection import (
    Decision,
    Examination,
    Search,
    decide_commit,
    find_first_bad,
    look_sizes,
)
from analysis.judgement.verdicts import Sides, Verdict, decide
from analysis.measures.catalogue import OWN
from analysis.measures.metric import Margin
from analysis.pages.bisection import Bisection, write

LEVEL = 0.05
METRIC = known(OWN.quantity("ttfb_p50_s"))


class Line:
    """A linear history of commits "0" to "n", and the tests of these commits.

    Commits from ``first_bad`` on are bad. Commits in ``skipped`` do not build. The test of the
    commit ``opened`` is undecided.
    """

    def __init__(self, n: int, first_bad: int, skipped: Sequence[int] = (), opened: int = -1):
        self.n, self.first_bad, self.skipped, self.opened = n, first_bad, skipped, opened
        self.examined: list[int] = []
        self.levels: list[float] = []

    def examine(self, commit: str, level: float) -> Examination:
        number = int(commit)
        self.examined.append(number)
        if number in self.skipped:
            return Examination(commit, Decision.SKIPPED, note="compile failed")
        self.levels.append(level)
        decision = Decision.BAD if number >= self.first_bad else Decision.GOOD
        return Examination(commit, Decision.OPEN if number == self.opened else decision, level)

    def search(self) -> Search:
        return find_first_bad(candidates, self.examine, "0", str(self.n), LEVEL)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 30, 64])
def test_every_place_is_found_with_few_decisions(n: int) -> None:
    for first_bad in range(1, n + 1):
        line = Line(n, first_bad)
        assert line.search().found == str(first_bad)
        assert len(line.levels) <= np.ceil(np.log2(n)) + 1
        assert sum(line.levels) <= LEVEL + 1e-12
        # The error level is divided equally among the decisions of the longest search.
        assert line.levels[0] == pytest.approx(LEVEL / (np.ceil(np.log2(n)) + 1))


def test_without_a_worsening_only_one_commit_is_tested() -> None:
    line = Line(30, 99)
    assert (line.search().left, line.examined) == ((), [30])


@pytest.mark.parametrize("first_bad", range(1, 31))
def test_commits_that_do_not_build_are_passed_over(first_bad: int) -> None:
    line = Line(30, first_bad, skipped=[14, 15, 16, 17, 22])
    left = line.search().left
    # If the first bad commit is in a group that does not build, or right after such a group, all
    # commits of the group and the commit after it remain as candidates.
    assert str(first_bad) in left
    assert set(map(int, left)) <= {first_bad, *range(14, 19), 22, 23}
    assert len(left) == 1 or {*left} <= {"14", "15", "16", "17", "18"} or {*left} == {"22", "23"}
    assert sum(line.levels) <= LEVEL + 1e-12
    assert len(set(line.examined)) == len(line.examined)


def test_a_range_in_which_nothing_builds_stays_whole() -> None:
    line = Line(5, 3, skipped=range(1, 5))
    assert sorted(line.search().left) == ["1", "2", "3", "4", "5"]


def test_an_open_decision_ends_the_search() -> None:
    line = Line(8, 3, opened=2)
    search = line.search()
    assert search.examinations[-1].decision is Decision.OPEN
    assert sorted(search.left) == ["1", "2", "3", "4"]
    assert search.found is None


def verdict(ratio: float, count: int = 12) -> Verdict:
    noise = np.exp(np.random.default_rng(3).normal(0, 0.02, count))
    sides = Sides(ratio * noise, np.ones(count), Margin(0.05), "lower", 1e-6)
    return decide([sides], LEVEL, Looks(look_sizes(count), count))[0]


@pytest.mark.parametrize(
    ("against_good", "against_bad", "expected"),
    [
        (1.2, 1.0, Decision.BAD),
        (1.0, 1 / 1.2, Decision.GOOD),
        # The commit is worse than the good one and better than the bad one, so the first worsening
        # is in this commit or before it.
        (1.1, 1 / 1.1, Decision.BAD),
        # If a commit is only worse than the bad one, or only better than the good one, it is
        # undecided.
        (1.0, 1.2, Decision.OPEN),
        (1 / 1.2, 1.0, Decision.OPEN),
        (1.0, 1.0, Decision.OPEN),
        (1.2, None, Decision.BAD),
        (1 / 1.2, None, Decision.OPEN),
    ],
)
def test_decisions(against_good: float, against_bad: float | None, expected: Decision) -> None:
    verdicts = [verdict(ratio) for ratio in (against_good, against_bad) if ratio is not None]
    assert decide_commit(verdicts, "lower", LEVEL) is expected
    mirrored = [verdict(1 / ratio) for ratio in (against_good, against_bad) if ratio is not None]
    assert decide_commit(mirrored, "higher", LEVEL) is expected


def test_a_difference_inside_of_the_margin_counts() -> None:
    small = verdict(1.02, 30)
    assert small.grade == "same"
    assert decide_commit([small], "lower", LEVEL) is Decision.BAD


def test_a_decision_needs_its_own_level() -> None:
    p = known(verdict(1.03, 6).p_different)
    assert decide_commit([verdict(1.03, 6)], "lower", 2 * p) is Decision.BAD
    assert decide_commit([verdict(1.03, 6)], "lower", p / 2) is Decision.OPEN


def test_the_looks_end_at_the_budget() -> None:
    assert look_sizes(4) == (4,)
    assert look_sizes(40) == (4, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40)
    assert min(np.diff(look_sizes(39))[:-1]) >= 2


def bisection(search: Search) -> Bisection:
    subjects = {str(n).zfill(40): f"<b>change</b> ${n}" for n in range(9)}
    return Bisection("today", METRIC, "web", subjects, search, LEVEL, 40)


def examinations(line: Line) -> Search:
    search = line.search()
    full = [
        replace(
            one,
            commit=one.commit.zfill(40),
            networks=12,
            against_good=None if one.decision is Decision.SKIPPED else verdict(1.1),
        )
        for one in search.examinations
    ]
    return Search(tuple(full), tuple(commit.zfill(40) for commit in search.left))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (Line(8, 3, skipped=[4]), "the first bad commit is 000000000000 (<b>change</b> $3)"),
        (Line(8, 3, opened=4), "one of 8, because 40 networks do not decide"),
        (Line(8, 3, skipped=range(2, 8)), "one of 7, because commits among them were skipped"),
        (Line(8, 99), "No such commit: Time to first byte, median"),
        (Line(8, 99), "(MAX_NETWORKS, here 40)"),
    ],
)
def test_the_report(tmp_path: Path, line: Line, text: str) -> None:
    search = examinations(line)
    page = write(bisection(search), tmp_path)
    assert text in (tmp_path / "answer.txt").read_text()
    assert "<b>change" not in page.read_text()
    assert "data:image/svg+xml" in page.read_text()
    rows = pd.read_csv(tmp_path / "steps.csv")
    assert list(rows["decision"]) == [one.decision for one in search.examinations]
    assert rows["effect"].notna().sum() == sum(rows["decision"] != "skipped")
    assert (tmp_path / "steps.png").stat().st_size > 1000


def test_an_effect_on_another_scale_is_not_drawn_on_the_axis() -> None:
    """A commit with a value of 0 has a difference as its effect; the other effects are ratios."""
    search = examinations(Line(8, 3))
    first, *others = search.examinations
    assert others
    zero = replace(first, against_good=replace(known(first.against_good), scale="difference"))
    mixed = Search((zero, *others), search.left)
    (axes,) = draw(list(bisection(search).subjects), mixed, METRIC).axes
    assert axes.get_ylabel().endswith("ratio to GOOD")
    heights = [float(np.ravel(line.get_ydata())[0]) for line in axes.get_lines()]
    assert heights.count(0.04) == 1
