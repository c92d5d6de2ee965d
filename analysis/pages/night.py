"""The results of a nightly run as Markdown, HTML and JUnit XML."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from analysis.comparison.comparing import Comparison, Conclusion, MetricRow
from analysis.comparison.history import HistoryStep
from analysis.comparison.run_sets import CATALOGUES
from analysis.figures.forest import RenderedPlot
from analysis.inference.change_points import MINIMUM_DF, NIGHTS_ALONE
from analysis.inference.sample_size import POWER
from analysis.judgement.compared import VariantComparison
from analysis.pages.comparison import answered, endpoint_comparisons, readable, simulated_by
from analysis.pages.html import environment, image_uri
from analysis.pages.numbers import NOTHING, format_number, readable_unit


@dataclass(frozen=True)
class NightResult:
    """One experiment of a nightly run.

    Attributes:
        name: name of the experiment.
        comparison: with the baseline; None if the night became the baseline.
        repeated: whether all records equal those of the night before.
        judged: the comparison, or that of the night's runs with themselves.
    """

    name: str
    comparison: Comparison | None
    repeated: bool
    judged: Comparison

    @property
    def alarm(self) -> bool:
        """True if an endpoint is shown to be worse than in the baseline."""
        return self.comparison is not None and self.comparison.conclusion is Conclusion.REGRESSION

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        if self.comparison is None:
            return "The runs of this night are the baseline from now on."
        suffix = " The records are those of the night before." if self.repeated else ""
        return self.comparison.sentence + suffix

    @property
    def anchor(self) -> str:
        """Anchor of its part of the page."""
        return f"experiment-{self.name}"

    @property
    def compared(self) -> list[VariantComparison]:
        """The verdicts on endpoints by place; empty without a comparison."""
        return [] if self.comparison is None else endpoint_comparisons(self.comparison)

    @property
    def answer(self) -> list[str]:
        """The result in sentences."""
        if self.comparison is None or self.repeated:
            return [self.sentence]
        return answered(self.comparison)

    @property
    def sees(self) -> str:
        """The smallest change that raises an alarm in the same night, in a sentence."""
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
        return f"{what} from {_seen(rows[0])}, for others from {_seen(rows[-1])}."


def _seen(row: MetricRow) -> str:
    return f"{seen_from(row)} ({row.judgement.class_name} {row.judgement.metric.name})"


@dataclass(frozen=True)
class Night:
    """All experiments of a nightly run."""

    when: str
    project: str
    false_alarms_per_year: float
    nights_per_year: int
    false_steps_per_year: float
    results: Sequence[NightResult] = ()
    steps: Sequence[HistoryStep] = field(default_factory=tuple)
    series: int = 0
    unsearched: int = 0

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
            return f"No alarm in {experiments}."
        are = "is" if len(alarms) == 1 else "are"
        return f"{len(alarms)} of {experiments} {are} worse than the baseline: {', '.join(alarms)}."

    @property
    def not_searched(self) -> str:
        """A sentence on time series that cannot be searched yet; "" if there are none."""
        if not self.unsearched:
            return ""
        number = "no" if self.unsearched == self.series else f"{self.unsearched} of {self.series}"
        verb = "can" if number == "no" else "cannot"
        return (
            f"{number.capitalize()} time series {verb} be searched for steps yet, because their "
            f"noise is unknown. This takes about {NIGHTS_ALONE} nights with records that differ "
            "from the night before; with several runs per night fewer, for example "
            f"{1 + math.ceil(1.5 * MINIMUM_DF / 9)} with ten."
        )

    @property
    def rate(self) -> str:
        """The expected rate of false alarms, as text."""
        return (
            f"At most {self.false_alarms_per_year:g} false differences per year are expected over "
            f"{self.nights_per_year} nights and all experiments, if every night's behaviour "
            "changed without being better or worse; at most half of them would be alarms. Nights "
            "with the baseline's records cannot raise any. Step changes: at most "
            f"{self.false_steps_per_year:g} false ones per year."
        )


def markdown(night: Night) -> str:
    """Return the summary for a pull request or a terminal."""
    lines = [f"# Night of {night.when}", "", f"Project: {night.project or 'not recorded'}", ""]
    for result in night.results:
        mark = "**ALARM** " if result.alarm else ""
        lines += [f"## {result.name}", "", f"{mark}{result.sentence}", "", result.sees, ""]
        if result.comparison is not None and not result.comparison.identical:
            lines += [
                "| Metric | Baseline | Night | Effect | Interval | Seen from | Verdict |",
                "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
            ]
            for metric_row in result.comparison.endpoints:
                row = readable(metric_row)
                label = ", ".join(
                    str(part) for part in (row["label"], row["class_name"], row["where"]) if part
                )
                verdict = f"{row['verdict']}{'; ' if row['note'] else ''}{row['note']}"
                columns = (
                    label,
                    row["a"],
                    row["b"],
                    row["effect"],
                    row["effect_interval"],
                    seen_from(metric_row),
                    verdict,
                )
                lines.append("| " + " | ".join(str(c).replace("|", "/") for c in columns) + " |")
            lines.append("")
            lines += [
                f"- differs from the baseline: {aspect}: {detail}"
                for aspect, details in result.comparison.found.found.items()
                for detail in details[:3]
            ]
            lines.append("")
    lines += ["## Step changes", ""]
    lines += [f"- {_step_line(words)}" for words in map(format_step, night.steps)] or ["None."]
    if night.not_searched:
        lines += ["", night.not_searched]
    lines += ["", night.rate, ""]
    return "\n".join(lines)


def seen_from(row: MetricRow) -> str:
    """Return the smallest detectable change of an endpoint; "none" if it exceeds 100%."""
    size = row.judgement.verdict.detectable
    if size is None:
        return NOTHING
    if row.judgement.verdict.scale == "ratio":
        return "x 1000, or more" if size > 1000 else f"x {size:.{2 if size < 10 else 0}f}"
    factor, unit = readable_unit(row.judgement.metric.unit)
    if unit == "%" and size > 1:
        return "none"
    return f"\N{PLUS-MINUS SIGN}{format_number(factor * size)}{' points' if unit == '%' else ''}"


def format_step(step: HistoryStep) -> Mapping[str, str]:
    """Return a step as texts for readers."""
    experiment, level, variant, class_name, metric, _ = step.time_series
    quantity = CATALOGUES["onionlab"].quantity(metric)
    label, unit = (metric, "") if quantity is None else (quantity.label, quantity.unit)
    factor, unit = readable_unit(unit)
    direction = {True: "worse", False: "better", None: "changed"}[step.worse]
    size = "" if step.ratio is None else f" (x {step.ratio:.3f})"
    return {
        "where": f"{experiment}, {level}, {variant}, {class_name}",
        "what": f"{label}{f' ({unit})' if unit else ''}",
        "size": f"{format_number(factor * step.step.before)} to "
        f"{format_number(factor * step.step.after)}{size}",
        "direction": direction,
        "between": f"{_point(step.last_before)} and {_point(step.first_after)}",
        "new": "new" if step.new else "",
    }


def _step_line(words: Mapping[str, str]) -> str:
    new = "**new** " if words["new"] else ""
    return (
        f"{new}{words['direction']}: {words['what']} of {words['where']}: {words['size']}, between "
        f"{words['between']}"
    )


def _point(point: tuple[str, str]) -> str:
    return f"{point[0]} [{point[1] or 'commit not recorded'}]"


def html(night: Night, forests: Mapping[str, RenderedPlot] = MappingProxyType({})) -> str:
    """Return the summary as one self-contained page. forests: plots by experiment."""
    context: dict[str, Any] = {
        "night": night,
        "results": [_section(result, forests.get(result.name)) for result in night.results],
        "steps": [format_step(step) for step in night.steps],
        "power": round(100 * POWER),
    }
    return environment().get_template("nightly.html.j2").render(**context)


def _section(result: NightResult, forest: RenderedPlot | None) -> dict[str, Any]:
    """Return one experiment as values for the template."""
    comparison = result.comparison
    return {
        "result": result,
        "answer": result.answer,
        "forest": None if forest is None else image_uri(forest.svg),
        "forest_caption": "" if forest is None else forest.caption,
        "simulated": [] if comparison is None else simulated_by(comparison),
        "rows": [
            {**readable(row), "seen_from": seen_from(row)}
            for row in (comparison.endpoints if comparison else ())
        ],
    }


def junit(night: Night) -> str:
    """Return a test case for each endpoint, or one for each byte-identical experiment."""
    suites = ET.Element("testsuites", name="onionlab nightly")
    for result in night.results:
        suite = ET.SubElement(suites, "testsuite", name=result.name, timestamp=night.when)
        comparison = result.comparison
        failures = skipped = 0
        if comparison is None or comparison.identical:
            ET.SubElement(suite, "testcase", classname=result.name, name=result.sentence)
        for row in (
            comparison.endpoints if comparison is not None and not comparison.identical else ()
        ):
            words = readable(row)
            verdict = row.judgement.verdict
            case = ET.SubElement(
                suite,
                "testcase",
                classname=f"{result.name}.{row.match.label}".replace(" ", "_"),
                name=f"{row.judgement.metric.name} {row.judgement.class_name}",
            )
            text = f"{words['a']} to {words['b']}: {words['effect']} {words['effect_interval']}"
            if row.judgement.regression:
                failures += 1
                ET.SubElement(case, "failure", type="regression", message=text)
            elif not verdict.settled:
                skipped += 1
                reason = f"{verdict.word or 'not judged'}: {words['note'] or text}"
                ET.SubElement(case, "skipped", message=reason)
        suite.set("tests", str(len(suite)))
        suite.set("failures", str(failures))
        suite.set("skipped", str(skipped))
        suite.set("errors", "0")
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"
