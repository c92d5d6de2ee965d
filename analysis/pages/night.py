"""The results of a nightly run as Markdown, HTML and JUnit XML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from analysis.comparison.comparing import Comparison, Conclusion, MetricRow
from analysis.comparison.history import HistoryStep
from analysis.comparison.run_sets import COMMIT_DIGITS
from analysis.figures.writing import WrittenFigure
from analysis.inference.change_points import MINIMUM_DF, NIGHTS_ALONE
from analysis.inference.sample_size import POWER
from analysis.judgement.compared import VariantComparison
from analysis.pages.comparison import (
    ReadableRow,
    answered,
    endpoint_comparisons,
    readable,
    simulated_by,
)
from analysis.pages.html import render
from analysis.pages.numbers import NOTHING, format_difference, format_number

UNCHANGED = "The records have not changed since the night before."


@dataclass(frozen=True)
class NightResult:
    """One experiment of a nightly run ("night").

    Attributes:
        comparison: the comparison with the baseline; None if the night became the baseline.
        repeated: whether all records equal the records of the night before.
        judged: ``comparison`` or, if it is None, a comparison of the night's runs with themselves,
            which shows which endpoints are judged.
        next_step: what the reader can do about worse endpoints, and the command for it; None if no
            endpoint is worse.
    """

    name: str
    comparison: Comparison | None
    repeated: bool
    judged: Comparison
    next_step: tuple[str, str] | None = None

    @property
    def alarm(self) -> bool:
        """True if an endpoint is shown to be worse than in the baseline."""
        return self.comparison is not None and self.comparison.conclusion is Conclusion.REGRESSION

    @property
    def _tested(self) -> Comparison | None:
        """The comparison; None without one or with byte-identical records."""
        return None if self.comparison is None or self.comparison.identical else self.comparison

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        if self.comparison is None:
            return "The runs of this night are the baseline from now on."
        return self.comparison.sentence + (f" {UNCHANGED}" if self.repeated else "")

    @property
    def compared(self) -> list[VariantComparison]:
        """The verdicts on endpoints; empty without a comparison or with byte-identical records."""
        return [] if self.comparison is None else endpoint_comparisons(self.comparison)

    @property
    def answer(self) -> list[str]:
        """The result in sentences."""
        if self._tested is None:
            return [self.sentence]
        return [*answered(self._tested), *([UNCHANGED] if self.repeated else [])]

    @property
    def simulated(self) -> list[str]:
        """The simulated networks of each side; empty without a comparison."""
        return [] if self.comparison is None else simulated_by(self.comparison)

    @property
    def rows(self) -> list[ReadableRow]:
        """The endpoints as texts; empty without a comparison or with byte-identical records."""
        return [readable(row) for row in self._tested.endpoints] if self._tested else []

    @property
    def differences(self) -> Mapping[str, Sequence[str]]:
        """Aspect -> texts on the differences from the baseline; empty like ``rows``."""
        return self._tested.found if self._tested else {}

    @property
    def sees(self) -> str:
        """A sentence on the smallest change that raises an alarm with the probability ``POWER``."""
        networks, spreads = self.judged.networks, self.judged.spreads_shown
        if networks < 2:
            return "A single network cannot raise an alarm; use at least two."
        what = (
            f"With {networks} networks, a deterioration of a single endpoint raises an alarm "
            f"in the same night in {100 * POWER:.0f}% of cases"
        )
        if self.judged.identical and spreads is not None:
            return (
                f"{what} from {spreads:.2g} times the standard deviation over networks of the "
                "difference to the baseline. A night with different records shows its size."
            )
        rows = [
            row for row in self.judged.judged
            if row.judgement.verdict.scale == "ratio" and row.judgement.verdict.detectable
        ]  # fmt: skip
        if not rows or self.judged.identical:
            return f"{what} if it is as large as in the table."
        rows.sort(key=lambda row: row.judgement.verdict.detectable or 0.0)
        first, last = (f"{shown_from(row)} ({metric_of_class(row)})" for row in (rows[0], rows[-1]))
        return f"{what} from {first}, for others from {last}."


@dataclass(frozen=True)
class CommitsSince:
    """The commits of Tor between an earlier measurement and a night's measurement.

    Attributes:
        what: the earlier measurement: "the last night", "the baseline", or both joined by "and".
        commit: the commit of the earlier measurement, abbreviated.
        count: number of commits since then; None if the repository does not contain ``commit``.
        lines: abbreviated hash and subject of the newest of these commits.
        lacking: number of commits in the history of ``commit`` that are not in the history of the
            night's commit. It is 0 unless the night's commit is older or the history was rewritten.
    """

    what: str
    commit: str
    count: int | None
    lines: Sequence[str] = ()
    lacking: int = 0

    @property
    def sentence(self) -> str:
        """A sentence that says how many commits there are. It introduces ``lines``."""
        since = f"since {self.what} ({self.commit})"
        if self.count is None:
            return f"Commits {since}: unknown, because the repository does not contain that commit."
        if self.lacking:
            since += f", which has {self.lacking} that this one lacks"
        number = self.count or "No"
        shown = f"; the newest {len(self.lines)}" if len(self.lines) < self.count else ""
        colon = ":" if self.lines else "."
        return f"{number} commit{'' if self.count == 1 else 's'} {since}{shown}{colon}"


@dataclass(frozen=True)
class WatchedTor:
    """The commit of Tor that a night measures.

    ``ref`` is the branch, tag or commit that was named. ``ranges`` has the commits since the last
    night, and since the baselines.
    """

    ref: str
    commit: str
    version: str
    ranges: Sequence[CommitsSince] = ()

    @property
    def sentence(self) -> str:
        """The version and the commit in one sentence."""
        of_ref = "" if self.commit.startswith(self.ref) else f" of {self.ref}"
        return f"Tor {self.version}, commit {self.commit[:COMMIT_DIGITS]}{of_ref}."


@dataclass(frozen=True)
class Night:
    """All experiments of a nightly run.

    Attributes:
        when: time at which the night's runs began, in UTC.
        project: version and commit of this project.
        false_alarms_per_year, false_steps_per_year: limits on the expected numbers of false alarms
            and of false step changes in the history, from the list of nightly experiments.
        steps: the step changes in the history.
        series: number of time series in which steps are searched.
        unsearched: number of time series that cannot be searched yet, as their noise is unknown.
        tor: the commit of Tor that is measured; None if it is not from a repository.
    """

    when: str
    project: str
    false_alarms_per_year: float
    nights_per_year: int
    false_steps_per_year: float
    results: Sequence[NightResult] = ()
    steps: Sequence[HistoryStep] = ()
    series: int = 0
    unsearched: int = 0
    tor: WatchedTor | None = None

    @property
    def alarm(self) -> bool:
        """True if any experiment raises an alarm."""
        return any(result.alarm for result in self.results)

    @property
    def sentence(self) -> str:
        """The result of the whole night."""
        count = len(self.results)
        experiments = f"{count} experiment{'' if count == 1 else 's'}"
        alarms = [result.name for result in self.results if result.alarm]
        if not alarms:
            compared = [result.comparison for result in self.results if result.comparison]
            worse = sum(len(one.suggested_regressions) for one in compared)
            if not worse:
                return f"No alarm in {experiments}."
            are = "endpoint is" if worse == 1 else "endpoints are"
            return f"No alarm in {experiments}; {worse} {are} suggested to be worse."
        are = "is" if len(alarms) == 1 else "are"
        return f"{len(alarms)} of {experiments} {are} worse than the baseline: {', '.join(alarms)}."


def metric_of_class(row: MetricRow) -> str:
    """Return the label of a row's metric, with the class of clients unless it means all clients."""
    return ", ".join(filter(None, (row.judgement.metric.label, readable(row).class_name)))


