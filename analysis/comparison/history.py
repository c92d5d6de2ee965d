"""The history of nights: one Parquet table, and the step changes in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from analysis.comparison.run_sets import CATALOGUES, RunSet
from analysis.errors import AnalysisError
from analysis.formats.columns import HISTORY, HISTORY_FORMAT, arrow_schema
from analysis.formats.durable import whole_file
from analysis.formats.format_model import LARGEST_VALUE, LEAST_VALUE
from analysis.formats.tables import read_table
from analysis.inference.change_points import MINIMUM_DF, Step, find_steps, noise_of_means

SCHEMA = arrow_schema(HISTORY, HISTORY_FORMAT)

RESTORE = "restore the history from a copy, or move it away to begin a new one"

TIME_SERIES = ("experiment", "level", "variant", "class", "metric", "key")


@dataclass(frozen=True)
class HistoryStep:
    """A step of one metric, and what lies around it.

    Attributes:
        time_series: values of ``TIME_SERIES``.
        step: with levels in the metric's unit (geometric means where ``ratio``).
        ratio: after / before where all values are positive, else None.
        last_before: night and project before the step.
        first_after: likewise behind it.
        new: whether the history without its last night does not have it.
    """

    time_series: tuple[str, ...]
    step: Step
    ratio: float | None
    last_before: tuple[str, str]
    first_after: tuple[str, str]
    new: bool

    @property
    def metric(self) -> str:
        """The metric's name."""
        return self.time_series[TIME_SERIES.index("metric")]

    @property
    def worse(self) -> bool | None:
        """Whether the step is in the bad direction; None where neither is."""
        quantity = CATALOGUES["onionlab"].quantity(self.metric)
        if quantity is None or not quantity.better:
            return None
        return (self.step.after < self.step.before) == (quantity.better == "higher")


def read_history(path: Path) -> pa.Table:
    """Read the history; it is empty where there is no file.

    Raises:
        AnalysisError: damaged, or of another format.
    """
    if not path.exists():
        return SCHEMA.empty_table()
    table = read_table(path, HISTORY, wrong=RESTORE)
    if (table.schema.metadata or {}).get(b"format") != str(HISTORY_FORMAT).encode():
        raise AnalysisError(f"{path} is no history of format {HISTORY_FORMAT}", RESTORE)
    columns = (table[name].to_pylist() for name in ("metric", "seeds", "values", "estimate"))
    for row, night in enumerate(zip(*columns, strict=True), start=1):
        if problem := _problem(*night):
            raise AnalysisError(f"{path} is damaged: row {row}: {problem}", RESTORE)
    return table.cast(SCHEMA)


def _problem(
    metric: str,
    seeds: Sequence[int | None],
    values: Sequence[float | None],
    estimate: float | None,
) -> str | None:
    """Return what is wrong with a night's values of one metric, or None."""
    if None in seeds or len(set(seeds)) < len(seeds):
        return "a seed is null, or there more than once"
    if not seeds or len(values) != len(seeds):
        return f"{len(values)} values for {len(seeds)} seeds"
    known = [value for value in values if value is not None]
    # Older nights have metrics that are gone.
    quantity = CATALOGUES["onionlab"].quantity(metric)
    low, high = quantity.bounds if quantity else (LEAST_VALUE, LARGEST_VALUE)
    # NaN is not within the bounds either.
    if not all(low <= value <= high for value in known):
        return f"a value of {metric} is not from {low:g} to {high:g}"
    if (estimate is None) == (len(known) == len(values)):
        return f"the estimate is {estimate}, and {len(values) - len(known)} values are null"
    if estimate is not None and not math.isclose(estimate, np.mean(known), rel_tol=1e-9):
        return f"the estimate is {estimate}, and the mean of the values is {np.mean(known)}"
    return None


def write_history(path: Path, table: pa.Table) -> None:
    """Write the history so that a reader sees the old file or the whole new one."""
    with whole_file(path) as part:
        pq.write_table(table, part, compression="zstd", version="2.6")


