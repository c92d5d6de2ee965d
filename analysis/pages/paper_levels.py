"""Plots of a paper's variants over levels, one for each baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.figures.forest import RenderedPlot
from analysis.figures.levels import write_levels
from analysis.formats import files
from analysis.formats.study import Run, Study, Variant
from analysis.judgement.compared import VariantComparison
from analysis.judgement.judging import Statistics
from analysis.pages.paper_runs import Key, run_key
from analysis.pages.summary import endpoint_comparisons, summarise


def write_paper_levels(
    studies: Sequence[Study], existing: Mapping[Key, Run], statistics: Statistics, out: Path
) -> list[RenderedPlot]:
    """Draw the levels of all studies with the same baseline together, in the order of studies.

    Args:
        studies: of the paper.
        existing: the runs that have records.
        statistics: of these runs.
        out: directory for ``levels-<baseline>``.pdf, .png and .csv.

    Returns:
        A plot for each baseline with at least two levels and more than one seed.
    """
    compared: dict[str, dict[tuple[str, str], VariantComparison]] = {}
    variants: dict[str, Variant] = {}
    for study in studies:
        runs = tuple(run for run in study.runs if run_key(run) in existing)
        if study.baseline is None or not runs:
            continue
        variants |= {variant.name: variant for variant in study.variants}
        # Judge as for the paper's claims, as if there had been one look at the runs.
        plan = study.model_copy(update={"runs": runs, "looks": None})
        for one in endpoint_comparisons(plan, summarise(plan, statistics)):
            # The same runs may belong to several studies.
            found = compared.setdefault(study.baseline, {})
            found.setdefault(one.key, replace(one, place=plan.label(plan.level(one.key[0]))))
    drawn = (
        write_levels(list(found.values()), variants, out / f"{files.LEVELS_AGAINST}{baseline}")
        for baseline, found in compared.items()
    )
    return [one for one in drawn if one is not None]
