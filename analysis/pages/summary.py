"""All metrics of a study's variants and levels, and their CSV files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analysis.formats.csv_tables import csv_text
from analysis.formats.record_files import ParseReport, TraceCounts
from analysis.formats.study import Level, Study, Variant
from analysis.inference.components import Components, components
from analysis.inference.intervals import Interval, log_ratios
from analysis.judgement.compared import VariantComparison, interval_record, judgement_record
from analysis.judgement.estimates import (
    NO_RATIO,
    ONE_PAIR,
    ONE_VALUE,
    AgainstBaseline,
    Estimate,
    RunStatistics,
    Statistics,
    against_baseline,
    estimate,
    in_order,
)
from analysis.judgement.judging import Judgement, find_resolution, judge_comparison, study_design
from analysis.measures.catalogue import METRICS
from analysis.measures.data import ALL
from analysis.measures.metric import Metric, Quantity, Statistic
from analysis.pages.numbers import NOTHING

SUMMARY_COLUMNS = (
    "level", "class", "metric", "variant", "unit",
    "estimate", "low", "high", "seeds", "sd", "minimum", "maximum",
    "baseline", "pairs", "diff", "diff_low", "diff_high", "ratio", "ratio_low", "ratio_high",
    "note",
    "grade", "direction", "endpoint", "agreeing", "margin", "p_different", "p_equivalent",
    "detectable", "more_networks", "grade_note",
    "sd_between", "sd_between_low", "sd_between_high",
    "sd_within", "sd_within_low", "sd_within_high",
)  # fmt: skip

RUNS_COLUMNS = (
    *("run_id", "level", "variant", "seed", "repeat"),
    *("class", "metric", "unit", "value", "note"),
)
"""The columns of runs.csv."""


@dataclass(frozen=True)
class SummaryRow:
    """One line of summary.csv and of the report's tables.

    ``estimate`` has the arithmetic mean, for summary.csv, and ``shown_mean`` is the mean for the
    report. ``own`` and ``base`` map networks to the statistics of the variant and of the baseline.
    """

    level: Level
    class_name: str
    metric: Metric
    variant: Variant
    estimate: Estimate
    shown_mean: Interval | None
    comparison: AgainstBaseline | None
    judgement: Judgement | None
    baseline_sd: float | None
    own: Mapping[int, Statistic]
    base: Mapping[int, Statistic]

    @cached_property
    def spread(self) -> Components | None:
        """Standard deviations of the effect between and within networks.

        The effect is the log ratio of a pair if the metric is compared by ratios, and otherwise the
        difference of a pair. None if the deviations cannot be estimated, such as without repeats.
        """
        if self.comparison is None or getattr(self.comparison, self.scale) is None:
            return None
        pairs = [
            (self.own[seed].repeats, self.base[seed].repeats)
            for seed in sorted(self.own.keys() & self.base.keys())
        ]
        if not pairs or any(len(own) != len(base) or not own for own, base in pairs):
            return None
        if self.scale == "difference":
            return components([np.subtract(own, base) for own, base in pairs])
        if min(value for pair in pairs for side in pair for value in side) <= 0:
            return None
        return components([log_ratios(own, base) for own, base in pairs])

    @property
    def in_spreads(self) -> float | None:
        """The difference to the baseline, divided by the baseline's sd over networks."""
        if self.comparison is None or self.comparison.difference is None or not self.baseline_sd:
            return None
        return self.comparison.difference.estimate / self.baseline_sd

    @property
    def scale(self) -> str:
        """Scale of the comparison with the baseline: "ratio" or "difference"; "" without one."""
        if self.comparison is None:
            return ""
        if self.judgement is not None and self.judgement.verdict.effect is not None:
            return self.judgement.verdict.scale
        return "ratio" if self.comparison.ratio else "difference"

    @property
    def effect(self) -> Interval | None:
        """The ratio to, or the difference from, the baseline; ``scale`` says which."""
        return None if self.comparison is None else getattr(self.comparison, self.scale)

    @property
    def notes(self) -> tuple[str, ...]:
        """Reasons for missing numbers, and other caveats."""
        return self.estimate.notes + (self.comparison.notes if self.comparison else ())

    @property
    def shown_note(self) -> str:
        """The notes that a table shows, in one string.

        The table omits the notes on a single value, on a single pair and on a missing ratio, which
        are obvious. If there is no mean, the table also omits the notes on the comparison.
        """
        notes = self.notes if self.estimate.mean else self.estimate.notes
        return "; ".join(note for note in notes if note not in (ONE_VALUE, ONE_PAIR, NO_RATIO))

    @property
    def verdict_text(self) -> tuple[str, str]:
        """The verdict in words, and a note on it."""
        if self.judgement is None:
            return NOTHING, ""
        verdict = self.judgement.verdict
        note = "; ".join(filter(None, (verdict.more, verdict.reason, verdict.caution)))
        return verdict.word, note


