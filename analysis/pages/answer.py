"""The answer of a study in sentences, from the verdicts on its endpoints."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.formats.study import Replicate
from analysis.inference.intervals import CONFIDENCE, Interval
from analysis.inference.sample_size import POWER
from analysis.judgement.compared import VariantComparison
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import LEVEL, Grade, Verdict
from analysis.measures.data import ALL
from analysis.measures.durations import DURATIONS
from analysis.measures.metric import rank_label
from analysis.pages.numbers import format_number, readable_unit, scaled


def answer(
    compared: Sequence[VariantComparison], *, error_level: float | None = LEVEL
) -> list[str]:
    """Return a sentence for each endpoint of each comparison, and the power of the study.

    Args:
        compared: all comparisons of the study; empty if it has no baseline.
        error_level: probability of a false verdict in each comparison; None: in all together.

    Returns:
        Paragraphs: the number of networks, or of repeats of one network; one for each level and
        endpoint; the smallest detectable difference; and the probability of a false "shown". Empty
        without endpoints.
    """
    judged = [one for one in compared if one.judgements]
    if not judged:
        return []
    replicate = judged[0].judgements[0].verdict.replicate
    if max(one.networks for one in judged) == 1:
        return [
            f"Pilot, 1 {replicate}: differences between {replicate}s are unknown, so nothing "
            f"can be judged. Run more of them, for example with {replicate.upper()}S=5.",
            *_endpoints(judged),
        ]
    paragraphs = [_networks(judged, replicate), *_endpoints(judged), *_detectable(judged)]
    return paragraphs if error_level is None else [*paragraphs, *_scope(judged, error_level)]


def _networks(compared: Sequence[VariantComparison], replicate: Replicate) -> str:
    counts = sorted({one.networks for one in compared})
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    if replicate == "repeat":
        return f"{many} repeats of one network: the answer is about this network."
    pilot = "Pilot, " if any(one.pilot for one in compared) else ""
    return f"{pilot}{many} networks."


def _endpoints(compared: Sequence[VariantComparison]) -> list[str]:
    """Return one paragraph for each level and endpoint, with a sentence for each variant."""
    groups: dict[tuple[str, str, str, str], list[tuple[VariantComparison, Judgement]]] = {}
    for one in compared:
        for judgement in one.judgements:
            key = (one.place, one.baseline, judgement.class_name, judgement.metric.name)
            groups.setdefault(key, []).append((one, judgement))
    return [_paragraph(place, group) for (place, *_), group in groups.items()]


def _paragraph(place: str, group: Sequence[tuple[VariantComparison, Judgement]]) -> str:
    sentences = [
        f"{_first(one, judgement) if number == 0 else _next(one, judgement)}: {_grade(judgement)}."
        for number, (one, judgement) in enumerate(group)
    ]
    judged = [judgement for _, judgement in group if judgement.verdict.p_different is not None]
    exposed = {judgement.exposure for judgement in judged} - {None}
    if exposed:
        share = max(value for value in exposed if value is not None)
        sentences.append(
            f"Harm to up to {100 * share:.0f}% of {judged[0].verdict.replicate}s may have been "
            "missed."
        )
    return " ".join([*([f"{place}:"] if place else []), *sentences])


def _first(one: VariantComparison, judgement: Judgement) -> str:
    """Return the sentence with endpoint, variant and baseline."""
    verdict, name = judgement.verdict, _subject(judgement)
    if verdict.effect is None:
        return f"{name} under {one.variant} against {one.baseline}"
    change = _change(judgement)
    if _is_time_of_class(judgement) and verdict.scale == "ratio":
        duration = next(d for d in DURATIONS if d.name == judgement.metric.duration)
        to = duration.label.removeprefix("Time ").replace("to first", "to the first")
        to = to.replace("to last", "to the last")
        of = (
            ""
            if judgement.metric.quantile is None
            else f" ({rank_label(judgement.metric.quantile)})"
        )
        who = f"{judgement.class_name[0].upper()}{judgement.class_name[1:]} clients"
        text = f"{who} take {change} {to}{of} under {one.variant} as under {one.baseline}"
    elif verdict.scale == "ratio":
        text = f"{name} is {change} under {one.variant} as under {one.baseline}"
    elif verdict.effect.estimate == 0:
        text = f"{name} is equal under {one.variant} and {one.baseline}"
    else:
        text = f"{name} is {change} under {one.variant} than under {one.baseline}"
    return text + _interval(judgement, named=True)


def _next(one: VariantComparison, judgement: Judgement) -> str:
    """Return the sentence of a further variant, without the parts in common with the first."""
    verdict = judgement.verdict
    if verdict.effect is None:
        return f"Under {one.variant}"
    if verdict.scale == "ratio":
        change = f"{_factor(verdict.effect.estimate)} times"
    else:
        change = "equal" if verdict.effect.estimate == 0 else _change(judgement)
    return f"Under {one.variant} {change}{_interval(judgement)}"


def _subject(judgement: Judgement) -> str:
    name = endpoint_name(judgement)
    return f"The {name}" if name[0].islower() else name


def endpoint_name(judgement: Judgement) -> str:
    """Return the endpoint's label with its class, for the middle of a sentence."""
    of = "" if judgement.class_name == ALL else f" of {judgement.class_name} clients"
    label, _, rank = judgement.metric.label.partition(", ")
    if not label.startswith("Jain"):
        label = label[0].lower() + label[1:]
    return f"{label}{of}" + (f" ({rank})" if rank else "")


