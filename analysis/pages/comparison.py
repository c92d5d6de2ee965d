"""A comparison of two sets of runs as plain text, a CSV file and an HTML page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.comparison.comparing import A, B, Comparison, MetricRow
from analysis.comparison.imported_metrics import NOTES
from analysis.figures.forest import write_forest
from analysis.figures.writing import WrittenFigure
from analysis.formats import files
from analysis.formats.csv_tables import csv_text
from analysis.judgement.compared import VariantComparison, interval_record, judgement_record
from analysis.judgement.judging import Judgement
from analysis.measures.data import ALL
from analysis.pages.answer import answer
from analysis.pages.html import render, write_answer
from analysis.pages.numbers import format_effect, format_interval, format_number, readable_unit

MAX_NAME_LENGTH = 16
"""Maximum length of the name of a set of runs in sentences.

If one of the two names is longer, A and B replace both names.
"""

CSV_COLUMNS = (
    "cell", "class", "metric", "unit", "endpoint",
    "a_mean", "a_low", "a_high", "a_runs", "b_mean", "b_low", "b_high", "b_runs",
    "scale", "effect", "low", "high", "margin", "grade", "direction",
    "p_different", "p_equivalent", "count", "agreeing", "detectable", "more_networks", "note",
)  # fmt: skip


def comparison_csv(comparison: Comparison) -> str:
    """Return all metrics of all levels and variants as CSV."""
    rows = (
        {
            "cell": row.match.label,
            **judgement_record(row.judgement),
            **interval_record(row.a.mean, ("a_mean", "a_low", "a_high")),
            "a_runs": row.a.seeds,
            **interval_record(row.b.mean, ("b_mean", "b_low", "b_high")),
            "b_runs": row.b.seeds,
            "note": _note(row),
        }
        for row in comparison.rows
    )
    return csv_text(rows, CSV_COLUMNS)


def _note(row: MetricRow) -> str:
    """Return the caveats of a verdict, and the reasons for missing verdicts and means."""
    notes = [row.judgement.verdict.reason, row.judgement.verdict.caution]
    notes += [f"{name}: {side.note}" for name, side in ((A, row.a), (B, row.b)) if not side.mean]
    return "; ".join(dict.fromkeys(note for note in notes if note))


@dataclass(frozen=True)
class ReadableRow:
    """One metric as texts for tables.

    Attributes:
        class_name: the class of clients; "" for all clients.
        where: label of the level and variant; "" if the comparison has only one.
        label: the metric with its unit.
        a, b, effect: the mean of side A or B, or the effect of B against A; and its interval.
        verdict: the verdict, and a note on it.
    """

    row: MetricRow
    class_name: str
    where: str
    label: str
    a: tuple[str, str]
    b: tuple[str, str]
    effect: tuple[str, str]
    verdict: tuple[str, str]

    @property
    def place(self) -> str:
        """``class_name`` and ``where`` as one text."""
        return ", ".join(filter(None, (self.class_name, self.where)))


def readable(row: MetricRow, *, several: bool = True) -> ReadableRow:
    """Return a row as texts.

    several: whether the comparison has several levels or variants, so that the texts must name the
        level or variant.
    """
    metric, verdict = row.judgement.metric, row.judgement.verdict
    unit = readable_unit(metric.unit)[1]
    means = (side.mean_for(verdict.scale) for side in (row.a, row.b))
    a, b = (
        (
            format_number(mean.estimate if mean else None, unit=metric.unit),
            format_interval(mean, unit=metric.unit),
        )
        for mean in means
    )
    return ReadableRow(
        row,
        class_name="" if row.judgement.class_name == ALL else row.judgement.class_name,
        where=row.match.label if several else "",
        label=metric.label + (f" ({unit})" if unit else ""),
        a=a,
        b=b,
        effect=format_effect(verdict.effect, verdict.scale, metric.unit),
        verdict=(verdict.word, "; ".join(filter(None, (verdict.more, _note(row))))),
    )


def tables(comparison: Comparison) -> list[dict[str, Any]]:
    """Return two tables: the endpoints, and all other metrics.

    The entry "rows" has a table's rows. The entry "without" maps a reason to the metrics that have
    no row for this reason.
    """
    parts: list[dict[str, Any]] = [{"rows": [], "without": {}} for _ in range(2)]
    several = _several(comparison)
    for row in comparison.rows:
        shown = readable(row, several=several)
        part = parts[shown.row.judgement.endpoint is None]
        reason = _nothing(shown)
        if reason:
            name = shown.row.judgement.metric.label + (f" ({shown.place})" if shown.place else "")
            part["without"].setdefault(reason, []).append(name)
        else:
            part["rows"].append(shown)
    return parts


def _nothing(shown: ReadableRow) -> str:
    """Return why a table omits a row, followed by the row's verdict; "" if it shows the row."""
    verdict, a, b = "; ".join(filter(None, shown.verdict)), shown.row.a, shown.row.b
    if a.mean is None and b.mean is None:
        return f"Not given, {verdict}"
    if a.minimum == a.maximum == b.minimum == b.maximum == 0.0:
        return "; ".join(filter(None, ("0 in all runs", verdict)))
    return ""


