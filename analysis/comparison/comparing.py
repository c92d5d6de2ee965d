"""Comparison of two sets of runs: the first is the baseline, the second is judged against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain

from analysis.comparison.differences import Differences, differences, settle_about
from analysis.comparison.run_sets import RunSet, SetRun
from analysis.comparison.same_networks import paired_by_network, same_bytes, why_unpaired
from analysis.errors import AnalysisError
from analysis.inference.corrections import endpoint_weights
from analysis.inference.sample_size import shown_from_spreads
from analysis.judgement.estimates import Estimate, estimate
from analysis.judgement.judging import (
    Design,
    Judgement,
    Statistics,
    judge_comparison,
)
from analysis.judgement.verdicts import LEVEL
from analysis.measures.metric import Statistic

A, B = "A", "B"
"""The names of the two sides in statistics, as both may have variants of the same name."""


class Conclusion(IntEnum):
    """The answer as an exit status."""

    NO_REGRESSION = 0
    REGRESSION = 1
    UNSETTLED = 3


@dataclass(frozen=True)
class Match:
    """A level and variant on each side, with its runs.

    Attributes:
        label: text that distinguishes it from the comparison's other matches.
        level_a: level of the baseline.
        variant_a: variant of the baseline.
        level_b: level of the other side.
        variant_b: variant of the other side.
        runs_a: seed -> runs of the baseline, by repeat.
        runs_b: seed -> runs of the other side, by repeat.
    """

    label: str
    level_a: str
    variant_a: str
    level_b: str
    variant_b: str
    runs_a: Mapping[int, Sequence[SetRun]]
    runs_b: Mapping[int, Sequence[SetRun]]


@dataclass(frozen=True)
class MetricRow:
    """One metric of one match."""

    match: Match
    a: Estimate
    b: Estimate
    judgement: Judgement


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        about: the compared aspects; empty if no difference is known.
        identical: all records are byte-identical, so that there is nothing to test.
        paired: whether runs were compared in pairs.
        pairs: number of common networks, over all matches; meaningless for unpaired sets.
        alone: networks without a partner, and other notes on the comparison.
        error_level: probability of any false "shown" among the endpoints of all matches.
    """

    a: RunSet
    b: RunSet
    about: tuple[str, ...]
    found: Differences
    identical: bool
    paired: bool
    pairs: int
    alone: tuple[str, ...]
    error_level: float
    rows: tuple[MetricRow, ...]

    @property
    def endpoints(self) -> list[MetricRow]:
        """The endpoints."""
        return [row for row in self.rows if row.judgement.endpoint is not None]

    @property
    def judged(self) -> list[MetricRow]:
        """The endpoints with enough streams to be judged."""
        return [row for row in self.endpoints if row.judgement.verdict.grade is not None]

    @property
    def regressions(self) -> list[MetricRow]:
        """The endpoints that are shown to be worse."""
        return [row for row in self.judged if row.judgement.regression]

    @property
    def unsettled(self) -> list[MetricRow]:
        """The endpoints for which nothing is shown."""
        return [row for row in self.judged if not row.judgement.verdict.settled]

    @property
    def networks(self) -> int:
        """Minimum over the endpoints of the number of pairs, or of runs on the smaller side."""
        return min((row.judgement.verdict.count for row in self.judged), default=0)

    @property
    def spreads_shown(self) -> float | None:
        """The smallest detectable change of a first endpoint, in standard deviations.

        The standard deviation is that of paired differences. None without two pairs.
        """
        if self.networks < 2 or not self.paired:
            return None
        endpoints = max(Counter(row.match.label for row in self.judged).values())
        level = self.error_level / len({row.match.label for row in self.rows})
        return shown_from_spreads(self.networks, level * endpoint_weights(endpoints)[0])

    @property
    def conclusion(self) -> Conclusion:
        """The exit status: a regression takes precedence over unsettled endpoints."""
        if self.identical:
            return Conclusion.NO_REGRESSION
        if self.regressions:
            return Conclusion.REGRESSION
        return (
            Conclusion.UNSETTLED if self.unsettled or not self.judged else Conclusion.NO_REGRESSION
        )

    @property
    def outcome(self) -> str:
        """The conclusion as a short text."""
        return {
            Conclusion.NO_REGRESSION: "No regression",
            Conclusion.REGRESSION: "Regression",
            Conclusion.UNSETTLED: "Not settled",
        }[self.conclusion]

    @property
    def sentence(self) -> str:
        """The conclusion in one sentence."""
        if self.identical:
            return (
                f"No behavioural change: the records of all {self.pairs} pairs of runs are "
                "byte-identical."
            )
        if not self.judged:
            return "Not settled: the sets have no endpoint in common that can be judged."
        words = Counter(row.judgement.verdict.word for row in self.judged)
        total = ", ".join(f"{n} {word}" for word, n in words.most_common())
        return f"{self.outcome}: of {len(self.judged)} endpoints {total}."


