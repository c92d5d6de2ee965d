"""Check the error of a whole `make bisect` by simulation.

    .venv/bin/python tools/validate_bisection.py --searches 300

In each simulated history of 30 commits, a random commit makes the endpoint worse, or none does. On
one network, the runs of different commits vary by 5% (standard deviation), as in
tools/validate_statistics.py, so the difference of two commits varies by 7%. The exit status is 1 if
the share of searches that name a wrong commit exceeds 5% by more than three standard errors.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from validate_statistics import NETWORK_SD, RUN_SD, Row, random_numbers, rate_row

from analysis.arrays import Floats
from analysis.formats.study import Looks
from analysis.judgement.bisection import Decision, Examination, Search, find_first_bad, look_sizes
from analysis.judgement.verdicts import LEVEL, Grade, Sides, grades
from analysis.measures.metric import Margin

COMMITS = 30
BUDGETS = (20, 40)
STEPS = (0.0, 0.1, 0.2)
NO_MARGIN = Margin(1e-9)
"""A margin so small that no difference is graded "the same".

A difference is therefore shown if its p-value is at most the level.
"""


def candidates(bad: str, goods: Sequence[str]) -> list[str]:
    """Return the commits after the last good one, from the middle outwards, with ``bad`` last."""
    first = max(map(int, goods)) + 1
    middle = (first + int(bad) - 1) / 2
    inner = sorted(range(first, int(bad)), key=lambda commit: abs(commit - middle))
    return [*map(str, inner), bad]


class History:
    """A linear history of commits 0 (good) to ``COMMITS`` (bad), and their simulated runs.

    Attributes:
        runs: commit -> number of its simulated runs so far.
    """

    def __init__(self, rng: np.random.Generator, first_bad: int, step: float, budget: int) -> None:
        network = rng.normal(0.0, NETWORK_SD, budget)
        noise = rng.normal(0.0, RUN_SD, (COMMITS + 1, budget))
        worse = np.where(np.arange(COMMITS + 1) >= first_bad, np.log1p(step), 0.0)
        self.values: Floats = np.exp(network + worse[:, None] + noise)
        self.sizes, self.budget = look_sizes(budget), budget
        self.runs: Counter[int] = Counter()

    def examine(self, commit: str, level: float) -> Examination:
        """Test a commit against commit 0 (good) and the last one (bad), as `make bisect` does."""
        own = int(commit)
        worse = self._first_shown(own, 0, level)
        better = None if own == COMMITS else self._first_shown(own, COMMITS, level)
        found = [
            (worse[0], Decision.BAD) if worse and worse[1] else None,
            (better[0], Decision.GOOD) if better and not better[1] else None,
        ]
        size, decision = min(
            filter(None, found), key=lambda one: one[0], default=(self.budget, Decision.OPEN)
        )
        for run in {own, 0, COMMITS}:
            self.runs[run] = max(self.runs[run], size)
        return Examination(commit, decision, level, size)

    def _first_shown(self, own: int, other: int, level: float) -> tuple[int, bool] | None:
        """Find the first interim analysis (look) that shows a difference between two commits.

        Return the look's number of networks, and whether ``own`` is worse. If no look shows a
        difference, return None.
        """
        low, high = -1, len(self.sizes)
        # A sequential p-value never rises. If a look shows a difference, all later looks do, so
        # bisection finds the first of them.
        while high - low > 1:
            look = (low + high) // 2
            low, high = (low, look) if self._is_shown(own, other, look, level) else (look, high)
        if high == len(self.sizes):
            return None
        size = self.sizes[high]
        return size, float(np.log(self.values[own, :size] / self.values[other, :size]).mean()) > 0

    def _is_shown(self, own: int, other: int, look: int, level: float) -> bool:
        size = self.sizes[look]
        sides = Sides(self.values[own, :size], self.values[other, :size], NO_MARGIN, "lower")
        looks = Looks(self.sizes[: look + 1], self.budget)
        return grades([sides], level, looks) == [Grade.SHOWN]


def simulate(step: float, budget: int, searches: int) -> Iterator[Row]:
    """Yield rows: how often a search is wrong or right, and how many runs and networks it uses."""
    rng = random_numbers(20, STEPS.index(step), budget)
    wrong = right = 0
    runs, networks = [], []
    for _ in range(searches):
        first_bad = int(rng.integers(1, COMMITS + 1))
        history = History(rng, first_bad, step, budget)
        found = find_first_bad(candidates, history.examine, "0", str(COMMITS), LEVEL)
        is_right = is_answer_right(found, first_bad if step else None)
        right += is_right is True
        wrong += is_right is False
        runs.append(sum(history.runs.values()))
        networks.append(max(one.networks for one in found.examinations))
    setting = f"step of {step:.0%} in {COMMITS} commits, at most {budget} networks"
    yield rate_row(setting, "wrong commit", wrong, searches, LEVEL)
    yield rate_row(setting, "right answer", right, searches)
    yield Row(setting, "mean runs", float(np.mean(runs)))
    yield Row(setting, "mean of the largest number of networks", float(np.mean(networks)))


def is_answer_right(search: Search, first_bad: int | None) -> bool | None:
    """Return whether the answer of a search is right; None if there is no definite answer.

    The result is None if there is a first bad commit, but the search finds no deterioration, or
    leaves several commits including the first bad one.

    first_bad: the true first bad commit, or None if no commit makes the endpoint worse.
    """
    if first_bad is None:
        return not search.left
    if not search.left:
        return None
    if str(first_bad) not in search.left:
        return False
    return True if search.found else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rows; return 1 if the rate of wrong commits is above its limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--searches", type=int, default=300, help="for each cell (default: 300)")
    args = parser.parse_args(arguments)
    broken = 0
    for cell in [partial(simulate, step, budget) for budget in BUDGETS for step in STEPS]:
        for row in cell(args.searches):
            broken += not row.holds
            print(row, flush=True)
    print(f"{broken} promises broken" if broken else "all promises hold")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
