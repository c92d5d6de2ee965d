"""From runs to verdicts: which statistics there are, and what the endpoints show."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from analysis.errors import AnalysisError
from analysis.formats.plan_file import network_words
from analysis.formats.study import Looks, Replicate, Run, Scope, Study
from analysis.inference.corrections import endpoint_weights
from analysis.inference.sequential import spending
from analysis.judgement.margins import with_margins
from analysis.judgement.verdicts import (
    LEVEL,
    Grade,
    Paired,
    Sides,
    Unpaired,
    Verdict,
    decide,
    describe,
    exposure,
)
from analysis.measures.catalogue import OWN, run_statistics
from analysis.measures.data import ALL, ClassData
from analysis.measures.durations import TO_320_KIB, TO_FIRST_BYTE, TO_LAST_BYTE
from analysis.measures.metric import (
    NOTHING_THERE,
    TIME_RESOLUTION_S,
    Catalogue,
    Judged,
    Margin,
    Quantity,
    Statistic,
)
from analysis.measures.run_data import load_run

Statistics = dict[tuple[str, str], dict[tuple[str, str], dict[int, Statistic]]]
"""(level, class) -> (metric, variant) -> network's seed -> statistic; in the scope of one network,
the number of a repeat is in the place of the seed."""

RunStatistics = dict[tuple[str, str], dict[tuple[str, str], dict[tuple[int, int], Statistic]]]
"""(level, class) -> (metric, variant) -> seed and repeat of a run -> statistic."""

Key = TypeVar("Key", int, tuple[int, int])

WHOLE = 1e-3
"""How near to a whole number of heartbeats a gap is that was measured in heartbeats."""


@dataclass(frozen=True)
class Design:
    """How a comparison is to be judged, fixed before its runs are seen.

    Attributes:
        paired: the same networks on both sides; otherwise two independent sets of runs.
        error_level: chance of any false verdict of a kind among the endpoints.
        margins: sizes instead of those of ``analysis.judgement.margins``.
        catalogue: what the statistics are.
        endpoints: class and metric of what is judged, the most important first; none:
            ``usual_endpoints``.
        looks: when the growing set of pairs was looked at, if it was; for paired runs only.
        replicate: as in ``Paired``.
    """

    paired: bool = True
    error_level: float = LEVEL
    margins: Mapping[str, float] = field(default_factory=dict)
    catalogue: Catalogue = OWN
    endpoints: Sequence[tuple[str, str]] = ()
    looks: Looks | None = None
    replicate: Replicate = "network"


@dataclass(frozen=True)
class Judgement:
    """One metric of one class: what is known of a variant against the baseline.

    Attributes:
        class_name: class of clients, or ``ALL``.
        metric: the metric.
        endpoint: its place among the endpoints, from 0; None: it is none of them, and its verdict
            has no grade. Nor has that of an endpoint of which the baseline has too few streams.
        verdict: the verdict.
    """

    class_name: str
    metric: Quantity
    endpoint: int | None
    verdict: Verdict

    @property
    def regression(self) -> bool:
        """Whether the variant is shown to be worse."""
        return self.verdict.grade is Grade.SHOWN and self.verdict.direction == "worse"

    @property
    def exposure(self) -> float | None:
        """Share of networks in which harm may have been missed; None of what is no rate."""
        return exposure(self.metric, self.verdict.count)


def design_of(study: Study) -> Design:
    """How a study's comparisons are judged."""
    endpoints = [endpoint.key for endpoint in study.endpoints]
    return Design(
        margins=study.margins,
        endpoints=endpoints,
        looks=study.looks,
        replicate=study.replicate_word,
    )


def level_of(study: Study) -> float:
    """The chance of a false verdict of a kind in one comparison of a study, over all its looks."""
    return LEVEL if study.looks is None else LEVEL * spending(study.looks.plans).excess


def in_order(study: Study) -> Iterator[Run]:
    """Yield the study's runs by level, variant, seed and repeat."""
    for level in study.levels:
        for variant in study.variants:
            yield from study.runs_of(level.name, variant.name)


def add_run(statistics: RunStatistics, run: Run, data: Mapping[str, ClassData]) -> None:
    """Compute all metrics of one run and put them into ``statistics``."""
    for (class_name, metric), statistic in run_statistics(data).items():
        by_variant = statistics.setdefault((run.level, class_name), {})
        by_variant.setdefault((metric, run.variant), {})[run.seed, run.repeat] = statistic