def summarise(plan: Study, statistics: Statistics) -> list[SummaryRow]:
    """Return all rows of the summary, ordered by level, class, metric and variant of the study.

    If any row of a metric is compared by a ratio, all show the geometric mean. A row without a
    geometric mean shows the arithmetic one.
    """
    rows = []
    for level in plan.levels:
        judged = _judgements(plan, level, statistics)
        classes = [name for where, name in statistics if where == level.name]
        for class_name in sorted(classes, key=lambda name: _class_order(level, name)):
            own = statistics[level.name, class_name]
            for metric in METRICS:
                found = [
                    _row(plan, level, class_name, metric, variant, own, judged)
                    for variant in plan.variants
                    if (metric.name, variant.name) in own
                ]
                if any(row.scale == "ratio" for row in found):
                    found = [
                        replace(row, shown_mean=row.estimate.mean_for("ratio")) for row in found
                    ]
                rows += found
    return rows


def _row(
    plan: Study,
    level: Level,
    class_name: str,
    metric: Metric,
    variant: Variant,
    statistics: Mapping[tuple[str, str], Mapping[int, Statistic]],
    judged: Mapping[tuple[str, str, str], Judgement],
) -> SummaryRow:
    own = statistics[metric.name, variant.name]
    base = statistics.get((metric.name, plan.baseline or ""), {})
    comparison = None
    judgement = judged.get((variant.name, class_name, metric.name))
    if plan.baseline is not None and variant.name != plan.baseline:
        step = _step(metric, statistics, (variant.name, plan.baseline))
        comparison = _as_judged(against_baseline(own, base, step), judgement)
    found, base_sd = estimate(own), estimate(base).sd
    place = (level, class_name, metric, variant)
    return SummaryRow(*place, found, found.mean, comparison, judgement, base_sd, own, base)


def _step(
    metric: Quantity,
    class_statistics: Mapping[tuple[str, str], Mapping[int, Statistic]],
    variants: tuple[str, str],
) -> float:
    """Return the rounding step of a metric's values, in the metric's unit; 0 if unknown."""
    if metric.judged is not None:
        return find_resolution(metric.name, metric.judged, class_statistics, variants)
    return 1.0 if metric.unit == "streams" else 0.0


def _as_judged(comparison: AgainstBaseline, judgement: Judgement | None) -> AgainstBaseline:
    """Use the verdict's interval if it has one, so that all tables show the same interval."""
    verdict = judgement.verdict if judgement else None
    if verdict is None or verdict.effect is None or verdict.effect.low is None:
        return comparison
    if verdict.scale == "ratio":
        return replace(comparison, ratio=verdict.effect)
    return replace(comparison, difference=verdict.effect)


def _judgements(
    plan: Study, level: Level, statistics: Statistics
) -> dict[tuple[str, str, str], Judgement]:
    """Return the judgements against the baseline of all variants that have runs.

    The keys are (variant, class, metric). The result is empty if the baseline has no runs at the
    level.
    """
    present = {run.variant for run in plan.runs if run.level == level.name}
    if plan.baseline not in present:
        return {}
    return {
        (variant.name, judgement.class_name, judgement.metric.name): judgement
        for variant in plan.variants
        if variant.name in present and variant.name != plan.baseline
        for judgement in judge_comparison(
            level.name, statistics, variant.name, plan.baseline, study_design(plan)
        )
    }


