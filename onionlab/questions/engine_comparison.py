"""The same experiment on several engines: what moves with the engine, and which conclusions do.

Two reports come of it, made by the same code as any other. In the first the engines are compared,
one level for each variant, paired by seed: how far the engines themselves are apart. In the second
the variants are compared, one level for each engine: whether the difference between variants,
which is what a study concludes from, is the same. `effects.csv` has those differences side by side.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.formats import files
from analysis.formats.plan_file import Request
from analysis.formats.study import FigureSpec, Level, Study, Variant, load_study, write_study
from analysis.pages import report
from onionlab.errors import UserError
from onionlab.runs.plan import Plan
from onionlab.runs.planning import make_plan
from onionlab.runs.study_file import update_provenance
from onionlab.runs.workflow.drive import make_runs
from onionlab.runs.workflow.executor import Executor

# One look for each engine, in the order in which they are compared; the first is the baseline.
_LOOKS = (
    {"color": "#4477AA", "marker": "s", "linestyle": "-"},
    {"color": "#EE6677", "marker": "o", "linestyle": "--"},
    {"color": "#228833", "marker": "^", "linestyle": "-."},
)

EFFECT_COLUMNS = ("level", "class", "metric", "unit", "variant", "baseline", "pairs")


@dataclass(frozen=True)
class EngineComparison:
    """What was written."""

    between_engines: Path
    between_variants: Path
    effects: Path


def compare_engines(
    root: Path,
    request: Request,
    engines: Sequence[str],
    *,
    jobs: int | None,
    say: Callable[[str], None],
    executor: Executor | None = None,
) -> EngineComparison:
    """Make an experiment's runs on each engine, and the reports on what differs.

    Raises UserError where an engine is missing (before anything runs) or a run fails.
    """
    if not 2 <= len(engines) <= len(_LOOKS):
        raise UserError(f"a comparison takes 2 to {len(_LOOKS)} engines, got {len(engines)}")
    out = root / "results" / f"{Path(request.experiment).stem}-engines"
    plans = {
        name: make_plan(root, replace(request, engine=name), say=say, out=out / "plans" / name)
        for name in engines
    }
    make_runs(root, list(plans.values()), jobs=jobs, say=say, executor=executor)
    for plan in plans.values():
        update_provenance(plan)
    studies = {name: load_study(plan.study) for name, plan in plans.items()}
    between_engines = _report(engine_study(studies), plans, out / "between-engines")
    between_variants = _report(variant_study(studies), plans, out / "between-variants")
    effects = out / files.EFFECTS_CSV
    write_effects(between_variants.with_name(files.SUMMARY_CSV), engine_levels(studies), effects)
    return EngineComparison(between_engines, between_variants, effects)


def engine_study(studies: Mapping[str, Study]) -> Study:
    """Return one study from those of the engines: engines in the place of variants."""
    first = next(iter(studies.values()))
    labels = {variant.name: variant.label for variant in first.variants}
    return Study(
        **_common(studies),
        title=f"{first.title}: engine against engine",
        description=(
            f"The same networks, repeats and variants on {_and(list(studies))}. Differences here "
            "are between engines, for one variant at a time."
        ),
        baseline=next(iter(studies)),
        variants=tuple(
            Variant(name=engine, label=engine, description=_description(study), **look)
            for (engine, study), look in zip(studies.items(), _LOOKS, strict=False)
        ),
        levels=_levels(first, labels),
        figures=_figures(first, labels),
        runs=tuple(
            run.model_copy(update={"variant": engine, "level": _joined(run.level, run.variant)})
            for engine, study in studies.items()
            for run in study.runs
        ),
    )


def variant_study(studies: Mapping[str, Study]) -> Study:
    """Return one study from those of the engines: a level for each engine."""
    first = next(iter(studies.values()))
    engines = {engine: engine for engine in studies}
    return Study(
        **_common(studies),
        title=f"{first.title}: variant against variant, on each engine",
        description=f"The same networks, repeats and variants on {_and(list(studies))}.",
        baseline=first.baseline,
        variants=first.variants,
        levels=_levels(first, engines),
        figures=_figures(first, engines),
        runs=tuple(
            run.model_copy(update={"level": _joined(run.level, engine)})
            for engine, study in studies.items()
            for run in study.runs
        ),
    )


def _joined(name: str, other: str) -> str:
    return f"{name}-{other}"


def engine_levels(studies: Mapping[str, Study]) -> dict[str, tuple[str, str]]:
    """Of each level of `variant_study`, the experiment's level and the engine."""
    first = next(iter(studies.values()))
    return {
        _joined(level.name, engine): (level.name, engine)
        for level in first.levels
        for engine in studies
    }


def write_effects(summary: Path, levels: Mapping[str, tuple[str, str]], path: Path) -> None:
    """Write each difference between variants with one column group for each engine.

    Args:
        summary: the summary.csv of `variant_study`'s report.
        levels: what its levels stand for, as `engine_levels` says.
        path: the table that is written.
    """
    engines = list(dict.fromkeys(engine for _, engine in levels.values()))
    rows: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    with summary.open(newline="") as lines:
        for row in csv.DictReader(lines):
            level, engine = levels[row["level"]]
            if row["diff"]:
                key = (level, *(row[column] for column in EFFECT_COLUMNS[1:]))
                rows.setdefault(key, {})[engine] = row
    numbers = ("diff", "diff_low", "diff_high", "ratio", "ratio_low", "ratio_high")
    with path.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            [*EFFECT_COLUMNS, *(f"{engine}_{number}" for engine in engines for number in numbers)]
        )
        for key, by_engine in rows.items():
            writer.writerow(
                [
                    *key,
                    *(
                        by_engine.get(engine, {}).get(number, "")
                        for engine in engines
                        for number in numbers
                    ),
                ]
            )


def _report(study: Study, plans: dict[str, Plan], out: Path) -> Path:
    write_study(out / files.STUDY, study)
    store = next(iter(plans.values())).store
    return report.build(out / files.STUDY, store, out)


def _common(studies: Mapping[str, Study]) -> dict[str, Any]:
    first = next(iter(studies.values()))
    return {
        "format": first.format,
        "name": f"{first.name}-engines",
        "asked": {**first.asked, "engines": list(studies)},
        "shrunk": first.shrunk,
        "margins": first.margins,
        "endpoints": first.endpoints,
        "scope": first.scope,
        "provenance": {engine: study.provenance for engine, study in studies.items()},
    }


def _levels(first: Study, parts: Mapping[str, str]) -> tuple[Level, ...]:
    """Each level once for each part, an engine or a variant: name -> label."""
    return tuple(
        level.model_copy(
            update={
                "name": _joined(level.name, name),
                "label": label if len(first.levels) == 1 else f"{level.label}, {label}",
            }
        )
        for level in first.levels
        for name, label in parts.items()
    )


def _figures(first: Study, parts: Mapping[str, str]) -> tuple[FigureSpec, ...]:
    """Each figure once for each part, an engine or a variant."""
    return tuple(
        figure.model_copy(
            update={"id": _joined(figure.id, name), "level": _joined(figure.level, name)}
        )
        for figure in first.figures
        for name in parts
    )


def _description(study: Study) -> str:
    return ", ".join(f"{key} {value}" for key, value in study.provenance["engine"].items())


def _and(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}"