def complete(
    statistics: dict[tuple[str, str], dict[tuple[str, str], dict[Key, Statistic]]],
    catalogue: Catalogue = OWN,
) -> dict[tuple[str, str], dict[tuple[str, str], dict[Key, Statistic]]]:
    """Return ``statistics``; a run without a metric that another run of its level has says so.

    A client whose downloads never ended, or a class without any, leaves nothing to compute from.
    That is an outcome: without the run its pair would be missing, and the others would be selected.
    """
    read: dict[str, set[tuple[str, Key]]] = {}
    for (level, _), of_class in statistics.items():
        for (_, variant), by_run in of_class.items():
            read.setdefault(level, set()).update((variant, run) for run in by_run)
    drawn = {quantity.name for quantity in catalogue.quantities if quantity.drawn}
    for (level, _), of_class in statistics.items():
        for metric in sorted({name for name, _ in of_class} - drawn):
            for variant, run in sorted(read[level]):
                of_class.setdefault((metric, variant), {}).setdefault(run, NOTHING_THERE)
    return statistics


def over_networks(
    runs: RunStatistics, scope: Scope = "networks", catalogue: Catalogue = OWN
) -> Statistics:
    """Return one statistic for each network: the mean of its repeats.

    The mean is geometric for metrics that are compared as ratios, which have a relative margin and
    no value that is zero or negative, and arithmetic for others. In the scope of one network, each
    repeat has its own statistic. ``runs`` is completed.
    """
    made: Statistics = {}
    for where, of_class in complete(runs, catalogue).items():
        ratios = _compared_as_ratios(of_class, catalogue)
        made[where] = {}
        for (metric, variant), by_run in of_class.items():
            together: dict[int, list[Statistic]] = {}
            for (seed, repeat), statistic in sorted(by_run.items(), key=lambda one: one[0]):
                number = repeat if scope == "one-network" else seed
                together.setdefault(number, []).append(statistic)
            made[where][metric, variant] = {
                number: _mean_of_repeats(own, metric in ratios) for number, own in together.items()
            }
    return made


def _compared_as_ratios(
    of_class: Mapping[tuple[str, str], Mapping[Any, Statistic]], catalogue: Catalogue
) -> set[str]:
    """Return the metrics with a relative margin whose values are all positive."""
    relative = {name for name, judged in catalogue.judged.items() if judged.margin.relative}
    return relative - {
        metric
        for (metric, _), by_run in of_class.items()
        for statistic in by_run.values()
        if statistic.value is not None and statistic.value <= 0
    }


def _mean_of_repeats(repeats: Sequence[Statistic], geometric: bool) -> Statistic:
    """Return the mean of a network's repeats; without a value of one of them there is none.

    To leave that repeat out would be to select.
    """
    if len(repeats) == 1:
        return repeats[0]
    values = tuple(one.value for one in repeats if one.value is not None)
    reasons = list(dict.fromkeys(one.reason for one in repeats if one.reason))
    if len(values) < len(repeats):
        missing = next(one.reason for one in repeats if one.value is None)
        count = len(repeats) - len(values)
        return Statistic(None, f"{missing} in {count} of {len(repeats)} repeats")
    mean = np.exp(np.mean(np.log(values))) if geometric else np.mean(values)
    return Statistic(float(mean), "; ".join(reasons), values)


def read_statistics(study: Study, store: Path) -> Statistics:
    """Return all metrics of a study's networks, from their runs' records.

    Args:
        study: as ``load_study`` gives it.
        store: directory to which the runs' record directories are relative.

    Raises:
        AnalysisError: records are missing or cannot be read.
    """
    runs: RunStatistics = {}
    for run in in_order(study):
        with study.naming(run):
            add_run(runs, run, load_run(store / run.records, study.level(run.level)))
    return over_networks(runs, study.scope)


RUNS_COLUMNS = (
    *("run_id", "level", "variant", "seed", "repeat"),
    *("class", "metric", "unit", "value", "note"),
)


def read_runs_csv(path: Path) -> Statistics:
    """Return the statistics of networks from a runs.csv, as ``report.build`` writes it.

    A table without the column ``repeat`` is of first repeats.

    Raises:
        AnalysisError: missing, not such a table, a value that is no number, an unknown metric, or
            a run's metric twice.
    """
    runs: RunStatistics = {}
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            missing = set(RUNS_COLUMNS) - {"repeat"} - set(reader.fieldnames or ())
            if missing:
                raise AnalysisError(
                    f"{path} is no table of runs: it lacks {', '.join(sorted(missing))}",
                    "name a runs.csv that a report wrote",
                )
            for row in reader:
                _add_row(runs, row, f"{path}, line {reader.line_num}")
    except FileNotFoundError:
        raise AnalysisError(f"{path} is missing", "make the report that writes it") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AnalysisError(f"{path} cannot be read: {error}") from None
    return over_networks(runs)


