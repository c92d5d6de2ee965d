"""Summaries of a study's cell traces, by run and over seeds, for CSV files and the report."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from analysis.arrays import Bools, Floats
from analysis.celltrace.arrivals import Arrivals
from analysis.celltrace.cell_paths import LEGS
from analysis.celltrace.cell_tables import load_arrivals, load_cells
from analysis.celltrace.cells import JOINED, MEANINGS, Cells, Fate
from analysis.celltrace.statistics import (
    Group,
    Relayed,
    Stage,
    relayed,
    spike_period_s,
    summarise,
)
from analysis.celltrace.waiting import waits
from analysis.formats import files
from analysis.formats.columns import RELAY_TIME
from analysis.formats.record_files import EXTRACT_AGAIN, TraceCounts, read_trace_counts
from analysis.formats.study import CellTimes, Level, Run
from analysis.formats.tables import read_table

ALL_ROLES = "all relays"
STAGES = (Stage.INBUF_QUEUE, Stage.QUEUE_OUTBUF, Stage.OUTBUF_FLUSH)
POSITIONS = ("guard", "middle", "exit")
MAX_POINTS = 20_000
"""Maximum number of points in one panel of a scatter plot; more would overlap."""


@dataclass(frozen=True)
class TimeRow:
    """Times of relayed RELAY cells of one run in the measured span, for a group and a stage.

    share: the share of this stage in the total time that such cells spent inside.
    """

    level: str
    variant: str
    seed: int
    repeat: int
    role: str
    group: Group
    stage: Stage
    circuits: int
    share: float
    summary: CellTimes


@dataclass(frozen=True)
class SpikeRow:
    """The strongest period of the delays at the relays of a role; NaN if there is none."""

    level: str
    variant: str
    seed: int
    repeat: int
    role: str
    period_s: float
    strength: float
    noise: float


@dataclass(frozen=True)
class WaitRow:
    """Waits of RELAY cells towards clients at the relays of a role in one run, by place.

    Attributes:
        cells: number of cells that were queued in the measured span and sent.
        unsent: number of cells that were queued in the span and never sent.
        arrived: number of ``cells`` whose arrival at the next relay is known.
        queue_s, outbuf_s, kernel_s: mean waits; NaN without a cell, and for the kernel if too few
            arrivals are known.
    """

    level: str
    variant: str
    seed: int
    repeat: int
    role: str
    cells: int
    unsent: int
    arrived: int
    queue_s: float
    outbuf_s: float
    kernel_s: float


@dataclass(frozen=True)
class RelayTimeRow:
    """Mean part of a download's time to first byte at one position and stage, over streams."""

    level: str
    variant: str
    seed: int
    repeat: int
    class_name: str
    streams: int
    followed: int
    ttfb_s: float
    position: str
    stage: Stage
    time_s: float


@dataclass(frozen=True)
class Points:
    """The points of a scatter plot for one run: times of cells, delays, and groups.

    cells: the number of cells before thinning.
    """

    level: str
    variant: str
    seed: int
    repeat: int
    role: str
    time_s: Floats
    time_ms: Floats
    busiest: Bools
    quiet: Bools
    busy: Bools
    cells: int


