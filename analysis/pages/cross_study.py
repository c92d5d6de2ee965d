"""Comparison of a paper's answers with other runs of another size, engine or Tor."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.judgement.claims.claim import ClaimResult
from analysis.pages.claim_tables import bounds, claim_row
from analysis.pages.numbers import exact

OF_ANSWER = ("answer", "effect", "low", "high", "scale", "seeds", "more_networks", "part", "note")
CROSS_STUDY_COLUMNS = ("claim", "statement", *OF_ANSWER, *(f"{name}_beside" for name in OF_ANSWER))


@dataclass(frozen=True)
class OtherStudy:
    """The answers from other runs of the same experiments.

    Attributes:
        title: where they come from.
        simulated: the simulated networks, a line for each level.
        answers: to the same claims.
    """

    title: str
    simulated: tuple[str, ...]
    answers: tuple[ClaimResult, ...]


def pair_answers(
    answers: Sequence[ClaimResult], other_study: OtherStudy
) -> list[tuple[ClaimResult, ClaimResult]]:
    """Return the two answers to each claim, in the order of the paper."""
    others = {one.claim.id: one for one in other_study.answers}
    return [(one, others[one.claim.id]) for one in answers]


def cross_study_csv(answers: Sequence[ClaimResult], other_study: OtherStudy) -> str:
    """Return a line for each claim; the columns of the other runs end with ``_beside``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CROSS_STUDY_COLUMNS)
    for here, there in pair_answers(answers, other_study):
        writer.writerow([here.claim.id, here.claim.statement, *_cells(here), *_cells(there)])
    return text.getvalue()


def _cells(answered: ClaimResult) -> list[Any]:
    part = answered.deciding
    return [
        answered.answer.value,
        *(exact(value) for value in bounds(part.effect)),
        part.scale if part.effect else "",
        answered.seeds,
        "" if answered.more_networks is None else answered.more_networks,
        part.text,
        part.reason,
    ]


def cross_study_values(
    answers: Sequence[ClaimResult], other_study: OtherStudy | None
) -> dict[str, Any] | None:
    """Return the values for the page's section; None without other runs."""
    if other_study is None:
        return None
    pairs = pair_answers(answers, other_study)
    return {
        "title": other_study.title,
        "simulated": other_study.simulated,
        "same": sum(here.answer is there.answer for here, there in pairs),
        "rows": [(claim_row(here, set()), claim_row(there, set())) for here, there in pairs],
    }