def _add_row(runs: RunStatistics, row: Mapping[str | None, str | None], where: str) -> None:
    # A number that a cut file ends with may be a part of one.
    if None in row or None in row.values():
        raise AnalysisError(
            f"{where}: not as many cells as the table has columns", "get the file again, whole"
        )
    try:
        texts = {name: row.get(name) or "" for name in RUNS_COLUMNS}
        value = float(texts["value"]) if texts["value"] else None
        run = int(texts["seed"]), int(texts["repeat"] or 1)
        if value is not None and not np.isfinite(value):
            raise ValueError(f"a value is a number, not {texts['value'][:60]}")
    except ValueError as error:
        raise AnalysisError(f"{where}: {str(error)[:200]}") from None
    if OWN.quantity(texts["metric"]) is None:
        raise AnalysisError(
            f"{where}: unknown metric {texts['metric'][:60]!r}",
            "was it written by another version?",
        )
    by_variant = runs.setdefault((texts["level"], texts["class"]), {})
    by_run = by_variant.setdefault((texts["metric"], texts["variant"]), {})
    if run in by_run:
        raise AnalysisError(f"{where}: {texts['metric']} of {network_words(*run)} is there twice")
    by_run[run] = Statistic(value, texts["note"] or ("no value" if value is None else ""))


def classes_of(level: str, statistics: Statistics) -> list[str]:
    """Classes with statistics at a level, ``ALL`` last."""
    names = [name for where, name in statistics if where == level]
    return sorted(names, key=lambda name: (name == ALL, name))


USUAL_ENDPOINTS = (
    # How long a download takes.
    (
        f"{TO_LAST_BYTE}_1mib_p50_s", f"{TO_320_KIB}_p50_s", f"{TO_LAST_BYTE}_p50_s",
        "download_ttlb_p50_s", "slow_start_s",
    ),
    # How long it takes to begin, or stands still.
    (f"{TO_FIRST_BYTE}_p50_s", "download_ttfb_p50_s", "window_stall_max_s"),
    # How much is carried.
    ("goodput_bytes_per_s", "relay_goodput_bytes_per_s", "early_rate_bytes_per_s"),
    # How much fails.
    ("timeout_rate", "download_error_rate"),
)  # fmt: skip
"""The endpoints of an experiment that names none, in their order: of each row the first metric that
the baseline's runs have a value of, or else the first one that they are asked for."""

MAIN_CLASS = "web"
"""The class whose times are the usual endpoints; without it the first one by name that has them."""


def usual_endpoints(
    level: str, statistics: Statistics, baseline: str, catalogue: Catalogue = OWN
) -> list[tuple[str, str]]:
    """Return class and metric of the endpoints of an experiment that names none.

    The first of ``USUAL_ENDPOINTS`` in each row: of all classes together where a metric is given
    for those, else of ``MAIN_CLASS``.
    """
    known = {metric.name: metric for metric in catalogue.quantities}
    # What is given for all classes together goes first: a row that has it is about the network.
    classes = sorted(
        classes_of(level, statistics), key=lambda name: (name != ALL, name != MAIN_CLASS, name)
    )
    found: list[tuple[str, str]] = []
    for row in USUAL_ENDPOINTS:
        places = [
            (class_name, metric)
            for class_name in classes
            for metric in row
            if metric in known
            and (class_name == ALL) == (known[metric].scope == "both")
            and (metric, baseline) in statistics[level, class_name]
        ]
        with_value = [
            (class_name, metric)
            for class_name, metric in places
            if any(
                statistic.value is not None
                for statistic in statistics[level, class_name][metric, baseline].values()
            )
        ]
        # Where no run has a value, as if all streams failed, that is what the endpoint has to say.
        found += (with_value or places)[:1]
    return found


LEAST_BEYOND = 5
"""Streams that have to lie beyond a quantile for it to be judged."""


def min_streams(metric: Quantity, margin: Margin) -> int:
    """Return how many streams each of the baseline's runs must have for a metric to be judged.

    Of a quantile ``LEAST_BEYOND`` have to lie beyond it; of a rate a single one may not be more
    than the margin.
    """
    if metric.quantile is not None:
        return round(LEAST_BEYOND / (1 - metric.quantile))
    if metric.judged is not None and metric.judged.rate and not margin.relative:
        return math.ceil(round(1 / margin.value, 6))
    return 0


