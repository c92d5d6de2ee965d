"""Comparison of two sets of runs: the first is the baseline, the second is judged against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from analysis.comparison.differences import Differences, differences, settle_about
from analysis.comparison.pairing import Match, copies_note, find_matches, pair_imports
from analysis.comparison.run_sets import RunSet
from analysis.errors import AnalysisError
from analysis.inference.corrections import endpoint_weights
from analysis.inference.sample_size import shown_from_spreads
from analysis.inference.sequential import spending
from analysis.judgement.estimates import Estimate, Statistics, estimate
from analysis.judgement.judging import Design, Judgement, judge_comparison
from analysis.judgement.verdicts import LEVEL, Grade

A, B = "A", "B"
"""The names of the two sides in statistics. Names of variants may occur on both sides."""


class Conclusion(IntEnum):
    """The answer of a comparison, as an exit status."""

    NO_REGRESSION = 0
    REGRESSION = 1
    UNSETTLED = 3


OUTCOMES = {
    Conclusion.NO_REGRESSION: "No regression",
    Conclusion.REGRESSION: "Regression",
    Conclusion.UNSETTLED: "Not settled",
}


@dataclass(frozen=True)
class MetricRow:
    """One metric of one ``Match``: the estimates of both sides, and the judgement."""

    match: Match
    a: Estimate
    b: Estimate
    judgement: Judgement


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        about: the aspects (keys of ``ASPECTS``) in which the sets may differ; empty if the user
            named no aspect and no difference is known.
        found: all differences between the inputs.
        recorded: whether any run has a record of its inputs.
        identical: whether there is nothing to test: all runs form pairs, and both runs of each pair
            have byte-identical records and the same load, length and measured span.
        pairs: number of common networks, summed over the matches; 0 for unpaired sets.
        notes: networks without a partner, and other notes on the comparison.
        error_level: probability that any endpoint of any match is falsely graded "shown" (to
            differ).
        rows: all metrics of all matches.
    """

    a: RunSet
    b: RunSet
    about: tuple[str, ...]
    found: Differences
    recorded: bool
    identical: bool
    paired: bool
    pairs: int
    notes: tuple[str, ...]
    error_level: float
    rows: tuple[MetricRow, ...]

    @property
    def endpoints(self) -> list[MetricRow]:
        """The rows of the endpoints."""
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
    def suggested_regressions(self) -> list[MetricRow]:
        """The endpoints for which a deterioration is suggested, but not shown."""
        return [
            row
            for row in self.judged
            if row.judgement.verdict.grade is Grade.SUGGESTED
            and row.judgement.verdict.direction == "worse"
        ]

    @property
    def unsettled(self) -> list[MetricRow]:
        """The endpoints for which neither a difference nor equivalence is shown."""
        return [row for row in self.judged if not row.judgement.verdict.settled]

    @property
    def networks(self) -> int:
        """The smallest number of networks that any judged endpoint has.

        For unpaired sets, only the side with fewer networks counts.
        """
        return min((row.judgement.verdict.count for row in self.judged), default=0)

    @property
    def spreads_shown(self) -> float | None:
        """The smallest detectable change, in standard deviations of the paired differences.

        It applies to the first endpoint of each match. The result is None if the sets
        are not paired, or if an endpoint has fewer than two pairs.
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
        return OUTCOMES[self.conclusion]

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
        text = f"{self.outcome}: of {len(self.judged)} endpoints {total}."
        # Several matches can have the same endpoint, so drop repetitions.
        unjudged = dict.fromkeys(
            f"{j.metric.label} ({j.class_name}): {j.verdict.reason}"
            for j in (row.judgement for row in self.endpoints)
            if j.verdict.grade is None
        )
        return text + (f" Not judged: {'; '.join(unjudged)}." if unjudged else "")


def compare_sets(
    a: RunSet,
    b: RunSet,
    about: Sequence[str] = (),
    error_level: float = LEVEL,
    *,
    pair: bool = True,
) -> Comparison:
    """Compare B with the baseline A.

    Runs are paired by level, variant and seed. If each side has only one level, or only one
    variant, their names may differ. Imports are paired if they simulate the same networks
    (``pair_imports``). Sets without a common network are compared as independent samples.

    Args:
        a: the baseline.
        b: the set that is judged.
        about: aspects that may differ; if empty, the aspect that differs is detected.
        error_level: probability that any endpoint of any match is falsely graded "shown" (to
            differ), and also that any is falsely graded "same" (equivalent).
        pair: whether to pair runs if possible.

    Raises:
        AnalysisError: an aspect is unknown; the sets differ in an aspect that is not in ``about``
            or, if ``about`` is empty, in more than one aspect; their metrics have different
            definitions; their records have different formats; or nothing can be compared.
    """
    _require_same_definitions(a, b)
    notes = [a.scope, b.scope, copies_note(a, b)]
    if pair:
        a, b, note = pair_imports(a, b)
        notes.append(note)
    matches = find_matches(a, b)
    paired = pair and a.paired and b.paired
    if paired and not any(match.common_seeds for match in matches):
        paired = False
        independent = "no network in common: the sets are compared as two independent samples"
        notes = [a.scope, b.scope, independent]
    for match in matches if paired else ():
        if match.common_seeds and match.single_seeds:
            where = f" of {match.label}" if len(matches) > 1 else ""
            seeds = ", ".join(map(str, match.single_seeds))
            notes.append(f"networks without a pair{where}: {seeds}")
    if not pair:
        notes.append("not paired, as requested: the sets are compared as two independent samples")
    couples = [couple for match in matches for couple in match.couples(paired=paired)]
    found = differences(a, b, couples)
    return Comparison(
        a,
        b,
        settle_about(found, about),
        found,
        recorded=any(run.files or run.engine or run.tor for couple in couples for run in couple),
        identical=paired
        and len(couples) == len(a.runs) == len(b.runs)
        and all(x.records and x.records == y.records for x, y in couples)
        and not {"time", "load"} & set(found),
        paired=paired,
        pairs=sum(len(match.common_seeds) for match in matches) if paired else 0,
        notes=tuple(dict.fromkeys(filter(None, notes))),
        error_level=error_level,
        rows=tuple(
            row
            for match in matches
            for row in _judge(a, b, match, paired, error_level / len(matches))
        ),
    )


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


def _judge(
    a: RunSet, b: RunSet, match: Match, paired: bool, error_level: float
) -> Iterator[MetricRow]:
    own, other = (
        {
            (class_name, metric): by_seed
            for (level, class_name), by_metric in run_set.statistics().items()
            for (metric, variant), by_seed in by_metric.items()
            if (level, variant) == place
        }
        for run_set, place in (
            (a, (match.level_a, match.variant_a)),
            (b, (match.level_b, match.variant_b)),
        )
    )
    statistics: Statistics = {}
    common = set(match.common_seeds)
    for class_name, metric in own:
        # Ignore metrics that one side does not measure.
        if (class_name, metric) in other:
            for side, by_place in ((A, own), (B, other)):
                # Networks differ by more than the sides do, so restrict means to common networks.
                statistics.setdefault((match.label, class_name), {})[metric, side] = {
                    seed: statistic
                    for seed, statistic in by_place[class_name, metric].items()
                    if seed in common or not paired
                }
    if not statistics:
        raise AnalysisError(f"{a.name} and {b.name} have no statistic of {match.label} in common")
    looks = a.looks if paired and a.looks == b.looks else None
    if looks is not None:
        # If networks were added after an ordinary test, the error rate over all interim analyses
        # (looks) exceeds the requested one. Reduce the level by this factor.
        error_level /= spending(looks.plans).excess
    design = Design(
        paired=paired,
        error_level=error_level,
        margins=a.margins,
        catalogue=a.catalogue,
        endpoints=[endpoint.key for endpoint in a.endpoints or b.endpoints],
        looks=looks,
        replicate="repeat" if a.scope and b.scope else "network",
    )
    for judgement in judge_comparison(match.label, statistics, B, A, design):
        by_side = statistics[match.label, judgement.class_name]
        sides = [by_side.get((judgement.metric.name, side), {}) for side in (A, B)]
        known = (one.value is not None for by_seed in sides for one in by_seed.values())
        if judgement.endpoint is not None or any(known):
            yield MetricRow(match, estimate(sides[0]), estimate(sides[1]), judgement)
