"""The report of a bisection as an HTML page, with a plot and a CSV file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.figures.bisection import write_bisection
from analysis.formats import files
from analysis.formats.csv_tables import csv_text
from analysis.judgement.bisection import Decision, Examination, Search
from analysis.judgement.compared import interval_record
from analysis.judgement.verdicts import Grade
from analysis.measures.data import ALL
from analysis.measures.metric import Quantity
from analysis.pages.html import render, write_answer
from analysis.pages.numbers import format_effect

CSV_COLUMNS = (
    "step", "commit", "subject", "place", "decision", "level", "networks",
    "scale", "effect", "low", "high", "note",
)  # fmt: skip

HASH_DIGITS = 12

MAX_COMMITS = 20
"""Maximum number of commits that an answer lists."""


@dataclass(frozen=True)
class Bisection:
    """A finished search for the first bad commit.

    Attributes:
        metric, class_name: the endpoint, and its class of clients or ``ALL``; empty if unknown
            (nothing ran).
        subjects: hash -> subject of all commits; the good commit first, parents before children.
        error_level: maximum probability of a wrong result, if the endpoint changes at no more than
            one commit.
        budget: maximum number of networks on which a commit is tested.
    """

    experiment: str
    metric: Quantity
    class_name: str
    subjects: Mapping[str, str]
    search: Search
    error_level: float
    budget: int

    @property
    def endpoint(self) -> str:
        """The endpoint as a string for readers."""
        label = self.metric.label
        return label if self.class_name in (ALL, "") else f"{label}, {self.class_name}"

    def name(self, commit: str) -> str:
        """Return the abbreviated hash and the subject of a commit."""
        return f"{commit[:HASH_DIGITS]} ({self.subjects[commit]})"

    @property
    def answer(self) -> list[str]:
        """The answer in sentences."""
        search, good = self.search, next(iter(self.subjects))
        first = search.examinations[0]
        if not search.left:
            return [
                f"No such commit: {self.endpoint} is not shown to be worse at BAD than at GOOD "
                f"({self._effect(first)}).",
                (
                    "The runs suggest that it is: search again with more networks"
                    if first.against_good and first.against_good.grade is Grade.SUGGESTED
                    else "This does not rule out that it is: more networks show smaller differences"
                )
                + f" (MAX_NETWORKS, here {self.budget}).",
            ]
        if search.found is not None:
            examination = next(one for one in search.examinations if one.commit == search.found)
            found = [
                f"{self.endpoint}: the first bad commit is {self.name(search.found)}. Against "
                f"{good[:HASH_DIGITS]}: {self._effect(examination)}."
            ]
        else:
            last = search.examinations[-1]
            why = (
                f"{self.budget} networks do not decide {last.commit[:HASH_DIGITS]}"
                if last.decision is Decision.OPEN
                else "commits among them were skipped"
            )
            listed = [self.name(one) for one in self.subjects if one in search.left][:MAX_COMMITS]
            more = len(search.left) - len(listed)
            listed += [f"{more} more"] if more else []
            found = [
                f"{self.endpoint}: the first bad commit is one of {len(search.left)}, because "
                f"{why}: {'; '.join(listed)}."
            ]
        return [
            *found,
            f"At most {self.error_level:.0%} of such searches name a wrong commit, if one commit "
            "alone made the endpoint worse.",
        ]

    def rows(self) -> Iterator[dict[str, object]]:
        """Yield the examinations in order, as rows of the CSV file."""
        places = {commit: place for place, commit in enumerate(self.subjects)}
        for step, one in enumerate(self.search.examinations, start=1):
            yield {
                "step": step,
                "commit": one.commit,
                "subject": self.subjects[one.commit],
                "place": places[one.commit],
                "decision": one.decision.value,
                "level": one.level,
                "networks": one.networks,
                "scale": one.against_good.scale if one.against_good else None,
                **interval_record(one.against_good.effect if one.against_good else None),
                "note": one.note,
            }

    def _effect(self, one: Examination) -> str:
        """Return the effect against the good commit and the number of networks.

        For a skipped commit, return the reason instead.
        """
        verdict = one.against_good
        if verdict is None:
            return one.note
        texts = format_effect(verdict.effect, verdict.scale, self.metric.unit)
        return f"{' '.join(filter(None, texts))}, {one.networks} networks"


def write(bisection: Bisection, out: Path) -> Path:
    """Write report.html, answer.txt, and steps.pdf, .png and .csv; return the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    table = csv_text(bisection.rows(), CSV_COLUMNS)
    figure = write_bisection(
        list(bisection.subjects), bisection.search, bisection.metric, out / files.STEPS, table
    )
    write_answer(out, bisection.answer)
    page = render("bisection.html.j2", b=bisection, figure=figure, format_effect=format_effect)
    (out / files.REPORT).write_text(page, encoding="utf-8")
    return out / files.REPORT
