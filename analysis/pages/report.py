"""Writing of a study's summary.csv, runs.csv, figures and self-contained report.html."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.celltrace.summaries import TraceTable, relay_times_csv, times_csv, waits_csv
from analysis.errors import AnalysisError
from analysis.figures import cells as trace_figures
from analysis.figures.catalogue import check_kind
from analysis.figures.figure_data import FigureData
from analysis.figures.forest import RenderedPlot, write_forest
from analysis.figures.levels import write_levels
from analysis.figures.style import check_look
from analysis.figures.writing import FigurePaths, write_figure
from analysis.formats import files
from analysis.formats.record_files import ParseReport, read_parse_report
from analysis.formats.study import Study, load_study
from analysis.inference.intervals import CONFIDENCE
from analysis.inference.sample_size import unseen_share
from analysis.judgement.judging import (
    RunStatistics,
    add_run,
    in_order,
    over_networks,
    study_error_level,
)
from analysis.judgement.verdicts import LEVEL
from analysis.measures.censoring import BiasRow, BiasTable, bias_csv
from analysis.measures.metric import QUANTILES
from analysis.measures.over_time import THROUGHPUT_WINDOW_S
from analysis.measures.run_data import load_run
from analysis.measures.service import STARVED_S
from analysis.pages.answer import answer
from analysis.pages.cells import section
from analysis.pages.html import environment, image_uri, json_text, replaced, write_answer
from analysis.pages.numbers import (
    format_number,
)
from analysis.pages.report_tables import (
    bias_row,
    earlier_looks_note,
    level_tables,
    network_rows,
    parse_tables,
    scope_note,
    spread_rows,
)
from analysis.pages.simulated import simulated
from analysis.pages.summary import (
    SummaryRow,
    endpoint_comparisons,
    runs_csv,
    summarise,
    summary_csv,
)


@dataclass(frozen=True)
class ReportPaths:
    """Paths of the written files."""

    summary_csv: Path
    runs_csv: Path
    html: Path
    figures: tuple[FigurePaths, ...]


@dataclass(frozen=True)
class ReportSummary:
    """The top of the report: the answer and its plots, which need a baseline.

    Attributes:
        sentences: the answer.
        forest: the plot of all endpoints.
        levels: the plot over levels; None if there is one level.
    """

    sentences: Sequence[str]
    forest: RenderedPlot | None
    levels: RenderedPlot | None = None


def build(study: Path, store: Path, out: Path) -> ReportPaths:
    """Write tables (CSV), figures/, answer.txt and report.html into ``out``.

    The same study and records give the same bytes. An older report in ``out`` is replaced.

    Args:
        study: path of study.json.
        store: directory that the study's run and record directories are relative to.
        out: created if missing.

    Raises:
        AnalysisError: the study is invalid, or records of its runs are missing or damaged.
    """
    plan = load_study(study)
    _require_records(plan, store)
    figures = [FigureData(spec, plan.level(spec.level), plan.baseline) for spec in plan.figures]
    for figure in figures:
        check_kind(figure.spec)
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
    statistics = over_networks(runs, plan.scope)
    rows = summarise(plan, statistics)
    bias_rows = list(biases.rows(plan))
    out.mkdir(parents=True, exist_ok=True)
    with replaced(
        out,
        (
            files.SUMMARY_CSV,
            files.RUNS_CSV,
            files.CENSORING_CSV,
            files.FIGURES,
            files.ANSWER,
            files.REPORT,
        ),
    ) as scratch:
        (scratch / files.FIGURES).mkdir()
        drawn = tuple(write_figure(figure, plan, scratch / files.FIGURES) for figure in figures)
        (scratch / files.SUMMARY_CSV).write_text(summary_csv(plan, rows), encoding="utf-8")
        counts = {run.run_id: run_counts for run, run_counts in traces.counts}
        per_run = runs_csv(plan, runs, parse_reports, counts)
        (scratch / files.RUNS_CSV).write_text(per_run, encoding="utf-8")
        (scratch / files.CENSORING_CSV).write_text(bias_csv(bias_rows), encoding="utf-8")
        trace = None
        if traces:
            drawings = trace_figures.draw_all(traces, plan, scratch / files.FIGURES)
            trace = section(traces, plan, drawings, format_number, image_uri)
            for name, text in (
                (files.CELL_TIMES_CSV, times_csv(traces)),
                (files.CELL_TTFB_CSV, relay_times_csv(traces)),
                (files.CELL_WAITS_CSV, waits_csv(traces)),
            ):
                (scratch / files.FIGURES / name).write_text(text, "utf-8")
        compared = endpoint_comparisons(plan, rows)
        about = "" if plan.scope == "one-network" else scope_note(plan)
        sentences = [
            *([f"{about.capitalize()}."] if about else []),
            *answer(compared, error_level=study_error_level(plan)),
        ]
        write_answer(scratch, sentences)
        forest = write_forest(compared, scratch / files.FIGURES / files.FOREST)
        looks = {variant.name: variant for variant in plan.variants}
        levels = write_levels(compared, looks, scratch / files.FIGURES / files.LEVELS)
        found = ReportSummary(sentences, forest, levels)
        html = render(plan, rows, bias_rows, drawn, parse_reports, found, trace)
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
        raise AnalysisError(
            f"no records of {len(missing)} of {len(plan.runs)} runs of {plan.name}: "
            f"{plan.format_runs(missing)}",
            "finish the runs and extract their records, or remove them from the study",
        )


def render(
    plan: Study,
    rows: list[SummaryRow],
    bias_rows: list[BiasRow],
    figures: tuple[FigurePaths, ...],
    parse_reports: Mapping[str, ParseReport],
    found: ReportSummary,
    trace: Mapping[str, Any] | None = None,
) -> str:
    """Return the report as one self-contained HTML page. trace: see ``pages.cells.section``."""
    template = environment().get_template("report.html.j2")
    images = [
        {
            "paths": figure,
            "uri": image_uri(figure.svg),
            "heading": plan.figure_title(figure.spec),
        }
        for figure in figures
    ]
    seeds = sorted({run.seed for run in plan.runs})
    by_place = {(run.level, run.variant, run.seed, run.repeat): run for run in plan.runs}
    return template.render(
        study=plan,
        answer=found.sentences,
        simulated=simulated(plan),
        forest=None if found.forest is None else image_uri(found.forest.svg),
        forest_caption="" if found.forest is None else found.forest.caption,
        forest_data=f"{files.FIGURES}/{files.FOREST}.csv",
        by_level=None if found.levels is None else image_uri(found.levels.svg),
        by_level_caption="" if found.levels is None else found.levels.caption,
        by_level_data=f"{files.FIGURES}/{files.LEVELS}.csv",
        confidence=round(100 * CONFIDENCE),
        window_s=THROUGHPUT_WINDOW_S,
        starved_s=STARVED_S,
        shares=[round(100 * q) for q in QUANTILES],
        seeds=seeds,
        places=sorted({(run.seed, run.repeat) for run in plan.runs}),
        repeats=plan.repeats,
        one_network=plan.scope == "one-network",
        replicates=len({plan.replicate(run) for run in plan.runs}),
        spreads=spread_rows(plan, rows),
        networks=network_rows(plan),
        run_of=by_place,
        levels=level_tables(plan, rows),
        biases=[bias_row(row) for row in bias_rows],
        error_level=f"{100 * study_error_level(plan):.2g}",
        earlier_looks_note=earlier_looks_note(plan),
        unseen=f"{100 * unseen_share(len(seeds), LEVEL):.2g}" if seeds else "",
        figures=images,
        trace=trace,
        parse=parse_tables(plan, parse_reports),
        provenance=json_text(plan.provenance),
        baseline=next((v for v in plan.variants if v.name == plan.baseline), None),
    )
