"""A study's records to summary.csv, runs.csv, figures and one self-contained report.html."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.celltrace.summaries import TraceTable, relay_times_csv, times_csv
from analysis.errors import AnalysisError
from analysis.figures import cells as trace_figures
from analysis.figures.catalogue import check_kind
from analysis.figures.figure_data import FigureData
from analysis.figures.writing import FigurePaths, write_figure
from analysis.formats import files
from analysis.formats.record_files import ParseReport, read_parse_report
from analysis.formats.study import FigureSpec, Level, Study, Variant, load_study
from analysis.inference.intervals import CONFIDENCE
from analysis.judgement.estimates import (
    NO_RATIO,
    ONE_PAIR,
    ONE_SEED,
    Comparison,
    Estimate,
    compare,
    estimate,
)
from analysis.judgement.judging import (
    RUNS_COLUMNS,
    Judgement,
    Statistics,
    add_run,
    design_of,
    in_order,
    judge_comparison,
)
from analysis.judgement.verdicts import LEVEL, State, tally
from analysis.measures.catalogue import METRICS
from analysis.measures.censoring_table import BiasRow, BiasTable, bias_csv
from analysis.measures.data import ALL
from analysis.measures.families import fairness
from analysis.measures.metric import QUANTILES, Metric
from analysis.measures.over_time import THROUGHPUT_WINDOW_S
from analysis.measures.run_data import load_run
from analysis.measures.service import STARVED_S
from analysis.pages.cells import section
from analysis.pages.html import environment, image_uri, json_text, replaced
from analysis.pages.numbers import (
    NOTHING,
    exact,
    exact_bounds,
    format_interval,
    format_number,
    readable_unit,
    scaled,
)
from analysis.records.tgenlog import TARGET_BYTES

SUMMARY_COLUMNS = (
    "level", "class", "metric", "variant", "unit",
    "estimate", "low", "high", "seeds", "sd", "minimum", "maximum",
    "baseline", "pairs", "diff", "diff_low", "diff_high", "ratio", "ratio_low", "ratio_high",
    "note",
    "verdict", "direction", "primary", "margin", "p_different", "p_equivalent", "more_seeds",
    "verdict_note",
)  # fmt: skip


@dataclass(frozen=True)
class ReportPaths:
    """What ``build`` wrote."""

    summary_csv: Path
    runs_csv: Path
    html: Path
    figures: tuple[FigurePaths, ...]


@dataclass(frozen=True)
class SummaryRow:
    """One line of summary.csv and of the report's tables."""

    level: Level
    class_name: str
    metric: Metric
    variant: Variant
    estimate: Estimate
    comparison: Comparison | None
    judgement: Judgement | None
    baseline_sd: float | None

    @property
    def in_spreads(self) -> float | None:
        """The difference to the baseline in units of the baseline's sd over seeds."""
        if self.comparison is None or self.comparison.difference is None or not self.baseline_sd:
            return None
        return self.comparison.difference.estimate / self.baseline_sd

    @property
    def note(self) -> str:
        """Why a number is missing, and other caveats."""
        notes = [self.estimate.note, self.comparison.note if self.comparison else ""]
        return "; ".join(dict.fromkeys(note for note in notes if note))


