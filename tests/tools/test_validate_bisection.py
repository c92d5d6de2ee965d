"""The simulation of `make bisect` accepts the current method, and detects wrong ones."""

from __future__ import annotations

import pytest
from validate_bisection import History, candidates, is_answer_right, simulate
from validate_statistics import random_numbers

from analysis.judgement.bisection import Search, find_first_bad

FEW = 40


def is_valid() -> bool:
    return all(row.holds for row in simulate(0.1, 20, FEW))


@pytest.mark.slow
def test_looks_that_are_not_corrected_break_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_valid()
    monkeypatch.setattr("analysis.judgement.verdicts.sequential_p", lambda p, looks: min(p) / 10)
    assert not is_valid()


def test_a_large_step_is_found_at_each_place() -> None:
    for first_bad in (1, 15, 30):
        history = History(random_numbers(1, first_bad), first_bad, 0.4, 20)
        found = find_first_bad(candidates, history.examine, "0", "30", 0.05)
        assert is_answer_right(found, first_bad) is True
        assert is_answer_right(found, first_bad % 30 + 1) is False
        assert len(history.runs) <= 7


def test_what_counts_as_wrong() -> None:
    assert is_answer_right(Search((), ("3", "4")), 3) is None
    assert is_answer_right(Search((), ("3", "4")), 5) is False
    assert is_answer_right(Search((), ("3",)), None) is False
    assert is_answer_right(Search((), ()), None) is True
    # The search missed the bad commit. The answer is not right, but it names no wrong commit
    # either.
    assert is_answer_right(Search((), ()), 3) is None
