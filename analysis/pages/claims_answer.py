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

_SHOWN = (Answer.SUPPORTED, Answer.OPPOSITE)


def sorted_answers(answers: Iterable[Answered]) -> list[Answered]:
    """Claims by what was found: differences that are shown, the largest first, then the others.

    Where no difference is shown, no test says anything, or none is possible, the order of the paper
    stays.
    """
    places = {Answer.NO_DIFFERENCE: 1, Answer.UNTESTABLE: 2, Answer.OPEN: 3}

    def place(answered: Answered) -> tuple[int, float]:
        if answered.answer in places:
            return places[answered.answer], 0.0
        return 0, -size_in_margins(answered.deciding)

    return sorted(answers, key=place)


def claims_answer(answers: Sequence[Answered]) -> list[str]:
    """How many claims came out how, the largest differences found, and what is open and why."""
    if not answers:
        return []
    counts = [f"{n} {answer.value}" for answer, n in counted(answers).items() if n]
    count = len(answers)
    first = f"Of {count} claim{'' if count == 1 else 's'}: {_list(counts)}."
    of: dict[Answer, list[Answered]] = {answer: [] for answer in Answer}
    for one in sorted_answers(answers):
        of[one.answer].append(one)
    shown = [one for one in sorted_answers(answers) if one.answer in _SHOWN]
    told = [_told(one) for one in shown[:MOST_TOLD]]
    small = len(of[Answer.NO_DIFFERENCE])
    if small:
        claims = "1 claim is" if small == 1 else f"{small} claims are"
        told.append(
            f"No relevant difference: {claims} of what is shown to be smaller than the margin."
        )
    return [first, *told, *_untestable(of[Answer.UNTESTABLE]), *_open(of[Answer.OPEN])]


def counted(answers: Iterable[Answered]) -> dict[Answer, int]:
    """How many claims have each of the five answers, all of them named."""
    by_answer = Counter(answered.answer for answered in answers)
    return {answer: by_answer[answer] for answer in Answer}


def _told(answered: Answered) -> str:
    """One finding: the claim, and the comparison that decides it."""
    part = answered.deciding
    return f"{answered.answer.value.capitalize()}: {answered.claim.statement} {_rests_on(part)}"


def _rests_on(part: Part) -> str:
    effect, interval = format_effect(part.effect, part.scale, part.metric.unit)
    label = part.metric.label
    # Of claims about several metrics the text names its own.
    words = f"{part.text if part.text.startswith(label) else f'{label}, {part.text}'}: {effect}"
    if interval:
        words = f"{words} {interval}"
    if part.exposure is not None:
        words = (
            f"{words}; harm to up to {100 * part.exposure:.0f}% of networks may have been missed"
        )
    return f"({words}.)"


def _untestable(answers: Sequence[Answered]) -> list[str]:
    """Why claims cannot be tested, the most frequent reason first; the tables have the figures."""
    reasons = Counter(one.deciding.untestable.head for one in answers if one.deciding.untestable)
    words = [f"{n} since {head}" for head, n in reasons.most_common()]
    return [f"Cannot be tested here: {'; '.join(words)}."] if words else []


def _open(answers: Sequence[Answered]) -> list[str]:
    """Why claims are open, the most frequent reason first."""
    if not answers:
        return []
    needed = [one.more_networks for one in answers if one.more_networks is not None]
    words = []
    if needed:
        more = f"about {max(needed)} more would do for all of them"
        words.append(f"{len(needed)} for want of networks ({more})")
    reasons = Counter(one.deciding.reason for one in answers if one.more_networks is None)
    words += [f"{n} since {reason or 'no test can be made'}" for reason, n in reasons.most_common()]
    return [f"Open: {'; '.join(words)}."]


def claims_panel(answers: Iterable[Answered]) -> Panel:
    """The deciding comparison of each claim as a forest plot's panel, in the readers' order."""
    return Panel("", "", tuple(map(_mark, sorted_answers(answers))))


def _mark(answered: Answered) -> Mark:
    part = answered.deciding
    axis = "difference" if part.metric.unit == "1" else "ratio"
    label = answered.claim.id.replace("-", " ")
    return Mark(label, axis, answered.answer.value, part.effect, part.scale, part.margin)


def _list(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
