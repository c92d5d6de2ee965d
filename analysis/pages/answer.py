"""The answer of a study in sentences, from the verdicts on its endpoints."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.inference.intervals import CONFIDENCE
from analysis.inference.sample_size import POWER
from analysis.judgement.compared import VariantComparison
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import LEVEL, Grade, exposure
from analysis.measures.data import ALL
from analysis.measures.families.durations import DURATIONS
from analysis.measures.metric import rank_label
from analysis.pages.numbers import format_difference, format_number, readable_unit

PILOT_BELOW = 5
"""Below this number of networks a study is a pilot, which detects only large differences."""


def answer(
    compared: Sequence[VariantComparison], *, error_level: float | None = LEVEL
) -> list[str]:
    """Return paragraphs on the number of networks, each level and endpoint, and the power.

    If there are several comparisons, the last paragraph states the probability of a false "shown".
    The list is empty without endpoints.

    Args:
        compared: all comparisons of the study; empty if it has no baseline.
        error_level: probability of a false "shown" in each comparison. None omits the last
            paragraph, for example if all comparisons share one error level.
    """
    judged = [one for one in compared if one.judgements]
    if not judged:
        return []
    unit = judged[0].judgements[0].verdict.replicate
    counts = sorted({one.networks for one in judged})
    if counts[-1] == 1:
        return [
            f"Pilot, 1 {unit}: differences between {unit}s are unknown, so nothing "
            f"can be judged. Run more of them, for example with {unit.upper()}S=5.",
            *_endpoints(judged),
        ]
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    if unit == "repeat":
        first = f"{many} repeats of one network: the answer is about this network."
    else:
        first = f"{'Pilot, ' if counts[0] < PILOT_BELOW else ''}{many} networks."
    paragraphs = [first, *_endpoints(judged), *_detectable(judged)]
    if error_level is not None and len(judged) > 1:
        together = 1 - (1 - error_level) ** len(judged)
        paragraphs.append(
            f'The chance of a false "shown" is {100 * error_level:.2g}% for each of the '
            f"{len(judged)} comparisons, and may reach {100 * together:.0f}% for all of them "
            "together."
        )
    return paragraphs


def _endpoints(compared: Sequence[VariantComparison]) -> list[str]:
    """Return one paragraph for each level and endpoint, with a sentence for each variant."""
    groups: dict[tuple[str, str, str, str], list[tuple[VariantComparison, Judgement]]] = {}
    for one in compared:
        for judgement in one.judgements:
            key = (one.place, one.baseline, judgement.class_name, judgement.metric.name)
            groups.setdefault(key, []).append((one, judgement))
    return [_paragraph(place, group) for (place, *_), group in groups.items()]


def _paragraph(place: str, group: Sequence[tuple[VariantComparison, Judgement]]) -> str:
    sentences = [f"{place}:"] if place else []
    for number, (one, judgement) in enumerate(group):
        if number == 0:
            effect = _first(one, judgement)
        else:  # the metric and the baseline are not named again
            size = _size(judgement) if judgement.verdict.effect else ""
            effect = f"Under {one.variant} {'it is equal' if size == 'equal' else size}".rstrip()
        bounds = _bounds(judgement, named=number == 0)
        sentences.append(f"{effect}{bounds}: {_grade(judgement)}.")
    judgement = group[0][1]
    tested = [one.verdict.count for _, one in group if one.verdict.p_different is not None]
    missed = exposure(judgement.metric, min(tested, default=0))
    if missed is not None:
        sentences.append(
            f"Harm to up to {100 * missed:.0f}% of {judgement.verdict.replicate}s may have been "
            "missed."
        )
    return " ".join(sentences)


def _first(one: VariantComparison, judgement: Judgement) -> str:
    """Return text on the effect of a paragraph's first variant, with the metric and baseline."""
    verdict, metric, name = judgement.verdict, judgement.metric, endpoint_name(judgement)
    subject = f"The {name}" if name[0].islower() else name
    if verdict.effect is None:
        return f"{subject} under {one.variant} against {one.baseline}"
    size = _size(judgement)
    if size == "equal":
        return f"{subject} is equal under {one.variant} and {one.baseline}"
    if verdict.scale == "difference":
        return f"{subject} is {size} under {one.variant} than under {one.baseline}"
    under = f"under {one.variant} as under {one.baseline}"
    labels = {duration.name: duration.label for duration in DURATIONS}
    if judgement.class_name == ALL or metric.duration not in labels:
        return f"{subject} is {size} as {'long' if metric.unit == 's' else 'high'} {under}"
    to = labels[metric.duration].removeprefix("Time ")
    to = to.replace("to first", "to the first").replace("to last", "to the last")
    of = "" if metric.quantile is None else f" ({rank_label(metric.quantile)})"
    who = f"{judgement.class_name[0].upper()}{judgement.class_name[1:]} clients"
    return f"{who} take {size} as long {to}{of} {under}"


