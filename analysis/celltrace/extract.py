"""A run's cell traces to record tables: cells.parquet, relay_time.parquet and celltrace.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from analysis.celltrace.cells import NEVER, Cells, Fate, join
from analysis.celltrace.events import count_events, read_trace
from analysis.celltrace.paths import LEGS, Network, Relay
from analysis.errors import AnalysisError
from analysis.formats.columns import Column

TRACE_PLAN = "trace.json"
"""In a run's directory: which relays were traced, and who is who. Without it none was."""
CELLS_FILE = "cells.parquet"
RELAY_TIME_FILE = "relay_time.parquet"
COUNTS_FILE = "celltrace.json"
FORMAT = 1

_NAME = pa.dictionary(pa.int32(), pa.string())

CELLS: tuple[Column, ...] = (
    Column("relay", _NAME, "host name of the relay"),
    Column("role", _NAME, "its role: exitguard, guard, exit or middle"),
    Column("seq", pa.int64(), "the cell's number at this relay"),
    Column("command", pa.uint8(), "the cell's command (3: RELAY)"),
    Column("direction", pa.uint8(), "1: to the client, 2: from it, 0: not known"),
    Column("fate", pa.uint8(), "see analysis.celltrace.cells.Fate"),
    Column("circuit_channel", pa.int64(), "channel of its circuit's side towards the client"),
    Column("circuit_id", pa.int64(), "circuit ID on that channel"),
    Column("inbuf_ns", pa.int64(), "simulated time of the event; null without one"),
    Column("recognized_ns", pa.int64(), "simulated time of the event; null without one"),
    Column("queue_ns", pa.int64(), "simulated time of the event; null without one"),
    Column("outbuf_ns", pa.int64(), "simulated time of the event; null without one"),
    Column("flush_ns", pa.int64(), "simulated time of the event; null without one"),
)

RELAY_TIME: tuple[Column, ...] = (
    Column("client", _NAME, "host name of the client"),
    Column("class", _NAME, "its traffic class"),
    Column("stream_index", pa.int32(), "as in streams.parquet"),
    Column("start_s", pa.float64(), "as in streams.parquet"),
    Column("ttfb_s", pa.float64(), "ttfb_from_start_s of streams.parquet"),
    Column("leg", _NAME, "BEGIN, CONNECTED, request or first answer; null if not followed"),
    Column("position", pa.int8(), "0: guard, 1: middle, 2: exit; null if not followed"),
    Column("relay", _NAME, "where the cell was; null if not followed"),
    Column("role", _NAME, "that relay's role"),
    Column("inbuf_queue_s", pa.float64(), "time there from inbuf to queue, or until recognized"),
    Column("queue_outbuf_s", pa.float64(), "time there from queue to outbuf"),
    Column("outbuf_flush_s", pa.float64(), "time there from outbuf to flush"),
    Column("problem", _NAME, "why the chain was not followed; null if it was"),
)


@dataclass(frozen=True)
class RelayCounts:
    """What one relay's trace held. fates: names of Fate -> cells."""

    relay: str
    role: str
    bytes: int
    events: dict[str, int]
    fates: dict[str, int]
    repeated: int
    channels: int
    ended: bool
    cut_bytes: int
    malformed: int
    first_malformed: int | None
    missing: int

    @property
    def damage(self) -> str | None:
        """What of the trace does not count, for people; None where all does."""
        if not (self.malformed or self.cut_bytes or self.missing or self.repeated):
            return None
        where = (
            "" if self.first_malformed is None else f", the first at byte {self.first_malformed}"
        )
        return (
            f"{self.malformed} records that no Tor writes{where}; {self.cut_bytes} bytes of a last "
            f"record; {self.missing} records missing; {self.repeated} events twice"
        )


@dataclass(frozen=True)
class TraceCounts:
    """All of celltrace.json. streams: how many chains were followed, and why others were not."""

    relays: tuple[RelayCounts, ...]
    streams: dict[str, int]


def is_traced(run_directory: Path) -> bool:
    """Whether a run has cell traces."""
    return (run_directory / TRACE_PLAN).is_file()


