"""The history of nightly runs: a Parquet table, and the step changes in it.

A *night* is one nightly run of an experiment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from analysis.comparison.run_sets import CATALOGUES, COMMIT_DIGITS, RunSet
from analysis.errors import AnalysisError
from analysis.formats.columns import HISTORY, HISTORY_FORMAT, arrow_schema
from analysis.formats.durable import whole_file
from analysis.formats.format_model import LARGEST_VALUE, LEAST_VALUE
from analysis.formats.tables import read_table
from analysis.inference.change_points import MINIMUM_DF, Step, find_steps, noise_of_means
from analysis.measures.metric import Quantity

SCHEMA = arrow_schema(HISTORY, HISTORY_FORMAT)

RESTORE = "restore the history from a backup, or move it away to start a new one"

TIME_SERIES = ("experiment", "level", "variant", "class", "metric", "key")

_Measurement = list[dict[str, Any]]
"""The rows of consecutive nights with the same records, which count as one measurement."""


@dataclass(frozen=True)
class HistoryStep:
    """A step change of one metric, with the nights before and after it.

    Attributes:
        time_series: values of the columns ``TIME_SERIES``.
        step: the step, with the means before and after it in the metric's unit (geometric means if
            ``ratio`` is set).
        ratio: after / before if all values are positive, else None.
        last_before: start of the last night before the step, and the versions that it measured: the
            version of this project and, if Tor was built from a commit, the version of Tor.
        first_after: the same for the first night after the step.
        new: whether the step is found only if the history includes its last night.
    """

    time_series: tuple[str, ...]
    step: Step
    ratio: float | None
    last_before: tuple[str, str]
    first_after: tuple[str, str]
    new: bool

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return self.time_series[TIME_SERIES.index("metric")]

    @property
    def quantity(self) -> Quantity | None:
        """The definition of the metric; None if this version does not have the metric."""
        return CATALOGUES["onionlab"].quantity(self.metric)

    @property
    def worse(self) -> bool | None:
        """True if the step is a deterioration.

        None if neither direction is better, or if this version does not have the metric.
        """
        if self.quantity is None or not self.quantity.better:
            return None
        return (self.step.after < self.step.before) == (self.quantity.better == "higher")


def read_history(path: Path) -> pa.Table:
    """Read the history; return an empty table if the file does not exist.

    Raises:
        AnalysisError: the file is damaged or has another format.
    """
    if not path.exists():
        return SCHEMA.empty_table()
    table = read_table(path, HISTORY, wrong=RESTORE)
    if (table.schema.metadata or {}).get(b"format") != str(HISTORY_FORMAT).encode():
        raise AnalysisError(f"{path} is not a history of format {HISTORY_FORMAT}", RESTORE)
    columns = (table[name].to_pylist() for name in ("metric", "seeds", "values", "estimate"))
    for row, night in enumerate(zip(*columns, strict=True), start=1):
        if problem := _problem(*night):
            raise AnalysisError(f"{path} is damaged: row {row}: {problem}", RESTORE)
    table = table.cast(SCHEMA)
    names = ("night", *TIME_SERIES)
    counts = table.group_by(list(names)).aggregate([([], "count_all")])
    if repeated := counts.filter(pc.greater(counts["count_all"], 1)).select(names).to_pylist():
        night, experiment, *place = repeated[0].values()
        raise AnalysisError(
            f"{path} is damaged: the night {night} of {experiment} has {' '.join(place[:-1])} more "
            "than once",
            RESTORE,
        )
    return table


def _problem(
    metric: str, seeds: Sequence[int | None], values: Sequence[float | None], estimate: float | None
) -> str | None:
    """Return what is wrong with one night's values of a metric; None if they are valid."""
    if None in seeds or len(set(seeds)) < len(seeds):
        return "a seed is null or occurs more than once"
    if not seeds or len(values) != len(seeds):
        return f"{len(values)} values for {len(seeds)} seeds"
    known = [value for value in values if value is not None]
    # Older versions may have measured metrics that this version does not have. Their bounds are
    # unknown.
    quantity = CATALOGUES["onionlab"].quantity(metric)
    low, high = quantity.bounds if quantity else (LEAST_VALUE, LARGEST_VALUE)
    # This also rejects NaN.
    if not all(low <= value <= high for value in known):
        return f"a value of {metric} is not from {low:g} to {high:g}"
    if (estimate is None) == (len(known) == len(values)):
        return f"the estimate is {estimate}, but {len(values) - len(known)} values are null"
    if estimate is not None and not math.isclose(estimate, np.mean(known), rel_tol=1e-9):
        return f"the estimate is {estimate}, but the mean of the values is {np.mean(known)}"
    return None


