"""The distinct runs of a paper's studies, and the runs that each figure shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from analysis.errors import AnalysisError
from analysis.figures.catalogue import check_kind
from analysis.figures.figure_data import FigureData
from analysis.figures.style import check_look
from analysis.formats.plan_file import format_network
from analysis.formats.study import Level, Run, Study

Key = tuple[str, str, int, int]
"""Level, variant, seed and repeat of a run."""


@dataclass(frozen=True)
class Drawing:
    """One of the paper's figures, with the runs that it shows, excludes and lacks."""

    number: int
    study: Study
    data: FigureData
    shown: tuple[Run, ...]
    left_out: tuple[Run, ...]
    missing: tuple[Run, ...]


def run_key(run: Run) -> Key:
    """Return the key that identifies a run in all studies of a paper."""
    return run.level, run.variant, run.seed, run.repeat


def distinct_runs(studies: Sequence[Study]) -> dict[Key, Run]:
    """Return all distinct runs of the studies, by level, variant, seed and repeat."""
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


def collect_drawings(studies: Sequence[Study], existing: Mapping[Key, Run]) -> list[Drawing]:
    """Return the figures with a number in the paper, by that number."""
    drawings: dict[int, Drawing] = {}
    for study in studies:
        for variant in study.variants:
            check_look(variant)
        for spec in study.figures:
            if spec.paper is None:
                continue
            check_kind(spec)
            if spec.paper in drawings:
                other = drawings[spec.paper].study.name
                raise AnalysisError(f"{other} and {study.name} both draw figure {spec.paper}")
            data = FigureData(spec, study.level(spec.level), study.baseline)
            shown = [
                _runs_to_show(study, level.name, existing)
                for level in study.levels
                if data.shows(level)
            ]
            drawings[spec.paper] = Drawing(
                spec.paper, study, data, *(tuple(chain(*runs)) for runs in zip(*shown, strict=True))
            )
    ids = [drawing.data.spec.id for drawing in drawings.values()]
    for name in ids:
        if ids.count(name) > 1:
            raise AnalysisError(f"two figures of the paper have the name {name}")
    return [drawings[number] for number in sorted(drawings)]


def _runs_to_show(
    study: Study, level: str, existing: Mapping[Key, Run]
) -> tuple[tuple[Run, ...], tuple[Run, ...], tuple[Run, ...]]:
    """Return a level's runs that are shown, excluded and missing.

    Seeds differ by more than variants do. If runs are missing, lines of different seeds would show
    differences that do not exist. So only the seeds that all variants have are shown.
    """
    runs = [run for v in study.variants for run in study.runs_of(level, v.name)]
    present = [run for run in runs if run_key(run) in existing]
    missing = tuple(run for run in runs if run not in present)
    seeds = {
        variant: {(run.seed, run.repeat) for run in present if run.variant == variant}
        for variant in dict.fromkeys(run.variant for run in present)
    }
    common = set.intersection(*seeds.values()) if seeds else set()
    shown = tuple(run for run in present if (run.seed, run.repeat) in common or not common)
    return shown, tuple(run for run in present if run not in shown), missing
