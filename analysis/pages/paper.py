"""Write a folder with a paper's figures and the answers to its claims, from runs that reproduce it.

The same runs give byte-identical files. The page figures.html and manifest.json list missing runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.figures.catalogue import open_figure
from analysis.figures.forest import draw
from analysis.figures.kind import FigureData
from analysis.figures.levels import write_levels
from analysis.figures.style import COLUMN, check_look
from analysis.figures.writing import WrittenFigure, write_drawing, write_figure
from analysis.formats import files
from analysis.formats.json_files import read_json
from analysis.formats.plan_file import format_network
from analysis.formats.study import Level, Run, Study, Variant
from analysis.judgement.claims.answers import answer_claims
from analysis.judgement.claims.claim import Claim, ClaimResult, Labels
from analysis.judgement.compared import VariantComparison
from analysis.judgement.estimates import RunStatistics, Statistics, add_run, over_networks
from analysis.judgement.verdicts import LEVEL
from analysis.measures.contention import (
    Contention,
    ContentionByRun,
    combine_repeats,
    measure_contention,
)
from analysis.measures.run_data import load_run
from analysis.pages.claims import (
    CAPTION,
    OtherStudy,
    claims_answer,
    claims_csv,
    claims_data,
    claims_panel,
    cross_study_csv,
    sort_answers,
)
from analysis.pages.html import json_text, render, replaced, write_answer
from analysis.pages.study_notes import simulated
from analysis.pages.summary import endpoint_comparisons, summarise

MANIFEST_FORMAT = 1

Key = tuple[str, str, int, int]
"""Level, variant, seed of the network, and repeat of a run."""
Runs = Mapping[Key, Run]


@dataclass(frozen=True)
class Paper:
    """The paper to reproduce.

    ``studies`` are the experiments that reproduce it. Runs with the same level, variant, network
    and repeat are the same run in all studies.
    """

    title: str
    studies: tuple[Study, ...]
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class PaperFigure:
    """One of the paper's figures, with three groups of runs: shown, excluded and missing."""

    number: int
    data: FigureData
    shown: list[Run]
    left_out: list[Run]
    missing: list[Run]


@dataclass(frozen=True)
class PaperResult:
    """The page written by ``build``, the answers, and the missing runs."""

    html: Path
    answers: tuple[ClaimResult, ...]
    missing: tuple[Run, ...]


def answer_other_study(paper: Paper, store: Path, title: str) -> OtherStudy:
    """Answer a paper's claims from other runs of its experiments, for ``build``.

    title: the source of the runs.

    Raises:
        AnalysisError: the studies do not match, none of their runs exists, or records are damaged.
    """
    existing = _existing_runs(_distinct_runs(paper.studies), store)
    if not existing:
        raise AnalysisError(f"{title}: none of the runs exists", "pack them again")
    answers = _answer_claims(paper, *_measure(paper, store, existing, ()))
    return OtherStudy(title, tuple(simulated(*paper.studies)), answers)


def build(
    paper: Paper,
    store: Path,
    out: Path,
    software: Mapping[str, str] | None = None,
    other_study: OtherStudy | None = None,
) -> PaperResult:
    """Write the figures, claims.csv, claims.json, manifest.json and figures.html into ``out``.

    The output of an earlier call is replaced.

    paper: its studies contain all planned runs, including missing ones.
    store: directory that the studies' run and record directories are relative to.
    software: names and versions of the programs behind the runs, for the manifest.
    other_study: other runs' answers to the same claims, for claims-beside.csv and the page.

    Raises:
        AnalysisError: the studies do not match, there is no figure to draw and no claim to answer,
            no run exists, or records are damaged.
    """
    runs = _distinct_runs(paper.studies)
    existing = _existing_runs(runs, store)
    missing = tuple(run for key, run in runs.items() if key not in existing)
    figures = _collect_figures(paper.studies, existing)
    if not (figures or paper.claims):
        raise AnalysisError(
            "there are neither claims to answer nor figures to draw: no figure of these "
            "experiments has the number of a figure in the paper",
            "add the numbers: figures: [{..., paper: 8}]",
        )
    if not existing:
        raise AnalysisError(
            f"none of the {len(runs)} runs is in the store", "repeat without NO_RUN to run them"
        )
    statistics, contention = _measure(paper, store, existing, figures)
    answers = _answer_claims(paper, statistics, contention)
    tables = {
        files.CLAIMS_JSON: json_text(claims_data(paper.title, answers)) + "\n",
        files.CLAIMS_CSV: claims_csv(answers),
    }
    if other_study:
        tables[files.CLAIMS_BESIDE_CSV] = cross_study_csv(answers, other_study)
    out.mkdir(parents=True, exist_ok=True)
    # An earlier call may have written files of other claims or figures, which are removed below.
    before = _figure_files(out / files.FIGURES_INDEX) | {files.CLAIMS_BESIDE_CSV}
    with replaced(out) as scratch:
        drawn = [write_figure(figure.data, scratch, COLUMN) for figure in figures]
        levels = list(_write_levels(paper.studies, existing, statistics, scratch))
        forest = None
        if answers:
            panel = claims_panel(answers)
            forest = write_drawing(
                lambda: draw([panel]), scratch / files.CLAIMS, "Claims", CAPTION, None
            )
        manifest = _manifest(paper, figures, drawn, levels, dict(software or {}))
        tables[files.FIGURES_INDEX] = json_text(manifest) + "\n"
        provenance = {name: manifest[name] for name in ("software", "experiments")}
        tables[files.FIGURES_PAGE] = render(
            "paper.html.j2",
            title=paper.title,
            error_level=round(100 * LEVEL),
            answer=claims_answer(answers),
            forest=forest,
            levels=levels,
            simulated=simulated(*paper.studies),
            other_study=other_study,
            pairs=other_study.pairs(answers) if other_study else (),
            claims=sort_answers(answers),
            figures=list(zip(figures, drawn, strict=True)),
            numbers={figure.number for figure in figures},
            missing=missing,
            grown=[one.name for one in paper.studies if one.looks and one.looks.several],
            studies=paper.studies,
            provenance=json_text(provenance) + "\n",
        )
        for name, text in tables.items():
            (scratch / name).write_text(text, encoding="utf-8")
        write_answer(scratch, claims_answer(answers))
        written = {path.name for path in scratch.iterdir()}
    for name in before - written:
        (out / name).unlink(missing_ok=True)
    return PaperResult(out / files.FIGURES_PAGE, answers, missing)


