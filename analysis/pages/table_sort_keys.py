"""Keys for filtering and sorting the rows of a page's tables: see templates/tables.js."""

from __future__ import annotations

from analysis.judgement.compared import size_in_margins
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import Grade
from analysis.measures.metric import Quantity

_RANKS = ("worse", "better", *(grade.value for grade in Grade), "")
"""Verdicts in the sort order of tables."""


def table_sort_keys(
    metric: Quantity, class_name: str, judgement: Judgement | None
) -> dict[str, str | float]:
    """Return a row's searchable words, its effect in margins, and the rank of its verdict."""
    words = f"{metric.label} {metric.name} {class_name}".lower()
    if judgement is None:
        return {"words": words, "size": 0.0, "rank": len(_RANKS)}
    verdict = judgement.verdict
    return {
        "words": words,
        "size": round(size_in_margins(verdict), 6),
        "rank": _RANKS.index(verdict.word),
    }
