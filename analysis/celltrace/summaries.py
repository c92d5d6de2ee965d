"""Summaries of a study's cell traces, by run and as means over runs, for CSV files and reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from analysis.arrays import Bools, Floats
from analysis.celltrace.cell_tables import load_arrivals, load_cells
from analysis.celltrace.queueing import waits
from analysis.celltrace.statistics import (
    Group,
    Relayed,
    Stage,
    delay_autocorrelation,
    relayed,
    summarise,
)
from analysis.formats import files
from analysis.formats.columns import RELAY_TIME
from analysis.formats.record_files import EXTRACT_AGAIN, TraceCounts, read_trace_counts
from analysis.formats.study import CellTimes, Level, Run
from analysis.formats.tables import read_table

ALL_ROLES = "all relays"
STAGE_COLUMNS = {
    Stage.INBUF_QUEUE: "inbuf_queue_s",
    Stage.QUEUE_OUTBUF: "queue_outbuf_s",
    Stage.OUTBUF_FLUSH: "outbuf_flush_s",
}
STAGES = tuple(STAGE_COLUMNS)
POSITIONS = ("guard", "middle", "exit")
WAITS = ("queue_s", "outbuf_s", "kernel_s")
MAX_POINTS = 20_000
"""Maximum number of points in one panel of a scatter plot; more would overlap.

