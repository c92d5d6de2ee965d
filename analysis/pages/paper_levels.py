"""How a paper's variants differ from level to level: one plot for each baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.figures.forest import Drawn
from analysis.figures.levels import write_levels
from analysis.formats import files
from analysis.formats.study import Run, Study, Variant
from analysis.judgement.compared import Compared
from analysis.judgement.judging import Statistics
from analysis.pages.paper_runs import Key, key_of
from analysis.pages.summary import compared_of, summarise


def write_paper_levels(
    studies: Sequence[Study], there: Mapping[Key, Run], statistics: Statistics, out: Path
) -> list[Drawn]:
    """Draws the levels of all studies with the same baseline together, in the studies' order.

    Args:
        studies: of the paper.
        there: the runs that have records.
        statistics: of those.
        out: where ``levels-<baseline>``.pdf, .png and .csv are written.

    Returns:
        One for each baseline with two levels or more, and more than one seed.
    """
    compared: dict[str, dict[tuple[str, str], Compared]] = {}
    variants: dict[str, Variant] = {}
    for study in studies:
        runs = tuple(run for run in study.runs if key_of(run) in there)
        if study.baseline is None or not runs:
            continue
        variants |= {variant.name: variant for variant in study.variants}
        # Judged as the paper's claims are: as if there had been one look at the runs.
        plan = study.model_copy(update={"runs": runs, "looks": None})
        for one in compared_of(plan, summarise(plan, statistics)):
            # The same runs may be of several studies.
            found = compared.setdefault(study.baseline, {})
            found.setdefault(one.key, replace(one, place=plan.label(plan.level(one.key[0]))))
    drawn = (
        write_levels(list(found.values()), variants, out / f"{files.LEVELS_AGAINST}{baseline}")
        for baseline, found in compared.items()
    )
    return [one for one in drawn if one is not None]
