"""A comparison of two sets of runs as plain text, a CSV file and an HTML page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.comparison.comparing import A, B, Comparison, MetricRow
from analysis.comparison.imported_metrics import NOTES
from analysis.comparison.run_sets import RunSet
from analysis.figures.forest import RenderedPlot, write_forest
from analysis.formats import files
from analysis.inference.intervals import CONFIDENCE
from analysis.judgement.compared import VariantComparison
from analysis.judgement.estimates import Estimate
from analysis.judgement.judging import Judgement
from analysis.measures.data import ALL
from analysis.pages.answer import answer
from analysis.pages.html import environment, image_uri, write_answer
from analysis.pages.numbers import (
    NOTHING,
    exact,
    exact_bounds,
    format_effect,
    format_interval,
    format_number,
    readable_unit,
    scaled,
)
from analysis.pages.table_sort_keys import table_sort_keys

MAX_NAME_LENGTH = 16
"""Maximum length of a set's name in sentences; longer ones are replaced by A or B."""

CSV_COLUMNS = (
    "cell", "class", "metric", "unit", "endpoint",
    "a_mean", "a_low", "a_high", "a_runs", "b_mean", "b_low", "b_high", "b_runs",
    "scale", "effect", "low", "high", "margin", "grade", "direction",
    "p_different", "p_equivalent", "count", "agreeing", "detectable", "more_networks", "note",
)  # fmt: skip


def csv_text(comparison: Comparison) -> str:
    """Return all metrics of all places as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in comparison.rows:
        verdict = row.judgement.verdict
        writer.writerow(
            [
                row.match.label,
                row.judgement.class_name,
                row.judgement.metric.name,
                row.judgement.metric.unit,
                "" if row.judgement.endpoint is None else row.judgement.endpoint + 1,
                *_side(row.a),
                *_side(row.b),
                verdict.scale,
                *exact_bounds(verdict.effect),
                exact(verdict.margin),
                verdict.grade or "",
                verdict.direction,
                exact(verdict.p_different),
                exact(verdict.p_equivalent),
                verdict.count,
                "" if verdict.agreeing is None else verdict.agreeing,
                exact(verdict.detectable),
                "" if verdict.more_networks is None else verdict.more_networks,
                _note(row),
            ]
        )
    return text.getvalue()


def _side(side: Estimate) -> list[object]:
    return [*exact_bounds(side.mean), side.seeds]


def _note(row: MetricRow) -> str:
    """Return the reasons for missing verdicts and numbers."""
    notes = [row.judgement.verdict.reason, row.judgement.verdict.caution]
    for name, side in ((A, row.a), (B, row.b)):
        if side.mean is None:
            notes.append(f"{name}: {side.note}")
    return "; ".join(dict.fromkeys(note for note in notes if note))


def readable(row: MetricRow) -> dict[str, str | bool | float]:
    """Return a row as values for tables."""
    metric, verdict = row.judgement.metric, row.judgement.verdict
    factor, unit = readable_unit(metric.unit)
    effect, bounds = format_effect(verdict.effect, verdict.scale, metric.unit)
    a, b = (scaled(side.mean_for(verdict.scale), factor) for side in (row.a, row.b))
    return {
        "where": row.match.label,
        "class_name": "" if row.judgement.class_name == ALL else row.judgement.class_name,
        "label": metric.label + (f" ({unit})" if unit else ""),
        "a": NOTHING if a is None else format_number(a.estimate),
        "a_interval": format_interval(a),
        "b": NOTHING if b is None else format_number(b.estimate),
        "b_interval": format_interval(b),
        "effect": effect,
        "effect_interval": bounds,
        "verdict": verdict.word,
        "note": "; ".join(part for part in (verdict.more, _note(row)) if part),
        "endpoint": row.judgement.endpoint is not None,
        **table_sort_keys(metric, row.judgement.class_name, row.judgement),
        "regression": row.judgement.regression,
    }


def tables(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the endpoints, then the other metrics: rows, and by reason the metrics without one."""
    parts: list[dict[str, Any]] = []
    several = _several(comparison)
    for endpoints in (True, False):
        rows = []
        without: dict[str, list[str]] = {}
        for row in comparison.rows:
            if (row.judgement.endpoint is not None) is not endpoints:
                continue
            shown = readable(row)
            reason = nothing(row, shown)
            if reason:
                details = [shown["class_name"], shown["where"] if several else ""]
                places = ", ".join(str(part) for part in details if part)
                name = f"{row.judgement.metric.label}{f' ({places})' if places else ''}"
                without.setdefault(reason, []).append(name)
            else:
                rows.append(shown)
        parts.append({"rows": rows, "without": without})
    return parts


