"""The distinct runs of a paper's studies, and the runs that each figure shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.errors import AnalysisError
from analysis.figures.catalogue import open_figure
from analysis.figures.kind import FigureData
from analysis.figures.style import check_look
from analysis.formats.plan_file import format_network
from analysis.formats.study import Level, Run, Study

Key = tuple[str, str, int, int]
"""Level, variant, seed of the network, and repeat of a run."""


@dataclass(frozen=True)
class PaperFigure:
    """One of the paper's figures, with three groups of runs: shown, excluded and missing."""

    number: int
    data: FigureData
    shown: list[Run]
    left_out: list[Run]
    missing: list[Run]


def run_key(run: Run) -> Key:
    """Return the key that identifies a run in all studies of a paper."""
    return run.level, run.variant, run.seed, run.repeat


def distinct_runs(studies: Sequence[Study]) -> dict[Key, Run]:
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
            first, known = runs.setdefault(run_key(run), (study, run))
            if run.run_id != known.run_id:
                raise AnalysisError(
                    f"{first.name} and {study.name} have different runs of {run.variant} at the "
                    f"level {run.level}, {format_network(run.seed, run.repeat)}",
                    "their settings have to be the same: see the two experiments' files",
                )
    return {key: runs[key][1] for key in sorted(runs)}


def collect_figures(studies: Sequence[Study], existing: Mapping[Key, Run]) -> list[PaperFigure]:
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


def _assign_runs(
    figure: PaperFigure, study: Study, level: str, existing: Mapping[Key, Run]
) -> None:
    """Divide a level's runs into three groups: shown in the figure, excluded and missing.

    Networks differ by more than variants do. Lines of two variants from different networks would
    therefore show differences that the variants do not have. So the figure shows a repeat of a
    network only if every variant has a run of it. Variants without any run do not count. If no
    repeat of a network meets this condition, the figure shows all runs that exist.
    """
    runs = [run for v in study.variants for run in study.runs_of(level, v.name)]
    present = [run for run in runs if run_key(run) in existing]
    seeds: dict[str, set[tuple[int, int]]] = {}
    for run in present:
        seeds.setdefault(run.variant, set()).add((run.seed, run.repeat))
    common = set.intersection(*seeds.values()) if seeds else set()
    figure.missing.extend(run for run in runs if run not in present)
    for run in present:
        is_shown = not common or (run.seed, run.repeat) in common
        (figure.shown if is_shown else figure.left_out).append(run)