def extract(run_directory: Path, streams: Path, out: Path) -> TraceCounts:
    """Reads the traces of a run's relays and writes the tables into ``out``.

    Args:
        run_directory: holds trace.json and the traces.
        streams: the run's streams.parquet.
        out: an existing folder.

    Raises:
        AnalysisError: a trace is missing, empty or damaged; trace.json is not valid.
    """
    plan = _read_plan(run_directory / TRACE_PLAN)
    epoch_ns = round(plan["epoch_unix_s"]) * 10**9
    relays: dict[str, Relay] = {}
    counts = []
    schema = _schema(CELLS)
    with pq.ParquetWriter(out / CELLS_FILE, schema, compression="zstd", version="2.6") as writer:
        for name in plan["traced"]:
            host = plan["hosts"][name]
            path = run_directory / "shadow.data" / "hosts" / name / plan["file"]
            trace = read_trace(path)
            cells = join(trace)
            relays[name] = Relay(name, host["role"], host["address"], trace, cells)
            counts.append(
                RelayCounts(
                    relay=name,
                    role=host["role"],
                    bytes=path.stat().st_size,
                    events={event.name.lower(): n for event, n in count_events([trace])},
                    fates={fate.name: n for fate, n in cells.counts().items()},
                    repeated=cells.repeated,
                    channels=len(trace.channels),
                    ended=trace.ended,
                    cut_bytes=trace.cut_bytes,
                    malformed=trace.malformed,
                    first_malformed=trace.first_malformed,
                    missing=trace.missing,
                )
            )
            writer.write_table(_cells_table(relays[name], epoch_ns, schema))
    table = _relay_time(Network(relays), plan["hosts"], streams, epoch_ns)
    pq.write_table(table, out / RELAY_TIME_FILE, compression="zstd", version="2.6")
    followed = _followed(table)
    result = TraceCounts(tuple(counts), followed)
    text = json.dumps({"format": FORMAT, **asdict(result)}, indent=1, sort_keys=True)
    (out / COUNTS_FILE).write_text(text + "\n", encoding="utf-8")
    return result


def read_counts(path: Path) -> TraceCounts:
    """Reads a celltrace.json back.

    Raises:
        AnalysisError: it is missing or of another format.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != FORMAT:
            raise ValueError("another format")
        relays = tuple(RelayCounts(**relay) for relay in content.pop("relays"))
        return TraceCounts(relays, **content)
    except FileNotFoundError:
        raise AnalysisError(f"{path} is missing", "extract the run's records again") from None
    except (ValueError, KeyError, TypeError) as error:
        raise AnalysisError(
            f"{path} is not of format {FORMAT}: {error}", "extract the run's records again"
        ) from None


def _schema(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema(
        [
            pa.field(column.name, column.type, metadata={"description": column.description})
            for column in columns
        ],
        metadata={"format": str(FORMAT)},
    )


def _read_plan(path: Path) -> dict[str, Any]:
    try:
        plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name in plan["traced"]:
            host = plan["hosts"][name]
            if not isinstance(host["role"], str) or not isinstance(host["address"], str):
                raise TypeError(f"host {name}")
        if not isinstance(plan["file"], str) or not plan["traced"]:
            raise TypeError("file, traced")
        float(plan["epoch_unix_s"])
    except FileNotFoundError:
        raise AnalysisError(f"{path} is missing") from None
    except (ValueError, KeyError, TypeError) as error:
        raise AnalysisError(f"{path} does not say which relays were traced: {error}") from None
    return plan


def _cells_table(relay: Relay, epoch_ns: int, schema: pa.Schema) -> pa.Table:
    cells = relay.cells
    n = len(cells)
    channel, circ = cells.circuits()

    def names(value: str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([value]))

    def or_null(values: Any, offset: int = 0) -> pa.Array:
        return pa.array(values - offset, pa.int64(), mask=values == NEVER)

    return pa.table(
        {
            "relay": names(relay.name),
            "role": names(relay.role),
            "seq": pa.array(cells.seq),
            "command": pa.array(cells.command.astype(np.uint8)),
            "direction": pa.array(cells.direction.astype(np.uint8)),
            "fate": pa.array(cells.fate.astype(np.uint8)),
            "circuit_channel": or_null(channel),
            "circuit_id": or_null(circ),
            **{
                name: or_null(getattr(cells, name), epoch_ns)
                for name in ("inbuf_ns", "recognized_ns", "queue_ns", "outbuf_ns", "flush_ns")
            },
        },
        schema=schema,
    )


def _relay_time(
    network: Network, hosts: Mapping[str, Any], streams: Path, epoch_ns: int
) -> pa.Table:
    """One row for each stay of each stream's chain, or one with the problem."""
    table = pq.read_table(
        streams, columns=["client", "class", "stream_index", "start_s", "ttfb_from_start_s"]
    )
    rows: list[dict[str, Any]] = []
    for stream in table.to_pylist():
        ttfb_s = stream["ttfb_from_start_s"]
        if ttfb_s is None:
            continue
        start_ns = epoch_ns + round(stream["start_s"] * 1e9)
        chain = network.chain(
            hosts[stream["client"]]["address"], start_ns + round(ttfb_s * 1e9), start_ns
        )
        own = {
            "client": stream["client"],
            "class": stream["class"],
            "stream_index": stream["stream_index"],
            "start_s": stream["start_s"],
            "ttfb_s": ttfb_s,
        }
        if chain.problem:
            rows.append({**own, "problem": chain.problem})
        for leg in chain.legs:
            first, second, third = (ns / 1e9 for ns in leg.stage_ns)
            rows.append(
                {
                    **own,
                    "leg": LEGS[leg.leg],
                    "position": leg.position,
                    "relay": leg.relay,
                    "role": leg.role,
                    "inbuf_queue_s": first,
                    "queue_outbuf_s": second,
                    "outbuf_flush_s": third,
                }
            )
    return pa.Table.from_pylist(rows, schema=_schema(RELAY_TIME))


