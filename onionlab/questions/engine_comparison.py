"""Run an experiment on several engines, and compare their results.

There are two reports. The first compares the engines, with one level for each variant; runs are
paired by network. The second compares the variants, with one level for each engine. It shows
whether all engines give the same differences between variants: the conclusions of an experiment
depend only on these differences. `effects.csv` has a row for each difference and columns for each
engine.

A study (study.json) describes an experiment and its runs for the analysis. There is one study for
each engine. Each report is created from a study that combines these studies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.formats import files
from analysis.formats.plan_file import Request
from analysis.formats.study import Study, Variant, load_study, write_study
from analysis.pages import report
from onionlab.errors import UserError
from onionlab.runs.plan import Plan, make_plan
from onionlab.runs.study_file import update_provenance
from onionlab.runs.workflow.drive import make_runs
from onionlab.runs.workflow.executor import Where

# The style of each engine in figures. The first engine is the baseline.
_STYLES = (
    {"color": "#4477AA", "marker": "s", "linestyle": "-"},
    {"color": "#EE6677", "marker": "o", "linestyle": "--"},
    {"color": "#228833", "marker": "^", "linestyle": "-."},
)

EFFECT_COLUMNS = ("level", "class", "metric", "unit", "variant", "baseline", "pairs")
EFFECT_NUMBERS = ("diff", "diff_low", "diff_high", "ratio", "ratio_low", "ratio_high")


def compare_engines(
    root: Path, request: Request, engines: Sequence[str], where: Where
) -> tuple[Path, Path, Path]:
    """Run an experiment on each engine, and write the reports.

    Returns:
        The table of effects, and the reports that compare engines and variants.

    Raises:
        UserError: An engine is missing (before anything runs), or a run fails.
    """
    if not 2 <= len(engines) <= len(_STYLES):
        raise UserError(f"a comparison takes 2 to {len(_STYLES)} engines, got {len(engines)}")
    out = root / "results" / f"{Path(request.experiment).stem}-engines"
    plans = {
        name: make_plan(root, replace(request, engine=name), out=out / "plans" / name)
        for name in engines
    }
    make_runs(root, list(plans.values()), where)
    for plan in plans.values():
        update_provenance(plan.study, plan.store)
    studies = {name: load_study(plan.study) for name, plan in plans.items()}
    between_engines = _report(engine_study(studies), plans, out / "between-engines")
    between_variants = _report(variant_study(studies), plans, out / "between-variants")
    effects = out / files.EFFECTS_CSV
    write_effects(between_variants.with_name(files.SUMMARY_CSV), engine_levels(studies), effects)
    return effects, between_engines, between_variants


def engine_study(studies: Mapping[str, Study]) -> Study:
    """Combine the engines' studies into a study that compares the engines.

    In the result, each engine is a variant, and each pair of level and variant is a level.
    """
    first = next(iter(studies.values()))
    labels = {variant.name: variant.label for variant in first.variants}
    return Study(
        **_common(studies, labels),
        title=f"{first.title}: engine against engine",
        description=(
            f"The same networks, repeats and variants on {_and(list(studies))}. Differences here "
            "are between engines, for one variant at a time."
        ),
        baseline=next(iter(studies)),
        variants=tuple(
            Variant(name=engine, label=engine, description=_description(study), **style)
            for (engine, study), style in zip(studies.items(), _STYLES, strict=False)
        ),
        runs=tuple(
            run.model_copy(update={"variant": engine, "level": _joined(run.level, run.variant)})
            for engine, study in studies.items()
            for run in study.runs
        ),
    )


def variant_study(studies: Mapping[str, Study]) -> Study:
    """Combine the engines' studies into a study that compares the variants on each engine.

    In the result, each pair of level and engine is a level.
    """
    first = next(iter(studies.values()))
    return Study(
        **_common(studies, {engine: engine for engine in studies}),
        title=f"{first.title}: variant against variant, on each engine",
        description=f"The same networks, repeats and variants on {_and(list(studies))}.",
        baseline=first.baseline,
        variants=first.variants,
        runs=tuple(
            run.model_copy(update={"level": _joined(run.level, engine)})
            for engine, study in studies.items()
            for run in study.runs
        ),
    )


def _joined(name: str, other: str) -> str:
    return f"{name}-{other}"


def engine_levels(studies: Mapping[str, Study]) -> dict[str, tuple[str, str]]:
    """Return the two parts of each level of `variant_study`.

    The result is a dict: name of the level -> names of the experiment's level and of the engine.
    """
    first = next(iter(studies.values()))
    return {
        _joined(level.name, engine): (level.name, engine)
        for level in first.levels
        for engine in studies
    }


def write_effects(summary: Path, levels: Mapping[str, tuple[str, str]], path: Path) -> None:
    """Write a table of all differences between variants, with columns for each engine.

    Args:
        summary: The summary.csv of `variant_study`'s report.
        levels: The result of `engine_levels`.
        path: The table to write.
    """
    rows = pd.read_csv(summary, dtype=str, keep_default_na=False).query("diff != ''")
    engines = rows["level"].map({name: engine for name, (_, engine) in levels.items()})
    rows["level"] = rows["level"].map({name: level for name, (level, _) in levels.items()})
    rows = rows.set_index(list(EFFECT_COLUMNS))[list(EFFECT_NUMBERS)]
    parts = [
        rows[(engines == engine).to_numpy()].add_prefix(f"{engine}_")
        for engine in dict.fromkeys(engine for _, engine in levels.values())
    ]
    # pandas moves rows that are missing for the first engine to the end, so restore the order.
    table = pd.concat(parts, axis=1).fillna("").loc[rows.index.unique()].reset_index()
    table.to_csv(path, index=False, lineterminator="\n")


def _report(study: Study, plans: dict[str, Plan], out: Path) -> Path:
    write_study(out / files.STUDY, study)
    store = next(iter(plans.values())).store
    return report.build(out / files.STUDY, store, out)


def _common(studies: Mapping[str, Study], parts: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields that `engine_study` and `variant_study` have in common.

    parts: name -> label. For `engine_study`, the parts are the variants. For `variant_study`, they
    are the engines. In the result, each level and each figure is repeated for each part.
    """
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
        "levels": tuple(
            level.model_copy(
                update={
                    "name": _joined(level.name, name),
                    "label": label if len(first.levels) == 1 else f"{level.label}, {label}",
                }
            )
            for level in first.levels
            for name, label in parts.items()
        ),
        "figures": tuple(
            figure.model_copy(
                update={"id": _joined(figure.id, name), "level": _joined(figure.level, name)}
            )
            for figure in first.figures
            for name in parts
        ),
    }


def _description(study: Study) -> str:
    return ", ".join(f"{key} {value}" for key, value in study.provenance["engine"].items())


def _and(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}"
