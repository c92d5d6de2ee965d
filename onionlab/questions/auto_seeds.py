"""NETWORKS=auto: add networks until every endpoint has a final verdict or the budget is spent.

A few networks are added at a time. After each addition an interim analysis (a look) gives the
verdicts. A group-sequential method keeps the error rate of all looks together at the level. The
budget is the maximum number of networks. It alone determines the numbers of networks at which looks
take place (``analysis.inference.sequential.schedule``).
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.formats.plan_file import Request
from analysis.formats.study import Looks, Study, load_study
from analysis.inference.sequential import FIRST_LOOK, schedule
from analysis.judgement.estimates import Statistics, read_statistics
from analysis.judgement.judging import Judgement, judge_comparison, study_design
from onionlab.errors import UserError
from onionlab.runs.plan import make_plan
from onionlab.runs.workflow.drive import make_report, make_runs
from onionlab.runs.workflow.executor import Where

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class InterimResult:
    """The verdicts of one look that compares a variant with the baseline at one level."""

    level: str
    variant: str
    judged: tuple[Judgement, ...]

    @property
    def open(self) -> list[Judgement]:
        """The judgements of undecided endpoints that could be decided with more networks."""
        return [
            judgement
            for judgement in self.judged
            # A verdict has no p-value if the metric has no value in some run. More networks cannot
            # change this.
            if not judgement.verdict.settled and judgement.verdict.p_different is not None
        ]

    def text(self) -> str:
        """Return the verdicts in one line."""
        words = Counter(judgement.verdict.word for judgement in self.judged)
        counts = ", ".join(f"{count} {word}" for word, count in words.most_common())
        left = "; ".join(
            f"{j.class_name} {j.metric.name}, {j.verdict.more or j.verdict.reason}"
            for j in self.open
        )
        end = f": {left}" if left else ""
        lost = sum(not j.verdict.settled for j in self.judged) - len(self.open)
        if lost:
            end += f" ({lost} lack a value in some run, which no network adds)"
        return f"{self.level}, {self.variant}: {counts or 'no endpoint can be judged'}{end}"


def auto_seeds(root: Path, request: Request, where: Where, *, budget: int) -> Path:
    """Run an experiment with as many networks as it needs, at most ``budget``. Return the report.

    Raises:
        UserError: There is nothing to compare, or planning or a run fails.
    """
    if budget < FIRST_LOOK:
        raise UserError(
            f"MAX_NETWORKS: at least {FIRST_LOOK}, as many as the first look needs, got {budget}",
            "to run fewer networks, give their number: NETWORKS=2",
        )
    sizes = schedule(budget)
    for number, size in enumerate(sizes):
        looks = Looks(sizes[: number + 1], budget)
        plan = make_plan(root, replace(request, seeds=size), looks=looks)
        study = load_study(plan.study)
        if study.baseline is None or len(study.variants) < 2:
            raise UserError(
                "NETWORKS=auto compares variants with the baseline, and there is nothing to "
                "compare",
                "name the baseline and another variant in VARIANTS, or give the number of networks",
            )
        earlier = study.looks.earlier if study.looks is not None else ()
        if size < budget and any(size <= looks.sizes[-1] for looks in earlier):
            # Skip this look. An earlier plan of these runs, for instance with another budget, had a
            # look with the same number of networks or more. It has used up the part of the error
            # rate that is reserved for this look.
            continue
        make_runs(root, [plan], where)
        results = interim_results(study, read_statistics(study, plan.store))
        LOG.info("look %d of at most %d, %d networks", number + 1, len(sizes), size)
        for result in results:
            LOG.info("  %s", result.text())
        if not any(result.open for result in results):
            LOG.info("more networks cannot settle more: stopped at %d of at most %d", size, budget)
        elif size == budget:
            LOG.info("the budget of %d networks is spent", budget)
        else:
            continue
        return make_report(root, plan, where)
    raise AssertionError("the schedule ends at the budget")


def interim_results(study: Study, statistics: Statistics) -> list[InterimResult]:
    """Judge each variant against the baseline, at each level of the experiment in ``study``.

    Raises AnalysisError in the same cases as ``judge_comparison``.
    """
    assert study.baseline is not None
    design = study_design(study)
    return [
        InterimResult(
            level.name,
            variant.name,
            tuple(
                judgement
                for judgement in judge_comparison(
                    level.name, statistics, variant.name, study.baseline, design
                )
                if judgement.verdict.grade is not None
            ),
        )
        for level in study.levels
        for variant in study.variants
        if variant.name != study.baseline
    ]