The cells of quiet circuits are shown in addition, because they are few.
"""

NUMBERS = tuple(f.name for f in fields(CellTimes) if f.name != "count")
_RUN = ("level", "variant", "seed", "repeat")
TIME_COLUMNS = (*_RUN, "role", "group", "stage", "circuits", "share", "count", *NUMBERS)
WAIT_COLUMNS = (*_RUN, "role", "cells", "unsent", "arrived", *WAITS)
RELAY_TIME_COLUMNS = (
    *(*_RUN, "class", "streams", "followed", "ttfb_s"),
    *("position", "stage", "time_s"),
)

Row = dict[str, Any]
"""A row of a table, by column."""


@dataclass(frozen=True)
class Points:
    """The points of a scatter plot for one run.

    Attributes:
        time_s, time_ms: when each cell was received, and how long it was inside the relay.
        groups: group of circuits -> mask of the points that belong to it.
        cells: the number of all cells; only some of the cells are points.
    """

    level: str
    variant: str
    seed: int
    role: str
    time_s: Floats
    time_ms: Floats
    groups: dict[Group, Bools]
    cells: int


@dataclass
class TraceTable:
    """Tables of the traced runs of a study.

    Attributes:
        times: times of relayed RELAY cells in the measured span, by run, role, group and stage.
            ``share`` is the stage's share of the total time that the group's cells spent inside.
        waits: waits of RELAY cells towards clients, by run and role. ``cells`` is the number of
            cells that were queued in the span and sent, ``unsent`` the number of the other queued
            cells, ``arrived`` the number of cells whose arrival at the next relay is known. A mean
            wait is NaN if there is no cell. The mean wait in the kernel is also NaN if too few
            arrivals are known.
        relay_times: mean time inside relays of the cells that a download's first byte waited for,
            by run, class, position of the relay and stage. ``followed`` is the number of
            ``streams`` whose cells were followed.
        spikes: the period after which delays recur most strongly (the lag of their highest
            autocorrelation), by run and role; NaN if it is unknown.
        points: the points of a scatter plot, from one run for each level, variant and role.
        counts: the counts of each run's traces.
    """

    times: list[Row] = field(default_factory=list)
    waits: list[Row] = field(default_factory=list)
    relay_times: list[Row] = field(default_factory=list)
    spikes: list[Row] = field(default_factory=list)
    points: list[Points] = field(default_factory=list)
    counts: list[tuple[Run, TraceCounts]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, run: Run, level: Level, records: Path) -> None:
        """Add one run, if its relays were traced.

        Raises:
            AnalysisError: a table is missing or cannot be read.
        """
        if not (records / files.TRACE_COUNTS).is_file():
            return
        self.counts.append((run, read_trace_counts(records / files.TRACE_COUNTS)))
        relays = load_cells(records)
        arrived = load_arrivals(records, relays)
        key: Row = {name: getattr(run, name) for name in _RUN}
        span = (level.measured_start_s, level.measured_end_s)
        roles = list(dict.fromkeys(role for _, role, _ in relays))
        for role in roles:
            pairs = [
                (cells, known)
                for (_, own, cells), known in zip(relays, arrived, strict=True)
                if own == role
            ]
            found = waits(pairs, *span)
            self.waits.append(
                {
                    **key,
                    "role": role,
                    "cells": found.queue_s.size,
                    "unsent": found.unsent,
                    "arrived": found.known_kernel_s.size,
                    "queue_s": _mean(found.queue_s),
                    "outbuf_s": _mean(found.outbuf_s),
                    "kernel_s": np.nan if found.kernel_mean_s is None else found.kernel_mean_s,
                }
            )
        for role in [*roles, ALL_ROLES] if len(roles) > 1 else roles:
            self._add_times(
                {**key, "role": role},
                relayed([cells for _, own, cells in relays if role in (own, ALL_ROLES)], *span),
            )
        self._add_relay_times(key, records, *span)

    def _add_times(self, key: Row, cells: Relayed) -> None:
        groups = {group: cells.members(group) for group in Group}
        for group, members in groups.items():
            total_ms = float(cells.total_ms[members].sum())
            for stage, times_ms in cells.stages_ms.items():
                self.times.append(
                    {
                        **key,
                        "group": group,
                        "stage": stage,
                        "circuits": cells.count(group),
                        "share": times_ms[members].sum() / total_ms if total_ms else np.nan,
                        **asdict(summarise(times_ms[members])),
                    }
                )
        unknown = (np.full(1, np.nan),) * 2
        lags_s, strength = delay_autocorrelation(cells.time_s, cells.total_ms) or unknown
        best = int(np.argmax(strength))
        spike = {"period_s": lags_s[best], "strength": strength[best], "noise": cells.noise}
        self.spikes.append(key | spike)
        plot = (key["level"], key["variant"], key["role"])
        if plot in {(one.level, one.variant, one.role) for one in self.points}:
            return
        # Quiet circuits have few cells, so keep all of their cells and every n-th of all cells.
        order = np.argsort(cells.time_s, kind="stable")
        keep = groups[Group.QUIET].copy()
        keep[order[:: max(1, -(-len(order) // MAX_POINTS))]] = True
        self.points.append(
            Points(
                level=key["level"],
                variant=key["variant"],
                seed=key["seed"],
                role=key["role"],
                time_s=cells.time_s[keep],
                time_ms=cells.total_ms[keep],
                groups={group: members[keep] for group, members in groups.items()},
                cells=order.size,
            )
        )

    def _add_relay_times(self, key: Row, records: Path, begin_s: float, end_s: float) -> None:
        path = records / files.RELAY_TIME_TABLE
        table = read_table(path, RELAY_TIME, missing=EXTRACT_AGAIN, wrong=EXTRACT_AGAIN).to_pandas()
        table = table[(table["start_s"] >= begin_s) & (table["start_s"] < end_s)]
        stream = ["client", "stream_index"]
        for class_name, own in table.astype({"class": str}).groupby("class", sort=False):
            legs = own[own["leg"].notna() & (own["position"] < len(POSITIONS))]
            followed = legs.drop_duplicates(stream)
            for number, position in enumerate(POSITIONS if len(followed) else ()):
                at_position = legs[legs["position"] == number]
                for stage, column in STAGE_COLUMNS.items():
                    self.relay_times.append(
                        {
                            **key,
                            "class": class_name,
                            "streams": len(own.drop_duplicates(stream)),
                            "followed": len(followed),
                            "ttfb_s": followed["ttfb_s"].to_numpy().mean(),
                            "position": position,
                            "stage": stage,
                            "time_s": at_position[column].sum() / len(followed),
                        }
                    )

    @property
    def roles(self) -> list[str]:
        """Roles of the traced relays, followed by ``ALL_ROLES`` if there are several."""
        return list(dict.fromkeys(row["role"] for row in self.times))

    @property
    def relaying_roles(self) -> list[str]:
        """Roles whose relays relayed cells in a measured span, and therefore have times."""
        relaying = {row["role"] for row in self.times if row["count"]}
        return [role for role in self.roles if role in relaying]


def mean_times(table: TraceTable) -> list[Row]:
    """Return means over runs for each role, level, variant, group and stage.

    Runs without a cell of the group affect only the mean of ``circuits``. ``count`` is a sum. The
    order is that of ``table.times``.
    """
    keys = ["role", "level", "variant", "group", "stage"]
    rows = pd.DataFrame(table.times, columns=TIME_COLUMNS)
    every = rows.groupby(keys, sort=False).agg({"count": "sum", "circuits": "mean"})
    filled = rows[rows["count"] > 0].groupby(keys, sort=False)[["share", *NUMBERS]]
    return _as_rows(every.join(filled.agg(_mean)))


def mean_waits(table: TraceTable) -> list[Row]:
    """Return numbers of cells and mean waits, by role, level and variant.

    The numbers are sums over runs, and the waits are means over the runs' means. Runs without a
    sent cell are left out. The order is that of ``table.waits``.
    """
    rows = pd.DataFrame(table.waits, columns=WAIT_COLUMNS)
    groups = rows[rows["cells"] > 0].groupby(["role", "level", "variant"], sort=False)
    sums = dict.fromkeys(("cells", "unsent", "arrived"), "sum")
    return _as_rows(groups.agg({**sums, **dict.fromkeys(WAITS, "mean")}))


def _as_rows(frame: pd.DataFrame) -> list[Row]:
    return cast("list[Row]", frame.reset_index().to_dict("records"))


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else np.nan