def nothing(row: MetricRow, shown: Mapping[str, object]) -> str:
    """Return why a row has nothing to compare, with its verdict; "" if it has."""
    verdict = "; ".join(str(part) for part in (shown["verdict"], shown["note"]) if part)
    if row.a.mean is None and row.b.mean is None:
        return f"Not given, {verdict}"
    if row.a.minimum == row.a.maximum == row.b.minimum == row.b.maximum == 0.0:
        return "; ".join(filter(None, ("0 in all runs", verdict)))
    return ""


def _several(comparison: Comparison) -> bool:
    return len({row.match.label for row in comparison.rows}) > 1


def table_text(comparison: Comparison) -> str:
    """Return the endpoints as a table of plain text."""
    several = _several(comparison)
    header = ["metric", "A", "B", "effect", "95 %", "grade"]
    lines = []
    for row in map(readable, comparison.endpoints):
        where = [str(row["where"])] if several else []
        where += [str(row["class_name"])] if row["class_name"] else []
        label = ", ".join([str(row["label"]), *where])
        verdict = ": ".join(filter(None, (str(row["verdict"] or "not judged"), str(row["note"]))))
        lines.append(
            [label, *(str(row[k]) for k in ("a", "b", "effect", "effect_interval")), verdict]
        )
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header) - 1)]
    return "\n".join(
        "  ".join([*(text.ljust(w) for text, w in zip(line, widths, strict=False)), line[-1]])
        for line in [header, *lines]
    )


def facts(run_set: RunSet) -> list[tuple[str, str]]:
    """Return the inputs of a set's runs, for readers."""

    def joined(values: Iterator[str]) -> str:
        return "; ".join(dict.fromkeys(value for value in values if value)) or "not recorded"

    return [
        ("runs", str(len(run_set.runs))),
        ("networks", ", ".join(str(s) for s in dict.fromkeys(run.seed for run in run_set.runs))),
        ("variants", ", ".join(run_set.variants)),
        (
            "Tor",
            joined(
                f"{build.version} ({program} {build.sha256[:12]})"
                for run in run_set.runs
                for program, build in run.tor.items()
            ),
        ),
        (
            "engine",
            joined(
                " ".join(f"{key} {value[:16]}" for key, value in run.engine.items())
                for run in run_set.runs
            ),
        ),
        ("project", joined(run.project for run in run_set.runs)),
        ("definitions", run_set.definitions),
        *(
            (
                f"measured span of {level}",
                f"{span.measured_start_s:g} s to {span.measured_end_s:g} s of {span.stop_s:g} s",
            )
            for level, span in run_set.spans.items()
        ),
        *(("note", note) for note in run_set.notes),
    ]


def endpoint_comparisons(comparison: Comparison) -> list[VariantComparison]:
    """Return the verdicts on endpoints by place; empty if both sides are byte-identical."""
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
    """Return the simulated networks of each side, only once if they are the same."""
    a, b = comparison.a.simulated, comparison.b.simulated
    if a == b:
        return list(a)
    return [f"{name}: {' '.join(lines)}" for name, lines in ((A, a), (B, b)) if lines]


def answered(comparison: Comparison) -> list[str]:
    """Return the conclusion, then a sentence for each endpoint.

    Long names, such as paths, occur only once; the sentences contain A and B instead.
    """
    compared, conclusion = endpoint_comparisons(comparison), f"{comparison.outcome}."
    if max(len(comparison.a.name), len(comparison.b.name)) > MAX_NAME_LENGTH:
        compared = [replace(one, variant=B, baseline=A) for one in compared]
        conclusion += f" {A} is {comparison.a.name}, {B} is {comparison.b.name}."
    found = answer(compared, error_level=None)
    return [conclusion, *found] if found else [comparison.sentence]


def html_text(comparison: Comparison, forest: RenderedPlot | None = None) -> str:
    """Return the report as one self-contained page."""
    context: dict[str, Any] = {
        "c": comparison,
        "answer": answered(comparison),
        "forest": None if forest is None else image_uri(forest.svg),
        "forest_caption": "" if forest is None else forest.caption,
        "simulated": simulated_by(comparison),
        "tables": tables(comparison),
        "several": _several(comparison),
        "sides": [("A, the baseline", comparison.a), ("B", comparison.b)],
        "facts": facts,
        "confidence": round(100 * CONFIDENCE),
        "definitions": NOTES if comparison.a.definitions != "onionlab" else (),
    }
    return environment().get_template("comparison.html.j2").render(**context)


@dataclass(frozen=True)
class ComparisonPaths:
    """Paths of the written files."""

    html: Path
    csv: Path


def write(comparison: Comparison, out: Path) -> ComparisonPaths:
    """Write report.html, comparison.csv, answer.txt and the plot into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    paths = ComparisonPaths(out / files.REPORT, out / files.COMPARISON_CSV)
    paths.csv.write_text(csv_text(comparison), encoding="utf-8")
    forest = write_forest(endpoint_comparisons(comparison), out / files.FOREST)
    write_answer(out, answered(comparison))
    paths.html.write_text(html_text(comparison, forest), encoding="utf-8")
    return paths
