"""Two sets of runs to verdicts, a table, a CSV file and an HTML page. Pure but for the writing.

The first set is the baseline, the second is judged against it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from analysis.comparison.differences import Differences, differences, settle_about
from analysis.comparison.imported_metrics import NOTES
from analysis.comparison.run_sets import RunSet, SetRun
from analysis.errors import AnalysisError
from analysis.inference.intervals import CONFIDENCE, Interval
from analysis.judgement.estimates import Estimate, estimate
from analysis.judgement.judging import Design, Judgement, Statistics, judge_comparison
from analysis.judgement.verdicts import LEVEL, State
from analysis.measures.data import ALL
from analysis.measures.metric import Statistic
from analysis.pages.html import environment
from analysis.pages.report import NOTHING, format_interval, format_number, readable_unit, scaled

A, B = "A", "B"
"""The sides' names among statistics: two variants of the same name are two sides."""


class Outcome(IntEnum):
    """The answer as an exit status."""

    FINE = 0
    REGRESSION = 1
    UNSETTLED = 3


@dataclass(frozen=True)
class Row:
    """One metric of one cell (level, and variant where there are several)."""

    cell: str
    a: Estimate
    b: Estimate
    judgement: Judgement


@dataclass(frozen=True)
class Comparison:
    """The answer and all that led to it.

    Attributes:
        about: what was compared; none if nothing is known to differ.
        identical: all records are the same bytes, so that there is nothing to test.
        paired: how runs were compared.
        pairs: runs of both sides by cell and seed; for unpaired sets of no meaning.
        alone: seeds without a partner, in words.
        error_level: chance of any false "different" among all primary metrics.
    """

    a: RunSet
    b: RunSet
    about: tuple[str, ...]
    found: Differences
    identical: bool
    paired: bool
    pairs: int
    alone: tuple[str, ...]
    error_level: float
    rows: tuple[Row, ...]

    @property
    def primary(self) -> list[Row]:
        """What decides."""
        return [row for row in self.rows if row.judgement.primary]

    @property
    def regressions(self) -> list[Row]:
        """Primary metrics that are shown to be worse."""
        return [row for row in self.primary if row.judgement.regression]

    @property
    def unsettled(self) -> list[Row]:
        """Primary metrics that are not yet known."""
        return [row for row in self.primary if not row.judgement.verdict.settled]

    @property
    def outcome(self) -> Outcome:
        """Regression goes before not settled; byte-identical records are settled."""
        if self.identical:
            return Outcome.FINE
        if self.regressions:
            return Outcome.REGRESSION
        return Outcome.UNSETTLED if self.unsettled or not self.primary else Outcome.FINE

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        if self.identical:
            return (
                f"No behavioural change: the records of all {self.pairs} pairs of runs are "
                "byte-identical."
            )
        counts = [
            (len(self.regressions), "worse"),
            (sum(r.judgement.verdict.direction == "better" for r in self.primary), "better"),
            (
                sum(r.judgement.verdict.state is State.EQUIVALENT for r in self.primary),
                "equivalent",
            ),
            (len(self.unsettled), "not yet known"),
        ]
        total = ", ".join(f"{n} {what}" for n, what in counts if n)
        verdict = {
            Outcome.FINE: "No regression",
            Outcome.REGRESSION: "Regression",
            Outcome.UNSETTLED: "Not settled",
        }[self.outcome]
        if not self.primary:
            return "Not settled: the sets have no primary metric in common."
        seeds = max((r.judgement.verdict.more_seeds or 0 for r in self.unsettled), default=0)
        more = f"; about {seeds} more seeds would settle all that seeds can" if seeds else ""
        return f"{verdict}: of {len(self.primary)} primary metrics {total}{more}."


def compare_sets(
    a: RunSet, b: RunSet, about: Sequence[str] = (), error_level: float = LEVEL
) -> Comparison:
    """Compare B with the baseline A.

    Runs are paired by level, variant and seed; a level or variant that is alone on its side is
    compared with the only one of the other. Sets that cannot be paired (imports, or no seed in
    common) are two independent samples.

    Args:
        a: the baseline.
        b: what is judged.
        about: aspects that may differ; none: find out which one does.
        error_level: chance of any false "different" over all primary metrics of all cells together,
            and of any false "equivalent".

    Raises:
        AnalysisError: more differs than was asked about, or nothing can be compared.
    """
    _require_same_definitions(a, b)
    cells = list(_cells(a, b))
    paired = a.paired and b.paired
    couples: list[tuple[SetRun, SetRun]] = []
    alone: list[str] = []
    for label, mine, other in cells:
        common = sorted(set(mine) & set(other)) if paired else []
        couples += [(mine[seed], other[seed]) for seed in common]
        single = sorted(set(mine) ^ set(other))
        if paired and common and single:
            where = f" of {label}" if len(cells) > 1 else ""
            alone.append(f"seeds without a pair{where}: {', '.join(map(str, single))}")
    if paired and not couples:
        paired = False
        alone = ["no seed in common: the sets are compared as two independent samples"]
    if not paired:
        couples = [
            pair
            for _, mine, other in cells
            for pair in zip(mine.values(), other.values(), strict=False)
        ]
    found = differences(a, b, couples)
    settled = settle_about(found, about)
    identical = (
        paired
        and len(couples) == len(a.runs) == len(b.runs)
        and all(x.records and x.records == y.records for x, y in couples)
        and not {"time", "load"} & set(found.found)
    )
    share = error_level / len(cells)
    rows = tuple(row for cell in cells for row in _judge(a, b, cell, paired, share))
    return Comparison(
        a, b, settled, found, identical, paired, len(couples), tuple(alone), error_level, rows
    )


