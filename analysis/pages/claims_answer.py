"""What a paper's claims came to: in sentences, in an order for readers and as a plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from analysis.figures.forest import Mark, Panel
from analysis.judgement.claims.claim import Answer, Answered, Part
from analysis.judgement.compared import size_in_margins
from analysis.pages.numbers import format_effect

CAPTION = (
    "The comparison on which each answer rests, as the first named against the second, with its "
    "95% interval; the grey band is the margin within which two values count as alike. An arrow: "
    "the interval goes further than is drawn."
)

MOST_TOLD = 3
"""Findings that are told one by one."""


def sorted_answers(answers: Iterable[Answered]) -> list[Answered]:
    """Claims by what was found: differences that are shown, the largest first, then the others.

    Of those that are contradicted since no difference is large enough, and of those not settled,
    the order of the paper stays.
    """

    def place(answered: Answered) -> tuple[int, float]:
        part = answered.deciding
        if answered.answer is Answer.OPEN:
            return 2, 0.0
        if part.too_small:
            return 1, 0.0
        return 0, -size_in_margins(part)

    return sorted(answers, key=place)


def claims_answer(answers: Sequence[Answered]) -> list[str]:
    """How many claims came out how, the largest differences found, and what is open and why."""
    if not answers:
        return []
    by_answer = Counter(answered.answer for answered in answers)
    counts = [f"{by_answer[answer]} {answer.value}" for answer in Answer if by_answer[answer]]
    count = len(answers)
    first = f"Of {count} claim{'' if count == 1 else 's'}: {_list(counts)}."
    shown = [
        one
        for one in sorted_answers(answers)
        if one.answer is not Answer.OPEN and not one.deciding.too_small
    ]
    told = [_told(one) for one in shown[:MOST_TOLD]]
    small = sum(one.deciding.too_small for one in answers)
    if small:
        verb = "claims" if small == 1 else "claim"
        told.append(
            f"{small} of the contradicted {verb} a difference where there is none beyond the "
            "margin."
        )
    return [first, *told, *_open([one for one in answers if one.answer is Answer.OPEN])]


def _told(answered: Answered) -> str:
    """One finding: the claim, and the comparison that decides it."""
    part = answered.deciding
    return f"{answered.answer.value.capitalize()}: {answered.claim.statement} {_rests_on(part)}"


def _rests_on(part: Part) -> str:
    effect, interval = format_effect(part.effect, part.scale, part.metric.unit)
    label = part.metric.label
    # Of claims about several metrics the text names its own.
    words = f"{part.text if part.text.startswith(label) else f'{label}, {part.text}'}: {effect}"
    return f"({words} {interval}.)" if interval else f"({words}.)"


def _open(answers: Sequence[Answered]) -> list[str]:
    """Why claims are not settled, the most frequent reason first."""
    if not answers:
        return []
    seeds = [one.more_seeds for one in answers if one.more_seeds is not None]
    words = []
    if seeds:
        more = f"about {max(seeds)} more would do for all of them"
        words.append(f"{len(seeds)} for want of seeds ({more})")
    reasons = Counter(one.deciding.reason for one in answers if one.more_seeds is None)
    words += [f"{n} since {reason or 'no test can be made'}" for reason, n in reasons.most_common()]
    return [f"Not settled: {'; '.join(words)}."]


def claims_panel(answers: Iterable[Answered]) -> Panel:
    """The deciding comparison of each claim as a forest plot's panel, in the readers' order."""
    return Panel("", "", tuple(map(_mark, sorted_answers(answers))))


def _mark(answered: Answered) -> Mark:
    part = answered.deciding
    looks = "too small" if part.too_small else answered.answer.value
    axis = "difference" if part.metric.unit == "1" else "ratio"
    label = answered.claim.id.replace("-", " ")
    return Mark(label, axis, looks, part.effect, part.scale, part.margin)


def _list(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