def _existing_runs(runs: Runs, store: Path) -> Runs:
    """Return the runs that have records."""
    return {
        key: run
        for key, run in runs.items()
        if (store / run.records / files.PARSE_REPORT).is_file()
    }


def _run_key(run: Run) -> Key:
    """Return the key that identifies a run in all studies of a paper."""
    return run.level, run.variant, run.seed, run.repeat


def _distinct_runs(studies: Sequence[Study]) -> dict[Key, Run]:
    """Return all distinct runs of the studies, sorted by their keys.

    Raises:
        AnalysisError: two studies have different levels with one name, or different runs with one
            key.
    """
    runs: dict[Key, tuple[Study, Run]] = {}
    levels: dict[str, tuple[Study, Level]] = {}
    for study in studies:
        for level in study.levels:
            first, same = levels.setdefault(level.name, (study, level))
            if not level.same_as(same):
                raise AnalysisError(
                    f"{first.name} and {study.name} measure the level {level.name} differently",
                    "claims are about one setting for each level: see the two experiments' files",
                )
        for run in study.runs:
            first, known = runs.setdefault(_run_key(run), (study, run))
            if run.run_id != known.run_id:
                raise AnalysisError(
                    f"{first.name} and {study.name} have different runs of {run.variant} at the "
                    f"level {run.level}, {format_network(run.seed, run.repeat)}",
                    "their settings have to be the same: see the two experiments' files",
                )
    return {key: runs[key][1] for key in sorted(runs)}


def _collect_figures(studies: Sequence[Study], existing: Runs) -> list[PaperFigure]:
    """Return the figures that have a number in the paper, sorted by this number.

    Raises:
        AnalysisError: a kind or a style is invalid, or two figures have the same number or name.
    """
    figures: dict[int, PaperFigure] = {}
    names: set[str] = set()
    for study in studies:
        for variant in study.variants:
            check_look(variant)
        for spec in study.figures:
            if spec.paper is None:
                continue
            if spec.paper in figures:
                other = figures[spec.paper].data.study.name
                raise AnalysisError(f"{other} and {study.name} both draw figure {spec.paper}")
            if spec.id in names:
                raise AnalysisError(f"two figures of the paper have the name {spec.id}")
            names.add(spec.id)
            figure = PaperFigure(spec.paper, open_figure(spec, study), [], [], [])
            for level in study.levels:
                if figure.data.shows(level):
                    _assign_runs(figure, study, level.name, existing)
            figures[spec.paper] = figure
    return [figures[number] for number in sorted(figures)]


def _assign_runs(figure: PaperFigure, study: Study, level: str, existing: Runs) -> None:
    """Divide a level's runs into three groups: shown in the figure, excluded and missing.

    Networks differ by more than variants do. Lines of two variants from different networks would
    therefore show differences that the variants do not have. So the figure shows a repeat of a
    network only if every variant has a run of it. Variants without any run do not count. If no
    repeat of a network meets this condition, the figure shows all runs that exist.
    """
    runs = [run for v in study.variants for run in study.runs_of(level, v.name)]
    present = [run for run in runs if _run_key(run) in existing]
    seeds: dict[str, set[tuple[int, int]]] = {}
    for run in present:
        seeds.setdefault(run.variant, set()).add((run.seed, run.repeat))
    common = set.intersection(*seeds.values()) if seeds else set()
    figure.missing.extend(run for run in runs if run not in present)
    for run in present:
        is_shown = not common or (run.seed, run.repeat) in common
        (figure.shown if is_shown else figure.left_out).append(run)


