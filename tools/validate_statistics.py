"""Check the statistics by simulation, on data whose true answer is known.

    .venv/bin/python tools/validate_statistics.py --families 4000
    .venv/bin/python tools/validate_statistics.py --part family --networks 8,9,10,11

Each part simulates families (endpoints that are judged together), passes them to the code that
judges real runs, and counts false grades, true grades and intervals that contain the truth. A rate
is printed with its Monte-Carlo standard error. The exit status is 1 if a rate misses the limit that
docs/reference/statistics.md promises, and does so by more than three standard errors. Each cell of
a table has its own random numbers, so the same options always print the same rows.
docs/explanation/statistics-validation.md has results.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from multiprocessing import get_context

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from analysis.arrays import Floats
from analysis.formats.study import Looks, PlannedLooks
from analysis.inference.bands import simultaneous_band
from analysis.inference.corrections import endpoint_weights
from analysis.inference.effects import paired_effect
from analysis.inference.sequential import schedule, spending
from analysis.judgement.verdicts import LEVEL, Grade, Sides, grades
from analysis.measures.metric import RATE, Margin

SEED = 20261
MAX_ERRORS = 3.0
"""A promise is broken if the rate misses its limit by more than this many standard errors."""

MIN_COVERAGE = 0.94
MIN_BAND_COVERAGE = 0.92

ENDPOINTS = 4
"""Maximum number of endpoints of an experiment."""
CORRELATION = 0.6
"""Correlation between the metrics of one run."""
NETWORK_SD, RUN_SD = 0.3, 0.05
"""Standard deviations of a metric's logarithm: between networks, and between a network's runs."""
MARGIN = Margin(0.05)
LOG_MARGIN = float(np.log1p(MARGIN.value))
WIDE, NARROW = 0.5, 0.01
"""Spreads of simulated differences: WIDE to find false "shown" grades, NARROW for false "same".

With a narrow spread, endpoints without a difference get the grade "same", so none would be falsely
"shown". With a wide spread, no endpoint gets the grade "same".
"""
MAX_NETWORKS = 20
"""Maximum number of networks of a simulated study with NETWORKS=auto, in tests for false grades.