def endpoint_comparisons(plan: Study, rows: Iterable[SummaryRow]) -> list[VariantComparison]:
    """Return the verdicts on endpoints, with one comparison for each level and variant."""
    labels = {variant.name: variant.label for variant in plan.variants}
    where = {level.name: plan.label(level) if len(plan.levels) > 1 else "" for level in plan.levels}
    # Use names, which are unique, as several variants may have the same label.
    by_place: dict[tuple[str, str], list[Judgement]] = {}
    for row in rows:
        if row.judgement is not None and row.judgement.endpoint is not None:
            place = row.level.name, row.variant.name
            by_place.setdefault(place, []).append(row.judgement)
    return [
        VariantComparison(
            where[level],
            labels[who],
            labels[plan.baseline or ""],
            tuple(sorted(found, key=lambda judgement: judgement.endpoint or 0)),
            (level, who),
        )
        for (level, who), found in by_place.items()
    ]


def _class_order(level: Level, class_name: str) -> tuple[int, str]:
    known = [*level.classes, ALL]
    return (known.index(class_name) if class_name in known else len(known), class_name)


def summary_csv(plan: Study, rows: Iterable[SummaryRow]) -> str:
    """Return summary.csv, with a line for each row."""
    return csv_text((_summary_record(plan, row) for row in rows), SUMMARY_COLUMNS)


def _summary_record(plan: Study, row: SummaryRow) -> dict[str, object]:
    e, c, spread = row.estimate, row.comparison, row.spread
    record = {} if row.judgement is None else judgement_record(row.judgement)
    return {
        **record,
        "grade_note": record.get("note"),
        "level": row.level.name,
        "class": row.class_name,
        "metric": row.metric.name,
        "variant": row.variant.name,
        "unit": row.metric.unit,
        "seeds": e.seeds,
        "sd": e.sd,
        "minimum": e.minimum,
        "maximum": e.maximum,
        "baseline": plan.baseline if c else None,
        "pairs": c.pairs if c else None,
        "note": "; ".join(row.notes),
        **interval_record(e.mean, ("estimate", "low", "high")),
        **interval_record(c.difference if c else None, ("diff", "diff_low", "diff_high")),
        **interval_record(c.ratio if c else None, ("ratio", "ratio_low", "ratio_high")),
        **interval_record(
            spread.between if spread else None, ("sd_between", "sd_between_low", "sd_between_high")
        ),
        **interval_record(
            spread.within if spread else None, ("sd_within", "sd_within_low", "sd_within_high")
        ),
    }


def runs_csv(
    plan: Study,
    statistics: RunStatistics,
    reports: Mapping[str, ParseReport],
    traces: Mapping[str, TraceCounts],
) -> str:
    """Return runs.csv, with a line for each run, class and metric.

    The note of a line also lists what was ignored in the logs and traces of its class.

    reports, traces: name of a run -> parse report of its logs, and counts of its cell traces.
    """
    rows = []
    for run in in_order(plan):
        for class_name in (name for level, name in statistics if level == run.level):
            ignored = reports[run.run_id].not_counted(None if class_name == ALL else class_name)
            if run.run_id in traces:
                ignored = _joined(ignored, traces[run.run_id].not_counted(class_name))
            own = statistics[run.level, class_name]
            for metric in METRICS:
                s = own.get((metric.name, run.variant), {}).get((run.seed, run.repeat))
                if s is not None:
                    note = ignored if s.reason in ignored else _joined(s.reason, ignored)
                    of_metric = {"metric": metric.name, "unit": metric.unit}
                    number = {"value": s.value, "note": note}
                    rows.append({**vars(run), "class": class_name, **of_metric, **number})
    return csv_text(rows, RUNS_COLUMNS)


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))
