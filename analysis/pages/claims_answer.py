"""The answers to a paper's claims: in sentences, sorted for readers, and as a plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from analysis.figures.forest import Mark, Panel
from analysis.judgement.claims.claim import Answer, ClaimResult, Part
from analysis.judgement.compared import size_in_margins
from analysis.pages.numbers import format_effect

CAPTION = (
    "The comparison that determines each answer, the first against the second, with its "
    "95% interval; the grey band is the margin within which two values count as equivalent. An "
    "arrow: the interval exceeds the axis."
)

MAX_DESCRIBED = 3
"""Maximum number of findings that are described individually."""

_SHOWN = (Answer.SUPPORTED, Answer.OPPOSITE)


def sorted_answers(answers: Iterable[ClaimResult]) -> list[ClaimResult]:
    """Sort claims by their result: shown differences, the largest first, then the others.

    Claims with other answers keep the order of the paper.
    """
    places = {Answer.NO_DIFFERENCE: 1, Answer.UNTESTABLE: 2, Answer.OPEN: 3}

    def place(answered: ClaimResult) -> tuple[int, float]:
        if answered.answer in places:
            return places[answered.answer], 0.0
        return 0, -size_in_margins(answered.deciding)

    return sorted(answers, key=place)


def claims_answer(answers: Sequence[ClaimResult]) -> list[str]:
    """Return the counts of answers, the largest differences, and the reasons for open claims."""
    if not answers:
        return []
    counts = [f"{n} {answer.value}" for answer, n in counted(answers).items() if n]
    count = len(answers)
    first = f"Of {count} claim{'' if count == 1 else 's'}: {_list(counts)}."
    by_answer: dict[Answer, list[ClaimResult]] = {answer: [] for answer in Answer}
    for one in sorted_answers(answers):
        by_answer[one.answer].append(one)
    shown = [one for one in sorted_answers(answers) if one.answer in _SHOWN]
    sentences = [_describe(one) for one in shown[:MAX_DESCRIBED]]
    small = len(by_answer[Answer.NO_DIFFERENCE])
    if small:
        claims = "1 claim is" if small == 1 else f"{small} claims are"
        sentences.append(
            f"No relevant difference: {claims} about differences smaller than the margin."
        )
    return [
        first,
        *sentences,
        *_untestable(by_answer[Answer.UNTESTABLE]),
        *_open(by_answer[Answer.OPEN]),
    ]


def counted(answers: Iterable[ClaimResult]) -> dict[Answer, int]:
    """Return the number of claims with each of the five answers."""
    by_answer = Counter(answered.answer for answered in answers)
    return {answer: by_answer[answer] for answer in Answer}


def _describe(answered: ClaimResult) -> str:
    """Describe one finding: the claim, and the comparison that determines its answer."""
    part = answered.deciding
    return f"{answered.answer.value.capitalize()}: {answered.claim.statement} {_rests_on(part)}"


def _rests_on(part: Part) -> str:
    effect, interval = format_effect(part.effect, part.scale, part.metric.unit)
    label = part.metric.label
    # The text of a claim about several metrics already contains the metric.
    words = f"{part.text if part.text.startswith(label) else f'{label}, {part.text}'}: {effect}"
    if interval:
        words = f"{words} {interval}"
    if part.exposure is not None:
        words = (
            f"{words}; harm to up to {100 * part.exposure:.0f}% of networks may have been missed"
        )
    return f"({words}.)"


def _untestable(answers: Sequence[ClaimResult]) -> list[str]:
    """Return why claims cannot be tested, the most frequent reason first."""
    reasons = Counter(one.deciding.untestable.head for one in answers if one.deciding.untestable)
    words = [f"{n} because {head}" for head, n in reasons.most_common()]
    return [f"Cannot be tested here: {'; '.join(words)}."] if words else []


def _open(answers: Sequence[ClaimResult]) -> list[str]:
    """Return why claims are open, the most frequent reason first."""
    if not answers:
        return []
    needed = [one.more_networks for one in answers if one.more_networks is not None]
    words = []
    if needed:
        more = f"about {max(needed)} more would be enough for all"
        words.append(f"{len(needed)} because of too few networks ({more})")
    reasons = Counter(one.deciding.reason for one in answers if one.more_networks is None)
    words += [
        f"{n} because {reason or 'no test is possible'}" for reason, n in reasons.most_common()
    ]
    return [f"Open: {'; '.join(words)}."]


def claims_panel(answers: Iterable[ClaimResult]) -> Panel:
    """Return the deciding comparison of each claim as a forest plot's panel, sorted for readers."""
    return Panel("", "", tuple(map(_mark, sorted_answers(answers))))


def _mark(answered: ClaimResult) -> Mark:
    part = answered.deciding
    axis = "difference" if part.metric.unit == "1" else "ratio"
    label = answered.claim.id.replace("-", " ")
    return Mark(label, axis, answered.answer.value, part.effect, part.scale, part.margin)


def _list(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
