"""How many seeds pairing and SEEDS=auto save."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from analysis.arrays import Floats
from analysis.formats.study import Looks
from analysis.inference.effects import Effect
from analysis.inference.sample_size import count_to_settle
from analysis.inference.sequential import schedule
from analysis.judgement.validation.rows import Cell, Row, generator
from analysis.judgement.validation.simulated_runs import (
    ENDPOINTS,
    MARGIN,
    RUN_SD,
    SEED_SD,
    draw_family,
    judge_family,
)
from analysis.judgement.verdicts import LEVEL, Grade


def _fixed_counts(log_ratio: float, seed_sd: float, run_sd: float) -> tuple[int, int]:
    """Seeds that a fixed design needs, paired and unpaired: power 80 %, four endpoints."""
    level = LEVEL / ENDPOINTS
    effects = (
        Effect(log_ratio, run_sd * np.sqrt(2 / 2), 1.0, 2),
        # Welch with equal spreads has 2 (n - 1) degrees of freedom.
        Effect(log_ratio, float(np.hypot(seed_sd, run_sd)) * np.sqrt(2 / 2), 2.0, 2),
    )
    paired, unpaired = (count_to_settle(effect, None, level) for effect in effects)
    assert paired is not None
    assert unpaired is not None
    return paired, unpaired


_AIMED = float(np.log1p(MARGIN.value))


def seeds_saved() -> Iterator[Cell]:
    """Seeds of a fixed unpaired design over those of a paired one and of SEEDS=auto.

    The fixed designs are made for the smallest difference that matters, 5 %, since the true one is
    not known; SEEDS=auto has the fixed paired design's seeds, half as many again, as its budget.
    """
    yield _pairing
    for i in range(len(_RATIOS)):
        yield partial(_auto, i)


def _pairing(repetitions: int) -> Iterator[Row]:
    del repetitions  # Computed, not simulated.
    for seed_sd in (0.05, 0.15, 0.30):
        paired, unpaired = _fixed_counts(_AIMED, seed_sd, RUN_SD)
        setting = f"spread over seeds {seed_sd:.0%}, of a run around its seed {RUN_SD:.0%}"
        yield Row("pairing", setting, "seeds, fixed unpaired design", unpaired)
        yield Row("pairing", setting, "seeds, fixed paired design", paired)
        yield Row("pairing", setting, "factor saved by pairing", unpaired / paired)


_RATIOS = (0.0, 0.05, 0.10, 0.20, 0.40)


def _auto(i: int, repetitions: int) -> Iterator[Row]:
    paired, unpaired = _fixed_counts(_AIMED, SEED_SD, RUN_SD)
    budget = round(1.5 * paired)
    sizes = schedule(budget)
    times = max(1, repetitions // 40)
    ratio = _RATIOS[i]
    rng = generator(5, i)
    used, settled = [], 0
    for _ in range(times):
        variant, baseline = draw_family(rng, budget, np.full(ENDPOINTS, np.log1p(ratio)))
        stop = _first_settled(variant, baseline, sizes, budget)
        settled += stop is not None
        used.append(stop or budget)
    mean = float(np.mean(used))
    setting = f"true difference {ratio:.0%}, at most {budget} seeds"
    yield Row("SEEDS=auto", setting, "mean seeds used", mean)
    yield Row("SEEDS=auto", setting, "share with all metrics settled", settled / times)
    yield Row("SEEDS=auto", setting, f"factor against {paired} paired", paired / mean)
    yield Row("SEEDS=auto", setting, f"factor against {unpaired} unpaired", unpaired / mean)


def _first_settled(
    variant: Floats, baseline: Floats, sizes: Sequence[int], budget: int
) -> int | None:
    """The first look at which all metrics are settled, by bisection: settled stays settled."""

    def settled(k: int) -> bool:
        n = sizes[k]
        looks = Looks(tuple(sizes[: k + 1]), budget)
        found = judge_family(variant[:, :n], baseline[:, :n], looks=looks)
        return all(grade in (Grade.SHOWN, Grade.SAME) for grade in found)

    low, high = -1, len(sizes) - 1
    if not settled(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settled(middle) else (middle, high)
    return sizes[high]
