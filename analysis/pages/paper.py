"""A paper's figures and claims from runs that reproduce it: a folder with a manifest and a page.

The same runs give the same bytes. Missing runs are listed wherever they are needed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.figures.forest import RenderedPlot, write_panels
from analysis.figures.style import COLUMN
from analysis.figures.writing import FigurePaths, write_figure
from analysis.formats import files
from analysis.formats.json_files import read_json
from analysis.formats.study import Run, Study
from analysis.inference.intervals import CONFIDENCE
from analysis.judgement.claims.answers import answer_claims
from analysis.judgement.claims.claim import Claim, ClaimResult, Labels
from analysis.judgement.judging import RunStatistics, Statistics, add_run, over_networks
from analysis.judgement.verdicts import LEVEL
from analysis.measures.contention import (
    Contention,
    ContentionByRun,
    combine_repeats,
    measure_contention,
)
from analysis.measures.run_data import load_run
from analysis.pages.claim_tables import claim_row, claims_csv, claims_data
from analysis.pages.claims_answer import CAPTION, claims_answer, claims_panel, sorted_answers
from analysis.pages.cross_study import OtherStudy, cross_study_csv, cross_study_values
from analysis.pages.html import environment, image_uri, replaced, write_answer
from analysis.pages.paper_levels import write_paper_levels
from analysis.pages.paper_runs import Drawing, Key, collect_drawings, distinct_runs, run_key
from analysis.pages.simulated import simulated

MANIFEST_FORMAT = 1

Runs = Mapping[Key, Run]


@dataclass(frozen=True)
class Paper:
    """The paper to reproduce.

    Attributes:
        title: title of the paper.
        studies: the experiments that reproduce it; the same level, variant and seed is the same run
            in all of them.
        claims: claims of the paper.
    """

    title: str
    studies: tuple[Study, ...]
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class PaperPaths:
    """Paths of the files written by ``build``, and the answers."""

    html: Path
    manifest: Path
    claims_csv: Path
    claims_json: Path
    figures: tuple[FigurePaths, ...]
    answers: tuple[ClaimResult, ...]
    missing: tuple[Run, ...]


def answer_other_study(paper: Paper, store: Path, title: str) -> OtherStudy:
    """Return the answers of other runs of a paper's experiments, for ``build``.

    Args:
        paper: their studies, and the same claims.
        store: as for ``build``.
        title: where the runs come from.

    Raises:
        AnalysisError: the studies do not match, none of their runs exists, or records are damaged.
    """
    existing = _existing_runs(paper, store)
    if not existing:
        raise AnalysisError(f"{title}: none of the runs exists", "pack them again")
    answers = _answers(paper, _statistics(paper, store, existing, ()))
    return OtherStudy(title, tuple(simulated(*paper.studies)), answers)


def build(
    paper: Paper,
    store: Path,
    out: Path,
    software: Mapping[str, str] | None = None,
    other_study: OtherStudy | None = None,
) -> PaperPaths:
    """Write the figures, claims.csv, claims.json, manifest.json and figures.html into ``out``.

    Args:
        paper: with all planned runs.
        store: directory that the studies' run and record directories are relative to.
        out: created if missing; output of an earlier call is replaced.
        software: names and versions of the programs behind the runs, for the manifest.
        other_study: other runs' answers to the same claims, for claims-beside.csv and the page.

    Raises:
        AnalysisError: the studies do not match, there is nothing to draw, no run exists, or records
            are damaged.
    """
    runs = distinct_runs(paper.studies)
    existing = _existing_runs(paper, store)
    missing = tuple(run for key, run in runs.items() if key not in existing)
    drawings = collect_drawings(paper.studies, existing)
    if not (drawings or paper.claims):
        raise AnalysisError(
            "there are neither claims to answer nor figures to draw: no figure of these "
            "experiments has the number of a figure in the paper",
            "add the numbers: figures: [{..., paper: 8}]",
        )
    if not existing:
        raise AnalysisError(
            f"none of the {len(runs)} runs is in the store", "repeat without NO_RUN to run them"
        )
    measured = _statistics(paper, store, existing, drawings)
    answers = _answers(paper, measured)
    out.mkdir(parents=True, exist_ok=True)
    drawn_names = [f"{d.data.spec.id}.{end}" for d in drawings for end in ("pdf", "png", "csv")]
    plots = [f"{files.CLAIMS}.{end}" for end in ("pdf", "png")] if answers else []
    tables = (
        *plots,
        files.ANSWER,
        files.CLAIMS_CSV,
        files.CLAIMS_JSON,
        *([files.CLAIMS_BESIDE_CSV] if other_study else []),
        files.FIGURES_INDEX,
        files.FIGURES_PAGE,
    )
    # An earlier call may have had other claims, or other names of figures.
    before = _drawn_before(out / files.FIGURES_INDEX)
    written = [*drawn_names, *tables]
    with replaced(out, written) as scratch:
        drawn = [write_figure(d.data, d.study, scratch, COLUMN) for d in drawings]
        write_answer(scratch, claims_answer(answers))
        (scratch / files.CLAIMS_JSON).write_text(
            _json(claims_data(paper.title, answers)), encoding="utf-8"
        )
        levels = write_paper_levels(paper.studies, existing, measured.statistics, scratch)
        written += [path.name for one in levels for path in (one.pdf, one.png, one.csv)]
        manifest = _manifest(paper, drawings, drawn, levels, dict(software or {}))
        (scratch / files.FIGURES_INDEX).write_text(_json(manifest), encoding="utf-8")
        table, forest = claims_csv(answers), None
        if answers:
            forest = write_panels([claims_panel(answers)], table, scratch / files.CLAIMS, CAPTION)
        else:
            (scratch / files.CLAIMS_CSV).write_text(table, encoding="utf-8")
        if other_study:
            table = cross_study_csv(answers, other_study)
            (scratch / files.CLAIMS_BESIDE_CSV).write_text(table, encoding="utf-8")
        html = _page(
            paper, drawings, drawn, answers, (forest, levels), missing, manifest, other_study
        )
        (scratch / files.FIGURES_PAGE).write_text(html, encoding="utf-8")
    for name in (before - set(written)) | (set() if other_study else {files.CLAIMS_BESIDE_CSV}):
        (out / name).unlink(missing_ok=True)
    return PaperPaths(
        html=out / files.FIGURES_PAGE,
        manifest=out / files.FIGURES_INDEX,
        claims_csv=out / files.CLAIMS_CSV,
        claims_json=out / files.CLAIMS_JSON,
        figures=tuple(paths.moved_to(out) for paths in drawn),
        answers=answers,
        missing=missing,
    )


def _existing_runs(paper: Paper, store: Path) -> Runs:
    """Return the runs that have records, each once."""
    runs = distinct_runs(paper.studies)
    return {key: run for key, run in runs.items() if _has_records(run, store)}


@dataclass(frozen=True)
class _Measured:
    """The metrics and the contention of runs."""

    statistics: Statistics
    contention: ContentionByRun


def _statistics(
    paper: Paper, store: Path, existing: Runs, drawings: Sequence[Drawing]
) -> _Measured:
    """Compute the metrics of these runs, and add their data to the drawings that show them."""
    runs: RunStatistics = {}
    contention: dict[tuple[str, str, int], list[Contention]] = {}
    study_by_level = {level.name: study for study in paper.studies for level in study.levels}
    # Load the records of one run at a time, and only once even if several figures show it.
    for run in existing.values():
        study, level = study_by_level[run.level], study_by_level[run.level].level(run.level)
        with study.naming(run):
            data = load_run(store / run.records, level)
            add_run(runs, run, data)
            place = run.level, run.variant, study.replicate(run)
            contention.setdefault(place, []).append(measure_contention(data, level))
        for drawing in drawings:
            if run_key(run) in map(run_key, drawing.shown):
                drawing.data.add(run.variant, study.replicate(run), data, level)
    scopes = {study.scope for study in paper.studies}
    if len(scopes) > 1:
        raise AnalysisError(
            "the experiments have different scopes", "claims are about networks or one network"
        )
    return _Measured(
        over_networks(runs, scopes.pop()),
        {place: combine_repeats(own) for place, own in contention.items()},
    )


def _answers(paper: Paper, measured: _Measured) -> tuple[ClaimResult, ...]:
    margins, labels = _margins(paper.studies), _labels(paper.studies)
    return tuple(
        answer_claims(paper.claims, measured.statistics, margins, labels, measured.contention)
    )


def _drawn_before(manifest: Path) -> set[str]:
    """Return the files of figures in an earlier manifest; empty without one."""
    try:
        index = read_json(manifest)
        # Manifests of older versions have no levels.
        plots = [*index["figures"], *index.get("levels", [])]
        return {Path(name).name for plot in plots for name in plot["files"]}
    except (AnalysisError, KeyError, TypeError):
        return set()


def _has_records(run: Run, store: Path) -> bool:
    return (store / run.records / files.PARSE_REPORT).is_file()


def _margins(studies: Sequence[Study]) -> dict[str, float]:
    margins: dict[str, float] = {}
    for study in studies:
        for metric, margin in study.margins.items():
            if margins.setdefault(metric, margin) != margin:
                raise AnalysisError(
                    f"the experiments have different margins for {metric}",
                    "set the margin in the claim",
                )
    return margins


def _labels(studies: Sequence[Study]) -> Labels:
    return Labels(
        {level.name: study.label(level) for study in studies for level in study.levels},
        {variant.name: variant.label for study in studies for variant in study.variants},
    )


def _manifest(
    paper: Paper,
    drawings: Sequence[Drawing],
    drawn: Sequence[FigurePaths],
    levels: Sequence[RenderedPlot],
    software: dict[str, str],
) -> dict[str, Any]:
    """Return the runs and programs behind each figure."""
    return {
        "format": MANIFEST_FORMAT,
        "paper": paper.title,
        "software": software,
        "records_format": files.RECORDS_FORMAT,
        "experiments": {
            study.name: {
                "asked": study.asked,
                "shrunk": list(study.shrunk),
                "engine": study.provenance.get("engine"),
                "tor": study.provenance.get("tor"),
            }
            for study in paper.studies
        },
        "figures": [
            {
                "paper": drawing.number,
                "id": drawing.data.spec.id,
                "title": drawing.study.figure_title(drawing.data.spec),
                "kind": drawing.data.spec.kind,
                "level": drawing.data.level.name,
                "experiment": drawing.study.name,
                "files": _hashes(paths),
                "data": paths.csv.name,
                "runs": _run_list(drawing.shown),
                "left_out": _run_list(drawing.left_out),
                "missing": _run_list(drawing.missing),
            }
            for drawing, paths in zip(drawings, drawn, strict=True)
        ],
        "levels": [{"files": _hashes(one)} for one in levels],
    }


def _hashes(drawn: FigurePaths | RenderedPlot) -> dict[str, str]:
    """Return the SHA-256 of each file of a drawing."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (drawn.pdf, drawn.png, drawn.csv)
    }


