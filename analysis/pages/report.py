"""Writing of a study's summary.csv, runs.csv, figures and self-contained report.html."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.celltrace.summaries import RELAY_TIME_COLUMNS, TIME_COLUMNS, WAIT_COLUMNS, TraceTable
from analysis.errors import AnalysisError
from analysis.figures.catalogue import open_figure
from analysis.figures.cells import draw_all
from analysis.figures.forest import write_forest
from analysis.figures.levels import write_levels
from analysis.figures.style import check_look
from analysis.figures.writing import write_figure
from analysis.formats import files
from analysis.formats.byte_marks import BYTE_MARKS
from analysis.formats.columns import Outcome
from analysis.formats.csv_tables import csv_text
from analysis.formats.record_files import ParseReport, read_parse_report
from analysis.formats.study import Level, Study, load_study
from analysis.inference.sample_size import unseen_share
from analysis.judgement.estimates import RunStatistics, add_run, in_order, over_networks
from analysis.judgement.judging import study_error_level
from analysis.judgement.verdicts import LEVEL
from analysis.measures.censoring import CENSORING_COLUMNS, BiasTable
from analysis.measures.data import ALL
from analysis.measures.families import fairness
from analysis.measures.families.durations import DURATIONS, LAST_BYTE
from analysis.measures.metric import QUANTILES
from analysis.measures.over_time import THROUGHPUT_WINDOW_S
from analysis.measures.run_data import load_run
from analysis.measures.service import STARVED_S
from analysis.pages.answer import answer
from analysis.pages.cells import section
from analysis.pages.html import json_text, render, replaced, write_answer
from analysis.pages.study_notes import earlier_looks_note, scope_note, simulated
from analysis.pages.summary import (
    SummaryRow,
    endpoint_comparisons,
    runs_csv,
    summarise,
    summary_csv,
)

MAX_PROBLEMS = 50
"""Maximum number of logs with problems that are listed."""


def build(study: Path, store: Path, out: Path) -> Path:
    """Write CSV tables, figures/, answer.txt and report.html into ``out``; return the page's path.

    The same study and records give the same bytes. An older report in ``out`` is replaced.

    store: directory that the study's run and record directories are relative to.

    Raises:
        AnalysisError: the study is invalid, or records of its runs are missing or damaged.
    """
    plan = load_study(study)
    _require_records(plan, store)
    figures = [open_figure(spec, plan) for spec in plan.figures]
    for variant in plan.variants if figures else ():
        check_look(variant)
    runs: RunStatistics = {}
    biases, traces = BiasTable(), TraceTable()
    parse_reports: dict[str, ParseReport] = {}
    # Load one run at a time, as the records of a study may not fit into memory.
    for run in in_order(plan):
        level = plan.level(run.level)
        records = store / run.records
        with plan.naming(run):
            parse_reports[run.run_id] = read_parse_report(records / files.PARSE_REPORT)
            data = load_run(records, level)
            add_run(runs, run, data)
            biases.add(level.name, run.variant, data)
            traces.add(run, level, records)
        for figure in figures:
            if figure.shows(level):
                figure.add(run.variant, plan.replicate(run), data, level)
    rows = summarise(plan, over_networks(runs, plan.scope))
    bias_rows = list(biases.rows(plan))
    compared = endpoint_comparisons(plan, rows)
    sentences = answer(compared, error_level=study_error_level(plan))
    note = scope_note(plan)
    if note and plan.scope != "one-network":  # for one network, the answer contains it
        sentences.insert(0, f"{note.capitalize()}.")
    trace_counts = {run.run_id: counts for run, counts in traces.counts}
    tables = {
        files.SUMMARY_CSV: summary_csv(plan, rows),
        files.RUNS_CSV: runs_csv(plan, runs, parse_reports, trace_counts),
        files.CENSORING_CSV: csv_text(bias_rows, CENSORING_COLUMNS),
    }
    out.mkdir(parents=True, exist_ok=True)
    with replaced(out) as scratch:
        folder = scratch / files.FIGURES
        folder.mkdir()
        trace = None
        if traces:
            trace = section(traces, plan, draw_all(traces, plan, folder))
            for name, rows_of_runs, columns in (
                (files.CELL_TIMES_CSV, traces.times, TIME_COLUMNS),
                (files.CELL_TTFB_CSV, traces.relay_times, RELAY_TIME_COLUMNS),
                (files.CELL_WAITS_CSV, traces.waits, WAIT_COLUMNS),
            ):
                tables[f"{files.FIGURES}/{name}"] = csv_text(rows_of_runs, columns)
        for name, text in tables.items():
            (scratch / name).write_text(text, encoding="utf-8")
        write_answer(scratch, sentences)
        seeds = sorted({run.seed for run in plan.runs})
        html = render(
            "report.html.j2",
            study=plan,
            baseline=next((v for v in plan.variants if v.name == plan.baseline), None),
            answer=sentences,
            simulated=simulated(plan),
            forest=write_forest(compared, folder / files.FOREST),
            by_level=write_levels(
                compared,
                {variant.name: variant for variant in plan.variants},
                folder / files.LEVELS,
            ),
            durations=DURATIONS,
            window_s=THROUGHPUT_WINDOW_S,
            starved_s=STARVED_S,
            shares=[round(100 * q) for q in QUANTILES],
            seeds=seeds,
            places=sorted({(run.seed, run.repeat) for run in plan.runs}),
            one_network=plan.scope == "one-network",
            replicates=len({plan.replicate(run) for run in plan.runs}),
            spreads=spread_rows(rows),
            networks=network_rows(plan),
            run_of={(run.level, run.variant, run.seed, run.repeat): run for run in plan.runs},
            levels=_level_tables(plan, rows),
            biases=bias_rows,
            error_level=f"{100 * study_error_level(plan):.2g}",
            earlier_looks_note=earlier_looks_note(plan),
            unseen=f"{100 * unseen_share(len(seeds), LEVEL):.2g}",
            figures=[write_figure(figure, folder) for figure in figures],
            trace=trace,
            parse=_parse_tables(parse_reports),
            provenance=json_text(plan.provenance),
        )
        (scratch / files.REPORT).write_text(html, encoding="utf-8")
    return out / files.REPORT


def _require_records(plan: Study, store: Path) -> None:
    if not plan.runs:
        raise AnalysisError("the study has no runs", "run the experiment first")
    missing = [run for run in plan.runs if not (store / run.records / files.PARSE_REPORT).is_file()]
    if missing:
        raise AnalysisError(
            f"no records of {len(missing)} of {len(plan.runs)} runs of {plan.name}: "
            f"{plan.format_runs(missing)}",
            "finish the runs and extract their records, or remove them from the study",
        )


def _level_tables(plan: Study, rows: list[SummaryRow]) -> list[dict[str, Any]]:
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

    The entry "groups" has a list of rows for each class and metric. The entry "without" maps a
    reason to the labels of the metrics with nothing to compare.
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
            shown.append(group)
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
    return (row.metric.duration == LAST_BYTE.name) != has_mark_size


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
            {"level": plan.label(level), "seeds": ", ".join(map(str, seeds)), "roles": dict(roles)}
            for roles, seeds in grouped.items()
        ]
    return found


def _parse_tables(reports: Mapping[str, ParseReport]) -> dict[str, Any]:
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
