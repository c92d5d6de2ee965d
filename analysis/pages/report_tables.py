"""What the report's tables show, as its template takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from analysis.formats.record_files import ParseReport
from analysis.formats.study import Level, Study
from analysis.judgement.estimates import (
    NO_RATIO,
    ONE_PAIR,
    ONE_SEED,
)
from analysis.judgement.judging import Judgement, level_of, seeds_left
from analysis.judgement.verdicts import LEVEL, State, tally
from analysis.measures.censoring_table import BiasRow
from analysis.measures.data import ALL
from analysis.measures.durations import TO_LAST_BYTE
from analysis.measures.families import fairness
from analysis.pages.numbers import (
    NOTHING,
    format_interval,
    format_number,
    readable_unit,
    scaled,
)
from analysis.pages.summary import SummaryRow
from analysis.records.tgenlog import TARGET_BYTES


def _table_row(row: SummaryRow) -> dict[str, Any]:
    factor, unit = readable_unit(row.metric.unit)
    mean = scaled(row.estimate.mean, factor)
    difference = scaled(row.comparison.difference if row.comparison else None, factor)
    ratio = row.comparison.ratio if row.comparison else None
    # What would stand in every row, or is plain to see, is left to summary.csv.
    notes = row.notes if mean else row.estimate.notes
    note = "; ".join(note for note in notes if note not in (ONE_SEED, ONE_PAIR, NO_RATIO))
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
        "difference": format_number(difference.estimate, sign=True) if difference else NOTHING,
        "difference_interval": format_interval(difference, sign=True),
        "ratio": f"{ratio.estimate:.3f}" if ratio else NOTHING,
        "in_spreads": _in_spreads(row),
        "verdict": _verdict_text(row.judgement),
        "primary": row.judgement is not None and row.judgement.primary,
        "note": note,
    }


def _verdict_text(judgement: Judgement | None) -> tuple[str, str]:
    """A verdict for readers, and what else to know about it."""
    if judgement is None:
        return NOTHING, ""
    verdict = judgement.verdict
    if verdict.more_seeds is not None:
        seeds = "seed" if verdict.more_seeds == 1 else "seeds"
        more = f"about {verdict.more_seeds} more {seeds}"
        return verdict.state.value, "; ".join(filter(None, (more, verdict.caution)))
    # The column before has the difference, so its size need not be told again.
    known = "; ".join(filter(None, (verdict.reason, verdict.caution)))
    return verdict.direction or verdict.state.value, known


def looks_before(plan: Study) -> str:
    """How often the runs were looked at under earlier plans, and what that costs; "" if not."""
    if plan.looks is None or not plan.looks.earlier:
        return ""
    past = [str(size) for looks in plan.looks.earlier for size in looks.sizes]
    level = 100 * level_of(plan)
    words = f"These runs were looked at before, with {', '.join(past)} seeds."
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


def _groups(rows: Iterable[SummaryRow]) -> list[list[dict[str, Any]]]:
    """Rows of one class and metric together, as the tables show them."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row.class_name, row.metric.name), []).append(_table_row(row))
    return list(groups.values())


def _informative(group: list[SummaryRow]) -> bool:
    """Whether a counting metric counted anything; kinds of errors that never came are left out."""
    return any(r.estimate.maximum != 0.0 or not r.metric.of_outcome for r in group)


def tallies(plan: Study, rows: list[SummaryRow]) -> list[dict[str, Any]]:
    """How many primary metrics got which verdict, for each level and variant."""
    found = []
    for level in plan.levels:
        for variant in plan.variants:
            judgements = [
                row.judgement
                for row in rows
                if row.judgement is not None
                and row.judgement.primary
                and (row.level.name, row.variant.name) == (level.name, variant.name)
            ]
            judged = [judgement.verdict for judgement in judgements]
            if judged:
                counts = tally(judged)
                found.append(
                    {
                        "level": level,
                        "variant": variant,
                        "better": sum(v.direction == "better" for v in judged),
                        "worse": sum(v.direction == "worse" for v in judged),
                        "equivalent": counts[State.EQUIVALENT],
                        "unknown": counts[State.UNKNOWN],
                        "more_seeds": seeds_left(judgements),
                    }
                )
    return found


def level_tables(plan: Study, rows: list[SummaryRow]) -> list[dict[str, Any]]:
    """For each level the headline table, that of fairness, and one for each class."""
    tables = []
    for level in plan.levels:
        own = [row for row in rows if row.level.name == level.name]
        kept = []
        for row in own:
            group = [r for r in own if (r.class_name, r.metric) == (row.class_name, row.metric)]
            if _informative(group) and not _repeats_incidence(row, own):
                kept.append(row)
        headline = [row for row in own if _is_headline(level, row)]
        headline.sort(key=lambda row: row.class_name != ALL)
        names = list(dict.fromkeys(row.class_name for row in kept))
        groups = {name: _groups(row for row in kept if row.class_name == name) for name in names}
        tables.append(
            {
                "level": level,
                "headline": _groups(headline),
                "fairness": _groups(row for row in own if row.metric in fairness.METRICS),
                "classes": [
                    {
                        "name": name,
                        "groups": [g for g in groups[name] if any(r["has_mean"] for r in g)],
                        "without": _without_value(groups[name]),
                    }
                    for name in names
                ],
            }
        )
    return tables


def _repeats_incidence(row: SummaryRow, rows: list[SummaryRow]) -> bool:
    """Whether a Kaplan-Meier metric says for all variants what the incidence says: no failures."""
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


def _without_value(groups: list[list[dict[str, Any]]]) -> dict[str, list[str]]:
    """Metrics that no variant has a value of: reason -> labels."""
    reasons: dict[str, list[str]] = {}
    for group in groups:
        if not any(row["has_mean"] for row in group):
            notes = dict.fromkeys(
                f"{row['variant'].label}: {row['note']}" if len(group) > 1 else row["note"]
                for row in group
            )
            same = {row["note"] for row in group}
            reason = same.pop() if len(same) == 1 else "; ".join(notes)
            reasons.setdefault(reason, []).append(group[0]["metric"].label)
    return reasons


def _is_headline(level: Level, row: SummaryRow) -> bool:
    """Whether a row stands in the first table: the paper's measures, and bulk's download time."""
    if not row.metric.headline or (row.class_name == ALL) != (row.metric.scope == "both"):
        return False
    load = level.classes.get(row.class_name)
    if load is None or load.request_bytes is None:
        return True
    # For a stream of exactly 320 KiB the last byte is the same as the 320 KiB; a larger one has no
    # time to 320 KiB at tgen's usual log level.
    small = load.request_bytes == TARGET_BYTES
    return (row.metric.duration == TO_LAST_BYTE) != small


def bias_row(row: BiasRow) -> dict[str, Any]:
    """How far the finished streams alone are off."""
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
    """What was read of the logs, and what could not be."""
    total = {
        name: sum(getattr(report, name) for report in reports.values())
        for name in ("files", "bytes", "lines", "malformed_lines", "truncated_files")
    }
    lost = sum(p.lost_streams for r in reports.values() for p in r.problems)
    problems = [
        (run_id, problem) for run_id, report in reports.items() for problem in report.problems
    ]
    silent = [
        (run_id, client)
        for run_id, report in reports.items()
        for client in report.clients_without_streams
    ]
    return {
        "total": total,
        "lost": lost,
        "problems": problems[:50],
        "more": max(0, len(problems) - 50),
        "silent": silent,
    }
