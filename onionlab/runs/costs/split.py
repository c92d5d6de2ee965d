"""Which split of runs into networks and repeats gives the shortest interval."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.study import load_study
from onionlab.runs.costs.asking import Asked


@dataclass(frozen=True)
class Spreads:
    """Standard deviations of an effect, from the report of finished runs.

    Attributes:
        name: class and metric.
        scale: "ratio", of log ratios, or "difference".
    """

    name: str
    scale: str
    between: float
    within: float


def split_rows(root: Path, asked: Asked) -> list[tuple[str, str]]:
    """Return table rows on how to split the runs that are asked for; none where that is no choice.

    Each variant's runs are taken to cost the same on whatever network.
    """
    experiment = asked.experiment
    runs = len(experiment.replicates)
    if experiment.scope == "one-network" or runs < 4 or len(asked.variants) < 2:
        return []
    found = _spreads(root / "results" / experiment.name, experiment.scale)
    if found is None:
        scale = "" if experiment.scale == 1 else f" SCALE={experiment.scale:g}"
        return [
            (
                "split",
                "not known without finished runs with repeats: make experiment "
                f"NAME={asked.request.experiment}{scale} NETWORKS=3 REPEATS=2",
            )
        ]
    # With it comes all of SciPy's statistics, which takes longer than an estimate.
    from analysis.inference.components import best_split, half_width

    best = best_split(found.between, found.within, runs)
    splits = [best]
    if experiment.repeats > 1 and len(experiment.seeds) > 1:
        splits.append((len(experiment.seeds), experiment.repeats))
    else:
        splits.append((runs // 2, 2))
    texts = [
        f"NETWORKS={networks} REPEATS={repeats}: "
        f"{_width(half_width(found.between, found.within, networks, repeats), found.scale)}"
        for networks, repeats in dict.fromkeys(splits)
    ]
    return [
        ("split", f"{'; '.join(texts)} (95% interval of {found.name})"),
        ("", f"spread between networks {found.between:.2g}, within them {found.within:.2g}"),
    ]


def _width(half: float, scale: str) -> str:
    return f"a factor of {math.exp(half):.3g}" if scale == "ratio" else f"± {half:.2g}"


def _spreads(results: Path, scale: float) -> Spreads | None:
    """Return the spreads of the first endpoint, of the variant and level where they are largest."""
    try:
        if load_study(results / files.STUDY).scale != scale:
            return None
        with (results / files.SUMMARY_CSV).open(newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if row.get("sd_between")]
    except (AnalysisError, OSError, ValueError):
        return None
    first = [row for row in rows if row.get("endpoint") == "1"]
    return max(map(_of_row, first), key=lambda one: one.between + one.within, default=None)


def _of_row(row: Mapping[str, str]) -> Spreads:
    # A ratio is given wherever a metric is compared by ratios.
    scale = "ratio" if row["ratio"] else "difference"
    name = f"{row['class']} {row['metric']}"
    return Spreads(name, scale, float(row["sd_between"]), float(row["sd_within"]))
