"""How often verdicts on a family are false, or found."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from analysis.formats.study import Looks
from analysis.inference.sequential import schedule
from analysis.judgement.validation.rows import Cell, Row, generator, rate_row
from analysis.judgement.validation.simulated_runs import (
    MARGIN,
    METRIC_COUNT,
    RUN_SD,
    draw_family,
    judge_family,
)
from analysis.judgement.verdicts import LEVEL, State

BUDGET = 20
"""Seeds at most, where data is looked at repeatedly."""


_EDGE = float(np.log1p(MARGIN.value))

_UNTRUE = (
    ("A/A: no difference", 0.0, "any false 'different'", State.DIFFERENT),
    ("all differ by the margin", _EDGE, "any false 'equivalent'", State.EQUIVALENT),
)
"""The truth, as the logarithm of the ratio, and which verdict is false then."""


def false_verdicts() -> Iterator[Cell]:
    """Any false verdict in a family, with and without correction."""
    for i in range(len(_UNTRUE)):
        for n in (5, 10, 20):
            yield partial(_false_in_family, i, n)
    yield _false_in_half


def _false_in_family(i: int, n: int, repetitions: int) -> Iterator[Row]:
    name, ratio, quantity, false = _UNTRUE[i]
    hits = {True: 0, False: 0}
    rng = generator(2, i, n)
    for _ in range(repetitions):
        variant, baseline = draw_family(rng, n, np.full(METRIC_COUNT, ratio))
        for corrected in (True, False):
            hits[corrected] += false in judge_family(variant, baseline, corrected=corrected)
    setting = f"{name}, {METRIC_COUNT} metrics, {n} seeds"
    yield rate_row("false verdicts", setting, f"{quantity}, Holm", hits[True], repetitions, LEVEL)
    yield rate_row("false verdicts", setting, f"{quantity}, uncorrected", hits[False], repetitions)


def _false_in_half(repetitions: int) -> Iterator[Row]:
    mixed = np.where(np.arange(METRIC_COUNT) % 2, _EDGE, 0.0)
    rng = generator(2, 9)
    false_different = false_equivalent = 0
    for _ in range(repetitions):
        judged = judge_family(*draw_family(rng, 10, mixed))
        false_different += State.DIFFERENT in judged[::2]
        false_equivalent += State.EQUIVALENT in judged[1::2]
    setting = f"half A/A, half at the margin, {METRIC_COUNT} metrics, 10 seeds"
    for quantity, hits_of_kind in (
        ("any false 'different', Holm", false_different),
        ("any false 'equivalent', Holm", false_equivalent),
    ):
        yield rate_row("false verdicts", setting, quantity, hits_of_kind, repetitions, LEVEL)


def repeated_looks() -> Iterator[Cell]:
    """Any false verdict at any look, with the sequential method and without."""
    for i in range(len(_UNTRUE)):
        yield partial(_false_at_any_look, i)


def _false_at_any_look(i: int, repetitions: int) -> Iterator[Row]:
    name, ratio, quantity, false = _UNTRUE[i]
    sizes = schedule(BUDGET)
    looks = Looks(sizes, BUDGET)
    rng = generator(3, i)
    hits = naive = 0
    for _ in range(repetitions):
        variant, baseline = draw_family(rng, BUDGET, np.full(METRIC_COUNT, ratio))
        # A sequential p-value never rises, so the last look's verdicts hold all earlier ones.
        hits += false in judge_family(variant, baseline, looks=looks)
        naive += any(false in judge_family(variant[:, :n], baseline[:, :n]) for n in sizes)
    setting = f"{name}, {METRIC_COUNT} metrics, {len(sizes)} looks at 3 to {BUDGET} seeds"
    part = "repeated looks"
    yield rate_row(part, setting, f"{quantity}, sequential", hits, repetitions, LEVEL)
    yield rate_row(
        part, setting, f"{quantity}, as if each look were the only one", naive, repetitions
    )


_TRUE = (
    ("no difference", 0.0, State.EQUIVALENT),
    ("5% difference", 0.05, State.DIFFERENT),
    ("10% difference", 0.10, State.DIFFERENT),
    ("20% difference", 0.20, State.DIFFERENT),
)
"""The truth, as a ratio less one, and the verdict that is right."""


def power() -> Iterator[Cell]:
    """How often one of eight metrics gets its true verdict, by seeds."""
    for i in range(len(_TRUE)):
        for n in (3, 5, 10, 20, 40):
            yield partial(_power, i, n)


def _power(i: int, n: int, repetitions: int) -> Iterator[Row]:
    name, ratio, true = _TRUE[i]
    rng = generator(4, i, n)
    truth = np.full(METRIC_COUNT, np.log1p(ratio))
    hits = 0
    times = max(1, repetitions // 2)
    for _ in range(times):
        hits += judge_family(*draw_family(rng, n, truth)).count(true)
    share = hits / (times * METRIC_COUNT)
    setting = f"{name}, spread of differences {np.sqrt(2) * RUN_SD:.1%}, {n} seeds"
    yield Row("power", setting, f"share judged {true.value}", share, 0.0)
