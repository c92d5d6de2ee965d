"""NETWORKS=auto: add networks until every endpoint is settled or the budget is spent.

The runs are made in the ordinary way, a few networks at a time. After each addition a sequential
method gives the verdicts, so that repeated looks do not raise the error rate. The budget fixes when
to look (``analysis.inference.sequential.schedule``), not the results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.formats.plan_file import Request
from analysis.formats.study import Looks, Study, load_study
from analysis.inference.sequential import FIRST_LOOK, schedule
from analysis.judgement.judging import (
    Judgement,
    Statistics,
    judge_comparison,
    read_statistics,
    study_design,
)
from onionlab.errors import UserError
from onionlab.runs.planning import make_plan
from onionlab.runs.workflow.drive import make_report, make_runs
from onionlab.runs.workflow.executor import Executor


@dataclass(frozen=True)
class Standing:
    """What one look shows of one comparison."""

    level: str
    variant: str
    judged: tuple[Judgement, ...]

    @property
    def open(self) -> list[Judgement]:
        """Endpoints that more networks can still settle."""
        return [
            judgement
            for judgement in self.judged
            # Without a test after the first look a run lacks a value, now and for good.
            if not judgement.verdict.settled and judgement.verdict.p_different is not None
        ]

    def text(self) -> str:
        """One line for people."""
        words = Counter(judgement.verdict.word for judgement in self.judged)
        counts = ", ".join(f"{count} {word}" for word, count in words.most_common())
        left = "; ".join(
            f"{j.class_name} {j.metric.name}, {j.verdict.more or j.verdict.reason}"
            for j in self.open
        )
        end = f": {left}" if left else ""
        lost = sum(not j.verdict.settled for j in self.judged) - len(self.open)
        if lost:
            end += f" ({lost} lack a value in some run: no number of networks settles them)"
        return f"{self.level}, {self.variant}: {counts or 'no endpoint can be judged'}{end}"


def auto_seeds(
    root: Path,
    request: Request,
    *,
    budget: int,
    jobs: int | None,
    say: Callable[[str], None],
    executor: Executor | None = None,
) -> Path:
    """Run an experiment with as many networks as it takes, at most ``budget``; return the report.

    Raises UserError where there is nothing to compare, or where planning or a run fails.
    """
    if budget < FIRST_LOOK:
        raise UserError(
            f"MAX_NETWORKS: at least {FIRST_LOOK}, as many as the first look needs, got {budget}",
            "to run fewer networks, give their number: NETWORKS=2",
        )
    sizes = schedule(budget)
    for number, size in enumerate(sizes):
        looks = Looks(sizes[: number + 1], budget)
        plan = make_plan(root, replace(request, seeds=size), say, looks=looks)
        study = load_study(plan.study)
        _require_comparison(study)
        if size < budget and size <= _seen(study):
            # An earlier plan has looked at these networks, and the error rate is spent.
            continue
        make_runs(root, [plan], jobs=jobs, say=say, executor=executor)
        reached = standings(study, read_statistics(study, plan.store))
        say(f"look {number + 1} of at most {len(sizes)}, {size} networks")
        for standing in reached:
            say(f"  {standing.text()}")
        if not any(standing.open for standing in reached):
            say(f"all that can be settled is, with {size} of at most {budget} networks")
        elif size == budget:
            say(f"the budget of {budget} networks is spent")
        else:
            continue
        return make_report(root, plan, jobs=jobs, say=say, executor=executor)
    raise AssertionError("the schedule ends at the budget")


def _seen(study: Study) -> int:
    """Return the number of networks that earlier plans have looked at."""
    earlier = () if study.looks is None else study.looks.earlier
    return max((looks.sizes[-1] for looks in earlier), default=0)


def standings(study: Study, statistics: Statistics) -> list[Standing]:
    """What is known about each level and variant of a study.

    Raises:
        AnalysisError: as ``judge_comparison``.
    """
    assert study.baseline is not None
    return [
        Standing(
            level.name,
            variant.name,
            _judged(level.name, variant.name, study, statistics),
        )
        for level in study.levels
        for variant in study.variants
        if variant.name != study.baseline
    ]


def _judged(
    level: str, variant: str, study: Study, statistics: Statistics
) -> tuple[Judgement, ...]:
    found = judge_comparison(level, statistics, variant, study.baseline or "", study_design(study))
    return tuple(judgement for judgement in found if judgement.verdict.grade is not None)


def _require_comparison(study: Study) -> None:
    if study.baseline is None or len(study.variants) < 2:
        raise UserError(
            "NETWORKS=auto compares variants with the baseline, and there is nothing to compare",
            "name the baseline and another variant in VARIANTS, or give the number of networks",
        )