def _followed(table: pa.Table) -> dict[str, int]:
    problems: dict[str, int] = {}
    seen = set()
    columns = (table[name].to_pylist() for name in ("client", "stream_index", "problem"))
    for client, index, problem in zip(*columns, strict=True):
        if problem is not None:
            problems[problem] = problems.get(problem, 0) + 1
        else:
            seen.add((client, index))
    return {"followed": len(seen), **dict(sorted(problems.items()))}


def load_cells(records: Path) -> list[tuple[str, str, Cells]]:
    """The relays of a run's records with their cells: name, role, cells; times are simulated.

    Of ``Cells`` only what the table holds is told: where a cell came in and went to is its
    circuit's side towards the client, in both places.

    Raises:
        AnalysisError: the table is missing or cannot be read.
    """
    path = records / CELLS_FILE
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise AnalysisError(f"{path} is missing", "extract the run's records again") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise AnalysisError(f"{path} cannot be read: {error}") from None
    names = np.asarray(table["relay"].cast(pa.string()).to_pylist(), dtype=np.str_)
    roles = np.asarray(table["role"].cast(pa.string()).to_pylist(), dtype=np.str_)
    column = {
        name: table[name].cast(pa.int64()).fill_null(NEVER).combine_chunks().to_numpy()
        for name in (c.name for c in CELLS)
        if name not in ("relay", "role")
    }
    result = []
    for name in dict.fromkeys(names.tolist()):
        own = names == name
        part = {key: np.ascontiguousarray(values[own]) for key, values in column.items()}
        cells = Cells(
            seq=part["seq"],
            inbuf_ns=part["inbuf_ns"],
            recognized_ns=part["recognized_ns"],
            queue_ns=part["queue_ns"],
            outbuf_ns=part["outbuf_ns"],
            flush_ns=part["flush_ns"],
            dropped_ns=np.full(int(own.sum()), NEVER, np.int64),
            in_channel=part["circuit_channel"],
            in_circ=part["circuit_id"],
            out_channel=part["circuit_channel"],
            out_circ=part["circuit_id"],
            command=part["command"],
            direction=part["direction"],
            fate=part["fate"],
        )
        result.append((name, str(roles[own][0]), cells))
    return result


def lost_share(fates: Mapping[str, int]) -> float:
    """Share of the cells whose events do not join although the trace should have all of them.

    Cells that were dropped, or still inside at the end, have all the events that they should have.
    """
    total = sum(fates.values())
    return fates[Fate.BEGINNING_MISSING.name] / total if total else 0.0
