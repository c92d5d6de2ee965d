"""Runs with a known truth: families of metrics of two variants, and the verdicts on them."""

from __future__ import annotations

import numpy as np

from analysis.arrays import Floats
from analysis.formats.study import Looks
from analysis.judgement.verdicts import Paired, State, states
from analysis.measures.metric import Margin

METRIC_COUNT = 8
"""Metrics in a family, about as many as the primary ones of one class."""

CORRELATION = 0.6
"""Of the metrics of one run: quantiles of one distribution go together."""

SEED_SD = 0.3
"""Spread of the logarithm over seeds, shared by the runs of one seed: their networks differ."""

RUN_SD = 0.05
"""Spread of the logarithm of a run around its seed's value."""

MARGIN = Margin(0.05)


def draw_family(
    rng: np.random.Generator, n: int, log_ratios: Floats, run_sd: float = RUN_SD
) -> tuple[Floats, Floats]:
    """Values of a variant and of the baseline, each of shape (metrics, n)."""
    metrics = log_ratios.size

    def noise() -> Floats:
        common = rng.normal(0.0, np.sqrt(CORRELATION), (1, n))
        own = rng.normal(0.0, np.sqrt(1 - CORRELATION), (metrics, n))
        return run_sd * (common + own)

    seeds = rng.normal(0.0, SEED_SD, (1, n))
    variant: Floats = np.exp(seeds + log_ratios[:, None] + noise())
    baseline: Floats = np.exp(seeds + noise())
    return variant, baseline


def judge_family(
    variant: Floats,
    baseline: Floats,
    *,
    looks: Looks | None = None,
    corrected: bool = True,
) -> list[State]:
    """Verdicts on each metric; without correction each is judged as if it were the only one."""
    named = {
        str(i): Paired(v, b, MARGIN) for i, (v, b) in enumerate(zip(variant, baseline, strict=True))
    }
    if corrected:
        return list(states(named, looks=looks).values())
    return [states({name: sides}, looks=looks)[name] for name, sides in named.items()]
