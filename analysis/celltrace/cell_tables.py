"""Conversion of a run's cell traces to record tables, and loading of these tables.

The tables are cells.parquet, cell_arrivals.parquet and relay_time.parquet. The file celltrace.json
has the numbers of events, cells and streams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from analysis.celltrace.arrivals import Arrivals, arrivals
from analysis.celltrace.cell_paths import LostError, Network, Relay
from analysis.celltrace.cells import NEVER, Cells, join
from analysis.celltrace.events import read_trace
from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import ARRIVALS, CELLS, RELAY_TIME, arrow_schema
from analysis.formats.record_files import (
    EXTRACT_AGAIN,
    TRACE_COUNTS_FORMAT,
    RelayCounts,
    TraceCounts,
    write_beside_tables,
)
from analysis.formats.run_files import TracedHost, read_trace_plan
from analysis.formats.tables import read_table


def extract(run_directory: Path, streams: Path, out: Path) -> TraceCounts:
    """Write the tables and the counts of a run's traces into ``out``, and return the counts.

    run_directory: contains trace.json and the traces.
    streams: path of the run's streams.parquet.

    Raises:
        AnalysisError: a trace is missing, empty or damaged, or trace.json is invalid or lacks a
            client.
    """
    plan = read_trace_plan(run_directory)
    epoch_ns = round(plan.epoch_unix_s) * 10**9
    relays: dict[str, Relay] = {}
    counts = []
    schema = arrow_schema(CELLS, TRACE_COUNTS_FORMAT)
    with pq.ParquetWriter(
        out / files.CELLS_TABLE, schema, compression="zstd", version="2.6"
    ) as writer:
        for name in plan.traced:
            host = plan.hosts[name]
            path = run_directory / files.HOSTS / name / plan.file
            trace = read_trace(path)
            cells = join(trace)
            relays[name] = Relay(name, host.role, host.address, trace, cells)
            counts.append(
                RelayCounts(
                    relay=name,
                    role=host.role,
                    bytes=path.stat().st_size,
                    events={event.name.lower(): n for event, n in trace.event_counts().items()},
                    fates={fate.name: n for fate, n in cells.counts().items()},
                    repeated=cells.repeated,
                    channels=len(trace.peers),
                    ended=trace.ended,
                    cut_bytes=trace.cut_bytes,
                    malformed=trace.malformed,
                    first_malformed=trace.first_malformed,
                    missing=trace.missing,
                )
            )
            writer.write_table(_cells_table(relays[name], epoch_ns, schema))
    _write_arrivals(arrivals(relays), out / files.ARRIVALS_TABLE, epoch_ns)
    table = _relay_time(Network(relays), plan.hosts, streams, epoch_ns)
    pq.write_table(table, out / files.RELAY_TIME_TABLE, compression="zstd", version="2.6")
    result = TraceCounts(tuple(counts), _followed(table))
    write_beside_tables(out / files.TRACE_COUNTS, result)
    return result


def _cells_table(relay: Relay, epoch_ns: int, schema: pa.Schema) -> pa.Table:
    cells = relay.cells
    channel, circ = cells.circuits()

    def or_null(values: Any, offset: int = 0) -> pa.Array:
        return pa.array(values - offset, pa.int64(), mask=values == NEVER)

    return pa.table(
        {
            "relay": _repeated(relay.name, len(cells)),
            "role": _repeated(relay.role, len(cells)),
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


def _repeated(name: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([name]))


def _write_arrivals(found: Mapping[str, Arrivals], path: Path, epoch_ns: int) -> None:
    schema = arrow_schema(ARRIVALS, TRACE_COUNTS_FORMAT)
    # Use delta encoding: numbers and times are nearly ascending, so their differences are small.
    rising = ("seq", "arrived_ns")
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        version="2.6",
        use_dictionary=[name for name in schema.names if name not in rising],
        column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
    ) as writer:
        for name, own in found.items():
            columns = {
                "relay": _repeated(name, own.seq.size),
                "seq": pa.array(own.seq),
                "channel": pa.array(own.channel),
                "arrived_ns": pa.array(own.arrived_ns - epoch_ns),
            }
            writer.write_table(pa.table(columns, schema=schema))


def _relay_time(
    network: Network, hosts: Mapping[str, TracedHost], streams: Path, epoch_ns: int
) -> pa.Table:
    """Return the rows of relay_time.parquet: one for each ``Leg`` of each stream.

    A stream whose cells cannot be followed has a single row with the reason. Streams that received
    no byte are left out.
    """
    table = pq.read_table(
        streams, columns=["client", "class", "stream_index", "start_s", "ttfb_from_start_s"]
    )
    rows: list[dict[str, Any]] = []
    for stream in table.to_pylist():
        ttfb_s = stream["ttfb_from_start_s"]
        if ttfb_s is None:
            continue
        if stream["client"] not in hosts:
            raise AnalysisError(
                f"{files.TRACE_PLAN} does not contain the client {stream['client']}"
            )
        start_ns = epoch_ns + round(stream["start_s"] * 1e9)
        client = hosts[stream["client"]].address
        own = {
            "client": stream["client"],
            "class": stream["class"],
            "stream_index": stream["stream_index"],
            "start_s": stream["start_s"],
            "ttfb_s": ttfb_s,
        }
        try:
            legs = network.chain(client, start_ns + round(ttfb_s * 1e9), start_ns)
        except LostError as lost:
            rows.append({**own, "problem": str(lost)})
        else:
            rows += [{**own, **asdict(leg)} for leg in legs]
    return pa.Table.from_pylist(rows, schema=arrow_schema(RELAY_TIME, TRACE_COUNTS_FORMAT))


def _followed(table: pa.Table) -> dict[str, int]:
    columns = (table[name].to_pylist() for name in ("client", "stream_index", "problem"))
    streams = set(zip(*columns, strict=True))
    problems = Counter(problem for _, _, problem in streams if problem is not None)
    return {"followed": len(streams) - problems.total(), **dict(sorted(problems.items()))}


def load_cells(records: Path) -> list[tuple[str, str, Cells]]:
    """Return a tuple (name, role, cells) for each traced relay of a run's records.

    Times are nanoseconds of simulated time. The table has a cell's channel and circuit ID only for
    the side towards the client. The result has these values for the incoming and the outgoing side.

    Raises:
        AnalysisError: the table is missing or cannot be read.
    """
    path = records / files.CELLS_TABLE
    table = read_table(path, CELLS, missing=EXTRACT_AGAIN, wrong=EXTRACT_AGAIN)
    columns = [column.name for column in CELLS if column.name not in ("relay", "role")]
    result = []
    for name, own in _by_relay(table):
        part = {
            column: own[column].cast(pa.int64()).fill_null(NEVER).combine_chunks().to_numpy()
            for column in columns
        }
        channel, circ = part.pop("circuit_channel"), part.pop("circuit_id")
        cells = Cells(**part, in_channel=channel, in_circ=circ, out_channel=channel, out_circ=circ)
        result.append((name, str(own["role"][0].as_py()), cells))
    return result


def _by_relay(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the name and the rows of each relay."""
    for name in table["relay"].unique().to_pylist():
        yield name, table.filter(pc.equal(table["relay"], name))