def compare_sets(
    a: RunSet,
    b: RunSet,
    about: Sequence[str] = (),
    error_level: float = LEVEL,
    *,
    pair: bool = True,
) -> Comparison:
    """Compare B with the baseline A.

    Runs are paired by level, variant and seed; a single level or variant on one side is compared
    with the single one on the other. Imports are paired if their networks are the same. Sets
    without a common network or seed are compared as independent samples.

    Args:
        a: the baseline.
        b: the set that is judged.
        about: aspects that may differ; empty: the one that does is detected.
        error_level: probability of any false "shown" over all endpoints of all matches, and of any
            false "same".
        pair: whether to pair runs if possible.

    Raises:
        AnalysisError: other aspects differ as well, or nothing can be compared.
    """
    _require_same_definitions(a, b)
    alone = [*dict.fromkeys(filter(None, (a.scope, b.scope))), *_copies(a, b)]
    paired_sets = paired_by_network(a, b) if pair else None
    if paired_sets is not None:
        a, b = paired_sets
        alone.append(NETWORKS)
    elif pair and (why := why_unpaired(a, b)):
        alone.append(why)
    matches = list(_matches(a, b))
    paired = pair and a.paired and b.paired
    couples: list[tuple[SetRun, SetRun]] = []
    pairs = 0
    for match in matches:
        runs_a, other = match.runs_a, match.runs_b
        common = sorted(set(runs_a) & set(other)) if paired else []
        pairs += len(common)
        for seed in common:
            couples += zip(runs_a[seed], other[seed], strict=False)
        single = sorted(set(runs_a) ^ set(other))
        if paired and common and single:
            where = f" of {match.label}" if len(matches) > 1 else ""
            alone.append(f"networks without a pair{where}: {', '.join(map(str, single))}")
    if not pair:
        alone.append("not paired, as requested: the sets are compared as two independent samples")
    if paired and not couples:
        paired = False
        alone = ["no network in common: the sets are compared as two independent samples"]
    if not paired:
        couples = [
            pair
            for match in matches
            for pair in zip(
                chain(*match.runs_a.values()), chain(*match.runs_b.values()), strict=False
            )
        ]
    found = differences(a, b, couples)
    settled = settle_about(found, about)
    identical = (
        paired
        and len(couples) == len(a.runs) == len(b.runs)
        and all(x.records and x.records == y.records for x, y in couples)
        and not {"time", "load"} & set(found.found)
    )
    share = error_level / len(matches)
    rows = tuple(row for match in matches for row in _judge(a, b, match, paired, share))
    return Comparison(
        a, b, settled, found, identical, paired, pairs, tuple(alone), error_level, rows
    )


NETWORKS = (
    "both sides simulate the same networks, by name or by relay keys, and are therefore paired; "
    "UNPAIRED=1 compares them as independent samples"
)


def _copies(a: RunSet, b: RunSet) -> list[str]:
    same = same_bytes(a, b)
    if not same:
        return []
    return [
        f"warning: {len(same)} simulations of {b.name} are byte-identical to simulations of "
        f"{a.name}, and not independent replicates: {', '.join(same)}"
    ]