def _measure(
    paper: Paper, store: Path, existing: Runs, figures: Sequence[PaperFigure]
) -> tuple[Statistics, ContentionByRun]:
    """Compute metrics and contention of runs, and add each run to the figures that show it.

    Contention (see ``measures.contention``) decides whether the runs can test a claim.
    """
    runs: RunStatistics = {}
    contention: dict[tuple[str, str, int], list[Contention]] = {}
    study_by_level = {level.name: study for study in paper.studies for level in study.levels}
    # Load the records of one run at a time, and only once even if several figures show the run.
    for run in existing.values():
        study, level = study_by_level[run.level], study_by_level[run.level].level(run.level)
        with study.naming(run):
            data = load_run(store / run.records, level)
            add_run(runs, run, data)
            place = run.level, run.variant, study.replicate(run)
            contention.setdefault(place, []).append(measure_contention(data, level))
        for figure in figures:
            if _run_key(run) in map(_run_key, figure.shown):
                figure.data.add(run.variant, study.replicate(run), data, level)
    scopes = {study.scope for study in paper.studies}
    if len(scopes) > 1:
        raise AnalysisError(
            "the experiments have different scopes", "claims are about networks or one network"
        )
    by_run = {place: combine_repeats(own) for place, own in contention.items()}
    return over_networks(runs, scopes.pop()), by_run


def _answer_claims(
    paper: Paper, statistics: Statistics, contention: ContentionByRun
) -> tuple[ClaimResult, ...]:
    margins: dict[str, float] = {}
    for study in paper.studies:
        for metric, margin in study.margins.items():
            if margins.setdefault(metric, margin) != margin:
                raise AnalysisError(
                    f"the experiments have different margins for {metric}",
                    "set the margin in the claim",
                )
    labels = Labels(
        {level.name: study.label(level) for study in paper.studies for level in study.levels},
        {variant.name: variant.label for study in paper.studies for variant in study.variants},
    )
    return tuple(answer_claims(paper.claims, statistics, margins, labels, contention))


def _figure_files(manifest: Path) -> set[str]:
    """Return the names of figures' files in ``manifest``; empty if it is missing or damaged."""
    try:
        index = read_json(manifest)
        # Manifests of older versions have no levels.
        plots = [*index["figures"], *index.get("levels", [])]
        return {Path(name).name for plot in plots for name in plot["files"]}
    except (AnalysisError, KeyError, TypeError):
        return set()


def _write_levels(
    studies: Sequence[Study], existing: Runs, statistics: Statistics, out: Path
) -> Iterator[WrittenFigure]:
    """Draw a plot for each baseline, with the levels of all studies that have this baseline.

    The levels are in the order of the studies. Yields the plots, named ``levels-<baseline>``. A
    baseline has no plot if it has fewer than two levels, or if no comparison has several networks.
    """
    compared: dict[str, dict[tuple[str, str], VariantComparison]] = {}
    variants: dict[str, Variant] = {}
    for study in studies:
        runs = tuple(run for run in study.runs if _run_key(run) in existing)
        if study.baseline is None or not runs:
            continue
        variants |= {variant.name: variant for variant in study.variants}
        # Ignore interim analyses, and assume that the runs were analysed only once. The answers to
        # the paper's claims also ignore them.
        plan = study.model_copy(update={"runs": runs, "looks": None})
        for one in endpoint_comparisons(plan, summarise(plan, statistics)):
            # Studies may share runs. Keep the comparison from the first study.
            found = compared.setdefault(study.baseline, {})
            found.setdefault(one.key, replace(one, place=plan.label(plan.level(one.key[0]))))
    for baseline, found in compared.items():
        base = out / f"{files.LEVELS_AGAINST}{baseline}"
        drawn = write_levels(list(found.values()), variants, base)
        if drawn is not None:
            yield drawn


def _manifest(
    paper: Paper,
    figures: Sequence[PaperFigure],
    drawn: Sequence[WrittenFigure],
    levels: Sequence[WrittenFigure],
    software: dict[str, str],
) -> dict[str, Any]:
    """Return the content of manifest.json: the programs, and the runs behind each figure."""
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
                "paper": figure.number,
                "id": written.name,
                "title": written.heading,
                "kind": figure.data.spec.kind,
                "level": figure.data.level.name,
                "experiment": figure.data.study.name,
                "files": _hashes(written),
                "data": written.path("csv").name,
                "runs": _run_list(figure.shown),
                "left_out": _run_list(figure.left_out),
                "missing": _run_list(figure.missing),
            }
            for figure, written in zip(figures, drawn, strict=True)
        ],
        "levels": [{"files": _hashes(one)} for one in levels],
    }


def _hashes(drawn: WrittenFigure) -> dict[str, str]:
    """Return the SHA-256 of each file of a drawing."""
    paths = [drawn.path(extension) for extension in ("pdf", "png", "csv")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _run_list(runs: Sequence[Run]) -> list[dict[str, Any]]:
    names = {"run_id", "variant", "seed", "repeat"}
    return [run.model_dump(include=names) for run in runs]