def _too_few(
    metric: Quantity,
    margin: Margin,
    of_class: Mapping[tuple[str, str], Mapping[int, Statistic]],
    baseline: str,
) -> str:
    """Return why a metric is not judged if the baseline has too few streams; "" if not.

    The variant's streams do not count: what is judged may not depend on what the variant does.
    """
    started = of_class.get((metric.counted_by, baseline), {}).values()
    least = min((min(one.repeats or (one.value or 0.0,)) for one in started), default=None)
    needed = min_streams(metric, margin)
    if least is None or least >= needed:
        return ""
    return f"too few streams ({least:.0f} of {needed})"


def judge_comparison(
    level: str,
    statistics: Statistics,
    variant: str,
    baseline: str,
    design: Design | None = None,
) -> list[Judgement]:
    """Return what is known of all metrics of a variant against a baseline at one level.

    The endpoints, which come first and in their order, are one family and have graded verdicts. All
    other metrics that have a margin have estimates. Networks that only one side has make no pair.

    Raises:
        AnalysisError: no run of the variant or of the baseline, or a margin that fits no metric.
    """
    design = design or Design()
    table = with_margins(design.margins, design.catalogue.judged)
    classes = classes_of(level, statistics)
    for name in (variant, baseline):
        if not any(who == name for c in classes for _, who in statistics[level, c]):
            raise AnalysisError(f"level {level} has no runs of {name}", "make its runs first")
    sides: dict[tuple[str, str], Sides] = {}
    known = {metric.name: metric for metric in design.catalogue.quantities}
    for class_name in classes:
        of_class = statistics[level, class_name]
        for metric in design.catalogue.quantities:
            if metric.name not in table:
                continue
            own, base = (of_class.get((metric.name, name), {}) for name in (variant, baseline))
            if not own and not base:
                continue
            resolution = resolution_of(
                metric.name, table[metric.name], of_class, (variant, baseline)
            )
            sides[class_name, metric.name] = _sides(
                own, base, metric, table[metric.name], resolution, design
            )
    too_few = {
        (c, m): _too_few(known[m], table[m].margin, statistics[level, c], baseline)
        for c, m in sides
    }
    asked = design.endpoints or usual_endpoints(level, statistics, baseline, design.catalogue)
    endpoints = [key for key in asked if key in sides]
    family = [key for key in endpoints if not too_few[key]]
    verdicts = decide(
        {" ".join(key): sides[key] for key in family},
        design.error_level,
        design.looks,
        endpoint_weights(len(family)),
    )
    judged = dict(zip(family, verdicts.values(), strict=True))
    return [
        Judgement(
            key[0],
            known[key[1]],
            endpoints.index(key) if key in endpoints else None,
            judged[key] if key in judged else describe(sides[key], too_few[key]),
        )
        for key in dict.fromkeys((*endpoints, *sides))
    ]


def _sides(
    own: Mapping[int, Statistic],
    base: Mapping[int, Statistic],
    metric: Quantity,
    judged: Judged,
    resolution: float,
    design: Design,
) -> Sides:
    common = sorted(set(own) & set(base))
    of_own, of_base = (common, common) if design.paired else (sorted(own), sorted(base))
    return (Paired if design.paired else Unpaired)(
        [own[number].value for number in of_own],
        [base[number].value for number in of_base],
        judged.margin,
        metric.better or None,
        resolution,
        design.replicate,
    )


def resolution_of(
    metric: str,
    judged: Judged,
    of_class: Mapping[tuple[str, str], Mapping[int, Statistic]],
    variants: Iterable[str],
) -> float:
    """Return the metric's step in its own unit, from what the runs of these variants say.

    The mean of a network's repeats has as many times smaller steps as there are repeats.
    """
    seen = "streams_started" if judged.step == "stream" else metric
    networks = [one for name in variants for one in of_class.get((seen, name), {}).values()]
    repeats = min((max(1, len(one.repeats)) for one in networks), default=1)
    values = [value for one in networks for value in (one.repeats or (one.value,)) if value]
    step = judged.resolution
    if judged.step == "stream":
        step = judged.resolution / (sum(values) / len(values)) if values else 0.0
    elif judged.step == "heartbeat":
        steps = np.array(values) / judged.resolution
        whole = np.any(np.abs(steps - np.round(steps)) < WHOLE)
        step = judged.resolution if whole else TIME_RESOLUTION_S
    return step / repeats