def _require_same_definitions(a: RunSet, b: RunSet) -> None:
    if a.definitions != b.definitions:
        raise AnalysisError(
            f"{a.name} and {b.name} use different definitions of metrics "
            f"({a.definitions}, {b.definitions})",
            "compare an import with another import, or this project's runs with its own",
        )
    if a.records_format != b.records_format:
        raise AnalysisError(
            f"the records of {a.name} and {b.name} have different formats "
            f"({a.records_format}, {b.records_format})",
            "extract the older ones again: make analyse NAME=...",
        )


def _matches(a: RunSet, b: RunSet) -> Iterator[Match]:
    levels = _matched("levels", a, b, a.levels, b.levels)
    variants = _matched("variants", a, b, a.variants, b.variants)
    any_runs = False
    for level_a, level_b in levels:
        for variant_a, variant_b in variants:
            runs_a, other = a.runs_of(level_a, variant_a), b.runs_of(level_b, variant_b)
            if runs_a and other:
                any_runs = True
                parts = [
                    level_a if len(levels) > 1 else "",
                    variant_a if len(variants) > 1 else "",
                ]
                label = ", ".join(part for part in parts if part) or level_a
                yield Match(label, level_a, variant_a, level_b, variant_b, runs_a, other)
    if not any_runs:
        raise AnalysisError(f"{a.name} and {b.name} have no level and variant in common")


def _matched(
    noun: str, a: RunSet, b: RunSet, names_a: Sequence[str], names_b: Sequence[str]
) -> list[tuple[str, str]]:
    if len(names_a) == len(names_b) == 1:
        return [(names_a[0], names_b[0])]
    common = [name for name in names_a if name in names_b]
    if not common or len(names_a) == 1 or len(names_b) == 1:
        raise AnalysisError(
            f"{a.name} and {b.name} do not match in their {noun}: "
            f"{', '.join(names_a)} / {', '.join(names_b)}",
            "name one variant on both sides, NAME:VARIANT"
            if noun == "variants"
            else "compare runs of the same experiment",
        )
    return [(name, name) for name in common]


def _judge(
    a: RunSet, b: RunSet, match: Match, paired: bool, error_level: float
) -> Iterator[MetricRow]:
    # Networks differ by more than the sides do, so restrict the means to common networks.
    common_seeds = set(match.runs_a) & set(match.runs_b)
    statistics: Statistics = {}
    for side, run_set, level, variant in (
        (A, a, match.level_a, match.variant_a),
        (B, b, match.level_b, match.variant_b),
    ):
        for (where, class_name), by_metric in run_set.statistics().items():
            if where != level:
                continue
            for (metric, side_variant), by_seed in by_metric.items():
                if side_variant == variant:
                    statistics.setdefault((match.label, class_name), {})[metric, side] = {
                        seed: statistic
                        for seed, statistic in by_seed.items()
                        if seed in common_seeds or not paired
                    }
    design = Design(
        paired=paired,
        error_level=error_level,
        margins=a.margins,
        catalogue=a.catalogue,
        endpoints=[endpoint.key for endpoint in a.endpoints or b.endpoints],
        replicate="repeat" if a.scope and b.scope else "network",
    )
    # Ignore metrics that one side does not measure.
    common = {
        key: {
            (metric, side): by_seed
            for (metric, side), by_seed in by_metric.items()
            if all((metric, other) in by_metric for other in (A, B))
        }
        for key, by_metric in statistics.items()
    }
    statistics = {key: by_metric for key, by_metric in common.items() if by_metric}
    if not statistics:
        raise AnalysisError(f"{a.name} and {b.name} have no statistic of {match.label} in common")
    for judgement in judge_comparison(match.label, statistics, B, A, design):
        class_statistics = statistics[match.label, judgement.class_name]
        own = [class_statistics.get((judgement.metric.name, side), {}) for side in (A, B)]
        if not any(_any_value(values) for values in own) and judgement.endpoint is None:
            continue
        yield MetricRow(match, estimate(own[0]), estimate(own[1]), judgement)


def _any_value(values: Mapping[int, Statistic]) -> bool:
    return any(statistic.value is not None for statistic in values.values())