@dataclass
class TraceTable:
    """Collected traced runs of a study."""

    times: list[TimeRow] = field(default_factory=list)
    spikes: list[SpikeRow] = field(default_factory=list)
    waits: list[WaitRow] = field(default_factory=list)
    relay_times: list[RelayTimeRow] = field(default_factory=list)
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
        loaded = load_cells(records)
        relays = [(role, cells) for _, role, cells in loaded]
        roles = list(dict.fromkeys(role for role, _ in relays))
        arrived = load_arrivals(records, loaded)
        for role in roles:
            pairs = zip(relays, arrived, strict=True)
            self._add_waits(run, level, role, [(c, a) for (own, c), a in pairs if own == role])
        for role in [*roles, ALL_ROLES] if len(roles) > 1 else roles:
            own = [cells for own_role, cells in relays if role in (own_role, ALL_ROLES)]
            self._add_role(run, role, relayed(own, level.measured_start_s, level.measured_end_s))
        self._add_relay_times(run, level, records)

    def _add_role(self, run: Run, role: str, own: Relayed) -> None:
        groups = {group: own.circuits.members(group) for group in Group}
        for group, members in groups.items():
            total = float(own.total_ms[members].sum())
            for stage, times in own.stages_ms.items():
                self.times.append(
                    TimeRow(
                        run.level, run.variant, run.seed, run.repeat, role, group, stage,
                        own.circuits.count(group),
                        float(times[members].sum()) / total if total else float("nan"),
                        summarise(times[members]),
                    )
                )  # fmt: skip
        period_s, strength = spike_period_s(own.time_s, own.total_ms)
        self.spikes.append(
            SpikeRow(
                run.level, run.variant, run.seed, run.repeat, role, period_s, strength, own.noise
            )
        )
        self._add_points(run, role, own, groups)

    def _add_waits(
        self, run: Run, level: Level, role: str, relays: list[tuple[Cells, Arrivals | None]]
    ) -> None:
        own = waits(relays, level.measured_start_s, level.measured_end_s)
        kernel_s = float("nan") if own.kernel_mean_s is None else own.kernel_mean_s
        self.waits.append(
            WaitRow(
                run.level, run.variant, run.seed, run.repeat, role, own.queue_s.size, own.unsent,
                own.known_kernel_s.size, _mean(own.queue_s), _mean(own.outbuf_s), kernel_s,
            )
        )  # fmt: skip

    def _add_points(self, run: Run, role: str, own: Relayed, groups: dict[Group, Bools]) -> None:
        time_s, time_ms = own.time_s, own.total_ms
        if any((p.level, p.variant, p.role) == (run.level, run.variant, role) for p in self.points):
            return
        # Quiet circuits have few cells, so keep all of these, and every n-th of the others.
        order = np.argsort(time_s, kind="stable")
        keep = groups[Group.QUIET].copy()
        keep[order[:: max(1, -(-len(order) // MAX_POINTS))]] = True
        self.points.append(
            Points(
                run.level, run.variant, run.seed, run.repeat, role,
                time_s[keep], time_ms[keep],
                groups[Group.BUSIEST][keep], groups[Group.QUIET][keep], groups[Group.BUSY][keep],
                len(time_s),
            )
        )  # fmt: skip

    def _add_relay_times(self, run: Run, level: Level, records: Path) -> None:
        path = records / files.RELAY_TIME_TABLE
        table = read_table(path, RELAY_TIME, missing=EXTRACT_AGAIN, wrong=EXTRACT_AGAIN)
        start_s = table["start_s"].to_numpy()
        inside = (start_s >= level.measured_start_s) & (start_s < level.measured_end_s)
        table = table.filter(pa.array(inside))
        names = table["class"].cast(pa.string()).to_pylist()
        client = table["client"].cast(pa.string()).to_pylist()
        index = table["stream_index"].to_pylist()
        leg = table["leg"].cast(pa.string()).to_pylist()
        position = table["position"].to_pylist()
        ttfb_s = table["ttfb_s"].to_pylist()
        columns = [
            table[name].to_pylist()
            for name in ("inbuf_queue_s", "queue_outbuf_s", "outbuf_flush_s")
        ]
        for class_name in dict.fromkeys(names):
            streams: dict[tuple[str, int], float] = {}
            seen: set[tuple[str, int]] = set()
            total = np.zeros((len(POSITIONS), 3))
            for row, name in enumerate(names):
                if name != class_name:
                    continue
                key = (client[row], index[row])
                seen.add(key)
                if leg[row] is None or position[row] >= len(POSITIONS):
                    continue
                streams[key] = ttfb_s[row]
                total[position[row]] += [column[row] for column in columns]
            if not streams:
                continue
            mean_s = total / len(streams)
            for place, stages in zip(POSITIONS, mean_s, strict=True):
                for stage, time_s in zip(STAGES, stages, strict=True):
                    self.relay_times.append(
                        RelayTimeRow(
                            run.level, run.variant, run.seed, run.repeat, class_name,
                            len(seen), len(streams),
                            float(np.mean(list(streams.values()))), place, stage, float(time_s),
                        )
                    )  # fmt: skip

    @property
    def roles(self) -> list[str]:
        """Roles of the traced relays, followed by all of them together if there are several."""
        return list(dict.fromkeys(row.role for row in self.times))

    @property
    def relaying_roles(self) -> list[str]:
        """Roles whose relays relayed cells in a measured span, and therefore have times."""
        relaying = {row.role for row in self.times if row.summary.count}
        return [role for role in self.roles if role in relaying]


@dataclass(frozen=True)
class MeanTimes:
    """A line of the text's table: means over the seeds of each number; ``cells`` is their sum."""

    role: str
    level: str
    variant: str
    group: Group
    stage: Stage
    seeds: int
    cells: int
    circuits: float
    share: float
    summary: CellTimes


def over_seeds(rows: Iterable[TimeRow]) -> Iterator[MeanTimes]:
    """Average rows of the same role, level, variant, group and stage, in the order met."""
    grouped: dict[tuple[str, str, str, Group, Stage], list[TimeRow]] = {}
    for row in rows:
        key = (row.role, row.level, row.variant, row.group, row.stage)
        grouped.setdefault(key, []).append(row)
    names = [f.name for f in fields(CellTimes) if f.name != "count"]
    for key, own in grouped.items():
        filled = [row for row in own if row.summary.count]
        cells = sum(row.summary.count for row in own)
        means = {
            name: float(np.mean([getattr(row.summary, name) for row in filled]))
            if filled
            else float("nan")
            for name in names
        }
        yield MeanTimes(
            *key,
            seeds=len({row.seed for row in own}),
            cells=cells,
            circuits=float(np.mean([row.circuits for row in own])),
            share=float(np.mean([row.share for row in filled])) if filled else float("nan"),
            summary=CellTimes(cells, **means),
        )


@dataclass(frozen=True)
class MeanWaits:
    """Waits at the relays of a role under one level and variant, over seeds.

    Attributes:
        cells, unsent, arrived: sums over seeds, as in ``WaitRow``.
        parts_s: means over seeds of the mean waits in queue, outbuf and kernel; NaN if no seed has
            one.
    """

    role: str
    level: str
    variant: str
    cells: int
    unsent: int
    arrived: int
    parts_s: tuple[float, float, float]


def mean_waits(table: TraceTable) -> list[MeanWaits]:
    """Return a row for each role, level and variant with a sent cell, in the order met."""
    grouped: dict[tuple[str, str, str], list[WaitRow]] = {}
    for row in table.waits:
        if row.cells:
            grouped.setdefault((row.role, row.level, row.variant), []).append(row)
    return [
        MeanWaits(
            *key,
            cells=sum(row.cells for row in own),
            unsent=sum(row.unsent for row in own),
            arrived=sum(row.arrived for row in own),
            parts_s=(
                _mean(np.array([row.queue_s for row in own])),
                _mean(np.array([row.outbuf_s for row in own])),
                _mean(np.array([row.kernel_s for row in own if not np.isnan(row.kernel_s)])),
            ),
        )
        for key, own in grouped.items()
    ]


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else float("nan")


def fate_counts(table: TraceTable) -> list[tuple[str, bool, int]]:
    """Return the fates of all cells of all runs: meaning, whether events join, and count."""
    total = dict.fromkeys(Fate, 0)
    for _, counts in table.counts:
        for relay in counts.relays:
            for fate in Fate:
                total[fate] += relay.fates[fate.name]
    return [(MEANINGS[fate], fate in JOINED, n) for fate, n in total.items()]


def times_csv(table: TraceTable) -> str:
    """Return the content of celltrace.csv: a line for each run, role, group and stage."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = [f.name for f in fields(CellTimes)]
    writer.writerow(
        ["level", "variant", "seed", "repeat", "role", "group", "stage", "circuits", "share",
         *numbers]
    )  # fmt: skip
    for row in table.times:
        values = [getattr(row.summary, name) for name in numbers]
        writer.writerow(
            [
                row.level, row.variant, row.seed, row.repeat, row.role, row.group.value,
                row.stage.value, row.circuits, _cell(row.share), *map(_cell, values),
            ]
        )  # fmt: skip
    return text.getvalue()


def waits_csv(table: TraceTable) -> str:
    """Return the content of celltrace-waits.csv: a line for each run and role."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([f.name for f in fields(WaitRow)])
    for row in table.waits:
        values = (getattr(row, f.name) for f in fields(WaitRow))
        writer.writerow([_cell(v) if isinstance(v, float) else v for v in values])
    return text.getvalue()


def relay_times_csv(table: TraceTable) -> str:
    """Return the content of celltrace-ttfb.csv: a line for each run, class, position and stage."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["level", "variant", "seed", "repeat", "class", "streams", "followed", "ttfb_s",
         "position", "stage", "time_s"]
    )  # fmt: skip
    for row in table.relay_times:
        writer.writerow(
            [
                row.level, row.variant, row.seed, row.repeat, row.class_name, row.streams,
                row.followed, _cell(row.ttfb_s), row.position, row.stage.value, _cell(row.time_s),
            ]
        )  # fmt: skip
    return text.getvalue()


def _cell(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.9g}"


def stream_counts(table: TraceTable) -> dict[str, int]:
    """Return how many chains of downloads were followed, and failures by reason, over all runs."""
    total: dict[str, int] = {}
    for _, counts in table.counts:
        for reason, n in counts.streams.items():
            total[reason] = total.get(reason, 0) + n
    return total


__all__ = [
    "ALL_ROLES",
    "LEGS",
    "MeanTimes",
    "MeanWaits",
    "Points",
    "TraceTable",
    "fate_counts",
    "mean_waits",
    "over_seeds",
    "relay_times_csv",
    "stream_counts",
    "times_csv",
    "waits_csv",
]
