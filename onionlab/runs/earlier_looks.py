"""Looks that a study's runs have had before: with fewer networks, or with a smaller budget.

Whoever adds networks until a verdict appears looks at the same data again and again. What was
looked at is kept in study.json, and the next plan of the same runs goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.formats.plan_file import PlannedRun
from analysis.formats.study import Looks, PlannedLooks, Run, Study, load_study
from onionlab.runs.store import Store


def with_earlier_looks(
    study: Path, store: Store, runs: Sequence[PlannedRun], looks: Looks | None
) -> Looks | None:
    """The looks of a plan, with those that its runs had under the study that stands there.

    Args:
        study: study.json of the plan before, if there is one.
        store: where runs are.
        runs: of the new plan.
        looks: of the new plan alone; None: one look at all runs.

    Returns:
        None for one look at runs that were not looked at before.
    """
    try:
        before = load_study(study)
    except AnalysisError:
        # None yet, or of another version: nothing is known of its looks.
        return looks
    named = {run.run_id for run in runs}
    shared = [run for run in before.runs if run.run_id in named and store.is_finished(run.run_id)]
    if not shared:
        return looks
    seeds = replicates_in(runs)
    own = looks or Looks((seeds,), seeds)
    earlier = [
        past
        for past in _looks_of(before, store)
        if past.judges
        and past.sizes[0] <= own.sizes[-1]
        and not _same(past, own, growing=looks is not None)
    ]
    if looks is None and not earlier:
        return None
    return Looks(own.sizes, own.budget, tuple(earlier))


def looks_together(parts: Sequence[Looks | None], replicates: int) -> Looks | None:
    """The looks of a study that is put together of parts, each with networks of its own.

    Whoever looked at a part of a part before saw some of what all of them tell, and so did whoever
    looked several times while a part grew.

    Args:
        parts: the looks of each part; None: it was looked at once, as a whole.
        replicates: networks of all parts together, or repeats of the only one.
    """
    known = [looks for looks in parts if looks is not None]
    before = {past for looks in known for past in looks.earlier}
    before |= {PlannedLooks(one.sizes, one.budget) for one in known if len(one.sizes) > 1}
    earlier = sorted(before, key=lambda past: past.plan)
    return Looks((replicates,), replicates, tuple(earlier)) if earlier else None


def _same(past: PlannedLooks, own: PlannedLooks, growing: bool) -> bool:
    """Whether it is the same plan again, or more of it: that is no further look."""
    return past.budget == own.budget and (growing or past.sizes == own.sizes)


def _looks_of(study: Study, store: Store) -> list[PlannedLooks]:
    """All plans that a study knows of, its own last: that one only where its runs were finished."""
    found = [] if study.looks is None else list(study.looks.earlier)
    if all(store.is_finished(run.run_id) for run in study.runs):
        if study.looks is not None:
            found.append(PlannedLooks(study.looks.sizes, study.looks.budget))
        elif seeds := replicates_in(study.runs):
            found.append(PlannedLooks((seeds,), seeds))
    return found


def replicates_in(runs: Sequence[PlannedRun] | Sequence[Run]) -> int:
    """Return the number of networks, or of the repeats where there is one network."""
    networks = {run.seed for run in runs}
    return len(networks) if len(networks) > 1 else len({run.repeat for run in runs})
