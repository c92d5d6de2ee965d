"""Seeds added, or a budget raised, after an answer that was not settled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from analysis.formats.study import Looks, PlannedLooks
from analysis.inference.sequential import schedule, spending
from analysis.judgement.validation.rows import Cell, Row, generator, rate_row
from analysis.judgement.validation.simulated_runs import ENDPOINTS, draw_family, judge_family
from analysis.judgement.verdicts import LEVEL, Grade

PLANS = ((10, 20, 40), (5, 10, 20, 40))

SHARE = 8
"""One in so many of the repetitions is made: each is several reports."""


def looking_again() -> Iterator[Cell]:
    """Any false "shown" in any report of a study whose seeds are raised again and again."""
    for i in range(len(PLANS)):
        for metrics in (ENDPOINTS, 1):
            for kind in ("SEEDS", "MAX_SEEDS"):
                yield partial(_raised, i, metrics, kind)


def _raised(i: int, metrics: int, kind: str, repetitions: int) -> Iterator[Row]:
    ends = PLANS[i]
    plans = _fixed(ends) if kind == "SEEDS" else _budgets(ends)
    rng = generator(12, i, metrics)
    hits = naive = 0
    times = max(1, repetitions // SHARE)
    for _ in range(times):
        variant, baseline = draw_family(rng, ends[-1], np.zeros(metrics))
        for looks in plans:
            n = looks.sizes[-1]
            # The first look at a fixed number of seeds is an ordinary test.
            plain = kind == "SEEDS" and not looks.earlier
            judged = judge_family(variant[:, :n], baseline[:, :n], looks=None if plain else looks)
            if Grade.SHOWN in judged:
                hits += 1
                break
        if kind == "SEEDS":
            naive += any(Grade.SHOWN in judge_family(variant[:, :n], baseline[:, :n]) for n in ends)
    setting = f"A/A, {metrics} endpoints, {kind}={', then '.join(map(str, ends))}"
    level = LEVEL * spending(plans[-1].plans).excess
    yield rate_row("looking again", setting, "any false 'shown'", hits, times, level)
    if kind == "SEEDS":
        yield rate_row("looking again", setting, "the same without a memory", naive, times)


def _fixed(ends: Sequence[int]) -> list[Looks]:
    """Each number of seeds as one look, with those before it as earlier plans."""
    single = [PlannedLooks((end,), end) for end in ends]
    return [Looks((end,), end, tuple(single[:k])) for k, end in enumerate(ends)]


def _budgets(ends: Sequence[int]) -> list[Looks]:
    """Budgets spent in full, each with those before it as earlier plans."""
    made: list[PlannedLooks] = []
    plans = []
    for end in ends:
        reached = made[-1].budget if made else 0
        sizes = tuple(size for size in schedule(end) if size > reached)
        plans.append(Looks(sizes, end, tuple(made)))
        made.append(PlannedLooks(sizes, end))
    return plans
