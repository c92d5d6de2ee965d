"""Rows of the report's tables, for the report's template."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.formats.byte_marks import BYTE_MARKS
from analysis.formats.columns import Outcome
from analysis.formats.record_files import ParseReport
from analysis.formats.study import Level, Study
from analysis.measures.data import ALL
from analysis.measures.families import fairness
from analysis.measures.families.durations import TO_LAST_BYTE
from analysis.pages.summary import SummaryRow

MAX_PROBLEMS = 50
"""Maximum number of logs with problems that are listed."""


def level_tables(plan: Study, rows: list[SummaryRow]) -> list[dict[str, Any]]:
    """Return, for each level, a headline table, a fairness table, and a table for each class."""
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
                "classes": {
                    name: _table(row for row in kept if row.class_name == name)
                    for name in dict.fromkeys(row.class_name for row in kept)
                },
            }
        )
    return tables


def _table(rows: Iterable[SummaryRow]) -> dict[str, Any]:
    """Group rows by class and metric, and separate the metrics with nothing to compare.

    The entry "groups" has the rows of each class and metric, and one scale for these rows: "ratio"
    if any row has this scale, and "" if no row is compared. The entry "without" maps a reason to
    the labels of the metrics with nothing to compare.
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
            shown.append({"rows": group, "scale": max(row.scale for row in group)})
    return {"groups": shown, "without": without}


def _nothing(group: Sequence[SummaryRow]) -> str:
    """Return why there is nothing to compare in a metric's rows; "" if there is something."""
    if all(row.estimate.mean is None for row in group):
        notes = {row.variant.label: "; ".join(row.estimate.notes) for row in group}
        if len(set(notes.values())) == 1:
            return f"Not given, {next(iter(notes.values()))}"
        return f"Not given, {'; '.join(f'{label}: {note}' for label, note in notes.items())}"
    if all(row.estimate.minimum == row.estimate.maximum == 0.0 for row in group):
        verdicts = dict.fromkeys(row.verdict_text for row in group if row.judgement)
        each = ("; ".join(filter(None, words)) for words in verdicts)
        return "; ".join(["0 in all runs", *filter(None, each)])
    return ""


def _repeats_incidence(row: SummaryRow, rows: list[SummaryRow]) -> bool:
    """Return whether a Kaplan-Meier metric equals the cumulative-incidence one in all variants.

    Tables of classes omit such rows, because they add nothing. Other metrics are never omitted.
    """
    if not row.metric.without_failures:
        return False
    km, incidence = (
        {
            r.variant.name: (r.estimate.mean, r.notes)
            for r in rows
            if (r.class_name, r.metric.name) == (row.class_name, name)
        }
        for name in (row.metric.name, row.metric.without_failures)
    )
    return km == incidence


def _is_headline(level: Level, row: SummaryRow) -> bool:
    """Return whether a row is in the report's first table, which has the headline metrics.

    If all streams of a class have one size, some times are redundant or unknown. The table omits
    them.
    """
    if not row.metric.headline or (row.class_name == ALL) != (row.metric.scope == "both"):
        return False
    load = level.classes.get(row.class_name)
    if load is None or load.request_bytes is None or not row.metric.duration:
        return True
    # A byte mark is an amount of payload whose time of arrival is a metric. If the streams have the
    # size of a mark, the time to last byte equals the time to the mark: show the time to the mark
    # and the time to first byte. For other sizes, show only the time to last byte, because TGen
    # does not log the time to the mark at its usual log level.
    has_mark_size = load.request_bytes in BYTE_MARKS.values()
    return (row.metric.duration == TO_LAST_BYTE) != has_mark_size


def spread_rows(rows: Iterable[SummaryRow]) -> list[SummaryRow]:
    """Return the rows of headline metrics with a known spread between and within networks."""
    return [row for row in rows if row.spread and row.judgement and _is_headline(row.level, row)]


def network_rows(plan: Study) -> list[dict[str, Any]]:
    """Return rows with two shares of each role's capacity for the networks of each level.

    The first share is the share of the relays that BandwidthRate limits. The second share is the
    share of the largest relay. Both are strings. Networks with equal shares have one row.
    """
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


def parse_tables(reports: Mapping[str, ParseReport]) -> dict[str, Any]:
    """Return tables of the data read from the logs, of streams by class, and of ignored data.

    reports: name of a run -> its parse report.
    """
    clients: Counter[str] = Counter()
    streams: dict[str, Counter[str]] = {}
    for report in reports.values():
        clients.update(report.clients)
        for class_name, outcomes in report.streams.items():
            streams.setdefault(class_name, Counter()).update(outcomes)
    problems = [(run_id, one) for run_id, report in reports.items() for one in report.problems]
    return {
        "reports": list(reports.values()),
        "lost": sum(problem.lost_streams for _, problem in problems),
        "classes": [
            (name, count, [(o.value, n) for o in Outcome if (n := streams[name][o.value])])
            for name, count in sorted(clients.items())
            if name in streams
        ],
        "not_counted": [
            (run_id, text) for run_id, report in reports.items() if (text := report.not_counted())
        ],
        "problems": problems[:MAX_PROBLEMS],
        "more": max(0, len(problems) - MAX_PROBLEMS),
    }
