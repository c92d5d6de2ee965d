"""Predict the precision of a number of runs for two ways to distribute them over networks.

Either each run has its own network, or several runs (repeats) share each of fewer networks.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.study import load_study
from onionlab.runs.costs.requested_runs import RequestedRuns

MIN_RUNS = 4
"""Minimum number of runs of a variant: two runs on each of two networks."""


def split_rows(root: Path, requested: RequestedRuns) -> list[tuple[str, str]]:
    """Return table rows that compare one run on each network with several runs on fewer networks.

    Both alternatives have the same number of runs and thus the same CPU time. (For an odd number,
    the second alternative may have one run less.) One run on each network always gives the shorter
    interval, because each additional network reduces the effect of both variances, between networks
    and within networks. The rows show the lengths of both intervals. They are predicted from the
    spreads (standard deviations between and within networks) of the first endpoint in finished
    runs. If the spreads are not known, the only row shows a command for runs that estimate them.

    The list is empty if the experiment's scope is one network, or if there are too few runs or
    variants.
    """
    experiment = requested.experiment
    runs = len(experiment.replicates)
    if experiment.header.scope == "one-network" or runs < MIN_RUNS or len(requested.variants) < 2:
        return []
    row = _read_largest_spreads(root / "results" / experiment.name, experiment.scale)
    if row is None:
        scale = "" if experiment.scale == 1 else f" SCALE={experiment.scale:g}"
        command = f"NAME={requested.request.experiment}{scale} NETWORKS=3 REPEATS=2"
        text = f"not known without finished runs with repeats: make experiment {command}"
        return [("split", text)]
    # Import this only if it is needed: it loads SciPy's statistics, which takes longer than the
    # rest of an estimate.
    from analysis.inference.components import half_width

    between, within = _spreads(row)
    other = (len(experiment.seeds), experiment.repeats)
    if min(other) == 1:
        other = (runs // 2, 2)
    texts = []
    for networks, repeats in ((runs, 1), other):
        half = half_width(between, within, networks, repeats)
        # The column `ratio` has a value if the metric is compared by ratios. In this case, `half`
        # is a difference of logarithms.
        width = f"a factor of {math.exp(half):.3g}" if row["ratio"] else f"± {half:.2g}"
        texts.append(f"NETWORKS={networks} REPEATS={repeats}: {width}")
    return [
        ("split", f"{'; '.join(texts)} (95% interval of {row['class']} {row['metric']})"),
        ("", f"spread between networks {between:.2g}, within them {within:.2g}"),
    ]


def _read_largest_spreads(results: Path, scale: float) -> Mapping[str, str] | None:
    """Return the row with the largest spreads among the first endpoint's rows of summary.csv.

    This is the row with the largest sum of sd_between and sd_within. Return None if there are no
    results at this scale, or the results have no spreads.
    """
    try:
        if load_study(results / files.STUDY).scale != scale:
            return None
        with (results / files.SUMMARY_CSV).open(newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if row.get("sd_between")]
        endpoints = [row for row in rows if row.get("endpoint") == "1"]
        return max(endpoints, key=lambda row: sum(_spreads(row)), default=None)
    except (AnalysisError, OSError, ValueError):
        return None


def _spreads(row: Mapping[str, str]) -> tuple[float, float]:
    """Return the spreads: standard deviations of an effect between and within networks."""
    return float(row["sd_between"]), float(row["sd_within"])
