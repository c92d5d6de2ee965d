"""Search for the first of several commits at which an endpoint got worse.

A commit is compared in pairs with a good and with a bad commit, on the same networks. The commit is
called bad if it is shown to be worse than the good commit, and good if it is shown to be better
than the bad commit. Both tests are group-sequential (``analysis.inference.sequential``).

If the endpoint changes at one commit only, each tested commit behaves like the good or like the bad
commit, so only one of the two tests can show a false difference. The probability of a wrong
decision is therefore at most the decision's error level. All searches without errors test the same
commits, because their decisions do not depend on the measured values. So by Bonferroni's
inequality, the probability of a wrong search is at most the sum of these decisions' error levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from analysis.inference.sequential import schedule
from analysis.judgement.verdicts import Better, Verdict

FIRST_LOOK = 4
"""Number of networks at the first look (interim analysis) at a commit."""

LOOK_GROWTH = 1.25
"""Factor by which the number of networks grows between looks. A look adds at least two networks, so
that machines with two CPUs are busy."""


class Decision(StrEnum):
    """The result of a commit's test."""

    BAD = "bad"
    GOOD = "good"
    OPEN = "not decided"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Examination:
    """The test of one commit.

    Attributes:
        level: error level of the decision.
        networks: number of networks at the last look.
        against_good: the comparison with the good commit; None if the commit was skipped.
        note: why the commit was skipped, or a remark; "" otherwise.
    """

    commit: str
    decision: Decision
    level: float = 0.0
    networks: int = 0
    against_good: Verdict | None = None
    note: str = ""


@dataclass(frozen=True)
class Search:
    """The result of a search.

    Attributes:
        examinations: all examinations, in order; the first one is of the bad commit.
        left: the commits that can be the first bad commit; empty if the bad commit is not shown to
            be worse than the good one.
    """

    examinations: tuple[Examination, ...]
    left: tuple[str, ...]

    @property
    def found(self) -> str | None:
        """The first bad commit; None unless exactly one commit is left."""
        return self.left[0] if len(self.left) == 1 else None


def look_sizes(budget: int) -> tuple[int, ...]:
    """Return the number of networks at each look at a commit, up to ``budget`` networks.

    budget: at least ``FIRST_LOOK``.
    """
    return schedule(budget, FIRST_LOOK, LOOK_GROWTH, min_added=2)


def decide_commit(verdicts: Sequence[Verdict], better: Better, level: float) -> Decision:
    """Return what the comparisons of a commit show at an error level.

    If a commit is both worse than the good commit and better than the bad commit, it is bad,
    because the endpoint got worse at this commit or before.

    Args:
        verdicts: the comparison of the commit with the good commit and, unless the commit is the
            bad commit itself, the comparison with the bad commit.
        better: the preferred direction of the endpoint.
        level: error level of the decision.
    """
    worse = -1 if better == "higher" else 1
    signs = [verdict.shown_sign(level) for verdict in verdicts]
    if signs[0] == worse:
        return Decision.BAD
    return Decision.GOOD if signs[1:] == [-worse] else Decision.OPEN


def find_first_bad(
    candidates: Callable[[str, Sequence[str]], Sequence[str]],
    examine: Callable[[str, float], Examination],
    good: str,
    bad: str,
    error_level: float,
) -> Search:
    """Find the commits that can be the first bad commit.

    The result only depends on what the functions return. So a repeated search continues an
    interrupted search if ``examine`` reuses finished builds and runs.

    Args:
        candidates: a function of a bad commit and of good commits. It returns the commits that can
            be the first bad commit, in the order in which to test them, and the bad commit last.
        examine: tests a commit at an error level. The first call is for ``bad``.
        good: the good commit, an ancestor of ``bad``.
        bad: the bad commit.
        error_level: maximum probability of a wrong result, if the endpoint changes at no more than
            one commit.
    """
    goods = [good]
    left = candidates(bad, goods)
    share = error_level / (decisions(len(left)) + 1)
    spent = share
    examinations = [examine(bad, share)]
    if examinations[0].decision is not Decision.BAD:
        return Search(tuple(examinations), ())
    while len(left) > 1:
        # If commits are skipped or branches merge, a decision may leave more than half of the
        # candidates. More decisions then follow than planned. Divide the rest of ``error_level``
        # among them, so that the sum of all levels does not exceed ``error_level``.
        share = (error_level - spent) / decisions(len(left))
        skipped = {one.commit for one in examinations}
        untested = [commit for commit in left[:-1] if commit not in skipped]
        for commit in untested:
            examinations.append(examine(commit, share))
            if examinations[-1].decision is not Decision.SKIPPED:
                break
        tested = examinations[-1]
        if not untested or tested.decision in (Decision.SKIPPED, Decision.OPEN):
            break
        spent += share
        if tested.decision is Decision.BAD:
            bad = tested.commit
        else:
            goods.append(tested.commit)
        left = candidates(bad, goods)
    return Search(tuple(examinations), tuple(left))


def decisions(count: int) -> int:
    """Return how many decisions find one of ``count`` commits if each halves the candidates."""
    return math.ceil(math.log2(count)) if count > 1 else 0
