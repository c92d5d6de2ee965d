"""A paper's answers beside those that other runs give: of another size, engine or Tor."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.judgement.claims.claim import Answered
from analysis.pages.claim_tables import bounds, claim_row
from analysis.pages.numbers import exact

OF_ANSWER = ("answer", "effect", "low", "high", "scale", "seeds", "more_networks", "part", "note")
BESIDE_COLUMNS = ("claim", "statement", *OF_ANSWER, *(f"{name}_beside" for name in OF_ANSWER))


@dataclass(frozen=True)
class Beside:
    """What other runs of the same experiments say.

    Attributes:
        title: where they come from.
        simulated: what was simulated, a line for each level.
        answers: to the same claims.
    """

    title: str
    simulated: tuple[str, ...]
    answers: tuple[Answered, ...]


def pairs_of(answers: Sequence[Answered], beside: Beside) -> list[tuple[Answered, Answered]]:
    """Each claim's two answers, in the order of the paper."""
    others = {one.claim.id: one for one in beside.answers}
    return [(one, others[one.claim.id]) for one in answers]


def beside_csv(answers: Sequence[Answered], beside: Beside) -> str:
    """One line for each claim; the columns of the other runs end with ``_beside``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(BESIDE_COLUMNS)
    for here, there in pairs_of(answers, beside):
        writer.writerow([here.claim.id, here.claim.statement, *_cells(here), *_cells(there)])
    return text.getvalue()


def _cells(answered: Answered) -> list[Any]:
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


def beside_values(answers: Sequence[Answered], beside: Beside | None) -> dict[str, Any] | None:
    """What the page's section shows; None without other runs."""
    if beside is None:
        return None
    pairs = pairs_of(answers, beside)
    return {
        "title": beside.title,
        "simulated": beside.simulated,
        "same": sum(here.answer is there.answer for here, there in pairs),
        "rows": [(claim_row(here, set()), claim_row(there, set())) for here, there in pairs],
    }