def _several(comparison: Comparison) -> bool:
    return len({row.match.label for row in comparison.rows}) > 1


def table_text(comparison: Comparison) -> str:
    """Return the endpoints as a table of plain text."""
    lines = [["metric", "A", "B", "effect", "95 %", "grade"]]
    several = _several(comparison)
    for endpoint in comparison.endpoints:
        row = readable(endpoint, several=several)
        label = ", ".join(filter(None, (row.label, row.where, row.class_name)))
        word, note = row.verdict
        verdict = ": ".join(filter(None, (word or "not judged", note)))
        lines.append([label, row.a[0], row.b[0], *row.effect, verdict])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    # The last column is not padded, so that lines do not end with spaces.
    widths[-1] = 0
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        for line in lines
    )


def endpoint_comparisons(comparison: Comparison) -> list[VariantComparison]:
    """Return the verdicts on endpoints; empty if both sides are byte-identical."""
    if comparison.identical:
        return []
    several = _several(comparison)
    by_place: dict[str, list[Judgement]] = {}
    for row in comparison.endpoints:
        by_place.setdefault(row.match.label if several else "", []).append(row.judgement)
    return [
        VariantComparison(place, comparison.b.name, comparison.a.name, tuple(judgements))
        for place, judgements in by_place.items()
    ]


def simulated_by(comparison: Comparison) -> list[str]:
    """Return the simulated networks of each side; once if both sides have the same networks."""
    a, b = comparison.a.simulated, comparison.b.simulated
    if a == b:
        return list(a)
    return [f"{name}: {' '.join(lines)}" for name, lines in ((A, a), (B, b)) if lines]


def answered(comparison: Comparison) -> list[str]:
    """Return the conclusion and the paragraphs of ``answer``.

    If ``answer`` gives no paragraphs, return only the comparison's sentence. If the name of a set
    is long, such as a path, the names occur once, and all other sentences use A and B.
    """
    compared, conclusion = endpoint_comparisons(comparison), f"{comparison.outcome}."
    if max(len(comparison.a.name), len(comparison.b.name)) > MAX_NAME_LENGTH:
        compared = [replace(one, variant=B, baseline=A) for one in compared]
        conclusion += f" {A} is {comparison.a.name}, {B} is {comparison.b.name}."
    found = answer(compared, error_level=None)
    return [conclusion, *found] if found else [comparison.sentence]


def html_text(comparison: Comparison, forest: WrittenFigure | None = None) -> str:
    """Return the report as one self-contained page."""
    return render(
        "comparison.html.j2",
        c=comparison,
        answer=answered(comparison),
        forest=forest,
        simulated=simulated_by(comparison),
        tables=tables(comparison),
        sides={"A, the baseline": comparison.a, "B": comparison.b},
        definitions=NOTES if comparison.a.definitions != "onionlab" else (),
    )


def write(comparison: Comparison, out: Path) -> Path:
    """Write report.html, comparison.csv, answer.txt and the plot; return the path of the page."""
    out.mkdir(parents=True, exist_ok=True)
    (out / files.COMPARISON_CSV).write_text(comparison_csv(comparison), encoding="utf-8")
    forest = write_forest(endpoint_comparisons(comparison), out / files.FOREST)
    write_answer(out, answered(comparison))
    (out / files.REPORT).write_text(html_text(comparison, forest), encoding="utf-8")
    return out / files.REPORT