def load_arrivals(records: Path, relays: Sequence[tuple[str, str, Cells]]) -> list[Arrivals | None]:
    """Return for each relay the arrivals of the cells that it sent, in simulated time.

    All items are None if the records have no table of arrivals. An older version did not write one.

    relays: as returned by ``load_cells``.

    Raises:
        AnalysisError: the table cannot be read, or does not match the cells.
    """
    path = records / files.ARRIVALS_TABLE
    if not path.is_file():
        return [None for _ in relays]
    table = read_table(path, ARRIVALS, missing=EXTRACT_AGAIN, wrong=EXTRACT_AGAIN)
    rows_by_relay = dict(_by_relay(table))
    result: list[Arrivals | None] = []
    for name, _, cells in relays:
        own = rows_by_relay.get(name, table.slice(0, 0))
        seq, channel, arrived_ns = (
            own[column].combine_chunks().to_numpy() for column in ("seq", "channel", "arrived_ns")
        )
        at = np.minimum(np.searchsorted(cells.seq, seq), len(cells) - 1)
        if not np.all((cells.seq[at] == seq) & (cells.flush_ns[at] != NEVER)):
            raise AnalysisError(f"{path} contains cells that {name} did not send", EXTRACT_AGAIN)
        result.append(Arrivals(seq, channel, arrived_ns))
    return result