def endpoint_name(judgement: Judgement) -> str:
    """Return the endpoint's label with its class, for the middle of a sentence."""
    of = "" if judgement.class_name == ALL else f" of {judgement.class_name} clients"
    label, _, rank = judgement.metric.label.partition(", ")
    if not label.startswith("Jain"):
        label = label[0].lower() + label[1:]
    return f"{label}{of}" + (f" ({rank})" if rank else "")


def _size(judgement: Judgement) -> str:
    """Return the size of the effect, without the names of the variants."""
    verdict = judgement.verdict
    assert verdict.effect is not None
    if verdict.scale == "ratio":
        return f"{_factor(verdict.effect.estimate)} times"
    if verdict.effect.estimate == 0:
        return "equal"
    size = format_difference(abs(verdict.effect.estimate), judgement.metric.unit, sign=False)
    return f"{size} {_direction(judgement)}"


def _direction(judgement: Judgement) -> str:
    """Return the direction of the estimate; "" without a difference."""
    verdict = judgement.verdict
    assert verdict.effect is not None
    no_difference = 1 if verdict.scale == "ratio" else 0
    if verdict.effect.estimate == no_difference:
        return ""
    words = ("shorter", "longer") if judgement.metric.unit == "s" else ("lower", "higher")
    return words[verdict.effect.estimate > no_difference]


def _bounds(judgement: Judgement, *, named: bool) -> str:
    """Return the interval, and the number of networks whose effect has the estimate's sign.

    named: whether to label these numbers.
    """
    verdict, unit = judgement.verdict, judgement.metric.unit
    if verdict.effect is None:
        return ""
    low, high = verdict.effect.low, verdict.effect.high
    parts = []
    if low is not None and high is not None:
        text = (
            f"{_factor(low)} to {_factor(high)}"
            if verdict.scale == "ratio"
            else f"{format_number(low, True, unit)} to {format_difference(high, unit)}"
        )
        parts.append(f"{100 * CONFIDENCE:g}% interval {text}" if named else text)
    direction = _direction(judgement)
    if verdict.agreeing is not None and verdict.count > 1 and direction:
        networks = f" {verdict.replicate}s" if named else ""
        parts.append(f"{direction} in {verdict.agreeing} of {verdict.count}{networks}")
    return f" ({'; '.join(parts)})" if parts else ""


def _grade(judgement: Judgement) -> str:
    verdict = judgement.verdict
    reason = verdict.reason
    if verdict.grade is None:
        return f"not judged, {'; '.join(filter(None, (reason, verdict.caution)))}"
    if verdict.grade in (Grade.SAME, Grade.SHOWN):
        is_same = verdict.grade is Grade.SAME
        grade = f"the same within {_margin(judgement)}" if is_same else verdict.grade.value
        return "; ".join(filter(None, (grade, verdict.caution)))
    if verdict.more:
        return f"{verdict.grade.value}, {verdict.more} would lead to an answer"
    if verdict.p_different is not None:
        reason = f"more {verdict.replicate}s would not answer it"
    reason = "; ".join(filter(None, (reason, verdict.caution)))
    return f"{verdict.grade.value}, {reason}" if reason else verdict.grade.value


def _margin(judgement: Judgement) -> str:
    margin = judgement.verdict.margin
    assert margin is not None
    if judgement.verdict.scale == "ratio":
        return f"{100 * (margin - 1):.3g}%"
    factor, unit = readable_unit(judgement.metric.unit)
    size = factor * margin
    return f"{size:.3g} {('point' if size == 1 else 'points') if unit == '%' else unit}".strip()


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else "more than 1000"


def _detectable(compared: Sequence[VariantComparison]) -> list[str]:
    """Return at most one sentence, with the smallest detectable ratio of the first endpoint."""
    first = [
        (endpoint_name(judgement), judgement.verdict)
        for one in compared
        for judgement in one.judgements
        if judgement.endpoint == 0 and judgement.verdict.detectable is not None
    ]
    # Levels may have different first endpoints. Use only levels that have the same first endpoint
    # as the first level.
    ratios = sorted(
        verdict.detectable or 0.0
        for name, verdict in first
        if verdict.scale == "ratio" and name == first[0][0]
    )
    if not ratios:
        return []
    low, high = (f"{one:.2f}" if one <= 10 else "more than 10" for one in (ratios[0], ratios[-1]))
    replicates = f"{first[0][1].replicate}s"
    worst = "" if low == high else f" ({high} times where {replicates} differ most)"
    return [
        f"With this many {replicates}, a change of {low} times or more{worst} in the "
        f"{first[0][0]} is shown with a chance of {100 * POWER:.0f}%."
    ]
