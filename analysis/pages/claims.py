"""The answers to a paper's claims: in sentences, as a plot, and as CSV and JSON files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.figures.effect_panels import effect_axis
from analysis.figures.forest import EffectPanel, effect_mark
from analysis.formats.csv_tables import csv_text
from analysis.inference.intervals import CONFIDENCE
from analysis.judgement.claims.claim import Answer, ClaimResult, Part
from analysis.judgement.compared import interval_record, size_in_margins
from analysis.judgement.verdicts import LEVEL, exposure
from analysis.pages.numbers import format_effect

CAPTION = (
    "The comparison that determines each answer, the first against the second, with its "
    "95% interval; the grey band is the margin within which two values count as equivalent. An "
    "arrow: the interval exceeds the axis."
)

MAX_DESCRIBED = 3
"""Maximum number of shown differences that are described individually."""

ORDER = {Answer.NO_DIFFERENCE: 1, Answer.UNTESTABLE: 2, Answer.OPEN: 3}
"""Sort positions of the answers that follow the shown differences."""


def sort_answers(answers: Iterable[ClaimResult]) -> list[ClaimResult]:
    """Sort claims by answer: first shown differences, the largest first, then ``ORDER``.

    Claims with the same answer in ``ORDER`` keep the order of the paper.
    """

    def place(answered: ClaimResult) -> tuple[int, float]:
        if answered.answer in ORDER:
            return ORDER[answered.answer], 0.0
        return 0, -size_in_margins(answered.deciding)

    return sorted(answers, key=place)


def count_answers(answers: Iterable[ClaimResult]) -> dict[Answer, int]:
    """Return the number of claims with each of the five answers."""
    by_answer = Counter(answered.answer for answered in answers)
    return {answer: by_answer[answer] for answer in Answer}


def claims_answer(answers: Sequence[ClaimResult]) -> list[str]:
    """Return sentences on the answers: their counts, the largest shown differences, and reasons."""
    if not answers:
        return []
    count, by_answer = len(answers), count_answers(answers)
    *others, last = [f"{n} {answer.value}" for answer, n in by_answer.items() if n]
    counts = f"{', '.join(others)} and {last}" if others else last
    sentences = [f"Of {count} claim{'' if count == 1 else 's'}: {counts}."]
    shown = [one for one in sort_answers(answers) if one.answer not in ORDER]
    sentences += [
        f"{one.answer.value.capitalize()}: {one.claim.statement} {_describe(one.deciding)}"
        for one in shown[:MAX_DESCRIBED]
    ]
    if small := by_answer[Answer.NO_DIFFERENCE]:
        claims = "1 claim is" if small == 1 else f"{small} claims are"
        sentences.append(
            f"No relevant difference: {claims} about differences smaller than the margin."
        )
    untestable = Counter(
        one.deciding.untestable.head
        for one in answers
        if one.answer is Answer.UNTESTABLE and one.deciding.untestable
    )
    if untestable:
        sentences.append(f"Cannot be tested here: {'; '.join(_reasons(untestable))}.")
    unsettled = [one for one in answers if one.answer is Answer.OPEN]
    if unsettled:
        sentences.append(f"Open: {'; '.join(_open_reasons(unsettled))}.")
    return sentences


def _describe(part: Part) -> str:
    """Return the comparison that determines an answer, with its effect, in parentheses."""
    effect, interval = format_effect(part.effect, part.scale, part.metric.unit)
    label = part.metric.label
    # If a claim is about several metrics, the text of each part already begins with the metric.
    words = f"{part.text if part.text.startswith(label) else f'{label}, {part.text}'}: {effect}"
    if interval:
        words += f" {interval}"
    return f"({'; '.join(filter(None, (words, _missed_harm(part))))}.)"


def _missed_harm(part: Part) -> str:
    """Return a clause with the share of networks in which harm may have been missed, or ""."""
    share = exposure(part.metric, part.count)
    if share is None:
        return ""
    return f"harm to up to {100 * share:.0f}% of networks may have been missed"


def part_note(part: Part) -> str:
    """Return the note on a comparison in the table of claims."""
    missed = "" if part.answer is Answer.OPEN else _missed_harm(part)
    return "; ".join(filter(None, (part.reason or part.more, missed)))


def _open_reasons(answers: Sequence[ClaimResult]) -> list[str]:
    """Return why claims are open: first too few networks, then other reasons by frequency."""
    needed = [one.more_networks for one in answers if one.more_networks is not None]
    words = []
    if needed:
        more = f"about {max(needed)} more would be enough for all"
        words.append(f"{len(needed)} because of too few networks ({more})")
    others = (one.deciding.reason for one in answers if one.more_networks is None)
    return words + _reasons(Counter(reason or "no test is possible" for reason in others))


def _reasons(counts: Counter[str]) -> list[str]:
    return [f"{n} because {reason}" for reason, n in counts.most_common()]


def claims_panel(answers: Iterable[ClaimResult]) -> EffectPanel:
    """Return a panel of a forest plot with the deciding comparison of each claim.

    The claims have the order of ``sort_answers``.
    """
    marks = {
        (effect_axis(part.metric), one.claim.id.replace("-", " ")): effect_mark(part, one.answer)
        for one in sort_answers(answers)
        for part in [one.deciding]
    }
    return EffectPanel("", "", marks)


CLAIM_COLUMNS = (
    "claim", "section", "figures", "statement", "direction", "metrics", "class", "levels",
    "variants", "answer", "part", "metric", "scale", "effect", "low", "high", "margin",
    "p_different", "p_equivalent", "grade", "seeds", "agreeing", "more_networks", "note",
    "obstacle",
)  # fmt: skip

ANSWER_COLUMNS = (
    "answer", "effect", "low", "high", "scale", "seeds", "more_networks", "part", "note",
)  # fmt: skip
CROSS_STUDY_COLUMNS = (
    "claim", "statement", *ANSWER_COLUMNS, *(f"{name}_beside" for name in ANSWER_COLUMNS),
)  # fmt: skip

CLAIMS_FORMAT = 3
"""Version of claims.json. Versions can answer the same claim differently.

