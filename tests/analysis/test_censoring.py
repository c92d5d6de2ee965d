"""The bias of the naive distribution, compared with values by hand and by its properties."""

from __future__ import annotations

import numpy as np
import pytest
from analysis_synthetic import known
from hypothesis import given
from hypothesis import strategies as st

from analysis.measures.censoring import bias
from analysis.measures.survival import CENSORED, EVENT, FAILURE, cumulative_incidence

SAMPLES = st.lists(
    st.tuples(st.integers(0, 12).map(float), st.sampled_from([CENSORED, EVENT, FAILURE])),
    min_size=1,
    max_size=40,
)


def test_by_hand() -> None:
    # Ten streams: six have arrived after 1 to 6 s, three timed out at 60 s, and one was cut off at
    # 3.5 s.
    times = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 60.0, 60.0, 60.0, 3.5]
    kinds = [EVENT] * 6 + [FAILURE] * 3 + [CENSORED]
    found = known(bias(times, kinds, (0.5, 0.9)))
    assert (found.streams, found.failed, found.censored) == (10, 3, 1)
    assert found.quantiles["naive"] == (3.0, 6.0)
    # After 3 s the probability is 0.3. The other six streams share the rest: 0.3 + 0.7 / 6 k.
    assert found.quantiles["incidence"] == (5.0, None)
    assert found.quantiles["kaplan_meier"] == (5.0, None)
    assert found.distance == pytest.approx(1 - 0.65)


def test_nothing_seen() -> None:
    assert bias([], [], (0.5,)) is None
    assert bias([3.0, 4.0], [FAILURE, CENSORED], (0.5,)) is None


@given(SAMPLES)
def test_the_naive_distribution_is_never_too_slow(sample: list[tuple[float, int]]) -> None:
    times, kinds = [t for t, _ in sample], [k for _, k in sample]
    found = bias(times, kinds, (0.5, 0.9, 0.99))
    if found is None:
        assert EVENT not in kinds
        return
    for naive, true in zip(found.quantiles["naive"], found.quantiles["incidence"], strict=True):
        assert naive is not None
        assert true is None or naive <= true
    seen = np.array([t for t, k in sample if k == EVENT])
    grid = np.unique(seen)
    naive_at = np.array([np.mean(seen <= t) for t in grid])
    true_at = cumulative_incidence(times, kinds).at(grid)
    assert found.distance == pytest.approx(float(np.max(np.abs(naive_at - true_at))))
    assert (found.distance < 1e-9) or (found.failed + found.censored > 0)