def build(study: Path, store: Path, out: Path) -> ReportPaths:
    """Writes summary.csv, runs.csv, censoring.csv, figures/ and report.html into ``out``.

    The same study and records give the same bytes. An older report in ``out`` is replaced.

    Args:
        study: study.json.
        store: directory to which the study's run and record directories are relative.
        out: made if missing.

    Raises:
        AnalysisError: the study is not valid, or records of its runs are missing or damaged.
    """
    plan = load_study(study)
    _require_records(plan, store)
    figures = [FigureData(spec, plan.level(spec.level), plan.baseline) for spec in plan.figures]
    for figure in figures:
        check_kind(figure.spec)
    statistics: Statistics = {}
    biases = BiasTable()
    traces = TraceTable()
    parse_reports: dict[str, ParseReport] = {}
    # One run's records at a time: a study's need not fit into memory.
    for run in in_order(plan):
        level = plan.level(run.level)
        records = store / run.records
        parse_reports[run.run_id] = read_parse_report(records / files.PARSE_REPORT)
        data = load_run(records, level)
        add_run(statistics, run, data)
        biases.add(level.name, run.variant, data)
        traces.add(run, level, records)
        for figure in figures:
            if figure.takes(level):
                figure.add(run.variant, run.seed, data, level)
    rows = summarise(plan, statistics)
    bias_rows = list(biases.rows(plan))
    out.mkdir(parents=True, exist_ok=True)
    with replaced(
        out, (files.SUMMARY_CSV, files.RUNS_CSV, files.CENSORING_CSV, files.FIGURES, files.REPORT)
    ) as scratch:
        (scratch / files.FIGURES).mkdir()
        drawn = tuple(write_figure(figure, plan, scratch / files.FIGURES) for figure in figures)
        (scratch / files.SUMMARY_CSV).write_text(_summary_csv(plan, rows), encoding="utf-8")
        (scratch / files.RUNS_CSV).write_text(_runs_csv(plan, statistics), encoding="utf-8")
        (scratch / files.CENSORING_CSV).write_text(bias_csv(bias_rows), encoding="utf-8")
        trace = None
        if traces:
            drawings = trace_figures.draw_all(traces, plan, scratch / files.FIGURES)
            trace = section(traces, plan, drawings, format_number, image_uri)
            (scratch / files.FIGURES / files.CELL_TIMES_CSV).write_text(times_csv(traces), "utf-8")
            (scratch / files.FIGURES / files.CELL_TTFB_CSV).write_text(
                relay_times_csv(traces), "utf-8"
            )
        html = render(plan, rows, bias_rows, drawn, parse_reports, trace)
        (scratch / files.REPORT).write_text(html, encoding="utf-8")
    return ReportPaths(
        out / files.SUMMARY_CSV,
        out / files.RUNS_CSV,
        out / files.REPORT,
        tuple(figure.moved_to(out / files.FIGURES) for figure in drawn),
    )


def _require_records(plan: Study, store: Path) -> None:
    if not plan.runs:
        raise AnalysisError("the study has no runs", "run the experiment first")
    missing = [run for run in plan.runs if not (store / run.records / files.PARSE_REPORT).is_file()]
    if missing:
        names = ", ".join(run.run_id for run in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise AnalysisError(
            f"no records of {len(missing)} of {len(plan.runs)} runs: {names}{more}",
            "finish the runs and extract their records, or take them out of the study",
        )


def summarise(plan: Study, statistics: Statistics) -> list[SummaryRow]:
    """All rows of the summary, by level, class, metric and variant in the study's order."""
    rows = []
    for level in plan.levels:
        judged = _judge(plan, level, statistics)
        classes = [name for where, name in statistics if where == level.name]
        for class_name in sorted(classes, key=lambda name: _class_order(level, name)):
            of_class = statistics[level.name, class_name]
            for metric in METRICS:
                base = of_class.get((metric.name, plan.baseline or ""), {})
                base_sd = estimate(base).sd
                for variant in plan.variants:
                    own = of_class.get((metric.name, variant.name))
                    if own is None:
                        continue
                    comparison = None
                    if plan.baseline is not None and variant.name != plan.baseline:
                        comparison = compare(own, base)
                    rows.append(
                        SummaryRow(
                            level,
                            class_name,
                            metric,
                            variant,
                            estimate(own),
                            comparison,
                            judged.get((variant.name, class_name, metric.name)),
                            base_sd,
                        )
                    )
    return rows


def _judge(
    plan: Study, level: Level, statistics: Statistics
) -> dict[tuple[str, str, str], Judgement]:
    """Verdicts on all variants that have runs at a level: (variant, class, metric) -> verdict."""
    present = {run.variant for run in plan.runs if run.level == level.name}
    if plan.baseline not in present:
        return {}
    return {
        (variant.name, judgement.class_name, judgement.metric.name): judgement
        for variant in plan.variants
        if variant.name in present and variant.name != plan.baseline
        for judgement in judge_comparison(
            level.name, statistics, variant.name, plan.baseline, design_of(plan)
        )
    }


def _class_order(level: Level, class_name: str) -> tuple[int, str]:
    known = [*level.classes, ALL]
    return (known.index(class_name) if class_name in known else len(known), class_name)


def _summary_csv(plan: Study, rows: Iterable[SummaryRow]) -> str:
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
                row.note,
                *_verdict_columns(row.judgement),
            ]
        )
    return text.getvalue()


def _verdict_columns(judgement: Judgement | None) -> list[str]:
    if judgement is None:
        return [""] * 8
    verdict = judgement.verdict
    return [
        verdict.state.value,
        verdict.direction,
        "yes" if judgement.primary else "no",
        exact(verdict.margin),
        exact(verdict.p_different),
        exact(verdict.p_equivalent),
        "" if verdict.more_seeds is None else str(verdict.more_seeds),
        verdict.reason,
    ]


