"""Answers to claims.

The tests of a claim's statements form one family: their p-values are corrected together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.judgement.claims.claim import (
    Answer,
    Claim,
    ClaimResult,
    Labels,
    Obstacle,
    Part,
    Untestable,
)
from analysis.judgement.claims.directions import DIRECTIONS
from analysis.judgement.claims.evidence import Evidence
from analysis.judgement.claims.statement import Statement
from analysis.judgement.claims.testable import at_a_bound, cannot_differ
from analysis.judgement.estimates import Statistics
from analysis.judgement.verdicts import Grade, Sides, Verdict, decide
from analysis.measures.contention import ContentionByRun


def answer_claims(
    claims: Iterable[Claim],
    statistics: Statistics,
    margins: Mapping[str, float] | None = None,
    labels: Labels | None = None,
    contention: ContentionByRun | None = None,
) -> list[ClaimResult]:
    """Return the answers to all claims, in order. There is no correction over several claims.

    Args:
        claims: claims whose metrics are known and have a margin.
        statistics: statistics of all runs; a claim remains open if its runs are missing.
        margins: margins of the experiments, as in ``study.Study.margins``.
        labels: labels of levels and variants, for the texts of parts.
        contention: how clients compete in each run. This shows whether variants can differ in the
            run. If it is unknown, only the tests decide.

    Raises:
        AnalysisError: a margin is not positive, or is for an unknown metric.
    """

    def evidence(claim: Claim, metric: str) -> Evidence:
        return Evidence(
            claim, metric, statistics, margins or {}, labels or Labels(), contention or {}
        )

    return [
        _answer(claim, [evidence(claim, metric) for metric in claim.metrics]) for claim in claims
    ]


def _answer(claim: Claim, evidences: Sequence[Evidence]) -> ClaimResult:
    """Return the answer to a claim, given the evidence on each of its metrics."""
    questions = [
        _question(statement, evidence)
        for evidence in evidences
        for statement in DIRECTIONS[claim.direction].statements(claim)
    ]
    verdicts = _decide(sides for question in questions for sides in question.sides)
    beyond = _decide(sides for question in questions for sides in question.beyond)
    parts = tuple(
        _part(
            question,
            len(claim.metrics) > 1,
            [next(verdicts) for _ in question.sides],
            [next(beyond) for _ in question.beyond],
        )
        for question in questions
    )
    return ClaimResult(claim, _combine([part.answer for part in parts]), parts)


def _combine(answers: Sequence[Answer]) -> Answer:
    """Combine the answers to the parts of a claim. A single failing part refutes the claim.

    If no part fails, a single untestable part means that such runs can never support the claim.
    """
    for decides in (Answer.OPPOSITE, Answer.NO_DIFFERENCE, Answer.UNTESTABLE, Answer.OPEN):
        if decides in answers:
            return decides
    return Answer.SUPPORTED


def _decide(family: Iterable[Sides]) -> Iterator[Verdict]:
    """Return the verdicts on comparisons whose p-values are corrected together, in order."""
    return iter(decide((str(number), sides) for number, sides in enumerate(family)).values())


@dataclass(frozen=True)
class _Question:
    """A statement with the comparisons that its answer needs.

    ``sides`` and ``beyond`` come from the statement's methods of the same names. ``reason`` says
    why nothing can be compared; ``untestable`` says why these runs cannot answer the statement.
    """

    statement: Statement
    evidence: Evidence
    sides: tuple[Sides, ...]
    beyond: tuple[Sides, ...]
    reason: str
    untestable: Untestable | None


def _question(statement: Statement, evidence: Evidence) -> _Question:
    reason, untestable = evidence.missing(statement.points), None
    if not reason:
        untestable = at_a_bound(statement, evidence)
        reason = str(untestable or statement.why_not(evidence))
    if reason:
        # A statement without values stays in the family: the other statements are corrected for it.
        sides = (Sides([], [], evidence.margin),) * statement.untested
        return _Question(statement, evidence, sides, (), reason, untestable)
    sides = statement.sides(evidence)
    untestable = cannot_differ(statement, evidence)
    return _Question(statement, evidence, sides, statement.beyond(sides), "", untestable)


def _remaining_obstacle(
    untestable: Untestable | None, verdicts: Sequence[Verdict]
) -> Untestable | None:
    """Return why a part remains untestable after its tests, or None.

    A saturated network carries the same total traffic under every variant. A difference in total
    traffic with the grade "shown" means that the network was not saturated. If the same streams
    fail under both variants, the part remains untestable even if the failure rates differ, because
    only different total numbers of streams can cause this difference.
    """
    saturated = untestable is not None and untestable.obstacle is Obstacle.SATURATED
    differs = any(verdict.grade is Grade.SHOWN for verdict in verdicts)
    return None if saturated and differs else untestable


def _part(
    question: _Question,
    several_metrics: bool,
    verdicts: Sequence[Verdict],
    beyond: Sequence[Verdict],
) -> Part:
    statement, metric = question.statement, question.evidence.metric
    text = statement.text(question.evidence)
    shown, untestable = verdicts[0], _remaining_obstacle(question.untestable, verdicts)
    if untestable is not None:
        answer, reason = Answer.UNTESTABLE, str(untestable)
    elif question.reason:
        answer, reason = Answer.OPEN, question.reason
    elif any(verdict.p_different is None for verdict in verdicts):
        answer, reason = Answer.OPEN, shown.reason
    else:
        answer, reason = statement.judge(verdicts, beyond)
    more = None
    if answer is Answer.OPEN:
        needed = [v.more_networks for v in verdicts if not v.settled]
        more = max((n for n in needed if n is not None), default=None)
        reason = reason or next((v.reason for v in verdicts if v.reason), "")
    tested = answer not in (Answer.OPEN, Answer.UNTESTABLE)
    limiting = _limiting(verdicts)
    own = {
        "count": len(question.evidence.seeds(statement.points)),
        "grade": limiting.grade,
        "p_different": limiting.p_different,
        "more_networks": None if reason else more,
        "reason": reason,
    }
    return Part(
        **(vars(shown) | own),
        text=f"{metric.label}, {text}" if several_metrics else text,
        metric=metric,
        answer=answer,
        untestable=untestable,
        p_answer=statement.answer_p_value(answer, verdicts, beyond) if tested else 1.0,
    )


def _limiting(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict that limits how certain a statement is.

    A statement that needs two tests is only as certain as the one with the larger p-value. If one
    of them shows that there is no relevant difference, this decides.
    """
    same = (verdict for verdict in verdicts if verdict.grade is Grade.SAME)
    return next(same, max(verdicts, key=lambda one: _p_or_one(one.p_different)))


def _p_or_one(p_value: float | None) -> float:
    return 1.0 if p_value is None else p_value
