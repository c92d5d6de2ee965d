"""Rates near zero: how often harm to a few networks, or to all a little, passes as equivalent."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from analysis.arrays import Floats
from analysis.formats.study import Looks
from analysis.inference.sequential import schedule
from analysis.judgement.validation.rows import Cell, Row, generator, rate_row
from analysis.judgement.verdicts import LEVEL, Paired, State, states
from analysis.measures.metric import RATE

SEEDS = (3, 5, 10, 20, 60, 100)

HARM = ((0.1, 0.1), (0.1, 0.2), (0.05, 0.2))
"""Share of the networks that are harmed, and the share of streams that time out there."""

STREAMS = (50, 500)
"""Streams of a run."""

BUDGETS = (20, 100)
"""Seeds at most, where data is looked at repeatedly."""


def rates() -> Iterator[Cell]:
    """False "equivalent" of one rate, judged alone, and how often zeros are found equivalent."""
    for i in range(len(STREAMS)):
        for n in SEEDS:
            for j in range(len(HARM)):
                yield partial(_few_harmed, i, j, n)
            yield partial(_all_harmed, i, n)
    yield _zeros
    for k in range(len(BUDGETS)):
        for j in range(len(HARM)):
            yield partial(_few_harmed_looked_at, j, k)


def _few_harmed(i: int, j: int, n: int, repetitions: int) -> Iterator[Row]:
    streams, (share, harm) = STREAMS[i], HARM[j]
    rng = generator(10, i, j, n)
    chance = np.where(rng.random((repetitions, n)) < share, harm, 0.0)
    own = rng.binomial(streams, chance) / streams
    setting = f"{harm:.0%} time out in {share:.0%} of seeds, {streams} streams, {n} seeds"
    yield _row(own, np.zeros_like(own), streams, setting)


def _all_harmed(i: int, n: int, repetitions: int) -> Iterator[Row]:
    streams = STREAMS[i]
    rng = generator(10, i, 9, n)
    own = rng.binomial(streams, 0.01, (repetitions, n)) / streams
    setting = f"1% time out in all seeds, {streams} streams, {n} seeds"
    yield _row(own, np.zeros_like(own), streams, setting)
    both = rng.binomial(streams, 0.05, (repetitions, n)) / streams
    own = rng.binomial(streams, 0.06, (repetitions, n)) / streams
    setting = f"6% against 5% in all seeds, {streams} streams, {n} seeds"
    yield _row(own, both, streams, setting)


def _zeros(repetitions: int) -> Iterator[Row]:
    del repetitions  # The same every time: one case is all.
    for n in SEEDS:
        found = _equivalent(np.zeros(n), np.zeros(n), STREAMS[-1])
        setting = f"no timeout at all, {STREAMS[-1]} streams, {n} seeds"
        yield Row("rates", setting, "judged equivalent", float(found), 0.0)


def _few_harmed_looked_at(j: int, k: int, repetitions: int) -> Iterator[Row]:
    (share, harm), budget = HARM[j], BUDGETS[k]
    rng = generator(11, j, k)
    times = max(1, repetitions // 4)
    sizes = schedule(budget)
    chance = np.where(rng.random((times, budget)) < share, harm, 0.0)
    own = rng.binomial(STREAMS[0], chance) / STREAMS[0]
    looks = Looks(sizes, budget)
    hits = sum(_equivalent(one, np.zeros(budget), STREAMS[0], looks) for one in own)
    setting = f"{harm:.0%} time out in {share:.0%} of seeds, SEEDS=auto up to {budget}"
    yield rate_row("rates", setting, "false 'equivalent'", hits, times, LEVEL)


def _row(own: Floats, base: Floats, streams: int, setting: str) -> Row:
    hits = sum(_equivalent(v, b, streams) for v, b in zip(own, base, strict=True))
    return rate_row("rates", setting, "false 'equivalent'", hits, len(own), LEVEL)


def _equivalent(own: Floats, base: Floats, streams: int, looks: Looks | None = None) -> bool:
    sides = Paired(own, base, RATE.margin, "lower", RATE.resolution / streams, RATE.unseen)
    return states({"rate": sides}, looks=looks)["rate"] is State.EQUIVALENT
