"""Values of the report's tables, for the template."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.formats.columns import BYTE_MARKS, Outcome
from analysis.formats.record_files import ParseReport
from analysis.formats.study import Level, Study
from analysis.judgement.estimates import (
    NO_RATIO,
    ONE_PAIR,
    ONE_VALUE,
)
from analysis.judgement.judging import Judgement, study_error_level
from analysis.judgement.verdicts import LEVEL
from analysis.measures.censoring import BiasRow
from analysis.measures.data import ALL
from analysis.measures.durations import TO_LAST_BYTE
from analysis.measures.families import fairness
from analysis.pages.numbers import (
    NOTHING,
    format_effect,
    format_interval,
    format_number,
    readable_unit,
    scaled,
)
from analysis.pages.summary import SummaryRow
from analysis.pages.table_sort_keys import table_sort_keys


def _table_row(row: SummaryRow, scale: str) -> dict[str, Any]:
    """Return a row for the template; scale: on which the table compares its metric, "" if not."""
    factor, unit = readable_unit(row.metric.unit)
    mean = scaled(row.estimate.mean_for(scale), factor)
    against = row.comparison
    found = None if against is None else getattr(against, row.scale)
    effect, effect_interval = format_effect(found, row.scale, row.metric.unit)
    # Notes that would be in every row, or are obvious, are only in summary.csv.
    notes = row.notes if mean else row.estimate.notes
    note = "; ".join(note for note in notes if note not in (ONE_VALUE, ONE_PAIR, NO_RATIO))
    return {
        "metric": row.metric,
        "has_mean": mean is not None,
        "unit": unit,
        "class_name": row.class_name,
        "variant": row.variant,
        "is_baseline": row.comparison is None,
        "mean": format_number(mean.estimate) if mean else NOTHING,
        "mean_interval": format_interval(mean),
        "sd": format_number(None if row.estimate.sd is None else row.estimate.sd * factor),
        "effect": effect,
        "effect_interval": effect_interval,
        "in_spreads": _in_spreads(row),
        **table_sort_keys(row.metric, row.class_name, row.judgement),
        "verdict": _verdict_text(row.judgement),
        "endpoint": row.judgement is not None and row.judgement.endpoint is not None,
        "note": note,
    }


def _verdict_text(judgement: Judgement | None) -> tuple[str, str]:
    """Return a verdict for readers, and a note on it."""
    if judgement is None:
        return NOTHING, ""
    verdict = judgement.verdict
    # The previous column contains the difference, so its size is not repeated.
    known = "; ".join(filter(None, (verdict.more, verdict.reason, verdict.caution)))
    return verdict.word, known


def earlier_looks_note(plan: Study) -> str:
    """Return a note on earlier looks at the runs and their effect on the error rate; "" if none."""
    if plan.looks is None or not plan.looks.judging_plans:
        return ""
    past = [str(size) for looks in plan.looks.judging_plans for size in looks.sizes]
    level = 100 * study_error_level(plan)
    words = f"These runs were analysed before, with {', '.join(past)} networks."
    if level > 100 * LEVEL:
        return (
            f"{words} The first look spent the whole error rate of {100 * LEVEL:g}%; over all "
            f"looks it is {level:.2g}%."
        )
    return f"{words} The error rate of {100 * LEVEL:g}% holds over all looks."


def _in_spreads(row: SummaryRow) -> str:
    if row.in_spreads is None:
        return NOTHING
    return f"{row.in_spreads:+.1f}".replace("-", "\N{MINUS SIGN}")


def _table(rows: Iterable[SummaryRow]) -> dict[str, Any]:
    """Group rows by class and metric, and separate those with nothing to compare.

    groups: rows by metric; without: reason -> labels of metrics.
    """
    groups: dict[tuple[str, str], list[SummaryRow]] = {}
    for row in rows:
        groups.setdefault((row.class_name, row.metric.name), []).append(row)
    shown = []
    without: dict[str, list[str]] = {}
    for group in groups.values():
        reason = _nothing(group)
        if reason:
            class_suffix = "" if group[0].class_name == ALL else f" ({group[0].class_name})"
            without.setdefault(reason, []).append(f"{group[0].metric.label}{class_suffix}")
        else:
            shown.append([_table_row(row, _scale(group)) for row in group])
    return {"groups": shown, "without": without}


def _nothing(group: Sequence[SummaryRow]) -> str:
    """Return why a metric's rows have no content; "" if they have."""
    if all(row.estimate.mean is None for row in group):
        reasons = list(dict.fromkeys("; ".join(row.estimate.notes) for row in group))
        if len(reasons) == 1:
            return f"Not given, {reasons[0]}"
        each = (f"{row.variant.label}: {'; '.join(row.estimate.notes)}" for row in group)
        return f"Not given, {'; '.join(each)}"
    if all(row.estimate.minimum == row.estimate.maximum == 0.0 for row in group):
        verdicts = dict.fromkeys(_verdict_text(row.judgement) for row in group if row.judgement)
        each = ("; ".join(filter(None, words)) for words in verdicts)
        return "; ".join(["0 in all runs", *filter(None, each)])
    return ""


def _scale(group: Iterable[SummaryRow]) -> str:
    """Return the scale on which a metric's variants are compared: ratios if any of them is."""
    scales = {row.scale for row in group}
    return next((scale for scale in ("ratio", "difference") if scale in scales), "")


