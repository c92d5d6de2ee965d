"""Verdicts on a variant against a baseline, from the value of each metric on each network.

``judge_comparison`` judges the endpoints as one family. The other metrics with a margin have only
estimates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.errors import AnalysisError
from analysis.formats.study import MAIN_CLASS, Looks, Replicate, Study
from analysis.inference.corrections import endpoint_weights
from analysis.inference.sequential import spending
from analysis.judgement.estimates import Statistics
from analysis.judgement.verdicts import LEVEL, Grade, Sides, Verdict, decide, describe
from analysis.measures.catalogue import OWN
from analysis.measures.data import ALL
from analysis.measures.families.durations import DURATIONS, FIRST_BYTE, LAST_BYTE
from analysis.measures.metric import (
    TIME_RESOLUTION_S,
    Catalogue,
    Margin,
    MetricPolicy,
    Quantity,
    Statistic,
)

WHOLE = 1e-3
"""A time counts as a whole number of heartbeat intervals up to this deviation, in intervals."""


@dataclass(frozen=True)
class Design:
    """The design of a comparison, fixed before its results are known.

    Attributes:
        paired: whether both sides have the same networks; otherwise they are independent sets of
            runs.
        error_level: probability of any false "shown" among the endpoints, and of any false "same".
        margins: metric -> size of the margin, which replaces the size in the catalogue.
        endpoints: class and metric of each endpoint, the most important first; if it is empty,
            ``usual_endpoints`` selects the endpoints.
        looks: interim analyses (looks) of the growing set of pairs; None for unpaired runs, or if
            the runs were analysed only once.
        replicate: the unit of replication: "network", or "repeat" if all runs are of one network.
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
    """The evidence about one metric of one class, for a variant against the baseline.

    Attributes:
        class_name: class of clients, or ``ALL``.
        endpoint: index among the endpoints; None if the metric is not an endpoint.
        verdict: the verdict. It has no grade if the metric is not an endpoint, or if the baseline
            has too few streams.
    """

    class_name: str
    metric: Quantity
    endpoint: int | None
    verdict: Verdict

    @property
    def regression(self) -> bool:
        """True if the variant is shown to be worse."""
        return self.verdict.grade is Grade.SHOWN and self.verdict.direction == "worse"


def study_design(study: Study) -> Design:
    """Return the design of a study's comparisons."""
    return Design(
        margins=study.margins,
        endpoints=[endpoint.key for endpoint in study.endpoints],
        looks=study.looks,
        replicate=study.replicate_unit,
    )


def study_error_level(study: Study) -> float:
    """Return the probability of any false "shown" in one comparison over all looks, or "same"."""
    return LEVEL if study.looks is None else LEVEL * spending(study.looks.plans).excess


def classes_at(level: str, statistics: Statistics) -> list[str]:
    """Return the classes with statistics at a level, with ``ALL`` last."""
    names = [name for where, name in statistics if where == level]
    return sorted(names, key=lambda name: (name == ALL, name))


USUAL_ENDPOINTS = (
    # Duration of downloads.
    (
        f"{LAST_BYTE.name}_1mib_p50_s",
        *(f"{one.name}_p50_s" for one in DURATIONS if one != FIRST_BYTE),
        "download_ttlb_p50_s", "slow_start_s",
    ),
    # Time until a download begins, or its longest interruption.
    (f"{FIRST_BYTE.name}_p50_s", "download_ttfb_p50_s", "window_stall_max_s"),
    # Throughput.
    ("goodput_bytes_per_s", "relay_goodput_bytes_per_s", "early_rate_bytes_per_s"),
    # Failures.
    ("timeout_rate", "download_error_rate"),
)  # fmt: skip
"""The default endpoints, in order.

Each row gives at most one endpoint: the first metric with a value in a run of the baseline or, if
no metric has a value, the first metric that applies to these runs (see `usual_endpoints`).
"""


def usual_endpoints(
    level: str, statistics: Statistics, baseline: str, catalogue: Catalogue = OWN
) -> list[tuple[str, str]]:
    """Return class and metric of the default endpoints, at most one for each row.

    The search in a row of ``USUAL_ENDPOINTS`` begins with metrics over all classes together. Then
    it considers ``MAIN_CLASS``, and then the other classes by name. Within a class, it follows the
    order of the row.
    """
    known = {metric.name: metric for metric in catalogue.quantities}
    # Metrics over all classes go first, because they describe the whole network.
    classes = sorted(
        classes_at(level, statistics), key=lambda name: (name != ALL, name != MAIN_CLASS, name)
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
            (c, m)
            for c, m in places
            if any(one.value is not None for one in statistics[level, c][m, baseline].values())
        ]
        # If no run has a value, for example because all streams failed, the endpoint reports this.
        found += (with_value or places)[:1]
    return found


