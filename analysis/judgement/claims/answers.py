"""Answers to claims.

The tests of a claim's statements form one family: their p-values are corrected together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from analysis.judgement.claims.statement import Statement, p_or_one
from analysis.judgement.claims.testable import at_a_bound, cannot_differ
from analysis.judgement.estimates import Statistics
from analysis.judgement.verdicts import Grade, Sides, Verdict, decide
from analysis.measures.catalogue import METRICS, OWN
from analysis.measures.contention import ContentionByRun

_METRIC = {metric.name: metric for metric in METRICS}


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
    common = statistics, labels or Labels(), contention or {}
    results = []
    for claim in claims:
        own = {} if claim.margin is None else dict.fromkeys(claim.metrics, claim.margin)
        policies = OWN.with_margins({**(margins or {}), **own})
        evidences = [
            Evidence(claim, _METRIC[name], policies[name], *common) for name in claim.metrics
        ]
        results.append(_answer(claim, evidences))
    return results


def _answer(claim: Claim, evidences: Sequence[Evidence]) -> ClaimResult:
    """Return the answer to a claim, given the evidence on each of its metrics."""
    questions = [
        _question(statement, evidence)
        for evidence in evidences
        for statement in DIRECTIONS[claim.direction].statements(claim)
    ]
    # Comparisons with and without the margin are two families.
    verdicts = iter(decide([sides for question in questions for sides in question.sides]))
    beyond = iter(decide([sides for question in questions for sides in question.beyond]))
    parts = tuple(
        _part(
            question,
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
    order = Answer.OPPOSITE, Answer.NO_DIFFERENCE, Answer.UNTESTABLE, Answer.OPEN
    return next((answer for answer in order if answer in answers), Answer.SUPPORTED)


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
    reason = evidence.missing(statement.points)
    untestable = None if reason else at_a_bound(statement, evidence)
    reason = reason or str(untestable or statement.why_not(evidence))
    if reason:
        # A statement without values stays in the family: the other statements are corrected for it.
        sides = (Sides([], [], evidence.policy.margin),) * statement.untested
        return _Question(statement, evidence, sides, (), reason, untestable)
    sides = statement.sides(evidence)
    untestable = cannot_differ(statement, evidence)
    return _Question(statement, evidence, sides, statement.beyond(sides), "", untestable)


def _part(question: _Question, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Part:
    statement, evidence = question.statement, question.evidence
    text = statement.text(evidence)
    if len(evidence.claim.metrics) > 1:
        text = f"{evidence.metric.label}, {text}"
    shown, untestable = verdicts[0], question.untestable
    differs = any(verdict.grade is Grade.SHOWN for verdict in verdicts)
    if untestable is not None and untestable.obstacle is Obstacle.SATURATED and differs:
        # A saturated network carries the same total traffic under every variant, so this one is
        # not. But where the same streams fail, only other total numbers of streams can cause a
        # difference of rates, so the part remains untestable.
        untestable = None
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
    limiting = _limiting(verdicts)
    own = {
        "count": len(evidence.seeds(statement.points)),
        "grade": limiting.grade,
        "p_different": limiting.p_different,
        "more_networks": None if reason else more,
        "reason": reason,
    }
    return Part(
        **(vars(shown) | own),
        text=text,
        metric=evidence.metric,
        answer=answer,
        untestable=untestable,
        p_answer=statement.answer_p_value(answer, verdicts, beyond),
    )


def _limiting(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict that limits how certain a statement is.

    A statement that needs two tests is only as certain as the one with the larger p-value. If one
    of them shows that there is no relevant difference, this decides.
    """
    same = (verdict for verdict in verdicts if verdict.grade is Grade.SAME)
    return next(same, max(verdicts, key=lambda one: p_or_one(one.p_different)))
