"""Writing of a study's summary.csv, runs.csv, figures and self-contained report.html."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from analysis.celltrace.summaries import (
    RELAY_TIME_COLUMNS,
    TIME_COLUMNS,
    WAIT_COLUMNS,
    TraceTable,
)
from analysis.errors import AnalysisError
from analysis.figures.catalogue import open_figure
from analysis.figures.cells import draw_all
from analysis.figures.forest import write_forest
from analysis.figures.levels import write_levels
from analysis.figures.style import check_look
from analysis.figures.writing import write_figure
from analysis.formats import files
from analysis.formats.csv_tables import csv_text
from analysis.formats.record_files import ParseReport, read_parse_report
from analysis.formats.study import Study, load_study
from analysis.inference.sample_size import unseen_share
from analysis.judgement.estimates import RunStatistics, add_run, in_order, over_networks
from analysis.judgement.judging import study_error_level
from analysis.judgement.verdicts import LEVEL
from analysis.measures.censoring import CENSORING_COLUMNS, BiasTable
from analysis.measures.families.durations import DURATIONS
from analysis.measures.metric import QUANTILES
from analysis.measures.over_time import THROUGHPUT_WINDOW_S
from analysis.measures.run_data import load_run
from analysis.measures.service import STARVED_S
from analysis.pages.answer import answer
from analysis.pages.cells import section
from analysis.pages.html import json_text, render, replaced, write_answer
from analysis.pages.report_tables import level_tables, network_rows, parse_tables, spread_rows
from analysis.pages.study_notes import earlier_looks_note, scope_note, simulated
from analysis.pages.summary import endpoint_comparisons, runs_csv, summarise, summary_csv


def build(study: Path, store: Path, out: Path) -> Path:
    """Write CSV tables, figures/, answer.txt and report.html into ``out``; return the page's path.

    The same study and records give the same bytes. An older report in ``out`` is replaced.

    Args:
        study: path of study.json.
        store: directory that the study's run and record directories are relative to.
        out: folder, created if missing.

    Raises:
        AnalysisError: the study is invalid, or records of its runs are missing or damaged.
    """
    plan = load_study(study)
    _require_records(plan, store)
    figures = [open_figure(spec, plan) for spec in plan.figures]
    for variant in plan.variants if figures else ():
        check_look(variant)
    runs: RunStatistics = {}
    biases = BiasTable()
    traces = TraceTable()
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
    sentences = [*_scope(plan), *answer(compared, error_level=study_error_level(plan))]
    trace_counts = {run.run_id: run_counts for run, run_counts in traces.counts}
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
            levels=level_tables(plan, rows),
            biases=bias_rows,
            error_level=f"{100 * study_error_level(plan):.2g}",
            earlier_looks_note=earlier_looks_note(plan),
            unseen=f"{100 * unseen_share(len(seeds), LEVEL):.2g}",
            figures=[write_figure(figure, folder) for figure in figures],
            trace=trace,
            parse=parse_tables(parse_reports),
            provenance=json_text(plan.provenance),
        )
        (scratch / files.REPORT).write_text(html, encoding="utf-8")
    return out / files.REPORT


def _scope(plan: Study) -> Iterator[str]:
    """Yield the ``scope_note`` as a sentence, unless the paragraphs of ``answer`` contain it."""
    note = scope_note(plan)
    if note and plan.scope != "one-network":
        yield f"{note.capitalize()}."


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