def rows_of(
    night: str,
    experiment: str,
    key: str,
    run_set: RunSet,
    verdicts: dict[tuple[str, str, str, str], str],
) -> list[dict[str, Any]]:
    """One night of one experiment as rows of the history.

    Args:
        night: when it began.
        experiment: its name.
        key: of the time series.
        run_set: the night's runs.
        verdicts: (level, variant, class, metric) -> verdict, of those that have one.
    """
    rows = []
    for (level, class_name), by_metric in run_set.statistics().items():
        for (metric, variant), by_seed in by_metric.items():
            of_seed = run_set.runs_of(level, variant)
            runs = list(chain(*of_seed.values()))
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
                    "tor": _joined(b.version for run in runs for b in run.tor.values()),
                    "seeds": seeds,
                    "values": values,
                    "estimate": float(np.mean(known)) if len(known) == len(values) else None,
                    "records": " ".join(
                        f"{seed}:{h[:16]}"
                        for seed, repeats in sorted(of_seed.items())
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
    """The history with a night's rows behind it."""
    return pa.concat_tables([history, pa.Table.from_pylist(rows, schema=SCHEMA)])


def last_records(history: pa.Table, experiment: str, key: str) -> dict[tuple[str, str], str]:
    """(level, variant) -> record hashes of the last night of a time series."""
    mask = pc.and_(pc.equal(history["experiment"], experiment), pc.equal(history["key"], key))
    return {
        (row["level"], row["variant"]): row["records"]
        for row in history.filter(mask).select(["level", "variant", "records"]).to_pylist()
    }


def steps_of(
    history: pa.Table, false_steps_per_year: float, searched: set[tuple[str, ...]]
) -> list[HistoryStep]:
    """Return the step changes in the time series of all endpoints.

    Nights in a row whose records are the same bytes are one measurement and count once. Each set of
    seeds is searched alone, and those that were measured once together.

    Args:
        history: as ``read_history`` gives it.
        false_steps_per_year: expected false steps a year over all time series together.
        searched: the time series that are searched, by the values of ``TIME_SERIES``.
    """
    rows_of_series = _rows_of_series(history, searched)
    share = min(0.5, false_steps_per_year / max(1, len(searched)))
    made = []
    for name, rows in rows_of_series.items():
        before_last_night = {step.first_after for step in _steps_of_series(name, rows[:-1], share)}
        made += [
            replace(step, new=step.first_after not in before_last_night)
            for step in _steps_of_series(name, rows, share)
        ]
    return made


@dataclass
class _Measurement:
    """Nights in a row with the same records: the first and the last of them."""

    first: dict[str, Any]
    last: dict[str, Any]


def _by_seeds(rows: Sequence[dict[str, Any]]) -> list[list[_Measurement]]:
    """Measurements whose levels can be compared night by night.

    Seeds have levels of their own, and the noise of paired changes leaves these out: between two
    sets of seeds it would take their levels for a step. So each set is searched alone. Sets that
    were measured once are searched together: their noise is that between seeds.
    """
    measured: list[_Measurement] = []
    for row in rows:
        if measured and row["records"] and row["records"] == measured[-1].last["records"]:
            measured[-1].last = row
        else:
            measured.append(_Measurement(row, row))
    sets: dict[tuple[int, ...], list[_Measurement]] = {}
    for one in measured:
        sets.setdefault(tuple(one.first["seeds"]), []).append(one)
    once = [nights[0] for nights in sets.values() if len(nights) == 1]
    return [nights for nights in (once, *sets.values()) if len(nights) > 1]


def unsearched(history: pa.Table, searched: set[tuple[str, ...]]) -> int:
    """Return in how many of the time series steps cannot be found yet, for want of known noise.

    Args:
        history: as ``read_history`` gives it.
        searched: the time series that are searched, by the values of ``TIME_SERIES``.
    """
    found = _rows_of_series(history, searched)
    return len(searched) - sum(_searched(rows) for rows in found.values())


def _searched(rows: Sequence[dict[str, Any]]) -> bool:
    noises = [noise_of_means(_nights(group, _logs(rows))) for group in _by_seeds(rows)]
    return any(sd > 0 and df >= MINIMUM_DF for sd, df in noises)


def _rows_of_series(
    history: pa.Table, searched: set[tuple[str, ...]]
) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Rows with a value, by time series."""
    rows_of_series: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in history.to_pylist():
        name = tuple(row[column] for column in TIME_SERIES)
        if name in searched and row["estimate"] is not None:
            rows_of_series.setdefault(name, []).append(row)
    return rows_of_series


def _logs(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether a series is searched on the logarithm: all of its values are positive."""
    return all(value > 0 for row in rows for value in row["values"])


def _nights(group: Sequence[_Measurement], logs: bool) -> list[dict[int, float]]:
    """Seed -> value of each measurement, on the scale of the search."""
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
    made = []
    groups = _by_seeds(rows)
    for group in groups:
        nights = _nights(group, logs)
        sd, df = noise_of_means(nights)
        means = [float(np.mean(list(night.values()))) for night in nights]
        for step in find_steps(means, sd, df, false_steps / len(groups)):
            before, after = (float(np.exp(x)) if logs else x for x in (step.before, step.after))
            last, first = group[step.index - 1].last, group[step.index].first
            made.append(
                HistoryStep(
                    name,
                    Step(step.index, before, after),
                    after / before if logs else None,
                    (last["night"], last["project"]),
                    (first["night"], first["project"]),
                    new=True,
                )
            )
    return made
