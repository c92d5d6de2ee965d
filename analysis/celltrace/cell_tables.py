"""A run's cell traces to record tables: cells.parquet, relay_time.parquet and celltrace.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from analysis.celltrace.cell_paths import LEGS, Network, Relay
from analysis.celltrace.cells import NEVER, Cells, Fate, join
from analysis.celltrace.events import count_events, read_trace
from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import CELLS, RELAY_TIME, arrow_schema
from analysis.formats.record_files import (
    EXTRACT_AGAIN,
    TRACE_COUNTS_FORMAT,
    RelayCounts,
    TraceCounts,
    write_beside_tables,
)
from analysis.formats.run_files import TracedHost, read_trace_plan
from analysis.formats.tables import read_table


def is_traced(run_directory: Path) -> bool:
    """Whether a run has cell traces."""
    return (run_directory / files.TRACE_PLAN).is_file()


def extract(run_directory: Path, streams: Path, out: Path) -> TraceCounts:
    """Reads the traces of a run's relays and writes the tables into ``out``.

    Args:
        run_directory: holds trace.json and the traces.
        streams: the run's streams.parquet.
        out: an existing folder.

    Raises:
        AnalysisError: a trace is missing, empty or damaged; trace.json is not valid.
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
    table = _relay_time(Network(relays), plan.hosts, streams, epoch_ns)
    pq.write_table(table, out / files.RELAY_TIME_TABLE, compression="zstd", version="2.6")
    result = TraceCounts(tuple(counts), _followed(table))
    write_beside_tables(out / files.TRACE_COUNTS, result)
    return result


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
    network: Network, hosts: Mapping[str, TracedHost], streams: Path, epoch_ns: int
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
        if stream["client"] not in hosts:
            raise AnalysisError(f"{files.TRACE_PLAN} does not know the client {stream['client']}")
        start_ns = epoch_ns + round(stream["start_s"] * 1e9)
        chain = network.chain(
            hosts[stream["client"]].address, start_ns + round(ttfb_s * 1e9), start_ns
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
    return pa.Table.from_pylist(rows, schema=arrow_schema(RELAY_TIME, TRACE_COUNTS_FORMAT))


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
    path = records / files.CELLS_TABLE
    table = read_table(path, CELLS, missing=EXTRACT_AGAIN, wrong=EXTRACT_AGAIN)
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