def _is_time_of_class(judgement: Judgement) -> bool:
    known = {duration.name for duration in DURATIONS}
    return judgement.class_name != ALL and judgement.metric.duration in known


def _change(judgement: Judgement) -> str:
    """Return the size of the difference, without the names of the variants."""
    verdict = judgement.verdict
    assert verdict.effect is not None
    if verdict.scale == "ratio":
        as_high = "as long" if judgement.metric.unit == "s" else "as high"
        return f"{_factor(verdict.effect.estimate)} times {as_high}"
    of, unit = _difference(judgement)
    return f"{format_number(abs(of.estimate))} {unit} ".replace("  ", " ") + _word(judgement)


def _word(judgement: Judgement) -> str:
    """Return the direction of the estimate."""
    verdict = judgement.verdict
    assert verdict.effect is not None
    more = verdict.effect.estimate > (1 if verdict.scale == "ratio" else 0)
    if judgement.metric.unit == "s":
        return "longer" if more else "shorter"
    return "higher" if more else "lower"


def _interval(judgement: Judgement, *, named: bool = False) -> str:
    """Return the interval, and the number of networks with the estimate's direction."""
    verdict = judgement.verdict
    assert verdict.effect is not None
    parts = []
    if verdict.scale == "ratio":
        bounds = [
            None if b is None else _factor(b) for b in (verdict.effect.low, verdict.effect.high)
        ]
    else:
        of, unit = _difference(judgement)
        bounds = [None if b is None else format_number(b, sign=True) for b in (of.low, of.high)]
        if bounds[1] is not None:
            bounds[1] = f"{bounds[1]} {unit}".strip()
    if None not in bounds:
        confidence = f"{100 * CONFIDENCE:g}% interval " if named else ""
        parts.append(f"{confidence}{bounds[0]} to {bounds[1]}")
    if verdict.agreeing is not None and verdict.count > 1 and not _no_difference(verdict):
        networks = f" {verdict.replicate}s" if named else ""
        parts.append(f"{_word(judgement)} in {verdict.agreeing} of {verdict.count}{networks}")
    return f" ({'; '.join(parts)})" if parts else ""


def _no_difference(verdict: Verdict) -> bool:
    assert verdict.effect is not None
    return verdict.effect.estimate == (1 if verdict.scale == "ratio" else 0)


def _difference(judgement: Judgement) -> tuple[Interval, str]:
    """Return a difference in the displayed unit, and that unit."""
    factor, unit = readable_unit(judgement.metric.unit)
    of = scaled(judgement.verdict.effect, factor)
    assert of is not None
    return of, "points" if unit == "%" else unit


def _grade(judgement: Judgement) -> str:
    verdict = judgement.verdict
    reason = "; ".join(filter(None, (verdict.reason, verdict.caution)))
    if verdict.grade is None:
        return f"not judged, {reason}"
    if verdict.grade in (Grade.SAME, Grade.SHOWN):
        is_same = verdict.grade is Grade.SAME
        grade = f"the same within {_margin(judgement)}" if is_same else verdict.grade.value
        return "; ".join(filter(None, (grade, verdict.caution)))
    if verdict.p_different is not None:
        no_advice = f"more {verdict.replicate}s would not answer it"
        reason = "; ".join(filter(None, (no_advice, verdict.caution)))
    more = f"{verdict.more} would lead to an answer" if verdict.more else reason
    return f"{verdict.grade.value}, {more}" if more else verdict.grade.value


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
    """Return the smallest detectable difference of the first endpoint."""
    first = [
        judgement
        for one in compared
        for judgement in one.judgements
        if judgement.endpoint == 0 and judgement.verdict.detectable is not None
    ]
    ratios = sorted(
        judgement.verdict.detectable or 0.0
        for judgement in first
        if judgement.verdict.scale == "ratio"
        # Levels may have different endpoints.
        and endpoint_name(judgement) == endpoint_name(first[0])
    )
    if not ratios:
        return []
    low, high = (f"{one:.2f}" if one <= 10 else "more than 10" for one in (ratios[0], ratios[-1]))
    replicates = f"{first[0].verdict.replicate}s"
    worst = "" if low == high else f" ({high} times where {replicates} differ most)"
    return [
        f"With this many {replicates}, a change of {low} times or more{worst} in the "
        f"{endpoint_name(first[0])} is shown with a chance of {100 * POWER:.0f}%."
    ]


def _scope(compared: Sequence[VariantComparison], error_level: float) -> list[str]:
    """Return the scope of the error level if there are several comparisons."""
    if len(compared) == 1:
        return []
    together = 1 - (1 - error_level) ** len(compared)
    return [
        f'The chance of a false "shown" is {100 * error_level:.2g}% for each of the '
        f"{len(compared)} comparisons, and may reach {100 * together:.0f}% for all of them "
        "together."
    ]
