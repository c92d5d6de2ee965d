"""Whether the statistics keep what they promise: simulation on data with a known truth.

Runs are drawn from a model (a seed's own network, the run's own noise, metrics that go together)
and handed to the code that judges real ones. Every rate comes with its Monte-Carlo error; a promise
is broken where the rate is beyond its limit by more than ``SURE`` of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from analysis.arrays import Floats
from analysis.errors import AnalysisError
from analysis.formats.study import Looks
from analysis.inference.bands import simultaneous_band
from analysis.inference.effects import Effect, paired_effect, welch_effect
from analysis.inference.intervals import bca_interval, log_ratios
from analysis.inference.sample_size import count_to_settle
from analysis.inference.sequential import ALLOWANCE, nominal_levels, schedule
from analysis.judgement.judging import Statistics, classes_of, is_primary
from analysis.judgement.verdicts import LEVEL, Paired, State, states
from analysis.measures.catalogue import METRICS
from analysis.measures.metric import Margin

REPETITIONS = 1000
MIN_REPETITIONS = 1000
SURE = 3.0
SEED = 20261

METRIC_COUNT = 8
"""Metrics in a family, about as many as the primary ones of one class."""

CORRELATION = 0.6
"""Of the metrics of one run: quantiles of one distribution go together."""

SEED_SD = 0.3
"""Spread of the logarithm over seeds, shared by the runs of one seed: their networks differ."""

RUN_SD = 0.05
"""Spread of the logarithm of a run around its seed's value."""

MARGIN = Margin(0.05)

COVERAGE_PROMISED = 0.94
"""For the t interval of paired differences, whatever the shapes below."""

MIN_RUNS = 6
"""Of one variant, for A/A on real runs: three pairs."""

MIN_PAIRS = 3
"""For an estimate of what pairing saves."""

BUDGET = 20
"""Seeds at most, where data is looked at repeatedly."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        part: what is examined.
        setting: on which data.
        quantity: what ``value`` is.
        value: the result.
        error: its Monte-Carlo standard error; None for what is not a rate.
        limit: what is promised; None where nothing is.
        bound: on which side of the limit the value has to be.
    """

    part: str
    setting: str
    quantity: str
    value: float
    error: float | None = None
    limit: float | None = None
    bound: Literal["at most", "at least"] = "at most"

    @property
    def holds(self) -> bool:
        """Whether the promise is kept, as far as the repetitions can tell."""
        if self.limit is None:
            return True
        slack = SURE * (self.error or 0.0)
        if self.bound == "at most":
            return self.value <= self.limit + slack
        return self.value >= self.limit - slack


def validate(repetitions: int = REPETITIONS) -> Iterator[Row]:
    """All parts, one row after the other. The same repetitions give the same rows.

    Raises:
        AnalysisError: fewer repetitions than a rate of 5 % needs.
    """
    if repetitions < MIN_REPETITIONS:
        raise AnalysisError(
            f"{repetitions} repetitions cannot tell 5% from 8%",
            f"ask for at least {MIN_REPETITIONS}",
        )
    parts = (coverage, bands, false_verdicts, repeated_looks, methods, power, seeds_saved)
    for part in parts:
        yield from part(repetitions)


def _rng(*key: int) -> np.random.Generator:
    return np.random.default_rng([SEED, *key])


def _rate(
    part: str,
    setting: str,
    quantity: str,
    hits: int,
    of: int,
    limit: float | None = None,
    bound: Literal["at most", "at least"] = "at most",
) -> Row:
    rate = hits / of
    # The error is that at the limit: at a rate of 0 it would be 0.
    at = rate if limit is None else limit
    return Row(part, setting, quantity, rate, float(np.sqrt(at * (1 - at) / of)), limit, bound)


# Coverage


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.normal(0.0, 1.0, shape)


def _skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.lognormal(0.0, 0.8, shape)


def _heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.standard_t(3, shape)