def write_history(path: Path, table: pa.Table) -> None:
    """Write the history atomically, so that readers see either the old or the new file."""
    with whole_file(path) as part:
        pq.write_table(table, part, compression="zstd", version="2.6")


def history_rows(
    night: str,
    experiment: str,
    key: str,
    run_set: RunSet,
    verdicts: dict[tuple[str, str, str, str], str],
) -> list[dict[str, Any]]:
    """Return one night of an experiment as rows of the history.

    A metric has no row if no network has a value of it.

    Args:
        night: start of the night.
        experiment: its name.
        key: hash of everything that must be equal in all nights of a time series, such as the
            engine and the load.
        run_set: the runs of the night.
        verdicts: (level, variant, class, metric) -> verdict, for all metrics with a verdict.
    """
    rows = []
    for (level, class_name), by_metric in run_set.statistics().items():
        for (metric, variant), by_seed in by_metric.items():
            runs_by_seed = run_set.runs_of(level, variant)
            runs = list(chain(*runs_by_seed.values()))
            seeds = sorted(by_seed)
            values = [by_seed[seed].value for seed in seeds]
            known = [value for value in values if value is not None]
            if not known:
                continue
            rows.append(
                {
                    "night": night,
                    "experiment": experiment,
                    "level": level,
                    "variant": variant,
                    "class": class_name,
                    "metric": metric,
                    "key": key,
                    "project": _joined(run.project for run in runs),
                    "tor": _joined(b.version_and_commit for run in runs for b in run.tor.values()),
                    "seeds": seeds,
                    "values": values,
                    "estimate": float(np.mean(known)) if len(known) == len(values) else None,
                    "records": " ".join(
                        f"{seed}:{h[:16]}"
                        for seed, repeats in sorted(runs_by_seed.items())
                        for run in repeats
                        for _, h in sorted(run.records.items())
                    ),
                    "verdict": verdicts.get((level, variant, class_name, metric), ""),
                }
            )
    return rows


def _joined(texts: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(text for text in texts if text))


def add_rows(history: pa.Table, rows: list[dict[str, Any]]) -> pa.Table:
    """Return the history with ``rows``, the rows of one night, appended."""
    return pa.concat_tables([history, pa.Table.from_pylist(rows, schema=SCHEMA)])


def last_commit(history: pa.Table, experiment: str, variant: str) -> str:
    """Return the abbreviated commit of Tor in the last night that measured a variant.

    The result is empty if no night of the experiment measured the variant, or if Tor was not built
    from a commit.
    """
    mask = pc.and_(
        pc.equal(history["experiment"], experiment), pc.equal(history["variant"], variant)
    )
    texts = history.filter(mask)["tor"].to_pylist()
    return _commit_of(texts[-1]) if texts else ""


def _commit_of(tor: str) -> str:
    found = re.search(rf" ([0-9a-f]{{{COMMIT_DIGITS}}})(?: |$)", tor)
    return found[1] if found else ""


def _measured(row: Mapping[str, Any]) -> str:
    """Return what a night measured: the version of this project, and a commit of Tor if known."""
    project = str(row["project"])
    return f"{project}, Tor {row['tor']}" if _commit_of(row["tor"]) else project


def last_records(history: pa.Table, experiment: str, key: str) -> dict[tuple[str, str], str]:
    """Return (level, variant) -> hashes of all records, in the last night with this key.

    key: as in ``history_rows``.
    """
    mask = pc.and_(pc.equal(history["experiment"], experiment), pc.equal(history["key"], key))
    return {
        (row["level"], row["variant"]): row["records"]
        for row in history.filter(mask).select(["level", "variant", "records"]).to_pylist()
    }


