"""Means over seeds, intervals and paired comparisons, compared with values by hand."""

from __future__ import annotations

import numpy as np
import pytest
from analysis_synthetic import known

from analysis.judgement.estimates import against_baseline, estimate
from analysis.measures.metric import Statistic


def by_seed(*values: float | None, first: int = 1) -> dict[int, Statistic]:
    return {first + i: Statistic(v, "" if v is not None else "why") for i, v in enumerate(values)}


def test_estimate() -> None:
    result = estimate(by_seed(1.0, 2.0, 6.0))
    assert known(result.mean).estimate == 3.0
    assert result.sd == pytest.approx(np.sqrt(7))
    assert (result.seeds, result.minimum, result.maximum, result.note) == (3, 1.0, 6.0, "")


def test_differences_are_paired() -> None:
    # The seeds differ by 90, but the pairs only by 1 and 2.
    result = against_baseline(by_seed(11.0, 102.0), by_seed(10.0, 100.0))
    difference, ratio = known(result.difference), known(result.ratio)
    assert result.pairs == 2
    assert difference.estimate == 1.5
    # sd = 1/sqrt(2), t(1, 0.975) = 12.7062, half width = 12.7062 / 2. The correction for the shape
    # of the distribution widens it by slightly more than half.
    assert 1.5 * 6.3531 < 1.5 - known(difference.low) < 1.6 * 6.3531
    assert (known(difference.low) + known(difference.high)) / 2 == pytest.approx(1.5)
    assert ratio.estimate == pytest.approx(np.sqrt(1.1 * 1.02))
    assert known(ratio.low) * known(ratio.high) == pytest.approx(ratio.estimate**2)


def test_unpaired_seeds_are_left_out_and_named() -> None:
    result = against_baseline(by_seed(5.0, 6.0, 7.0), by_seed(4.0, 5.0, 99.0, first=2))
    assert result.pairs == 2
    assert known(result.difference).estimate == 2.0
    assert result.notes == ("without a pair: 1, 4",)


def test_the_ratio_of_displayed_means_equals_the_displayed_ratio() -> None:
    # The arithmetic mean falls from 2.5 to 2.38, although most networks' values rise.
    variant, baseline = by_seed(1.0, 1.1, 5.04), by_seed(0.7, 0.8, 6.0)
    own, base = estimate(variant), estimate(baseline)
    ratio = known(against_baseline(variant, baseline).ratio)
    assert known(own.mean).estimate < known(base.mean).estimate
    assert ratio.estimate > 1
    shown, beside = known(own.mean_for("ratio")), known(base.mean_for("ratio"))
    assert shown.estimate / beside.estimate == pytest.approx(ratio.estimate)
    assert own.mean_for("difference") is own.mean


def test_pairs_that_agree_have_the_spread_of_their_step_or_no_bounds() -> None:
    own, base = ({1: Statistic(a), 2: Statistic(b)} for a, b in ((3.0, 1.0), (2.0, 0.0)))
    unknown = known(against_baseline(own, base).difference)
    assert (unknown.estimate, unknown.low, unknown.high) == (1.0, None, None)
    counted = known(against_baseline(own, base, 1.0).difference)
    assert known(counted.low) < 1.0