def _counts(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.poisson(2.0, shape).astype(np.float64)


_SHAPES: Mapping[str, tuple[Callable[[np.random.Generator, tuple[int, ...]], Floats], float]] = {
    "normal": (_normal, 0.0),
    "lognormal": (_skewed, 0.0),
    "heavy tails (t, 3 df)": (_heavy, 0.0),
    "ties (counts around 2)": (_counts, 1.0),
}
"""How a run's value is distributed around its seed's, and the step in which it is known."""


def coverage(repetitions: int) -> Iterator[Row]:
    """How often 95 % intervals of a mean paired difference hold the truth, by shape and seeds."""
    for i, (name, (draw, step)) in enumerate(_SHAPES.items()):
        for n in (3, 5, 10, 20, 40):
            rng = _rng(1, i, n)
            own, base = (draw(rng, (repetitions, n)) for _ in range(2))
            # The truth is 0: both sides have the same distribution.
            hits = {"t": 0, "BCa": 0}
            for differences in own - base:
                intervals = {
                    "t": paired_effect(differences, step).interval(),
                    "BCa": bca_interval(differences, resamples=1000),
                }
                for method, interval in intervals.items():
                    assert interval.low is not None
                    assert interval.high is not None
                    hits[method] += interval.low <= 0.0 <= interval.high
            setting = f"{name}, {n} seeds"
            for method, promised in (("t", COVERAGE_PROMISED), ("BCa", None)):
                yield _rate(
                    "coverage", setting, f"{method} interval", hits[method], repetitions,
                    promised, "at least",
                )  # fmt: skip


BAND_PROMISED = 0.92
BAND_POINTS = 20


def bands(repetitions: int) -> Iterator[Row]:
    """How often a 95 % band holds the whole true curve, by seeds and smoothness."""
    points = np.linspace(0, 1, BAND_POINTS)
    for i, reach in enumerate((0.1, 0.3, 1.0)):
        covariance = np.exp(-np.abs(points[:, None] - points) / reach)
        root = np.linalg.cholesky(covariance + 1e-9 * np.eye(BAND_POINTS))
        for n in (3, 5, 10, 20):
            rng = _rng(8, i, n)
            hits = 0
            for _ in range(repetitions):
                values = rng.normal(size=(n, BAND_POINTS)) @ root.T
                band = simultaneous_band(values, draws=200)
                hits += bool(np.all((band.low <= 0) & (band.high >= 0)))
            setting = f"curves of {BAND_POINTS} points, correlation reaches {reach:g}, {n} seeds"
            yield _rate(
                "bands", setting, "simultaneous band", hits, repetitions, BAND_PROMISED, "at least"
            )


# Families of metrics


def _draw_family(
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


def _judge(
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


def false_verdicts(repetitions: int) -> Iterator[Row]:
    """Any false verdict in a family, with and without correction."""
    none, edge = np.zeros(METRIC_COUNT), np.full(METRIC_COUNT, np.log1p(MARGIN.value))
    mixed = np.where(np.arange(METRIC_COUNT) % 2, edge, none)
    cases = (
        ("A/A: no difference", none, "any false 'different'", State.DIFFERENT, LEVEL),
        ("all differ by the margin", edge, "any false 'equivalent'", State.EQUIVALENT, LEVEL),
    )
    for i, (name, truth, quantity, false, limit) in enumerate(cases):
        for n in (5, 10, 20):
            hits = {True: 0, False: 0}
            rng = _rng(2, i, n)
            for _ in range(repetitions):
                variant, baseline = _draw_family(rng, n, truth)
                for corrected in (True, False):
                    hits[corrected] += false in _judge(variant, baseline, corrected=corrected)
            setting = f"{name}, {METRIC_COUNT} metrics, {n} seeds"
            yield _rate(
                "false verdicts", setting, f"{quantity}, Holm", hits[True], repetitions, limit
            )
            yield _rate(
                "false verdicts", setting, f"{quantity}, uncorrected", hits[False], repetitions
            )
    rng = _rng(2, 9)
    false_different = false_equivalent = 0
    for _ in range(repetitions):
        judged = _judge(*_draw_family(rng, 10, mixed))
        false_different += State.DIFFERENT in judged[::2]
        false_equivalent += State.EQUIVALENT in judged[1::2]
    setting = f"half A/A, half at the margin, {METRIC_COUNT} metrics, 10 seeds"
    for quantity, hits_of_kind in (
        ("any false 'different', Holm", false_different),
        ("any false 'equivalent', Holm", false_equivalent),
    ):
        yield _rate("false verdicts", setting, quantity, hits_of_kind, repetitions, LEVEL)


def repeated_looks(repetitions: int) -> Iterator[Row]:
    """Any false verdict at any look, with the sequential method and without."""
    sizes = schedule(BUDGET)
    looks = Looks(sizes, BUDGET)
    edge = float(np.log1p(MARGIN.value))
    cases = (
        ("A/A: no difference", 0.0, "any false 'different'", State.DIFFERENT),
        ("all differ by the margin", edge, "any false 'equivalent'", State.EQUIVALENT),
    )
    for i, (name, ratio, quantity, false) in enumerate(cases):
        rng = _rng(3, i)
        hits = naive = 0
        for _ in range(repetitions):
            variant, baseline = _draw_family(rng, BUDGET, np.full(METRIC_COUNT, ratio))
            # A sequential p-value never rises, so the last look's verdicts hold all earlier ones.
            hits += false in _judge(variant, baseline, looks=looks)
            naive += any(false in _judge(variant[:, :n], baseline[:, :n]) for n in sizes)
        setting = f"{name}, {METRIC_COUNT} metrics, {len(sizes)} looks at 3 to {BUDGET} seeds"
        part = "repeated looks"
        yield _rate(part, setting, f"{quantity}, sequential", hits, repetitions, LEVEL)
        yield _rate(part, setting, f"{quantity}, as if each look were the only one", naive,
                    repetitions)  # fmt: skip


METHOD_BUDGET = 40
METHOD_LEVEL = LEVEL / METRIC_COUNT


def methods(repetitions: int) -> Iterator[Row]:
    """Sequential methods on one sequence of normal differences: error, power, mean seeds.

    Group-sequential t tests that spend their error as t^1, t^2, t^3, and an anytime-valid test, the
    mixture of t statistics over effects N(0, 1) in units of their sd (Wang and Ramdas,
    arXiv:2310.03722). Cheap, so each rate is over twenty times the repetitions.
    """
    times = 20 * repetitions
    sizes = np.array(schedule(METHOD_BUDGET))
    fractions = Looks(tuple(sizes), METHOD_BUDGET).fractions
    for share in (1.0, ALLOWANCE):
        above = _t_paths(_rng(7, 0), times, 0.0, sizes)[0]
        levels = nominal_levels(fractions, [share * LEVEL / 2])[0]
        hits = int(np.sum(np.any((above <= levels) | (1 - above <= levels), axis=1)))
        setting = f"one A/A series, {sizes.size} looks at 3 to {METHOD_BUDGET} seeds"
        quantity = f"false 'different', {share:.0%} of alpha spent"
        yield _rate("methods", setting, quantity, hits, times,
                    LEVEL if share == ALLOWANCE else None)  # fmt: skip
    for i, effect in enumerate((0.5, 1.0, 2.0)):
        above, t = _t_paths(_rng(7, 1 + i), times, effect, sizes)
        rejected = {
            f"spending t^{exponent:g}": above
            <= nominal_levels(fractions, [ALLOWANCE * METHOD_LEVEL / 2], exponent)[0]
            for exponent in (1.0, 2.0, 3.0)
        }
        rejected["anytime-valid mixture"] = _mixture(t, sizes) >= 1 / METHOD_LEVEL
        rejected["only all seeds at once"] = (above <= METHOD_LEVEL / 2) & (sizes == METHOD_BUDGET)
        for name, at_look in rejected.items():
            found = at_look.any(axis=1)
            used = np.where(found, sizes[at_look.argmax(axis=1)], METHOD_BUDGET)
            setting = f"effect {effect:g} sd, level {METHOD_LEVEL:.2%}, {METHOD_BUDGET} seeds"
            yield Row("methods", setting, f"power, {name}", float(found.mean()), 0.0)
            yield Row("methods", setting, f"mean seeds, {name}", float(used.mean()))


def _t_paths(
    rng: np.random.Generator, times: int, effect: float, sizes: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """One-sided p-values and t statistics at each look, each of shape (times, looks)."""
    values = rng.normal(effect, 1.0, (times, int(sizes[-1])))
    mean = values.cumsum(axis=1)[:, sizes - 1] / sizes
    square = (values**2).cumsum(axis=1)[:, sizes - 1]
    sd = np.sqrt((square - sizes * mean**2) / (sizes - 1))
    t: Floats = mean / sd * np.sqrt(sizes)
    return np.asarray(stdtr(sizes - 1, -t), dtype=np.float64), t


def _mixture(t: Floats, sizes: NDArray[np.int64]) -> Floats:
    """The e-process of the t test: effects N(0, 1) in units of sd, sd with the Haar prior."""
    squared = t**2 / (sizes - 1)
    evidence: Floats = np.sqrt(1 / (sizes + 1)) * ((1 + squared) / (1 + squared / (sizes + 1))) ** (
        sizes / 2
    )
    return evidence


def power(repetitions: int) -> Iterator[Row]:
    """How often one of eight metrics gets its true verdict, by seeds."""
    cases = (
        ("no difference", 0.0, State.EQUIVALENT),
        ("5% difference", 0.05, State.DIFFERENT),
        ("10% difference", 0.10, State.DIFFERENT),
        ("20% difference", 0.20, State.DIFFERENT),
    )
    for i, (name, ratio, true) in enumerate(cases):
        for n in (3, 5, 10, 20, 40):
            rng = _rng(4, i, n)
            truth = np.full(METRIC_COUNT, np.log1p(ratio))
            hits = 0
            times = max(1, repetitions // 2)
            for _ in range(times):
                hits += _judge(*_draw_family(rng, n, truth)).count(true)
            share = hits / (times * METRIC_COUNT)
            setting = f"{name}, spread of differences {np.sqrt(2) * RUN_SD:.1%}, {n} seeds"
            yield Row("power", setting, f"share judged {true.value}", share)


# Seeds saved


def _fixed_counts(log_ratio: float, seed_sd: float, run_sd: float) -> tuple[int, int]:
    """Seeds that a fixed design needs, paired and unpaired: power 80 %, eight metrics."""
    level = LEVEL / METRIC_COUNT
    effects = (
        Effect(log_ratio, run_sd * np.sqrt(2 / 2), 1.0, 2),
        # Welch with equal spreads has 2 (n - 1) degrees of freedom.
        Effect(log_ratio, float(np.hypot(seed_sd, run_sd)) * np.sqrt(2 / 2), 2.0, 2),
    )
    paired, unpaired = (count_to_settle(effect, None, level) for effect in effects)
    assert paired is not None
    assert unpaired is not None
    return paired, unpaired


def seeds_saved(repetitions: int) -> Iterator[Row]:
    """Seeds of a fixed unpaired design over those of a paired one and of SEEDS=auto.

    The fixed designs are made for the smallest difference that matters, 5 %, since the true one is
    not known; SEEDS=auto has the fixed paired design's seeds, half as many again, as its budget.
    """
    aimed = float(np.log1p(MARGIN.value))
    for seed_sd in (0.05, 0.15, 0.30):
        paired, unpaired = _fixed_counts(aimed, seed_sd, RUN_SD)
        setting = f"spread over seeds {seed_sd:.0%}, of a run around its seed {RUN_SD:.0%}"
        yield Row("pairing", setting, "seeds, fixed unpaired design", unpaired)
        yield Row("pairing", setting, "seeds, fixed paired design", paired)
        yield Row("pairing", setting, "factor saved by pairing", unpaired / paired)
    paired, unpaired = _fixed_counts(aimed, SEED_SD, RUN_SD)
    budget = round(1.5 * paired)
    sizes = schedule(budget)
    times = max(1, repetitions // 10)
    for i, ratio in enumerate((0.0, 0.05, 0.10, 0.20, 0.40)):
        rng = _rng(5, i)
        used, settled = [], 0
        for _ in range(times):
            variant, baseline = _draw_family(rng, budget, np.full(METRIC_COUNT, np.log1p(ratio)))
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
        return State.UNKNOWN not in _judge(variant[:, :n], baseline[:, :n], looks=looks)

    low, high = -1, len(sizes) - 1
    if not settled(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settled(middle) else (middle, high)
    return sizes[high]


# Real runs


def validate_on_runs(
    statistics: Statistics, level: str, variant: str, repetitions: int = REPETITIONS
) -> Iterator[Row]:
    """A/A on real runs: a variant against itself under other seeds, drawn again and again.

    Each time its runs are put into pairs at random. Then no metric differs, and the families, their
    correlation and the shapes are the real ones. The number of different pairings bounds what few
    seeds can show.

    Raises:
        AnalysisError: fewer than six runs, or no primary metric with a value in each.
    """
    table = list(_primary_values(statistics, level, variant).values())
    counts = {len(values) for values in table}
    if len(counts) != 1 or min(counts) < MIN_RUNS:
        raise AnalysisError(
            f"A/A of {variant} at level {level} takes at least {MIN_RUNS} runs with all primary "
            "metrics",
            "make more seeds of one variant",
        )
    runs = np.array([list(values.values()) for values in table])
    n = runs.shape[1] // 2
    rng = _rng(6)
    hits = naive = 0
    for _ in range(repetitions):
        order = rng.permutation(runs.shape[1])
        sides = runs[:, order[:n]], runs[:, order[n : 2 * n]]
        hits += State.DIFFERENT in _judge(*sides)
        naive += State.DIFFERENT in _judge(*sides, corrected=False)
    setting = f"{variant} at {level}, {len(table)} metrics, {n} pairs of {runs.shape[1]} runs"
    yield _rate("A/A, real runs", setting, "any false 'different', Holm", hits, repetitions, LEVEL)
    yield _rate("A/A, real runs", setting, "any false 'different', uncorrected", naive, repetitions)


def pairing_on_runs(
    statistics: Statistics, level: str, variant: str, baseline: str
) -> Iterator[Row]:
    """What pairing saves in real runs: the median factor over primary metrics, if there are any."""
    own, base = (_primary_values(statistics, level, name) for name in (variant, baseline))
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


def _primary_values(
    statistics: Statistics, level: str, variant: str
) -> dict[tuple[str, str], dict[int, float]]:
    """(class, metric) -> seed -> value, of primary metrics that have a value in every run."""
    found = {}
    for class_name in classes_of(level, statistics):
        for metric in METRICS:
            by_seed = statistics[level, class_name].get((metric.name, variant), {})
            known = {seed: s.value for seed, s in sorted(by_seed.items()) if s.value is not None}
            primary = is_primary(level, statistics, class_name, metric)
            if primary and known and len(known) == len(by_seed):
                found[class_name, metric.name] = known
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


def format_rows(rows: Sequence[Row]) -> str:
    """The rows as a table of plain text."""
    texts = [("part", "data", "quantity", "value", "+-", "promise", "")]
    for row in rows:
        rate = row.error is not None
        texts.append(
            (
                row.part,
                row.setting,
                row.quantity,
                f"{row.value:.1%}" if rate or row.part == "power" else f"{row.value:.3g}",
                f"{row.error:.1%}" if row.error else "",
                "" if row.limit is None else f"{row.bound} {row.limit:.0%}",
                "" if row.limit is None else "holds" if row.holds else "BROKEN",
            )
        )
    widths = [max(len(line[i]) for line in texts) for i in range(7)]
    right = (3, 4)
    lines = [
        "  ".join(
            text.rjust(width) if i in right else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in texts
    ]
    return "\n".join(lines) + "\n"