Such a study adds networks until all endpoints are decided ("shown" or "same").
"""
NIGHT_LEVEL = 2 / 365
"""Error level of one nightly run of an experiment that may raise two false alarms a year."""


@dataclass(frozen=True)
class Row:
    """One quantity of the table.

    Attributes:
        setting: a description of the simulated data.
        quantity: what ``value`` is.
        value: the result of the simulation.
        error: the standard error of ``value``; None if ``value`` is not a rate.
        limit: the limit that docs/reference/statistics.md promises; None if it promises none.
        at_least: whether ``limit`` is a minimum of ``value``; otherwise it is a maximum.
    """

    setting: str
    quantity: str
    value: float
    error: float | None = None
    limit: float | None = None
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """True if the promise holds, within the error of the simulation."""
        if self.limit is None:
            return True
        excess = self.limit - self.value if self.at_least else self.value - self.limit
        return excess <= MAX_ERRORS * (self.error or 0.0)

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.setting:<64}  {self.quantity:<38}  {self.value:6.3g}"
        text = f"{self.setting:<64}  {self.quantity:<38}  {self.value:6.2%} +- {self.error:.2%}"
        if self.limit is None:
            return text
        bound = "at least" if self.at_least else "at most"
        return f"{text}  {bound} {self.limit:.3g}: {'holds' if self.holds else 'BROKEN'}"


Cell = Callable[[int], Iterable[Row]]
"""A function that simulates a number of families, and returns rows of the table."""


def rate_row(
    setting: str,
    quantity: str,
    hits: float,
    families: int,
    limit: float | None = None,
    at_least: bool = False,
) -> Row:
    """Return the row of the rate ``hits / families``.

    The standard error is computed for the limit as the true rate or, if there is no limit, for the
    measured rate.
    """
    rate = float(hits / families)
    expected = rate if limit is None else limit
    error = float(np.sqrt(expected * (1 - expected) / families))
    return Row(setting, quantity, rate, error, limit, at_least)


def random_numbers(*key: int) -> np.random.Generator:
    """Return a random number generator; ``key`` identifies the cell that uses it."""
    return np.random.default_rng([SEED, *key])


# Distributions, over networks, of the difference between variant and baseline


@dataclass(frozen=True)
class Shape:
    """A distribution of differences.

    Attributes:
        quantile: maps probabilities to values.
        promised: whether docs/reference/statistics.md promises the limits for this distribution.
    """

    quantile: Callable[[Floats], Floats]
    promised: bool = True

    @functools.cached_property
    def pseudomedian(self) -> float:
        """The median of the mean of two independent values."""
        points = 400_001
        values = self.quantile((np.arange(points) + 0.5) / points)

        def excess(middle: float) -> float:
            return float(np.searchsorted(values, 2 * middle - values).mean() / points - 0.5)

        return float(brentq(excess, values[0], values[-1]))

    @functools.cached_property
    def spread(self) -> float:
        """The standard deviation of a normal distribution with the same interquartile range."""
        low, high = self.quantile(np.array([0.25, 0.75]))
        return float((high - low) / (2 * stats.norm.ppf(0.75)))


def normal_mixture(*parts: tuple[float, float, float]) -> Callable[[Floats], Floats]:
    """Return the quantile function of a mixture of normal distributions.

    parts: share, mean and standard deviation of each component.
    """
    reach = max(abs(mean) + 7 * sd for _, mean, sd in parts)
    grid = np.linspace(-reach, reach, 400_001)
    cdf = sum(share * stats.norm.cdf((grid - mean) / sd) for share, mean, sd in parts)
    return lambda probability: np.asarray(np.interp(probability, cdf, grid))


def outliers(share: float, distance: float) -> Callable[[Floats], Floats]:
    """Return the quantile function of normal values, ``share`` of them shifted by ``distance``."""
    return normal_mixture((1 - share, 0.0, 1.0), (share, distance, 1.0))


SHAPES: Mapping[str, Shape] = {
    "normal": Shape(stats.norm.ppf),
    "t, 3 df": Shape(stats.t(3).ppf),
    "exponential": Shape(stats.expon.ppf),
    "lognormal(1)": Shape(stats.lognorm(1.0).ppf),
    "one of ten off by 5 sd": Shape(outliers(0.1, 5.0)),
    "one of ten off by 15 sd": Shape(outliers(0.1, 15.0)),
    "gamma(2)": Shape(stats.gamma(2.0).ppf),
    "gamma(4)": Shape(stats.gamma(4.0).ppf),
    "Weibull(1.5)": Shape(stats.weibull_min(1.5).ppf),
    "lognormal(0.5)": Shape(stats.lognorm(0.5).ppf),
    "half with 5 times the sd": Shape(normal_mixture((0.5, 0.0, 1.0), (0.5, 0.0, 5.0))),
    "one of five off by 15 sd": Shape(outliers(0.2, 15.0), promised=False),
    "one of five off by 30 sd": Shape(outliers(0.2, 30.0), promised=False),
    "one of three off by 15 sd": Shape(outliers(1 / 3, 15.0), promised=False),
    "gamma(0.5)": Shape(stats.gamma(0.5).ppf, promised=False),
    "lognormal(1.5)": Shape(stats.lognorm(1.5).ppf, promised=False),
}
SEQUENTIAL_SHAPES = ("normal", "exponential", "lognormal(1)", "one of ten off by 15 sd")
"""The distributions in the parts that simulate NETWORKS=auto and nightly runs."""


# Simulated families. A family is (variant, baseline), two arrays of shape (endpoints, networks).

Family = tuple[Floats, Floats]


def draw_differences(rng: np.random.Generator, shape: Shape, families: int, n: int) -> Floats:
    """Return random differences, as an array with the axes (families, endpoints, n networks).

    The differences have a pseudomedian of 0. Their unit is the spread of the distribution.
    """
    common = rng.normal(size=(families, 1, n))
    own = rng.normal(size=(families, ENDPOINTS, n))
    both = np.sqrt(CORRELATION) * common + np.sqrt(1 - CORRELATION) * own
    probabilities = np.clip(stats.norm.cdf(both), 1e-15, 1 - 1e-15)
    return np.asarray((shape.quantile(probabilities) - shape.pseudomedian) / shape.spread)


def make_families(
    rng: np.random.Generator, differences: Floats, log_ratio: float, spread: float
) -> Iterator[Family]:
    """Yield a family for each set of differences.

    A random choice decides whether all differences of a set change their sign. So the long tail of
    a set is on a random side.

    log_ratio, spread: location and spread of the logarithm of the ratio variant / baseline.
    """
    for of_family in differences:
        sign = 1.0 if rng.random() < 0.5 else -1.0
        network = rng.normal(0.0, NETWORK_SD, (1, differences.shape[-1]))
        baseline: Floats = np.exp(network) * np.ones((ENDPOINTS, 1))
        yield baseline * np.exp(log_ratio + sign * spread * of_family), baseline


def make_null_families(
    rng: np.random.Generator, differences: Floats, false: Grade
) -> Iterator[Family]:
    """Yield families whose endpoints must not get the grade ``false``.

    If ``false`` is "shown", no endpoint differs. If ``false`` is "same", all differ by the margin.
    """
    null = (0.0, WIDE) if false is Grade.SHOWN else (LOG_MARGIN, NARROW)
    return make_families(rng, differences, *null)


def draw_normal_family(rng: np.random.Generator, n: int, log_ratios: Floats) -> Family:
    """Return a family of normal differences, with one log ratio for each endpoint."""

    def noise() -> Floats:
        common = rng.normal(0.0, np.sqrt(CORRELATION), (1, n))
        own = rng.normal(0.0, np.sqrt(1 - CORRELATION), (log_ratios.size, n))
        return RUN_SD * (common + own)

    network = rng.normal(0.0, NETWORK_SD, (1, n))
    return np.exp(network + log_ratios[:, None] + noise()), np.exp(network + noise())


def judge(family: Family, looks: Looks | None = None, level: float = LEVEL) -> list[Grade | None]:
    """Return the grade of each endpoint."""
    pairs = [Sides(*sides, MARGIN) for sides in zip(*family, strict=True)]
    return grades(pairs, level, looks, endpoint_weights(len(pairs)))


def first_networks(family: Family, n: int) -> Family:
    """Return a family with only its first n networks."""
    variant, baseline = family
    return variant[:, :n], baseline[:, :n]


# Parts that test one number of networks at a time


def family_errors(name: str, n: int, families: int) -> Iterator[Row]:
    """Yield how often a family has a false grade, and how often a 95% interval has the truth."""
    shape = SHAPES[name]
    rng = random_numbers(9, list(SHAPES).index(name), n)
    differences = draw_differences(rng, shape, families, n)
    setting = f"{name}, {n} networks"
    for false in (Grade.SHOWN, Grade.SAME):
        hits = sum(false in judge(one) for one in make_null_families(rng, differences, false))
        limit = LEVEL if shape.promised else None
        yield rate_row(setting, f"any false '{false}' of {ENDPOINTS}", hits, families, limit)
    hits = sum(not paired_effect(one).interval().leaves_out(0.0) for one in differences[:, 0])
    limit = MIN_COVERAGE if shape.promised else None
    yield rate_row(setting, "coverage of the interval", hits, families, limit, at_least=True)


def power(name: str, n: int, families: int) -> Iterator[Row]:
    """Yield how often the first endpoint and, on average, each other endpoint has a true grade."""
    families = max(1, families // 4)
    rng = random_numbers(13, list(SHAPES).index(name), n)
    for ratio, true in ((1.0, Grade.SAME), (1.1, Grade.SHOWN), (1.2, Grade.SHOWN)):
        differences = draw_differences(rng, SHAPES[name], families, n)
        right = np.zeros(ENDPOINTS)
        for family in make_families(rng, differences, np.log(ratio), np.sqrt(2) * RUN_SD):
            right += [grade is true for grade in judge(family)]
        setting = f"{name}, all differ by {ratio - 1:.0%}, {n} networks"
        yield rate_row(setting, f"first endpoint '{true}'", right[0], families)
        yield rate_row(setting, f"each other endpoint '{true}'", right[1:].mean(), families)


def mixed_family_errors(families: int) -> Iterator[Row]:
    """Yield how often a family has a false grade if half of its endpoints differ by the margin.

    The other half of the endpoints do not differ.
    """
    log_ratios = np.where(np.arange(ENDPOINTS) % 2, LOG_MARGIN, 0.0)
    rng = random_numbers(2, 9)
    judged = [judge(draw_normal_family(rng, 10, log_ratios)) for _ in range(families)]
    setting = "half A/A, half at the margin, 10 networks"
    false_shown = sum(Grade.SHOWN in one[::2] for one in judged)
    yield rate_row(setting, "any false 'shown'", false_shown, families, LEVEL)
    false_same = sum(Grade.SAME in one[1::2] for one in judged)
    yield rate_row(setting, "any false 'same'", false_same, families, LEVEL)


def band_coverage(reach_index: int, n: int, families: int) -> Iterator[Row]:
    """Yield how often a 95% band contains a whole curve of 20 points."""
    reach = (0.1, 0.3, 1.0)[reach_index]
    points = np.linspace(0, 1, 20)
    covariance = np.exp(-np.abs(points[:, None] - points) / reach)
    root = np.linalg.cholesky(covariance + 1e-9 * np.eye(points.size))
    rng = random_numbers(8, reach_index, n)
    hits = 0
    for _ in range(families):
        band = simultaneous_band(rng.normal(size=(n, points.size)) @ root.T, draws=200)
        hits += bool(np.all((band.low <= 0) & (band.high >= 0)))
    setting = f"correlation reaches {reach:g} of the curve, {n} networks"
    yield rate_row(setting, "coverage of the curve", hits, families, MIN_BAND_COVERAGE, True)


def rate_errors(streams_index: int, n: int, families: int) -> Iterator[Row]:
    """Yield how often a rate gets "same" although it is worse by the margin on all networks."""
    streams = (100, 500)[streams_index]
    rng = random_numbers(10, streams_index, 9, n)

    def draw(rate: float | Floats) -> Floats:
        return np.asarray(rng.binomial(streams, rate, (families, n)) / streams)

    def row(truth: str, own: Floats, base: Floats) -> Row:
        hits = 0
        for sides in zip(own, base, strict=True):
            pair = Sides(*sides, RATE.margin, "lower", RATE.resolution / streams)
            hits += grades([pair]) == [Grade.SAME]
        setting = f"{truth}, {streams} streams, {n} networks"
        return rate_row(setting, "false 'same'", hits, families, LEVEL)

    yield row("1% against 0%", draw(0.01), np.zeros((families, n)))
    yield row("6% against 5%", draw(0.06), draw(0.05))
    # Beta-binomial: two streams of one network have a correlation of about 0.05.
    of_network = rng.beta(0.05 / 0.05, 0.95 / 0.05, (families, n)) * 0.98
    yield row("a point more than beta-binomial 5%", draw(of_network + 0.01), draw(of_network))


# Parts that test nightly runs, and interim analyses (looks) at a growing number of networks


def auto_errors(shape_index: int, false: Grade, families: int) -> Iterator[Row]:
    """Yield how often a family has a false grade at any interim analysis of NETWORKS=auto."""
    families = max(1, families // 2)
    name = SEQUENTIAL_SHAPES[shape_index]
    rng = random_numbers(3, shape_index, 0 if false is Grade.SHOWN else 1)
    differences = draw_differences(rng, SHAPES[name], families, MAX_NETWORKS)
    # A sequential p-value never rises. So a false grade at an earlier look is still there at the
    # last look, and it suffices to check the last look.
    looks = Looks(schedule(MAX_NETWORKS), MAX_NETWORKS)
    hits = sum(false in judge(one, looks) for one in make_null_families(rng, differences, false))
    setting = f"{name}, {len(looks.sizes)} looks at 3 to {MAX_NETWORKS} networks"
    yield rate_row(setting, f"any false '{false}'", hits, families, LEVEL)


def uncorrected_look_errors(families: int) -> Iterator[Row]:
    """Yield how often a family has a false "shown" if no interim analysis is corrected."""
    families = max(1, families // 4)
    rng = random_numbers(3, 9)
    differences = draw_differences(rng, SHAPES["normal"], families, MAX_NETWORKS)
    sizes = schedule(MAX_NETWORKS)
    hits = sum(
        any(Grade.SHOWN in judge(first_networks(family, n)) for n in sizes)
        for family in make_null_families(rng, differences, Grade.SHOWN)
    )
    setting = f"normal, {len(sizes)} looks at 3 to {MAX_NETWORKS} networks"
    yield rate_row(setting, "any false 'shown', not corrected", hits, families)


def raised_errors(ends: tuple[int, ...], endpoints: int, kind: str, families: int) -> Iterator[Row]:
    """Yield how often a family has a false "shown" if networks are added after a report.

    Args:
        ends: numbers of networks at which there is a report, in ascending order.
        endpoints: number of endpoints.
        kind: "NETWORKS" if ``ends`` are fixed numbers, "MAX_NETWORKS" if they are budgets of
            NETWORKS=auto.
        families: number of families, an eighth of which are simulated.
    """
    families = max(1, families // 8)
    plans: list[PlannedLooks] = []
    for previous, end in zip((0, *ends), ends, strict=False):
        sizes = [end] if kind == "NETWORKS" else [n for n in schedule(end) if n > previous]
        plans.append(PlannedLooks(tuple(sizes), end))
    all_looks = [Looks(p.sizes, p.budget, tuple(plans[:k])) for k, p in enumerate(plans)]
    rng = random_numbers(12, RAISED.index(ends), endpoints)
    hits = 0
    for _ in range(families):
        family = draw_normal_family(rng, ends[-1], np.zeros(endpoints))
        hits += any(
            # With fixed numbers of networks, the first test is not corrected for several looks,
            # because it was planned as the only one.
            Grade.SHOWN in judge(first_networks(family, looks.budget),
                                 looks if looks.earlier or kind != "NETWORKS" else None)
            for looks in all_looks
        )  # fmt: skip
    setting = f"A/A, {endpoints} endpoints, {kind}={', then '.join(map(str, ends))}"
    limit = LEVEL * spending(all_looks[-1].plans).excess
    yield rate_row(setting, "any false 'shown'", hits, families, limit)


RAISED = ((10, 20, 40), (5, 10, 20, 40))


def night_errors(shape_index: int, night_index: int, families: int) -> Iterator[Row]:
    """Yield how often a family has a false "shown" in one nightly run.

    The level is small, so 5 times as many families are simulated.
    """
    families *= 5
    name, n = SEQUENTIAL_SHAPES[shape_index], (6, 14)[night_index]
    rng = random_numbers(14, shape_index, night_index)
    differences = draw_differences(rng, SHAPES[name], families, n)
    hits = sum(
        Grade.SHOWN in judge(family, level=NIGHT_LEVEL)
        for family in make_null_families(rng, differences, Grade.SHOWN)
    )
    yield rate_row(f"{name}, {n} networks", "any false 'shown'", hits, families, NIGHT_LEVEL)


def auto_savings(ratio_index: int, families: int) -> Iterator[Row]:
    """Yield the number of networks that NETWORKS=auto uses until all endpoints are decided.

    The budget of 40 is 1.5 times the 27 pairs that a fixed design needs to show a difference of 5%.
    """
    families = max(1, families // 40)
    ratio, budget = (0.0, 0.05, 0.10, 0.20, 0.40)[ratio_index], 40
    rng = random_numbers(5, ratio_index)
    used, settled = [], 0
    for _ in range(families):
        family = draw_normal_family(rng, budget, np.full(ENDPOINTS, np.log1p(ratio)))
        needed = networks_to_settle(family, budget)
        settled += needed is not None
        used.append(needed or budget)
    setting = f"true difference {ratio:.0%}, at most {budget} networks"
    yield Row(setting, "mean networks", float(np.mean(used)))
    yield rate_row(setting, "all endpoints settled", settled, families)


def networks_to_settle(family: Family, budget: int) -> int | None:
    """Return the number of networks at the first look that decides all endpoints.

    Return None if no look does.
    """
    sizes = schedule(budget)

    def is_settled(size: int) -> bool:
        looks = Looks(tuple(n for n in sizes if n <= size), budget)
        found = judge(first_networks(family, size), looks)
        return all(grade in (Grade.SHOWN, Grade.SAME) for grade in found)

    return next((size for size in sizes if is_settled(size)), None)


def make_parts(networks: Sequence[int] | None = None) -> dict[str, list[Cell]]:
    """Return the cells of each part.

    networks: numbers of networks to simulate in parts that test one number at a time. If it is
        None, each of these parts uses its default numbers.
    """
    few, more = networks or (3, 5, 8, 10), networks or (3, 5, 10, 20)
    sequential = range(len(SEQUENTIAL_SHAPES))
    return {
        "family": [partial(family_errors, name, n) for name in SHAPES for n in few],
        "power": [partial(power, name, n) for name in SHAPES for n in few],
        "mixed": [mixed_family_errors],
        "bands": [partial(band_coverage, i, n) for i in range(3) for n in more],
        "rates": [partial(rate_errors, i, n) for i in range(2) for n in more],
        "auto": [
            *(partial(auto_errors, i, g) for i in sequential for g in (Grade.SHOWN, Grade.SAME)),
            uncorrected_look_errors,
        ],
        "raised": [
            partial(raised_errors, ends, endpoints, kind)
            for ends in RAISED
            for endpoints in (ENDPOINTS, 1)
            for kind in ("NETWORKS", "MAX_NETWORKS")
        ],
        "nights": [partial(night_errors, i, k) for i in sequential for k in range(2)],
        "savings": [partial(auto_savings, i) for i in range(5)],
    }


def compute_rows(cell: Cell, families: int) -> list[Row]:
    """Return the rows of a cell, as a list that another process can return."""
    return list(cell(families))


def numbers_of_networks(text: str) -> list[int]:
    """Parse numbers such as 8,9,10. Raises ValueError, which argparse reports."""
    numbers = [int(number) for number in text.split(",")]
    if min(numbers) < 2:
        raise ValueError
    return numbers


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rows, part by part; return 1 if a rate misses its promised limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", nargs="+", choices=list(make_parts()), help="default: all")
    parser.add_argument("--families", type=int, default=1000, help="for each cell (default: 1000)")
    parser.add_argument(
        "--networks", type=numbers_of_networks, help="such as 8,9,10,11, in place of a part's own"
    )
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: CPUs)"
    )
    args = parser.parse_args(arguments)
    if min(args.families, args.jobs) < 1:
        parser.error("--families and --jobs must be at least 1")
    broken = 0
    # Forked processes could inherit locks that threads of the numerical libraries hold.
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        for part, cells in make_parts(args.networks).items():
            if args.part and part not in args.part:
                continue
            for rows in pool.map(compute_rows, cells, repeat(args.families)):
                broken += sum(not row.holds for row in rows)
                for row in rows:
                    print(f"{part:<8}  {row}", flush=True)
    print(f"{broken} promises broken" if broken else "all promises hold")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
