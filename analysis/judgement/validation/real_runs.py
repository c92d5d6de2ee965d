"""The same on real runs: a variant against itself, and what pairing saves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from analysis.errors import AnalysisError
from analysis.inference.effects import paired_effect, welch_effect
from analysis.inference.intervals import log_ratios
from analysis.judgement.judging import Statistics, usual_endpoints
from analysis.judgement.validation.rows import REPETITIONS, Row, generator, rate_row
from analysis.judgement.validation.simulated_runs import judge_family
from analysis.judgement.verdicts import LEVEL, Grade

MIN_RUNS = 6
"""Of one variant, for A/A on real runs: three pairs."""

MIN_PAIRS = 3
"""For an estimate of what pairing saves."""


def validate_on_runs(
    statistics: Statistics, level: str, variant: str, repetitions: int = REPETITIONS
) -> Iterator[Row]:
    """A/A on real runs: a variant against itself under other seeds, drawn again and again.

    Each time its runs are put into pairs at random. Then no metric differs, and the families, their
    correlation and the shapes are the real ones. The number of different pairings bounds what few
    seeds can show.

    Raises:
        AnalysisError: fewer than six runs, or no endpoint with a value in each.
    """
    table = list(_endpoint_values(statistics, level, variant).values())
    counts = {len(values) for values in table}
    if len(counts) != 1 or min(counts) < MIN_RUNS:
        raise AnalysisError(
            f"A/A of {variant} at level {level} needs at least {MIN_RUNS} runs with values of all "
            "endpoints",
            "make runs of one variant on more networks",
        )
    runs = np.array([list(values.values()) for values in table])
    n = runs.shape[1] // 2
    rng = generator(6)
    hits = 0
    for _ in range(repetitions):
        order = rng.permutation(runs.shape[1])
        sides = runs[:, order[:n]], runs[:, order[n : 2 * n]]
        hits += Grade.SHOWN in judge_family(*sides)
    setting = f"{variant} at {level}, {len(table)} endpoints, {n} pairs of {runs.shape[1]} runs"
    yield rate_row("A/A, real runs", setting, "any false 'shown'", hits, repetitions, LEVEL)


def pairing_on_runs(
    statistics: Statistics, level: str, variant: str, baseline: str
) -> Iterator[Row]:
    """Yield what pairing saves in real runs: the median factor over the usual endpoints."""
    own, base = (_endpoint_values(statistics, level, name) for name in (variant, baseline))
    gains = []
    for key in own.keys() & base.keys():
        seeds = sorted(own[key].keys() & base[key].keys())
        values = [[side[key][seed] for seed in seeds] for side in (own, base)]
        if len(seeds) >= MIN_PAIRS and min(map(min, values)) > 0:
            gain = pairing_gain(*values)
            gains += [] if gain is None else [gain]
    if gains:
        setting = f"{variant} and {baseline} at {level}, median of {len(gains)} metrics"
        quantity = "factor saved by pairing"
        yield Row("pairing, real runs", setting, quantity, float(np.median(gains)))


def _endpoint_values(
    statistics: Statistics, level: str, variant: str
) -> dict[tuple[str, str], dict[int, float]]:
    """(class, metric) -> seed -> value, of the usual endpoints that have a value in every run."""
    found = {}
    for class_name, metric in usual_endpoints(level, statistics, variant):
        by_seed = statistics[level, class_name][metric, variant]
        known = {seed: s.value for seed, s in sorted(by_seed.items()) if s.value is not None}
        if len(known) == len(by_seed):
            found[class_name, metric] = known
    return found


def pairing_gain(own: Sequence[float], base: Sequence[float]) -> float | None:
    """Factor by which pairing by seed cuts the number of seeds: variance unpaired over paired.

    Args:
        own: shape (n,), n >= 2, > 0.
        base: shape (n,), of the same seeds.

    Returns:
        None where all pairs have the same ratio.
    """
    unpaired = welch_effect(np.log(own), np.log(base))
    paired = paired_effect(log_ratios(own, base))
    if paired.standard_error == 0:
        return None
    return (unpaired.standard_error / paired.standard_error) ** 2