def _require_same_definitions(a: RunSet, b: RunSet) -> None:
    if a.definitions != b.definitions:
        raise AnalysisError(
            f"{a.name} and {b.name} hold numbers that are defined differently "
            f"({a.definitions}, {b.definitions})",
            "compare an import with another import, or this project's runs with its own",
        )
    if a.records_format != b.records_format:
        raise AnalysisError(
            f"the records of {a.name} and {b.name} have different formats "
            f"({a.records_format}, {b.records_format})",
            "extract the older ones again: make analyse NAME=...",
        )


Cell = tuple[str, Mapping[int, SetRun], Mapping[int, SetRun]]


def _cells(a: RunSet, b: RunSet) -> Iterator[Cell]:
    levels = _matched("levels", a, b, a.levels, b.levels)
    variants = _matched("variants", a, b, a.variants, b.variants)
    any_runs = False
    for level_a, level_b in levels:
        for variant_a, variant_b in variants:
            mine, other = a.runs_of(level_a, variant_a), b.runs_of(level_b, variant_b)
            if mine and other:
                any_runs = True
                parts = [
                    level_a if len(levels) > 1 else "",
                    variant_a if len(variants) > 1 else "",
                ]
                yield ", ".join(part for part in parts if part) or level_a, mine, other
    if not any_runs:
        raise AnalysisError(f"{a.name} and {b.name} have no level and variant in common")


def _matched(
    what: str, a: RunSet, b: RunSet, of_a: Sequence[str], of_b: Sequence[str]
) -> list[tuple[str, str]]:
    if len(of_a) == len(of_b) == 1:
        return [(of_a[0], of_b[0])]
    common = [name for name in of_a if name in of_b]
    if not common or len(of_a) == 1 or len(of_b) == 1:
        raise AnalysisError(
            f"{a.name} and {b.name} do not match in their {what}: "
            f"{', '.join(of_a)} / {', '.join(of_b)}",
            "name one variant on both sides, NAME:VARIANT"
            if what == "variants"
            else "compare runs of the same experiment",
        )
    return [(name, name) for name in common]


def _judge(a: RunSet, b: RunSet, cell: Cell, paired: bool, error_level: float) -> Iterator[Row]:
    label, mine, other = cell
    # Seeds differ by more than sides do: means over other seeds would belie the effect.
    of_pairs = set(mine) & set(other)
    statistics: Statistics = {}
    for side, run_set, runs in ((A, a, mine), (B, b, other)):
        run = next(iter(runs.values()))
        for (level, class_name), by_metric in run_set.statistics().items():
            if level != run.level:
                continue
            for (metric, variant), by_seed in by_metric.items():
                if variant == run.variant:
                    statistics.setdefault((label, class_name), {})[metric, side] = {
                        seed: statistic
                        for seed, statistic in by_seed.items()
                        if seed in of_pairs or not paired
                    }
    design = Design(
        paired=paired,
        error_level=error_level,
        margins=a.margins,
        catalogue=a.catalogue,
    )
    # What one side does not measure at all is no question to settle.
    common = {
        place: {
            (metric, side): by_seed
            for (metric, side), by_seed in by_metric.items()
            if all((metric, other) in by_metric for other in (A, B))
        }
        for place, by_metric in statistics.items()
    }
    statistics = {place: by_metric for place, by_metric in common.items() if by_metric}
    if not statistics:
        raise AnalysisError(f"{a.name} and {b.name} hold no statistic of {label} in common")
    for judgement in judge_comparison(label, statistics, B, A, design):
        of_class = statistics[label, judgement.class_name]
        own = [of_class.get((judgement.metric.name, side), {}) for side in (A, B)]
        if not any(_any_value(values) for values in own) and not judgement.primary:
            continue
        yield Row(label, estimate(own[0]), estimate(own[1]), judgement)


def _any_value(values: Mapping[int, Statistic]) -> bool:
    return any(statistic.value is not None for statistic in values.values())


CSV_COLUMNS = (
    "cell", "class", "metric", "unit", "primary",
    "a_mean", "a_low", "a_high", "a_runs", "b_mean", "b_low", "b_high", "b_runs",
    "scale", "effect", "low", "high", "margin", "verdict", "direction",
    "p_different", "p_equivalent", "count", "more_seeds", "note",
)  # fmt: skip


