"""Record interim analyses (looks) of the same runs under earlier plans.

An earlier plan may have had fewer networks or a smaller budget (maximum number of networks). Who
adds networks until a verdict appears looks at the same data repeatedly. This raises the error rate
unless the tests take all looks into account, so study.json lists all looks.
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
    """Return the looks (interim analyses) of a plan, including earlier looks at its runs.

    study: the path of the earlier plan's study.json, which may be missing. looks: the looks of the
    new plan only; None means one look at all runs. Return None if ``looks`` is None and no look
    under another plan is known.
    """
    try:
        before = load_study(study)
    except AnalysisError:
        # The file is missing or has another version, so earlier looks are unknown.
        return looks
    named = {run.run_id for run in runs}
    shared = [run for run in before.runs if run.run_id in named and store.is_finished(run.run_id)]
    if not shared:
        return looks
    seeds = replicates_in(runs)
    own = looks or Looks((seeds,), seeds)
    earlier = [
        past
        for past in _list_looks(before, store)
        if past.judges
        and past.sizes[0] <= own.sizes[-1]
        # The looks of a past plan that this plan repeats or extends are also looks of this plan,
        # so they are not counted again. A plan with `looks` grows network by network.
        and not (past.budget == own.budget and (looks is not None or past.sizes == own.sizes))
    ]
    if looks is None and not earlier:
        return None
    return Looks(own.sizes, own.budget, tuple(earlier))


def looks_together(parts: Sequence[Looks | None], replicates: int) -> Looks | None:
    """Return the looks (interim analyses) of a study that is merged from several parts.

    The parts have different networks. The analysis of the merged study is one look at all networks.
    Earlier looks of the merged study are the earlier looks of each part and, if the plan of a part
    has several looks, these looks. The result is None if there are no earlier looks.

    parts: the looks of each part; None means one look at the whole part. replicates: the number of
    networks of all parts, or of repeats of the only network.
    """
    known = [looks for looks in parts if looks is not None]
    before = {past for looks in known for past in looks.earlier}
    before |= {PlannedLooks(one.sizes, one.budget) for one in known if len(one.sizes) > 1}
    earlier = sorted(before, key=lambda past: past.plan)
    return Looks((replicates,), replicates, tuple(earlier)) if earlier else None


def _list_looks(study: Study, store: Store) -> list[PlannedLooks]:
    """Return the looks of a study's earlier plans, and of its own plan if its runs are finished."""
    seeds = replicates_in(study.runs)
    own = study.looks or Looks((seeds,), seeds)
    is_finished = all(store.is_finished(run.run_id) for run in study.runs)
    return [*own.earlier, *([PlannedLooks(own.sizes, own.budget)] if is_finished else [])]


def replicates_in(runs: Sequence[PlannedRun] | Sequence[Run]) -> int:
    """Return the number of networks, or of repeats if there is only one network."""
    networks = {run.seed for run in runs}
    return len(networks) if len(networks) > 1 else len({run.repeat for run in runs})