def _run_list(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return [
        {"run_id": run.run_id, "variant": run.variant, "seed": run.seed, "repeat": run.repeat}
        for run in runs
    ]


def _json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _page(
    paper: Paper,
    drawings: Sequence[Drawing],
    drawn: Sequence[FigurePaths],
    answers: Sequence[ClaimResult],
    plots: tuple[RenderedPlot | None, Sequence[RenderedPlot]],
    missing: Sequence[Run],
    manifest: Mapping[str, Any],
    other_study: OtherStudy | None,
) -> str:
    numbers = {drawing.number for drawing in drawings}
    forest, levels = plots
    values = {
        "title": paper.title,
        "confidence": round(100 * CONFIDENCE),
        "error_level": round(100 * LEVEL),
        "answer": claims_answer(answers),
        "forest": None if forest is None else image_uri(forest.svg),
        "forest_caption": "" if forest is None else forest.caption,
        "levels": [{"paths": one, "uri": image_uri(one.svg)} for one in levels],
        "simulated": simulated(*paper.studies),
        "other_study": cross_study_values(answers, other_study),
        "claims": [claim_row(answered, numbers) for answered in sorted_answers(answers)],
        "figures": [
            {
                "number": drawing.number,
                "title": drawing.study.figure_title(drawing.data.spec),
                "paths": paths,
                "uri": image_uri(paths.svg),
                "shown": len(drawing.shown),
                "left_out": len(drawing.left_out),
                "missing": len(drawing.missing),
            }
            for drawing, paths in zip(drawings, drawn, strict=True)
        ],
        "missing": missing,
        "grown": [one.name for one in paper.studies if one.looks is not None and one.looks.several],
        "studies": paper.studies,
        "provenance": _json({name: manifest[name] for name in ("software", "experiments")}),
    }
    return environment().get_template("paper.html.j2").render(values)
