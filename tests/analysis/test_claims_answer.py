"""What a paper's claims came to, in sentences, in order and as a plot."""

from __future__ import annotations

from typing import Any

from analysis.inference.intervals import Interval
from analysis.judgement.claims.claim import Answer, Answered, Claim, Part
from analysis.measures.catalogue import METRICS
from analysis.pages.claims_answer import claims_answer, claims_panel, sorted_answers

METRIC = {metric.name: metric for metric in METRICS}


def answered(name: str, answer: Answer, ratio: float | None = None, **other: Any) -> Answered:
    """A claim with one part; ratio: of its effect, which has an interval of 10% around it."""
    claim = Claim(
        id=name, statement=f"The claim {name}.", section="5", figures=(), metrics=("ttfb_p50_s",),
        class_name="web", levels=("a",), variants=("x", "y"), direction="lowest",
    )  # fmt: skip
    content = {"p_different": 0.001, "p_equivalent": 0.9, "more_seeds": None, "reason": "", **other}
    part = Part(
        text="a: x below y", metric=METRIC["ttfb_p50_s"], answer=answer,
        effect=None if ratio is None else Interval(ratio, 0.9 * ratio, 1.1 * ratio),
        scale="ratio", margin=1.05, count=5, **content,
    )  # fmt: skip
    return Answered(claim, answer, (part,))


OPEN = answered("open", Answer.OPEN, 1.1, p_different=0.3, more_seeds=12)
VOID = answered("void", Answer.OPEN, reason="timeout rate is 0% in all of these runs")
SMALL = answered("small", Answer.CONTRADICTED, 1.003, p_equivalent=0.001)
BIG = answered("big", Answer.CONTRADICTED, 2.87)
RIGHT = answered("right", Answer.SUPPORTED, 0.8)
ALL = (OPEN, SMALL, RIGHT, VOID, BIG)


def names(answers: list[Answered]) -> list[str]:
    return [one.claim.id for one in answers]


def test_what_is_big_and_sure_comes_first() -> None:
    assert names(sorted_answers(ALL)) == ["big", "right", "small", "open", "void"]
    # A factor and its inverse are as large.
    half, more = (answered(f"{r}", Answer.SUPPORTED, r) for r in (0.5, 1.9))
    assert names(sorted_answers([more, half])) == ["0.5", "1.9"]


def test_sentences_tell_the_findings_and_what_is_open() -> None:
    assert claims_answer(ALL) == [
        "Of 5 claims: 1 supported, 2 contradicted and 2 not settled.",
        "Contradicted: The claim big. (Time to first byte, median, a: x below y: "
        "\N{MULTIPLICATION SIGN}2.870 [2.583, 3.157].)",
        "Supported: The claim right. (Time to first byte, median, a: x below y: "
        "\N{MULTIPLICATION SIGN}0.800 [0.720, 0.880].)",
        "1 of the contradicted claims a difference where there is none beyond the margin.",
        "Not settled: 1 for want of seeds (about 12 more would do for all of them); "
        "1 since timeout rate is 0% in all of these runs.",
    ]


def test_claims_of_one_outcome_are_one_sentence() -> None:
    assert claims_answer([]) == []
    assert claims_answer([SMALL, SMALL]) == [
        "Of 2 claims: 2 contradicted.",
        "2 of the contradicted claim a difference where there is none beyond the margin.",
    ]
    assert claims_answer([OPEN])[0] == "Of 1 claim: 1 not settled."


def test_the_plot_tells_a_difference_that_is_not_there_from_the_opposite() -> None:
    looks = {mark.label: mark.looks for mark in claims_panel(ALL).marks}
    assert looks == {
        "big": "contradicted", "right": "supported", "small": "too small", "open": "not settled",
        "void": "not settled",
    }  # fmt: skip
