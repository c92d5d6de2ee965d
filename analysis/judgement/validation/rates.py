"""Rates near zero: how often as much harm as the margin, in all networks, passes as the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from analysis.arrays import Floats
from analysis.judgement.validation.rows import Cell, Row, generator, rate_row
from analysis.judgement.verdicts import LEVEL, Grade, Paired, grades
from analysis.measures.metric import RATE

NETWORKS = (3, 5, 10, 20)

STREAMS = (100, 500)
"""Streams of a run: with fewer than 100 a rate is not judged."""

SPREAD = 0.05
"""Overdispersion of beta-binomial rates: the correlation of two streams of one network."""


def rates() -> Iterator[Cell]:
    """False "same" of one rate, judged alone, and how often zeros are found the same."""
    for i in range(len(STREAMS)):
        for n in NETWORKS:
            yield partial(_all_harmed, i, n)
    yield _zeros


def _all_harmed(i: int, n: int, repetitions: int) -> Iterator[Row]:
    streams = STREAMS[i]
    rng = generator(10, i, 9, n)
    own = rng.binomial(streams, 0.01, (repetitions, n)) / streams
    setting = f"1% against 0% in all networks, {streams} streams, {n} networks"
    yield _row(own, np.zeros_like(own), streams, setting)
    own, base = (rng.binomial(streams, rate, (repetitions, n)) / streams for rate in (0.06, 0.05))
    setting = f"6% against 5% in all networks, {streams} streams, {n} networks"
    yield _row(own, base, streams, setting)
    # The rate of a network is its own, and the same for both sides but for the margin.
    of_network = rng.beta(0.05 / SPREAD, 0.95 / SPREAD, (repetitions, n)) * 0.98
    own, base = (rng.binomial(streams, of_network + add) / streams for add in (0.01, 0.0))
    setting = f"a point more than beta-binomial 5%, {streams} streams, {n} networks"
    yield _row(own, base, streams, setting)


def _zeros(repetitions: int) -> Iterator[Row]:
    del repetitions  # The same every time: one case is all.
    for n in NETWORKS:
        found = _same(np.zeros(n), np.zeros(n), STREAMS[-1])
        setting = f"no timeout at all, {STREAMS[-1]} streams, {n} networks"
        yield Row("rates", setting, "judged the same", float(found), 0.0)


def _row(own: Floats, base: Floats, streams: int, setting: str) -> Row:
    hits = sum(_same(v, b, streams) for v, b in zip(own, base, strict=True))
    return rate_row("rates", setting, "false 'same'", hits, len(own), LEVEL)


def _same(own: Floats, base: Floats, streams: int) -> bool:
    sides = Paired(own, base, RATE.margin, "lower", RATE.resolution / streams)
    return grades({"rate": sides})["rate"] is Grade.SAME