def find_history_steps(
    history: pa.Table, false_steps_per_year: float, searched: set[tuple[str, ...]]
) -> tuple[list[HistoryStep], int]:
    """Return the steps in the time series ``searched``, and how many series cannot be searched.

    A series cannot be searched if its noise is not known well enough. Consecutive nights with
    byte-identical records count as one measurement. The nights of each set of networks are searched
    separately, except that all sets which were measured only once are searched together.
    ``_by_seeds`` states the reasons.

    Args:
        history: as returned by ``read_history``.
        false_steps_per_year: expected number of false steps per year over all time series.
        searched: the time series to search, by the values of ``TIME_SERIES``.
    """
    rows_of_series: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in history.to_pylist():
        name = tuple(row[column] for column in TIME_SERIES)
        if name in searched and row["estimate"] is not None:
            rows_of_series.setdefault(name, []).append(row)
    share = min(0.5, false_steps_per_year / max(1, len(searched)))
    steps: list[HistoryStep] = []
    unsearched = len(searched)
    for name, rows in rows_of_series.items():
        noises = (_means_and_noise(group, _logs(rows))[1:] for group in _by_seeds(rows))
        unsearched -= any(sd > 0 and df >= MINIMUM_DF for sd, df in noises)
        before_last_night = {step.first_after for step in _steps_of_series(name, rows[:-1], share)}
        steps += [
            replace(step, new=step.first_after not in before_last_night)
            for step in _steps_of_series(name, rows, share)
        ]
    return steps, unsearched


def _by_seeds(rows: Sequence[dict[str, Any]]) -> list[list[_Measurement]]:
    """Return groups of the measurements of a time series that can be searched together.

    Values differ between networks. The noise is estimated from changes on the same network, so it
    does not include these differences. A search in nights with different networks would report the
    differences as a step. So each set of networks is searched separately. Sets that were measured
    only once are searched together, because their noise is the spread between networks.
    """
    sets: dict[tuple[int, ...], list[_Measurement]] = {}
    # Unknown records, "", are not the same as those of another night.
    for _, same in groupby(enumerate(rows), key=lambda one: one[1]["records"] or one[0]):
        nights = [row for _, row in same]
        sets.setdefault(tuple(nights[0]["seeds"]), []).append(nights)
    single_nights = [nights[0] for nights in sets.values() if len(nights) == 1]
    return [nights for nights in (single_nights, *sets.values()) if len(nights) > 1]


def _logs(rows: Sequence[dict[str, Any]]) -> bool:
    """Return whether to search the logarithms of a series: only if all values are positive."""
    return all(value > 0 for row in rows for value in row["values"])


def _means_and_noise(group: Sequence[_Measurement], logs: bool) -> tuple[list[float], float, float]:
    """Return the measurements' means, and the results of ``noise_of_means``.

    logs: whether to use the logarithms of values.
    """
    nights = [
        {
            seed: float(np.log(value)) if logs else value
            for seed, value in zip(first["seeds"], first["values"], strict=True)
        }
        for first, *_ in group
    ]
    return [float(np.mean(list(night.values()))) for night in nights], *noise_of_means(nights)


def _steps_of_series(
    name: tuple[str, ...], rows: Sequence[dict[str, Any]], false_steps: float
) -> list[HistoryStep]:
    logs = _logs(rows)
    steps = []
    groups = _by_seeds(rows)
    for group in groups:
        means, sd, df = _means_and_noise(group, logs)
        for step in find_steps(means, sd, df, false_steps / len(groups)):
            before, after = (float(np.exp(x)) if logs else x for x in (step.before, step.after))
            last, first = group[step.index - 1][-1], group[step.index][0]
            steps.append(
                HistoryStep(
                    name,
                    Step(step.index, before, after),
                    after / before if logs else None,
                    (last["night"], _measured(last)),
                    (first["night"], _measured(first)),
                    new=True,
                )
            )
    return steps
