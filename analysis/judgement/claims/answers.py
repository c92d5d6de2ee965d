"""Claims answered: every statement of a claim tested on the runs, as one family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.judgement.claims.claim import (
    Answer,
    Answered,
    Claim,
    Labels,
    Obstacle,
    Part,
    Untestable,
)
from analysis.judgement.claims.directions import DIRECTIONS
from analysis.judgement.claims.evidence import Evidence
from analysis.judgement.claims.statement import Statement
from analysis.judgement.claims.testable import at_a_bound, cannot_differ
from analysis.judgement.judging import Statistics
from analysis.judgement.verdicts import Grade, Paired, Verdict, decide
from analysis.measures.leeway import Leeways
from analysis.measures.metric import Metric


def answer_claims(
    claims: Iterable[Claim],
    statistics: Statistics,
    margins: Mapping[str, float] | None = None,
    labels: Labels | None = None,
    leeways: Leeways | None = None,
) -> list[Answered]:
    """Answers to all claims, in their order; each claim is a family of its own.

    Args:
        claims: their metrics are known and have a margin.
        statistics: of all runs; what is missing there leaves a claim not settled.
        margins: of the experiments, as in ``study.Study.margins``.
        labels: for the parts' texts.
        leeways: what the runs say of whether a choice could matter in them; of a run that is not
            there nobody knows, and the tests alone answer.

    Raises:
        AnalysisError: a margin that fits no metric.
    """

    def evidence(claim: Claim, metric: str) -> Evidence:
        return Evidence(claim, metric, statistics, margins or {}, labels or Labels(), leeways or {})

    return [
        _answer(claim, [evidence(claim, metric) for metric in claim.metrics]) for claim in claims
    ]


def _answer(claim: Claim, evidences: Sequence[Evidence]) -> Answered:
    """The answer to a claim; one piece of evidence for each of its metrics."""
    questions = []
    for evidence in evidences:
        for statement in DIRECTIONS[claim.direction].statements(claim):
            questions.append(_question(statement, evidence, several=len(claim.metrics) > 1))
    verdicts = _decide(sides for question in questions for sides in question.sides)
    beyond = _decide(sides for question in questions for sides in question.beyond)
    parts = tuple(
        _part(
            question,
            [next(verdicts) for _ in question.sides],
            [next(beyond) for _ in question.beyond],
        )
        for question in questions
    )
    return Answered(claim, _together([part.answer for part in parts]), parts)


def _together(answers: Sequence[Answer]) -> Answer:
    """The answer to a claim that takes all of its parts: one that fails is enough to refute it.

    Where none fails, a part that cannot be tested keeps it from ever being supported by such runs.
    """
    for decides in (Answer.OPPOSITE, Answer.NO_DIFFERENCE, Answer.UNTESTABLE, Answer.OPEN):
        if decides in answers:
            return decides
    return Answer.SUPPORTED


def _decide(family: Iterable[Paired]) -> Iterator[Verdict]:
    """Verdicts on one family, in its order."""
    return iter(decide((str(number), sides) for number, sides in enumerate(family)).values())


@dataclass(frozen=True)
class _Question:
    """A statement with the values that answer it.

    Attributes:
        statement: what would have to hold.
        text: the same for readers.
        metric: whose values they are.
        sides: as ``Statement.sides``.
        beyond: as ``Statement.beyond``.
        seeds: how many have a run at all points.
        reason: why nothing can be compared; "" if something can.
        untestable: why these runs cannot answer it, if so.
    """

    statement: Statement
    text: str
    metric: Metric
    sides: tuple[Paired, ...]
    beyond: tuple[Paired, ...]
    seeds: int
    reason: str
    untestable: Untestable | None


def _question(statement: Statement, evidence: Evidence, several: bool) -> _Question:
    """A statement with its values; ``several``: its claim is about more than one metric."""
    text = statement.text(evidence)
    if several:
        text = f"{evidence.metric.label}, {text}"
    reason, untestable = evidence.missing(statement.points), None
    if not reason:
        untestable = at_a_bound(statement, evidence)
        reason = str(untestable or statement.why_not(evidence))
    if reason:
        # Without values it stays in the family, so that the others are corrected for it.
        sides = (Paired([], [], evidence.margin),) * statement.untested
        beyond: tuple[Paired, ...] = ()
    else:
        sides = statement.sides(evidence)
        beyond = statement.beyond(sides)
        untestable = cannot_differ(statement, evidence)
    seeds = len(evidence.seeds(statement.points))
    return _Question(statement, text, evidence.metric, sides, beyond, seeds, reason, untestable)


def _left(untestable: Untestable | None, verdicts: Sequence[Verdict]) -> Untestable | None:
    """What still keeps a part from being tested, after its tests.

    A saturated network carries the same whoever gets it; a difference in what it carries that is
    not shown to be small means that it was not so saturated. Whether the same streams fail is plain
    without a test, and their rate may differ for the number of the others.
    """
    saturated = untestable is not None and untestable.obstacle is Obstacle.SATURATED
    differs = any(verdict.grade is Grade.SHOWN for verdict in verdicts)
    return None if saturated and differs else untestable


def _part(question: _Question, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Part:
    shown, untestable = verdicts[0], _left(question.untestable, verdicts)
    if untestable is not None:
        answer, reason = Answer.UNTESTABLE, str(untestable)
    elif question.reason:
        answer, reason = Answer.OPEN, question.reason
    elif any(verdict.p_different is None for verdict in verdicts):
        answer, reason = Answer.OPEN, shown.reason
    else:
        answer, reason = question.statement.judge(verdicts, beyond)
    more = None
    if answer is Answer.OPEN:
        needed = [v.more_networks for v in verdicts if not v.settled]
        more = max((n for n in needed if n is not None), default=None)
        reason = reason or next((v.reason for v in verdicts if v.reason), "")
    tested = answer not in (Answer.OPEN, Answer.UNTESTABLE)
    return Part(
        question.text,
        question.metric,
        answer,
        shown.effect,
        shown.scale,
        shown.margin,
        shown.p_different,
        shown.p_equivalent,
        question.seeds,
        None if reason else more,
        reason,
        untestable,
        question.statement.p_behind(answer, verdicts, beyond) if tested else 1.0,
        shown.grade,
        shown.agreeing,
    )
