"""The answer of a study in a few sentences, made from the verdicts on its endpoints."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.inference.intervals import CONFIDENCE
from analysis.judgement.compared import Compared, size_in_margins
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import Grade
from analysis.measures.data import ALL
from analysis.pages.numbers import format_number, readable_unit, scaled

MOST_NAMED = 3
"""Comparisons whose differences are told one by one."""

MOST_LISTED = 4
"""Metrics that are named in one list."""


def answer(compared: Sequence[Compared]) -> list[str]:
    """What differs, what is alike, what is open: a sentence or two for each, none where nothing is.

    Args:
        compared: all comparisons of the study; none: it has no baseline.
    """
    judged = [one for one in compared if one.judgements]
    if not judged:
        return []
    if max(j.verdict.count for one in judged for j in one.judgements) == 1:
        return ["There is one seed, and nothing can be judged by one: make more, say SEEDS=5."]
    return [*_differences(judged), *_alike(judged), *_open(judged)]


def _differences(compared: Sequence[Compared]) -> list[str]:
    clauses = []
    for one in compared:
        for direction, words in (
            ("worse", "worse than"), ("better", "better than"), ("", "different from")
        ):  # fmt: skip
            found = one.of(Grade.SHOWN, direction)
            if found:
                size = size_in_margins(found[0].verdict)
                clauses.append((size, _clause(one, words, found)))
    if not clauses:
        return [f"No difference from {_baselines(compared)} is shown."]
    # Of equal ones the order of the study stays.
    clauses.sort(key=lambda clause: -clause[0])
    told = [text for _, text in clauses[:MOST_NAMED]]
    left = len(clauses) - len(told)
    more = [f"{left} more such findings stand below."] if left > 1 else []
    return [*told, *([clauses[-1][1]] if left == 1 else []), *more]


def _clause(one: Compared, words: str, found: Sequence[Judgement]) -> str:
    where = f" ({one.place})" if one.place else ""
    most = f"{_metric(found[0])}, {_effect(found[0])}"
    if len(found) == 1:
        return f"{one.variant} is {words} {one.baseline} in {most}{where}."
    return (
        f"{one.variant} is {words} {one.baseline} in {len(found)} of {len(one.judgements)} "
        f"endpoints{where}, most in {most}."
    )


def _alike(compared: Sequence[Compared]) -> list[str]:
    alike = [judgement for one in compared for judgement in one.of(Grade.SAME)]
    if not alike:
        return []
    total = sum(len(one.judgements) for one in compared)
    if len(alike) == total:
        return [f"All {total} endpoints are shown to be alike, within their margins."]
    names = list(dict.fromkeys(map(_metric, alike)))
    listed = f" ({'; '.join(names)})" if len(names) <= MOST_LISTED else ""
    return [f"Shown to be alike, within their margins: {len(alike)} of {total} endpoints{listed}."]


def _open(compared: Sequence[Compared]) -> list[str]:
    unknown = [judgement for one in compared for judgement in one.of(Grade.OPEN)]
    if not unknown:
        return []
    total = sum(len(one.judgements) for one in compared)
    count = "All" if len(unknown) == total else f"{len(unknown)} of"
    verb = "is" if len(unknown) == 1 else "are"
    text = f"{count} {total} endpoints {verb} open"
    needed = max((j.verdict.more_networks or 0 for j in unknown), default=0)
    return [f"{text}; about {needed} more networks would settle what can be settled."
            if needed else f"{text}."]  # fmt: skip


def _baselines(compared: Sequence[Compared]) -> str:
    return " or ".join(dict.fromkeys(one.baseline for one in compared))


def _metric(judgement: Judgement) -> str:
    label = judgement.metric.label
    words = label[0].lower() + label[1:]
    return words if judgement.class_name == ALL else f"{words} ({judgement.class_name})"


def _effect(judgement: Judgement) -> str:
    """An effect with its interval, in words: that of a ratio, or of a difference with its unit."""
    verdict = judgement.verdict
    if verdict.effect is None:
        return "by how much cannot be told"
    if verdict.scale == "ratio":
        text = f"{verdict.effect.estimate:.2f} times"
        low, high = (f"{b:.2f}" if b else "" for b in (verdict.effect.low, verdict.effect.high))
    else:
        factor, unit = readable_unit(judgement.metric.unit)
        unit = "points" if unit == "%" else unit
        of = scaled(verdict.effect, factor)
        assert of is not None
        text = f"{format_number(of.estimate, sign=True)} {unit}".strip()
        low, high = (
            format_number(b, sign=True) if b is not None else "" for b in (of.low, of.high)
        )
    return f"{text} ({100 * CONFIDENCE:g}% interval {low} to {high})" if low and high else text
