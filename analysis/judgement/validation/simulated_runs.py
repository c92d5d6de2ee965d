"""Runs with a known truth: endpoints of two variants, and the grades of them."""

from __future__ import annotations

import numpy as np

from analysis.arrays import Floats
from analysis.formats.study import Looks
from analysis.inference.corrections import endpoint_weights
from analysis.judgement.verdicts import LEVEL, Grade, Paired, grades
from analysis.measures.metric import Margin

ENDPOINTS = 4
"""In a family: the most that an experiment has."""

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
    """Return values of a variant and of the baseline, each of shape (endpoints, n)."""
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
    variant: Floats, baseline: Floats, *, looks: Looks | None = None, level: float = LEVEL
) -> list[Grade | None]:
    """Return the grade of each endpoint, in their order; both arrays of shape (endpoints, n)."""
    named = {
        str(i): Paired(v, b, MARGIN) for i, (v, b) in enumerate(zip(variant, baseline, strict=True))
    }
    return list(grades(named, level, looks, endpoint_weights(len(named))).values())
