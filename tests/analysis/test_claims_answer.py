"""The answers to a paper's claims: their order, and their sentences, plot and tables."""

from __future__ import annotations

import csv
import io
from typing import Any

from analysis.figures.forest import LOOKS
from analysis.inference.intervals import Interval
from analysis.judgement.claims.claim import Answer, Claim, ClaimResult, Obstacle, Part, Untestable
from analysis.measures.catalogue import METRICS
from analysis.pages import claims

METRIC = {metric.name: metric for metric in METRICS}


def answered(name: str, answer: Answer, ratio: float | None = None, **other: Any) -> ClaimResult:
    """Return an answered claim with one part.

    ratio: effect of this part, with an interval from 10% below to 10% above it. If it is None, the
    part has no effect.
    """
    claim = Claim(
        id=name, statement=f"The claim {name}.", section="5", figures=(), metrics=("ttfb_p50_s",),
        class_name="web", levels=("a",), variants=("x", "y"), direction="lowest",
    )  # fmt: skip
    content: dict[str, Any] = {
        "p_different": 0.001,
        "p_equivalent": 0.9,
        "more_networks": None,
        "reason": "",
    }
    content |= other
    part = Part(
        text="a: x below y", metric=METRIC["ttfb_p50_s"], answer=answer,
        effect=None if ratio is None else Interval(ratio, 0.9 * ratio, 1.1 * ratio),
        scale="ratio", margin=1.05, count=5, grade=None, direction="", agreeing=None,
        detectable=None, **content,
    )  # fmt: skip
    return ClaimResult(claim, answer, (part,))


OPEN = answered("open", Answer.OPEN, 1.1, p_different=0.3, more_networks=12)
LACKING = answered("lacking", Answer.OPEN, reason="no runs of x at a")
NEVER = Untestable(Obstacle.AT_A_BOUND, "timeout rate is 0% in all of these runs")
FULL = Untestable(Obstacle.SATURATED, "throughput is saturated at a", "clients get 2 to 3 MB/s")
VOID = answered("void", Answer.UNTESTABLE, reason=str(NEVER), untestable=NEVER)
FILLED = answered("filled", Answer.UNTESTABLE, 1.001, reason=str(FULL), untestable=FULL)
SMALL = answered("small", Answer.NO_DIFFERENCE, 1.003, p_equivalent=0.001)
BIG = answered("big", Answer.OPPOSITE, 2.87)
RIGHT = answered("right", Answer.SUPPORTED, 0.8)
ALL = (OPEN, SMALL, RIGHT, VOID, LACKING, BIG, FILLED)


def names(answers: list[ClaimResult]) -> str:
    return " ".join(one.claim.id for one in answers)


def test_large_shown_differences_come_first() -> None:
    assert names(claims.sort_answers(ALL)) == "big right small void filled open lacking"
    # A factor and its inverse count as equally large. So 0.5 counts as 2, and precedes 1.9.
    half, more = (answered(f"{r}", Answer.SUPPORTED, r) for r in (0.5, 1.9))
    assert names(claims.sort_answers([more, half])) == "0.5 1.9"


def test_sentences_describe_findings_and_open_claims() -> None:
    assert claims.claims_answer(ALL) == [
        "Of 7 claims: 1 supported, 1 opposite, 1 no relevant difference, 2 cannot be tested here "
        "and 2 open.",
        "Opposite: The claim big. (Time to first byte, median, a: x below y: "
        "\N{MULTIPLICATION SIGN}2.870 [2.583, 3.157].)",
        "Supported: The claim right. (Time to first byte, median, a: x below y: "
        "\N{MULTIPLICATION SIGN}0.800 [0.720, 0.880].)",
        "No relevant difference: 1 claim is about differences smaller than the margin.",
        "Cannot be tested here: 1 because timeout rate is 0% in all of these runs; "
        "1 because throughput is saturated at a.",
        "Open: 1 because of too few networks (about 12 more would be enough for all); "
        "1 because no runs of x at a.",
    ]


def test_claims_of_one_outcome_are_one_sentence() -> None:
    assert claims.claims_answer([]) == []
    assert claims.claims_answer([SMALL, SMALL]) == [
        "Of 2 claims: 2 no relevant difference.",
        "No relevant difference: 2 claims are about differences smaller than the margin.",
    ]
    assert claims.claims_answer([OPEN])[0] == "Of 1 claim: 1 open."


def test_each_of_the_five_answers_is_counted_and_drawn_apart() -> None:
    assert {answer.value: n for answer, n in claims.count_answers(ALL).items()} == {
        "supported": 1, "opposite": 1, "no relevant difference": 1, "cannot be tested here": 2,
        "open": 2,
    }  # fmt: skip
    looks = {label: mark.style.label for (_, label), mark in claims.claims_panel(ALL).marks.items()}
    assert looks == {one.claim.id: one.answer.value for one in ALL}
    drawn = [LOOKS[answer.value] for answer in Answer]
    # Answers can be distinguished without colours: by marker and fill.
    assert len({(style.marker, style.face) for style in drawn}) == len(Answer)


def test_tables_name_the_obstacle() -> None:
    rows = list(csv.DictReader(io.StringIO(claims.claims_csv(ALL))))
    assert [row["obstacle"] for row in rows] == ["", "", "", "0% or 100%", "", "", "saturated"]
    data = claims.claims_data("A paper", ALL)
    assert (data["format"], sum(data["answers"].values())) == (3, 7)
    assert list(data["answers"]) == [answer.value for answer in Answer]
    assert data["claims"][6]["parts"][0]["obstacle"] == "saturated"
    assert data["claims"][0]["parts"][0]["obstacle"] is None
