"""The history of nightly runs: a Parquet table, and the step changes in it.

A *night* is one nightly run of an experiment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
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
    metric: str,
    seeds: Sequence[int | None],
    values: Sequence[float | None],
    estimate: float | None,
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
        experiment: name of the experiment.
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
    """Return the hashes of an experiment's records in the last night with this key.

    key: as in ``history_rows``.

    Returns:
        (level, variant) -> one string with the hashes of all records.
    """
    mask = pc.and_(pc.equal(history["experiment"], experiment), pc.equal(history["key"], key))
    return {
        (row["level"], row["variant"]): row["records"]
        for row in history.filter(mask).select(["level", "variant", "records"]).to_pylist()
    }


def find_history_steps(
    history: pa.Table, false_steps_per_year: float, searched: set[tuple[str, ...]]
) -> list[HistoryStep]:
    """Return the step changes in the time series ``searched``.

    Consecutive nights with byte-identical records count as one measurement. The nights of each set
    of networks are searched separately, except that all sets which were measured only once are
    searched together. ``_by_seeds`` states the reasons.

    Args:
        history: as returned by ``read_history``.
        false_steps_per_year: expected number of false steps per year over all time series.
        searched: the time series to search, by the values of ``TIME_SERIES``.
    """
    rows_of_series = _rows_of_series(history, searched)
    share = min(0.5, false_steps_per_year / max(1, len(searched)))
    steps = []
    for name, rows in rows_of_series.items():
        before_last_night = {step.first_after for step in _steps_of_series(name, rows[:-1], share)}
        steps += [
            replace(step, new=step.first_after not in before_last_night)
            for step in _steps_of_series(name, rows, share)
        ]
    return steps


@dataclass
class _Measurement:
    """Consecutive nights with the same records, which count as one measurement.

    The attributes are the rows of the first and of the last of these nights.
    """

    first: dict[str, Any]
    last: dict[str, Any]


def _by_seeds(rows: Sequence[dict[str, Any]]) -> list[list[_Measurement]]:
    """Return groups of the nights of a time series that can be searched together.

    Values differ between networks. The noise is estimated from changes on the same network, so it
    does not include these differences. A search in nights with different networks would report the
    differences as a step. So each set of networks is searched separately. Sets that were measured
    only once are searched together, because their noise is the spread between networks.
    """
    measurements: list[_Measurement] = []
    for row in rows:
        if measurements and row["records"] and row["records"] == measurements[-1].last["records"]:
            measurements[-1].last = row
        else:
            measurements.append(_Measurement(row, row))
    sets: dict[tuple[int, ...], list[_Measurement]] = {}
    for one in measurements:
        sets.setdefault(tuple(one.first["seeds"]), []).append(one)
    single_nights = [nights[0] for nights in sets.values() if len(nights) == 1]
    return [nights for nights in (single_nights, *sets.values()) if len(nights) > 1]


def unsearched(history: pa.Table, searched: set[tuple[str, ...]]) -> int:
    """Return the number of time series whose noise is not known well enough to find steps.

    Args:
        history: as returned by ``read_history``.
        searched: the time series to search, by the values of ``TIME_SERIES``.
    """
    found = _rows_of_series(history, searched)
    return len(searched) - sum(_searched(rows) for rows in found.values())


def _searched(rows: Sequence[dict[str, Any]]) -> bool:
    noises = [noise_of_means(_nights(group, _logs(rows))) for group in _by_seeds(rows)]
    return any(sd > 0 and df >= MINIMUM_DF for sd, df in noises)


def _rows_of_series(
    history: pa.Table, searched: set[tuple[str, ...]]
) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Return the rows of each time series in ``searched`` that have an estimate."""
    rows_of_series: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in history.to_pylist():
        name = tuple(row[column] for column in TIME_SERIES)
        if name in searched and row["estimate"] is not None:
            rows_of_series.setdefault(name, []).append(row)
    return rows_of_series


def _logs(rows: Sequence[dict[str, Any]]) -> bool:
    """Return whether to search the logarithms of a series: only if all values are positive."""
    return all(value > 0 for row in rows for value in row["values"])


def _nights(group: Sequence[_Measurement], logs: bool) -> list[dict[int, float]]:
    """Return a dict for each measurement: seed -> value, or the value's logarithm if ``logs``."""
    return [
        {
            seed: float(np.log(value)) if logs else value
            for seed, value in zip(one.first["seeds"], one.first["values"], strict=True)
        }
        for one in group
    ]


def _steps_of_series(
    name: tuple[str, ...], rows: Sequence[dict[str, Any]], false_steps: float
) -> list[HistoryStep]:
    logs = _logs(rows)
    steps = []
    groups = _by_seeds(rows)
    for group in groups:
        nights = _nights(group, logs)
        sd, df = noise_of_means(nights)
        means = [float(np.mean(list(night.values()))) for night in nights]
        for step in find_steps(means, sd, df, false_steps / len(groups)):
            before, after = (float(np.exp(x)) if logs else x for x in (step.before, step.after))
            last, first = group[step.index - 1].last, group[step.index].first
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