MIN_BEYOND_QUANTILE = 5
"""Minimum number of streams beyond a quantile for the quantile to be judged."""


def min_streams(metric: Quantity, margin: Margin) -> int:
    """Return the minimum number of streams in each of the baseline's runs to judge a metric.

    A quantile needs ``MIN_BEYOND_QUANTILE`` streams beyond it. For a rate, a single stream must not
    change the rate by more than the margin.
    """
    if metric.quantile is not None:
        return round(MIN_BEYOND_QUANTILE / (1 - metric.quantile))
    if metric.judged is not None and metric.judged.rate and not margin.relative:
        return math.ceil(round(1 / margin.value, 6))
    return 0


def _too_few(
    metric: Quantity,
    margin: Margin,
    class_statistics: Mapping[tuple[str, str], Mapping[int, Statistic]],
    baseline: str,
) -> str:
    """Return a message if the baseline has too few streams for judging a metric, else "".

    The variant's streams are ignored, because the choice of endpoints must not depend on the
    variant.
    """
    started = class_statistics.get((metric.counted_by, baseline), {}).values()
    least = min((min(one.repeats or (one.value or 0.0,)) for one in started), default=None)
    needed = min_streams(metric, margin)
    if least is None or least >= needed:
        return ""
    return f"too few streams ({least:.0f} of {needed})"


def judge_comparison(
    level: str, statistics: Statistics, variant: str, baseline: str, design: Design | None = None
) -> list[Judgement]:
    """Judge all metrics of a variant against a baseline at one level.

    The endpoints come first, in order. The endpoints with enough streams form one family and have
    graded verdicts. Other metrics with a margin have only estimates. In a paired design, networks
    that exist on only one side are ignored.

    Raises:
        AnalysisError: the variant or the baseline has no runs, or ``design`` has a margin that is
            not positive or is for an unknown metric.
    """
    design = design or Design()
    table = design.catalogue.with_margins(design.margins)
    classes = classes_at(level, statistics)
    for name in (variant, baseline):
        if not any(
            variant_name == name for c in classes for _, variant_name in statistics[level, c]
        ):
            raise AnalysisError(f"level {level} has no runs of {name}", "run them first")
    sides: dict[tuple[str, str], Sides] = {}
    known = {metric.name: metric for metric in design.catalogue.quantities}
    for class_name in classes:
        class_statistics = statistics[level, class_name]
        for metric, judged in table.items():
            own, base = (class_statistics.get((metric, name), {}) for name in (variant, baseline))
            if not own and not base:
                continue
            common = sorted(set(own) & set(base))
            sides[class_name, metric] = Sides(
                [own[number].value for number in (common if design.paired else sorted(own))],
                [base[number].value for number in (common if design.paired else sorted(base))],
                judged.margin,
                known[metric].better or None,
                find_resolution(metric, judged, class_statistics, (variant, baseline)),
                design.replicate,
                design.paired,
            )
    too_few = {
        (c, m): _too_few(known[m], table[m].margin, statistics[level, c], baseline)
        for c, m in sides
    }
    asked = design.endpoints or usual_endpoints(level, statistics, baseline, design.catalogue)
    endpoints = [key for key in asked if key in sides]
    family = [key for key in endpoints if not too_few[key]]
    verdicts = decide(
        [sides[key] for key in family],
        design.error_level,
        design.looks,
        endpoint_weights(len(family)),
    )
    found = dict(zip(family, verdicts, strict=True))
    return [
        Judgement(
            key[0],
            known[key[1]],
            endpoints.index(key) if key in endpoints else None,
            found[key] if key in found else describe(sides[key], too_few[key]),
        )
        for key in dict.fromkeys((*endpoints, *sides))
    ]


def find_resolution(
    metric: str,
    judged: MetricPolicy,
    class_statistics: Mapping[tuple[str, str], Mapping[int, Statistic]],
    variants: Iterable[str],
) -> float:
    """Return the rounding step of a metric's values, in the unit of the metric.

    ``judged.step`` says how the step depends on the runs of ``variants``, for example on the number
    of streams that they start. If networks have n repeats, the step of their mean is 1/n of the
    step of a single run.
    """
    seen = "streams_started" if judged.step == "stream" else metric
    networks = [one for name in variants for one in class_statistics.get((seen, name), {}).values()]
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
