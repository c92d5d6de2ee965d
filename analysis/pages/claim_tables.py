"""Answers to claims as claims.csv, as claims.json and as rows of a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from analysis.inference.intervals import CONFIDENCE, Interval
from analysis.judgement.claims.claim import Answer, ClaimResult, Part
from analysis.judgement.verdicts import LEVEL
from analysis.pages.claims_answer import counted
from analysis.pages.numbers import exact, format_effect

CLAIM_COLUMNS = (
    "claim", "section", "figures", "statement", "direction", "metrics", "class", "levels",
    "variants", "answer", "part", "metric", "scale", "effect", "low", "high", "margin",
    "p_different", "p_equivalent", "grade", "seeds", "agreeing", "more_networks", "note",
    "obstacle",
)  # fmt: skip


CLAIMS_FORMAT = 3
"""Version of claims.json. Files of version 1 do not contain it. Each has other answers."""


def _number(value: float | None) -> float | None:
    # Nine digits are more than any metric has, and the same on every machine.
    return None if value is None else float(f"{value:.9g}")


def bounds(effect: Interval | None) -> tuple[float | None, float | None, float | None]:
    """Return estimate, lower and upper bound; each is None without an effect."""
    return (None, None, None) if effect is None else (effect.estimate, effect.low, effect.high)


def claims_csv(answers: Sequence[ClaimResult]) -> str:
    """Return a line per claim, with the part that determines its answer."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CLAIM_COLUMNS)
    for answered in answers:
        claim, part = answered.claim, answered.deciding
        effect = part.effect
        writer.writerow(
            [
                claim.id,
                claim.section,
                " ".join(map(str, claim.figures)),
                claim.statement,
                claim.direction,
                " ".join(claim.metrics),
                claim.class_name,
                " ".join(claim.levels),
                " ".join(claim.variants),
                answered.answer.value,
                part.text,
                part.metric.name,
                part.scale if effect else "",
                *(exact(value) for value in bounds(effect)),
                exact(part.margin),
                exact(part.p_different),
                exact(part.p_equivalent),
                part.grade or "",
                answered.seeds,
                "" if part.agreeing is None else part.agreeing,
                "" if answered.more_networks is None else answered.more_networks,
                part.reason,
                _obstacle(part) or "",
            ]
        )
    return text.getvalue()


def claims_data(title: str, answers: Sequence[ClaimResult]) -> dict[str, Any]:
    """Return all claims of the paper with all of their parts, as plain data."""
    return {
        "format": CLAIMS_FORMAT,
        "paper": title,
        "error_level": LEVEL,
        "confidence": CONFIDENCE,
        "answers": {answer.value: count for answer, count in counted(answers).items()},
        "claims": [
            {
                "id": answered.claim.id,
                "statement": answered.claim.statement,
                "section": answered.claim.section,
                "figures": list(answered.claim.figures),
                "direction": answered.claim.direction,
                "metrics": list(answered.claim.metrics),
                "class": answered.claim.class_name,
                "levels": list(answered.claim.levels),
                "variants": list(answered.claim.variants),
                "answer": answered.answer.value,
                "seeds": answered.seeds,
                "more_networks": answered.more_networks,
                "deciding_part": answered.parts.index(answered.deciding),
                "parts": [_part_data(part) for part in answered.parts],
            }
            for answered in answers
        ],
    }


def _part_data(part: Part) -> dict[str, Any]:
    effect = part.effect
    return {
        "text": part.text,
        "metric": part.metric.name,
        "answer": part.answer.value,
        "scale": part.scale if effect else None,
        **dict(zip(("effect", "low", "high"), map(_number, bounds(effect)), strict=True)),
        "margin": _number(part.margin),
        "p_different": _number(part.p_different),
        "p_equivalent": _number(part.p_equivalent),
        "grade": part.grade,
        "seeds": part.count,
        "agreeing": part.agreeing,
        "more_networks": part.more_networks,
        "note": part.reason,
        "obstacle": _obstacle(part),
    }


def _obstacle(part: Part) -> str | None:
    return None if part.untestable is None else part.untestable.obstacle.value


def claim_row(answered: ClaimResult, numbers: set[int]) -> dict[str, Any]:
    """Return a claim as a row of the page; ``numbers``: the figures to which it can link."""
    return {
        "claim": answered.claim,
        "linked": [number for number in answered.claim.figures if number in numbers],
        "answer": answered.answer.value,
        "deciding": _part_row(answered.deciding),
        "parts": [_part_row(part) for part in answered.parts],
        "seeds": answered.seeds,
    }


def _part_row(part: Part) -> dict[str, Any]:
    effect, interval = format_effect(part.effect, part.scale, part.metric.unit)
    note = part.reason
    if not note and part.more_networks is not None:
        plural = "" if part.more_networks == 1 else "s"
        note = f"about {part.more_networks} more network{plural}"
    if part.exposure is not None and part.answer is not Answer.OPEN:
        share = f"harm to up to {100 * part.exposure:.0f}% of networks may have been missed"
        note = "; ".join(filter(None, (note, share)))
    return {
        "text": part.text,
        "metric": part.metric.label,
        "answer": part.answer.value,
        "effect": effect,
        "interval": interval,
        "note": note,
    }