Files of version 1 do not contain the version.
"""


@dataclass(frozen=True)
class OtherStudy:
    """The answers to the same claims from other runs, of another size, engine or version of Tor.

    ``title`` is their source. ``simulated`` has the scale and engine, then a line for each level.
    """

    title: str
    simulated: tuple[str, ...]
    answers: tuple[ClaimResult, ...]

    def pairs(self, answers: Sequence[ClaimResult]) -> list[tuple[ClaimResult, ClaimResult]]:
        """Return each of ``answers`` with the other runs' answer to the same claim."""
        others = {one.claim.id: one for one in self.answers}
        return [(one, others[one.claim.id]) for one in answers]


def claims_csv(answers: Sequence[ClaimResult]) -> str:
    """Return claims.csv: a line for each claim, with the comparison that determines its answer."""
    return csv_text(map(_csv_record, answers), CLAIM_COLUMNS)


def cross_study_csv(answers: Sequence[ClaimResult], other_study: OtherStudy) -> str:
    """Return claims-beside.csv, with a line for each claim.

    The names of the columns with the other runs' answer end with ``_beside``.
    """
    rows = (
        _csv_record(here) | {f"{name}_beside": one for name, one in _csv_record(there).items()}
        for here, there in other_study.pairs(answers)
    )
    return csv_text(rows, CROSS_STUDY_COLUMNS)


def claims_data(title: str, answers: Sequence[ClaimResult]) -> dict[str, Any]:
    """Return all claims of the paper with all of their comparisons, as plain data."""
    return {
        "format": CLAIMS_FORMAT,
        "paper": title,
        "error_level": LEVEL,
        "confidence": CONFIDENCE,
        "answers": {answer.value: count for answer, count in count_answers(answers).items()},
        "claims": [
            _claim_data(answered)
            | {
                "deciding_part": answered.parts.index(answered.deciding),
                "parts": [_part_data(part) for part in answered.parts],
            }
            for answered in answers
        ],
    }


def _csv_record(answered: ClaimResult) -> dict[str, Any]:
    claim = {
        name: " ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in _claim_data(answered).items()
    }
    part = answered.deciding
    return _part_data(part) | claim | {"claim": answered.claim.id, "part": part.text}


def _claim_data(answered: ClaimResult) -> dict[str, Any]:
    claim = answered.claim
    names = ("id", "statement", "section", "figures", "direction", "metrics", "levels", "variants")
    return {
        **{name: getattr(claim, name) for name in names},
        "class": claim.class_name,
        "answer": answered.answer.value,
        "seeds": answered.seeds,
        "more_networks": answered.more_networks,
    }


def _part_data(part: Part) -> dict[str, Any]:
    names = ("text", "margin", "p_different", "p_equivalent", "grade", "agreeing", "more_networks")
    data = {
        **{name: getattr(part, name) for name in names},
        "metric": part.metric.name,
        "answer": part.answer.value,
        "scale": part.scale if part.effect else None,
        **interval_record(part.effect),
        "seeds": part.count,
        "note": part.reason,
        "obstacle": None if part.untestable is None else part.untestable.obstacle.value,
    }
    # Round to nine digits, so that all machines give the same file. No metric is that precise.
    return {
        name: float(f"{value:.9g}") if isinstance(value, float) else value
        for name, value in data.items()
    }
