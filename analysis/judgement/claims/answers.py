"""Claims answered: every statement of a claim tested on the runs, as one family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.judgement.claims.claim import Answer, Answered, Claim, Labels, Part
from analysis.judgement.claims.directions import DIRECTIONS
from analysis.judgement.claims.evidence import Evidence
from analysis.judgement.claims.statement import Statement
from analysis.judgement.judging import Statistics
from analysis.judgement.verdicts import Paired, Verdict, decide
from analysis.measures.metric import Metric


def answer_claims(
    claims: Iterable[Claim],
    statistics: Statistics,
    margins: Mapping[str, float] | None = None,
    labels: Labels | None = None,
) -> list[Answered]:
    """Answers to all claims, in their order; each claim is a family of its own.

    Args:
        claims: their metrics are known and have a margin.
        statistics: of all runs; what is missing there leaves a claim not settled.
        margins: of the experiments, as in ``study.Study.margins``.
        labels: for the parts' texts.

    Raises:
        AnalysisError: a margin that fits no metric.
    """
    return [_answer(claim, statistics, margins or {}, labels or Labels()) for claim in claims]


def _answer(
    claim: Claim, statistics: Statistics, margins: Mapping[str, float], labels: Labels
) -> Answered:
    questions = []
    for metric in claim.metrics:
        evidence = Evidence(claim, metric, statistics, margins, labels)
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
    answers = {part.answer for part in parts}
    answer = Answer.OPEN
    if Answer.CONTRADICTED in answers:
        answer = Answer.CONTRADICTED
    elif answers == {Answer.SUPPORTED}:
        answer = Answer.SUPPORTED
    return Answered(claim, answer, parts)


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
    """

    statement: Statement
    text: str
    metric: Metric
    sides: tuple[Paired, ...]
    beyond: tuple[Paired, ...]
    seeds: int
    reason: str


def _question(statement: Statement, evidence: Evidence, several: bool) -> _Question:
    """A statement with its values; ``several``: its claim is about more than one metric."""
    text = statement.text(evidence)
    if several:
        text = f"{evidence.metric.label}, {text}"
    reason = evidence.missing(statement.points) or statement.why_not(evidence)
    if reason:
        # Without values it stays in the family, so that the others are corrected for it.
        sides = (Paired([], [], evidence.margin),) * statement.untested
        beyond: tuple[Paired, ...] = ()
    else:
        sides = statement.sides(evidence)
        beyond = statement.beyond(sides)
    seeds = len(evidence.seeds(statement.points))
    return _Question(statement, text, evidence.metric, sides, beyond, seeds, reason)


def _part(question: _Question, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Part:
    shown = verdicts[0]
    if question.reason:
        answer, reason = Answer.OPEN, question.reason
    elif any(verdict.p_different is None for verdict in verdicts):
        answer, reason = Answer.OPEN, shown.reason
    else:
        answer, reason = question.statement.judge(verdicts, beyond)
    more = None
    if answer is Answer.OPEN:
        needed = [v.more_seeds for v in verdicts if not v.settled]
        more = max((n for n in needed if n is not None), default=None)
        reason = reason or next((v.reason for v in verdicts if v.reason), "")
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
    )
