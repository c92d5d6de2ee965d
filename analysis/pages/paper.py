"""A paper's figures and claims from the runs that repeat it: one folder, one manifest, one page.

The same runs give the same bytes. Runs that are not there are named wherever they are missed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.figures.forest import Drawn, write_panels
from analysis.figures.style import COLUMN
from analysis.figures.writing import FigurePaths, write_figure
from analysis.formats import files
from analysis.formats.json_files import read_json
from analysis.formats.study import Run, Study
from analysis.inference.intervals import CONFIDENCE
from analysis.judgement.claims.answers import answer_claims
from analysis.judgement.claims.claim import Answered, Claim, Labels
from analysis.judgement.judging import RunStatistics, Statistics, add_run, over_networks
from analysis.judgement.verdicts import LEVEL
from analysis.measures.leeway import Leeway, Leeways, leeway, of_repeats
from analysis.measures.run_data import load_run
from analysis.pages.beside import Beside, beside_csv, beside_values
from analysis.pages.claim_tables import claim_row, claims_csv, claims_data
from analysis.pages.claims_answer import CAPTION, claims_answer, claims_panel, sorted_answers
from analysis.pages.html import environment, image_uri, replaced, write_answer
from analysis.pages.paper_levels import write_paper_levels
from analysis.pages.paper_runs import Drawing, Key, distinct_runs, drawings_of, key_of
from analysis.pages.simulated import simulated

MANIFEST_FORMAT = 1

Runs = Mapping[Key, Run]


@dataclass(frozen=True)
class Paper:
    """What is to be repeated.

    Attributes:
        title: which paper.
        studies: the experiments that repeat it; the same level, variant and seed is the same run in
            all of them.
        claims: what it says.
    """

    title: str
    studies: tuple[Study, ...]
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class PaperPaths:
    """What ``build`` wrote, and the answers."""

    html: Path
    manifest: Path
    claims_csv: Path
    claims_json: Path
    figures: tuple[FigurePaths, ...]
    answers: tuple[Answered, ...]
    missing: tuple[Run, ...]


def answers_beside(paper: Paper, store: Path, title: str) -> Beside:
    """The answers of other runs of a paper's experiments, for ``build``.

    Args:
        paper: their studies, and the same claims.
        store: as for ``build``.
        title: where the runs come from.

    Raises:
        AnalysisError: the studies do not fit together, none of their runs is there, or records are
            damaged.
    """
    there = _there(paper, store)
    if not there:
        raise AnalysisError(f"{title}: none of the runs is there", "pack them again")
    answers = _answers(paper, _statistics(paper, store, there, ()))
    return Beside(title, tuple(simulated(*paper.studies)), answers)


def build(
    paper: Paper,
    store: Path,
    out: Path,
    software: Mapping[str, str] | None = None,
    beside: Beside | None = None,
) -> PaperPaths:
    """Writes the figures, claims.csv, claims.json, manifest.json and figures.html into ``out``.

    Args:
        paper: with every run that there should be.
        store: directory to which the studies' run and record directories are relative.
        out: made if missing; what an earlier call wrote there is replaced.
        software: names and versions of what made the runs, for the manifest.
        beside: other runs' answers to the same claims, for claims-beside.csv and the page.

    Raises:
        AnalysisError: the studies do not fit together, there is nothing to draw, no run at all is
            there, or records are damaged.
    """
    runs = distinct_runs(paper.studies)
    there = _there(paper, store)
    missing = tuple(run for key, run in runs.items() if key not in there)
    drawings = drawings_of(paper.studies, there)
    if not (drawings or paper.claims):
        raise AnalysisError(
            "there is no claim to answer, and no figure of these experiments has a number in the "
            "paper",
            "give one to each: figures: [{..., paper: 8}]",
        )
    if not there:
        raise AnalysisError(
            f"none of the {len(runs)} runs is in the store", "leave NO_RUN out, and they are made"
        )
    measured = _statistics(paper, store, there, drawings)
    answers = _answers(paper, measured)
    out.mkdir(parents=True, exist_ok=True)
    drawn_names = [f"{d.data.spec.id}.{end}" for d in drawings for end in ("pdf", "png", "csv")]
    plots = [f"{files.CLAIMS}.{end}" for end in ("pdf", "png")] if answers else []
    tables = (
        *plots,
        files.ANSWER,
        files.CLAIMS_CSV,
        files.CLAIMS_JSON,
        *([files.CLAIMS_BESIDE_CSV] if beside else []),
        files.FIGURES_INDEX,
        files.FIGURES_PAGE,
    )
    # Of an earlier call with other claims, or with figures that have other names now.
    before = _drawn_before(out / files.FIGURES_INDEX)
    written = [*drawn_names, *tables]
    with replaced(out, written) as scratch:
        drawn = [write_figure(d.data, d.study, scratch, COLUMN) for d in drawings]
        write_answer(scratch, claims_answer(answers))
        (scratch / files.CLAIMS_JSON).write_text(
            _json(claims_data(paper.title, answers)), encoding="utf-8"
        )
        levels = write_paper_levels(paper.studies, there, measured.statistics, scratch)
        written += [path.name for one in levels for path in (one.pdf, one.png, one.csv)]
        manifest = _manifest(paper, drawings, drawn, levels, dict(software or {}))
        (scratch / files.FIGURES_INDEX).write_text(_json(manifest), encoding="utf-8")
        table, forest = claims_csv(answers), None
        if answers:
            forest = write_panels([claims_panel(answers)], table, scratch / files.CLAIMS, CAPTION)
        else:
            (scratch / files.CLAIMS_CSV).write_text(table, encoding="utf-8")
        if beside:
            table = beside_csv(answers, beside)
            (scratch / files.CLAIMS_BESIDE_CSV).write_text(table, encoding="utf-8")
        html = _page(paper, drawings, drawn, answers, (forest, levels), missing, manifest, beside)
        (scratch / files.FIGURES_PAGE).write_text(html, encoding="utf-8")
    for name in (before - set(written)) | (set() if beside else {files.CLAIMS_BESIDE_CSV}):
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


def _there(paper: Paper, store: Path) -> Runs:
    """The runs that have records, each once."""
    runs = distinct_runs(paper.studies)
    return {key: run for key, run in runs.items() if _has_records(run, store)}


@dataclass(frozen=True)
class _Measured:
    """What there is of the runs: the metrics, and what their clients got and could have got."""

    statistics: Statistics
    leeways: Leeways


def _statistics(paper: Paper, store: Path, there: Runs, drawings: Sequence[Drawing]) -> _Measured:
    """The metrics of these runs, whose data go to the drawings that show them as well."""
    runs: RunStatistics = {}
    leeways: dict[tuple[str, str, int], list[Leeway]] = {}
    study_of = {level.name: study for study in paper.studies for level in study.levels}
    # One run's records at a time, and each once, though several figures show it.
    for run in there.values():
        study, level = study_of[run.level], study_of[run.level].level(run.level)
        with study.naming(run):
            data = load_run(store / run.records, level)
            add_run(runs, run, data)
            place = run.level, run.variant, study.replicate(run)
            leeways.setdefault(place, []).append(leeway(data, level))
        for drawing in drawings:
            if key_of(run) in map(key_of, drawing.shown):
                drawing.data.add(run.variant, study.replicate(run), data, level)
    scopes = {study.scope for study in paper.studies}
    if len(scopes) > 1:
        raise AnalysisError(
            "the experiments have different scopes", "claims are about networks or one network"
        )
    return _Measured(
        over_networks(runs, scopes.pop()),
        {place: of_repeats(own) for place, own in leeways.items()},
    )


def _answers(paper: Paper, measured: _Measured) -> tuple[Answered, ...]:
    margins, labels = _margins(paper.studies), _labels(paper.studies)
    return tuple(
        answer_claims(paper.claims, measured.statistics, margins, labels, measured.leeways)
    )


def _drawn_before(manifest: Path) -> set[str]:
    """The figures' files that an earlier manifest lists; none where there is no such manifest."""
    try:
        index = read_json(manifest)
        # The second is younger than the first.
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
                    "a claim may set its own: margin",
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
    levels: Sequence[Drawn],
    software: dict[str, str],
) -> dict[str, Any]:
    """Which figure is of which runs, made with what."""
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
                "title": drawing.study.title_of(drawing.data.spec),
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


def _hashes(drawn: FigurePaths | Drawn) -> dict[str, str]:
    """SHA-256 of each file of a drawing."""
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
    answers: Sequence[Answered],
    plots: tuple[Drawn | None, Sequence[Drawn]],
    missing: Sequence[Run],
    manifest: Mapping[str, Any],
    beside: Beside | None,
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
        "beside": beside_values(answers, beside),
        "claims": [claim_row(answered, numbers) for answered in sorted_answers(answers)],
        "figures": [
            {
                "number": drawing.number,
                "title": drawing.study.title_of(drawing.data.spec),
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