def spread_rows(plan: Study, rows: list[SummaryRow]) -> list[dict[str, Any]]:
    """Return the spread of headline metrics between and within networks, row by row."""
    found = []
    for row in rows:
        if row.spread is None or row.judgement is None or not _is_headline(row.level, row):
            continue
        factor, unit = readable_unit(row.metric.unit)
        if row.scale == "ratio":
            factor, unit = 1.0, "log ratio"
        between, within = (scaled(one, factor) for one in (row.spread.between, row.spread.within))
        found.append(
            {
                "level": plan.label(row.level),
                "metric": row.metric.label,
                "class_name": "" if row.class_name == ALL else row.class_name,
                "variant": row.variant,
                "unit": "points" if unit == "%" else unit,
                "between": format_number(between.estimate) if between else NOTHING,
                "between_interval": format_interval(between),
                "within": format_number(within.estimate) if within else NOTHING,
                "within_interval": format_interval(within),
            }
        )
    return found


def network_rows(plan: Study) -> list[dict[str, Any]]:
    """Return the distribution of the networks' capacities, with identical networks in one row."""
    found = []
    for level in plan.levels:
        grouped: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for seed, role_capacities in sorted(plan.networks.get(level.name, {}).items()):
            roles = tuple(
                (role, f"{100 * one.limited:.0f}%, {100 * one.largest:.0f}%")
                for role, one in role_capacities.items()
            )
            grouped.setdefault(roles, []).append(seed)
        found += [
            {
                "level": plan.label(level),
                "seeds": ", ".join(map(str, seeds)),
                "roles": dict(roles),
            }
            for roles, seeds in grouped.items()
        ]
    return found


def scope_note(plan: Study) -> str:
    """Return the scope of the verdicts of a study of one network with repeats; "" for others."""
    if len(plan.networks_run) != 1 or plan.repeats < 2:
        return ""
    if plan.scope == "one-network":
        return (
            f"verdicts are about what happens in this network (network {plan.networks_run[0]}), "
            f"over its {plan.repeats} repeats"
        )
    return (
        f"there is one network with {plan.repeats} repeats, and verdicts are about networks; with "
        "scope: one-network in the experiment's file they are about this network"
    )


def level_tables(plan: Study, rows: list[SummaryRow]) -> list[dict[str, Any]]:
    """Return the headline table, the fairness table, and a table per class for each level."""
    tables = []
    for level in plan.levels:
        own = [row for row in rows if row.level.name == level.name]
        kept = [row for row in own if not _repeats_incidence(row, own)]
        headline = [row for row in own if _is_headline(level, row)]
        headline.sort(key=lambda row: row.class_name != ALL)
        tables.append(
            {
                "level": level,
                "headline": _table(headline),
                "fairness": _table(row for row in own if row.metric in fairness.METRICS),
                "classes": [
                    {"name": name, "table": _table(row for row in kept if row.class_name == name)}
                    for name in dict.fromkeys(row.class_name for row in kept)
                ],
            }
        )
    return tables


def _repeats_incidence(row: SummaryRow, rows: list[SummaryRow]) -> bool:
    """Return whether a Kaplan-Meier metric equals the incidence for all variants."""
    if not row.metric.without_failures:
        return False
    names = (row.metric.name, row.metric.without_failures)
    km, incidence = (
        {
            r.variant.name: (r.estimate.mean, r.notes)
            for r in rows
            if (r.class_name, r.metric.name) == (row.class_name, name)
        }
        for name in names
    )
    return km == incidence


def _is_headline(level: Level, row: SummaryRow) -> bool:
    """Return whether a row is in the first table: the paper's metrics, and bulk download times."""
    if not row.metric.headline or (row.class_name == ALL) != (row.metric.scope == "both"):
        return False
    load = level.classes.get(row.class_name)
    if load is None or load.request_bytes is None:
        return True
    # For a stream of exactly 320 KiB, the last byte is that of the 320 KiB; a larger one has no
    # time to 320 KiB at TGen's usual log level.
    small = load.request_bytes in BYTE_MARKS.values()
    return (row.metric.duration == TO_LAST_BYTE) != small


def bias_row(row: BiasRow) -> dict[str, Any]:
    """Return the bias of the distribution of finished streams, for the template."""
    return {
        "level": row.level,
        "class_name": row.class_name,
        "label": row.duration.label,
        "variant": row.variant,
        "missing": f"{row.failed_share:.1%}, {row.censored_share:.1%}",
        "quantiles": [
            (format_number(naive), format_number(incidence))
            for naive, incidence in zip(
                row.quantiles["naive"], row.quantiles["incidence"], strict=True
            )
        ],
        "distance": f"{100 * row.distance:.1f}",
    }


def parse_tables(plan: Study, reports: Mapping[str, ParseReport]) -> dict[str, Any]:
    """Return counts of the parsed logs, and what was ignored."""
    total = {
        name: sum(getattr(report, name) for report in reports.values())
        for name in (
            *("files", "bytes", "lines", "heartbeat_lines", "stream_lines", "status_lines"),
            *("other_lines", "malformed_lines", "truncated_files", "passive_streams"),
        )
    }
    clients: Counter[str] = Counter()
    streams: dict[str, Counter[str]] = {}
    for report in reports.values():
        clients.update(report.clients)
        for class_name, outcomes in report.streams.items():
            streams.setdefault(class_name, Counter()).update(outcomes)
    problems = [
        (run_id, problem) for run_id, report in reports.items() for problem in report.problems
    ]
    return {
        "total": total,
        "lost": sum(problem.lost_streams for _, problem in problems),
        "classes": [
            (name, count, [(o.value, n) for o in Outcome if (n := streams[name][o.value])])
            for name, count in sorted(clients.items())
            if name in streams
        ],
        "not_counted": [
            (run_id, text) for run_id, report in reports.items() if (text := report.not_counted())
        ],
        "problems": problems[:50],
        "more": max(0, len(problems) - 50),
    }