def _runs_csv(plan: Study, statistics: Statistics) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(RUNS_COLUMNS)
    for run in in_order(plan):
        for level_name, class_name in statistics:
            if level_name != run.level:
                continue
            for metric in METRICS:
                by_seed = statistics[level_name, class_name].get((metric.name, run.variant), {})
                s = by_seed.get(run.seed)
                if s is not None:
                    writer.writerow(
                        [
                            run.run_id,
                            run.level,
                            run.variant,
                            run.seed,
                            class_name,
                            metric.name,
                            metric.unit,
                            exact(s.value),
                            s.reason,
                        ]
                    )
    return text.getvalue()


def _table_row(row: SummaryRow) -> dict[str, Any]:
    factor, unit = readable_unit(row.metric.unit)
    mean = scaled(row.estimate.mean, factor)
    difference = scaled(row.comparison.difference if row.comparison else None, factor)
    ratio = row.comparison.ratio if row.comparison else None
    # What would stand in every row, or is plain to see, is left to summary.csv.
    note = row.note if mean else row.estimate.note
    plain = (ONE_SEED, ONE_PAIR, NO_RATIO)
    note = "; ".join(part for part in note.split("; ") if part not in plain)
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
        return verdict.state.value, f"about {verdict.more_seeds} more {seeds}"
    # The column before has the difference, so its size need not be told again.
    return verdict.direction or verdict.state.value, verdict.reason


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
    return any(r.estimate.maximum != 0.0 or not r.metric.name.endswith("_count") for r in group)


def _tallies(plan: Study, rows: list[SummaryRow]) -> list[dict[str, Any]]:
    """How many primary metrics got which verdict, for each level and variant."""
    tallies = []
    for level in plan.levels:
        for variant in plan.variants:
            judged = [
                row.judgement.verdict
                for row in rows
                if row.judgement is not None
                and row.judgement.primary
                and (row.level.name, row.variant.name) == (level.name, variant.name)
            ]
            if judged:
                counts = tally(judged)
                tallies.append(
                    {
                        "level": level,
                        "variant": variant,
                        "better": sum(v.direction == "better" for v in judged),
                        "worse": sum(v.direction == "worse" for v in judged),
                        "equivalent": counts[State.EQUIVALENT],
                        "unknown": counts[State.UNKNOWN],
                        "more_seeds": max((v.more_seeds or 0 for v in judged), default=0),
                    }
                )
    return tallies


def _level_tables(plan: Study, rows: list[SummaryRow]) -> list[dict[str, Any]]:
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
    if "_km_" not in row.metric.name:
        return False
    names = (row.metric.name, row.metric.name.replace("_km_", "_"))
    km, incidence = (
        {
            r.variant.name: (r.estimate.mean, r.note)
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
    return row.metric.name.startswith("time_to_last_byte") != small


def _bias_row(row: BiasRow) -> dict[str, Any]:
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


def _parse_tables(plan: Study, reports: Mapping[str, ParseReport]) -> dict[str, Any]:
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


def _heading(spec: FigureSpec, level: Level) -> str:
    title = spec.title or spec.id
    return title if level.label in title else f"{title}, {level.label}"


def render(
    plan: Study,
    rows: list[SummaryRow],
    bias_rows: list[BiasRow],
    figures: tuple[FigurePaths, ...],
    parse_reports: Mapping[str, ParseReport],
    trace: Mapping[str, Any] | None = None,
) -> str:
    """The report as one HTML page that loads nothing. trace: see ``celltrace.section``."""
    template = environment().get_template("report.html.j2")
    images = [
        {
            "paths": figure,
            "uri": image_uri(figure.svg),
            "heading": _heading(figure.spec, plan.level(figure.spec.level)),
        }
        for figure in figures
    ]
    seeds = sorted({run.seed for run in plan.runs})
    by_place = {(run.level, run.variant, run.seed): run for run in plan.runs}
    return template.render(
        study=plan,
        confidence=round(100 * CONFIDENCE),
        window_s=THROUGHPUT_WINDOW_S,
        starved_s=STARVED_S,
        shares=[round(100 * q) for q in QUANTILES],
        seeds=seeds,
        run_of=by_place,
        levels=_level_tables(plan, rows),
        tallies=_tallies(plan, rows),
        biases=[_bias_row(row) for row in bias_rows],
        error_level=round(100 * LEVEL),
        figures=images,
        trace=trace,
        parse=_parse_tables(plan, parse_reports),
        provenance=json_text(plan.provenance),
        baseline=next((v for v in plan.variants if v.name == plan.baseline), None),
    )