def csv_text(comparison: Comparison) -> str:
    """All metrics of all cells, one line each."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in comparison.rows:
        verdict = row.judgement.verdict
        writer.writerow(
            [
                row.cell,
                row.judgement.class_name,
                row.judgement.metric.name,
                row.judgement.metric.unit,
                "yes" if row.judgement.primary else "no",
                *_cells_of(row.a),
                *_cells_of(row.b),
                verdict.scale,
                *_bounds(verdict.effect),
                _number(verdict.margin),
                verdict.state.value,
                verdict.direction,
                _number(verdict.p_different),
                _number(verdict.p_equivalent),
                verdict.count,
                "" if verdict.more_seeds is None else verdict.more_seeds,
                _note(row),
            ]
        )
    return text.getvalue()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"


def _bounds(interval: Interval | None) -> list[str]:
    if interval is None:
        return ["", "", ""]
    return [_number(value) for value in (interval.estimate, interval.low, interval.high)]


def _cells_of(side: Estimate) -> list[object]:
    return [*_bounds(side.mean), side.seeds]


def _note(row: Row) -> str:
    """Why there is no verdict or no number."""
    notes = [row.judgement.verdict.reason]
    for name, side in ((A, row.a), (B, row.b)):
        if side.mean is None:
            notes.append(f"{name}: {side.note}")
    return "; ".join(dict.fromkeys(note for note in notes if note))


def readable(row: Row) -> dict[str, str | bool]:
    """A row as tables show it."""
    metric, verdict = row.judgement.metric, row.judgement.verdict
    factor, unit = readable_unit(metric.unit)
    if verdict.scale == "ratio":
        effect = "" if verdict.effect is None else f"x {verdict.effect.estimate:.3f}"
        bounds = _ratio_bounds(verdict.effect)
    else:
        difference = scaled(verdict.effect, factor)
        effect = "" if difference is None else format_number(difference.estimate, sign=True)
        bounds = format_interval(difference, sign=True)
    more = verdict.more_seeds
    seeds = "" if more is None else f"about {more} more seed{'s' if more != 1 else ''}"
    a, b = scaled(row.a.mean, factor), scaled(row.b.mean, factor)
    return {
        "cell": row.cell,
        "class_name": "" if row.judgement.class_name == ALL else row.judgement.class_name,
        "label": metric.label + (f" ({unit})" if unit else ""),
        "a": NOTHING if a is None else format_number(a.estimate),
        "a_interval": format_interval(a),
        "b": NOTHING if b is None else format_number(b.estimate),
        "b_interval": format_interval(b),
        "effect": effect or NOTHING,
        "effect_interval": bounds,
        "verdict": verdict.direction or verdict.state.value,
        "note": "; ".join(part for part in (seeds, _note(row)) if part),
        "primary": row.judgement.primary,
        "regression": row.judgement.primary and row.judgement.regression,
    }


def _ratio_bounds(interval: Interval | None) -> str:
    if interval is None or interval.low is None or interval.high is None:
        return ""
    return f"[{interval.low:.3f}, {interval.high:.3f}]"


def table_text(comparison: Comparison) -> str:
    """The primary metrics as a table of plain text."""
    several = len({row.cell for row in comparison.rows}) > 1
    header = ["metric", "A", "B", "effect", "95 %", "verdict"]
    lines = []
    for row in map(readable, comparison.primary):
        where = [str(row["cell"])] if several else []
        where += [str(row["class_name"])] if row["class_name"] else []
        label = ", ".join([str(row["label"]), *where])
        verdict = f"{row['verdict']}{': ' if row['note'] else ''}{row['note']}"
        lines.append(
            [label, *(str(row[k]) for k in ("a", "b", "effect", "effect_interval")), verdict]
        )
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)), line[-1]])
        for line in [header, *lines]
    )


def facts(run_set: RunSet) -> list[tuple[str, str]]:
    """What determined a set's runs, for readers."""

    def joined(values: Iterator[str]) -> str:
        return "; ".join(dict.fromkeys(value for value in values if value)) or "not recorded"

    return [
        ("runs", str(len(run_set.runs))),
        ("seeds", ", ".join(str(s) for s in dict.fromkeys(run.seed for run in run_set.runs))),
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


def html_text(comparison: Comparison) -> str:
    """The report as one page that loads nothing."""
    context: dict[str, Any] = {
        "c": comparison,
        "rows": [readable(row) for row in comparison.rows],
        "several": len({row.cell for row in comparison.rows}) > 1,
        "sides": [("A, the baseline", comparison.a), ("B", comparison.b)],
        "facts": facts,
        "confidence": round(100 * CONFIDENCE),
        "definitions": NOTES if comparison.a.definitions != "onionlab" else (),
    }
    return environment().get_template("comparison.html.j2").render(**context)


@dataclass(frozen=True)
class ComparisonPaths:
    """What ``write`` wrote."""

    html: Path
    csv: Path


def write(comparison: Comparison, out: Path) -> ComparisonPaths:
    """Write report.html and comparison.csv into ``out``; same comparison, same bytes."""
    out.mkdir(parents=True, exist_ok=True)
    paths = ComparisonPaths(out / "report.html", out / "comparison.csv")
    paths.csv.write_text(csv_text(comparison), encoding="utf-8")
    paths.html.write_text(html_text(comparison), encoding="utf-8")
    return paths