def shown_from(row: MetricRow) -> str:
    """Return the smallest detectable deterioration of an endpoint, as a string.

    The result is a dash if this deterioration is unknown. It is "none" for a share if not even a
    change by 100 percentage points is detectable.
    """
    size, unit = row.judgement.verdict.detectable, row.judgement.metric.unit
    if size is None:
        return NOTHING
    if row.judgement.verdict.scale == "ratio":
        if row.judgement.metric.better == "higher":
            return f"\N{MULTIPLICATION SIGN}{1 / size:.2g}"
        text = "1000 or more" if size > 1000 else f"{size:.{2 if size < 10 else 0}f}"
        return f"\N{MULTIPLICATION SIGN}{text}"
    if unit == "1" and size > 1:
        return "none"
    text = (
        format_difference(size, unit, sign=False) if unit == "1" else format_number(size, unit=unit)
    )
    return f"\N{PLUS-MINUS SIGN}{text}"


def markdown(night: Night) -> str:
    """Return the summary for a pull request or a terminal."""
    return _render("nightly.md.j2", night)


def html(night: Night, forests: Mapping[str, WrittenFigure] = MappingProxyType({})) -> str:
    """Return the summary as one self-contained page.

    forests: name of an experiment -> plot of its effects.
    """
    return _render("nightly.html.j2", night, forests=forests)


def junit(night: Night) -> str:
    """Return JUnit XML with a test case for each endpoint.

    An experiment without rows of endpoints has a single test case.
    """
    return _render("nightly.xml.j2", night)


def _render(template: str, night: Night, **values: object) -> str:
    return render(
        template,
        night=night,
        power=round(100 * POWER),
        shown_from=shown_from,
        nights_alone=NIGHTS_ALONE,
        nights_with_ten_runs=1 + math.ceil(1.5 * MINIMUM_DF / 9),
        **values,
    )
