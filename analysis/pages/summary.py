"""All metrics of a study's variants and levels, and their CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from analysis.formats.record_files import ParseReport, TraceCounts
from analysis.formats.study import Level, Study, Variant
from analysis.inference.components import Components, components
from analysis.inference.intervals import log_ratios
from analysis.judgement.compared import VariantComparison
from analysis.judgement.estimates import (
    AgainstBaseline,
    Estimate,
    against_baseline,
    estimate,
)
from analysis.judgement.judging import (
    Judgement,
    RunStatistics,
    Statistics,
    find_resolution,
    in_order,
    judge_comparison,
    study_design,
)
from analysis.measures.catalogue import METRICS
from analysis.measures.data import ALL
from analysis.measures.metric import Metric, Quantity, Statistic
from analysis.pages.numbers import (
    exact,
    exact_bounds,
)

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
    """One line of summary.csv and of the report's tables."""

    level: Level
    class_name: str
    metric: Metric
    variant: Variant
    estimate: Estimate
    comparison: AgainstBaseline | None
    judgement: Judgement | None
    baseline_sd: float | None
    own: Mapping[int, Statistic] = field(default_factory=dict)
    base: Mapping[int, Statistic] = field(default_factory=dict)

    @cached_property
    def spread(self) -> Components | None:
        """Variance components between and within networks; None without repeats.

        They are those of the pairs' log ratios if the metric is compared by ratios, else of their
        differences.
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
        """The difference to the baseline in units of the baseline's sd over seeds."""
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
    def notes(self) -> tuple[str, ...]:
        """Reasons for missing numbers, and other caveats."""
        return self.estimate.notes + (self.comparison.notes if self.comparison else ())


def summarise(plan: Study, statistics: Statistics) -> list[SummaryRow]:
    """Return all rows of the summary, by level, class, metric and variant in the study's order."""
    rows = []
    for level in plan.levels:
        judged = _judgements(plan, level, statistics)
        classes = [name for where, name in statistics if where == level.name]
        for class_name in sorted(classes, key=lambda name: _class_order(level, name)):
            class_statistics = statistics[level.name, class_name]
            for metric in METRICS:
                base = class_statistics.get((metric.name, plan.baseline or ""), {})
                base_sd = estimate(base).sd
                for variant in plan.variants:
                    own = class_statistics.get((metric.name, variant.name))
                    if own is None:
                        continue
                    comparison = None
                    judgement = judged.get((variant.name, class_name, metric.name))
                    if plan.baseline is not None and variant.name != plan.baseline:
                        step = _step(metric, class_statistics, (variant.name, plan.baseline))
                        comparison = _as_judged(against_baseline(own, base, step), judgement)
                    rows.append(
                        SummaryRow(
                            level,
                            class_name,
                            metric,
                            variant,
                            estimate(own),
                            comparison,
                            judgement,
                            base_sd,
                            own,
                            base,
                        )
                    )
    return rows


def _step(
    metric: Quantity,
    class_statistics: Mapping[tuple[str, str], Mapping[int, Statistic]],
    variants: tuple[str, str],
) -> float:
    """Return the resolution of a metric in its unit; 0 if unknown."""
    if metric.judged is not None:
        return find_resolution(metric.name, metric.judged, class_statistics, variants)
    return 1.0 if metric.unit == "streams" else 0.0


def _as_judged(comparison: AgainstBaseline, judgement: Judgement | None) -> AgainstBaseline:
    """Replace the interval by that of the verdict, which includes the resolution of the values."""
    effect = None if judgement is None else judgement.verdict.effect
    if judgement is None or effect is None or effect.low is None:
        return comparison
    if judgement.verdict.scale == "ratio":
        return replace(comparison, ratio=effect)
    return replace(comparison, difference=effect)


def _judgements(
    plan: Study, level: Level, statistics: Statistics
) -> dict[tuple[str, str, str], Judgement]:
    """Return (variant, class, metric) -> judgement, for all variants with runs at a level."""
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
    """Return the verdicts on endpoints by level and variant."""
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
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(SUMMARY_COLUMNS)
    for row in rows:
        e, c = row.estimate, row.comparison
        writer.writerow(
            [
                row.level.name,
                row.class_name,
                row.metric.name,
                row.variant.name,
                row.metric.unit,
                *exact_bounds(e.mean),
                e.seeds,
                exact(e.sd),
                exact(e.minimum),
                exact(e.maximum),
                plan.baseline if c else "",
                c.pairs if c else "",
                *exact_bounds(c.difference if c else None),
                *exact_bounds(c.ratio if c else None),
                "; ".join(row.notes),
                *_verdict_columns(row.judgement),
                *exact_bounds(row.spread.between if row.spread else None),
                *exact_bounds(row.spread.within if row.spread else None),
            ]
        )
    return text.getvalue()


def _verdict_columns(judgement: Judgement | None) -> list[str]:
    if judgement is None:
        return [""] * 10
    verdict = judgement.verdict
    return [
        verdict.grade or "",
        verdict.direction,
        "" if judgement.endpoint is None else str(judgement.endpoint + 1),
        "" if verdict.agreeing is None else str(verdict.agreeing),
        exact(verdict.margin),
        exact(verdict.p_different),
        exact(verdict.p_equivalent),
        exact(verdict.detectable),
        "" if verdict.more_networks is None else str(verdict.more_networks),
        "; ".join(part for part in (verdict.reason, verdict.caution) if part),
    ]


def runs_csv(
    plan: Study,
    statistics: RunStatistics,
    reports: Mapping[str, ParseReport],
    traces: Mapping[str, TraceCounts],
) -> str:
    """Return runs.csv, with a line for each run, class and metric.

    The note of a line also lists what was ignored in the logs and traces of its class.

    Args:
        plan: the study.
        statistics: of its runs.
        reports: name of a run -> parse report of its logs.
        traces: name of a run -> counts of its cell traces, for traced runs.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(RUNS_COLUMNS)
    for run in in_order(plan):
        for level_name, class_name in statistics:
            if level_name != run.level:
                continue
            not_counted = reports[run.run_id].not_counted(None if class_name == ALL else class_name)
            if run.run_id in traces:
                damage = traces[run.run_id].not_counted(class_name)
                not_counted = "; ".join(filter(None, (not_counted, damage)))
            for metric in METRICS:
                by_run = statistics[level_name, class_name].get((metric.name, run.variant), {})
                s = by_run.get((run.seed, run.repeat))
                if s is not None:
                    writer.writerow(
                        [
                            run.run_id,
                            run.level,
                            run.variant,
                            run.seed,
                            run.repeat,
                            class_name,
                            metric.name,
                            metric.unit,
                            exact(s.value),
                            not_counted
                            if s.reason in not_counted
                            else "; ".join(filter(None, (s.reason, not_counted))),
                        ]
                    )
    return text.getvalue()
