"""Export of a run's records as the JSON files of tornettools' ``tornet.plot.data``.

The numbers equal those of `tornettools parse` for the same logs (tornettools 2.0, parse_tgen.py and
parse_oniontrace.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from analysis.formats import files
from analysis.formats.columns import CIRCUITS, PERF, RELAY_BYTES
from analysis.formats.record_files import read_parse_report
from analysis.formats.tables import read_table
from analysis.formats.whole_run import require_tables
from analysis.measures.perf import GOODPUTS, Circuits, PerfStreams, relay_bytes_from_table

CONVERGE_S = 1200
"""Simulated second from which tornettools by default counts downloads, circuits and relay bytes."""

MIBIT_BYTES = 2**20 / 8
"""tornettools reports client goodput in Mibit/s."""

GOODPUT_NAMES = ("perfclient_goodput", "perfclient_goodput_5MiB")


def plot_data(records: Path) -> dict[str, Any]:
    """Return the files derived from TGen's and OnionTrace's logs: file name -> content.

    Args:
        records: records of one run of a tornettools network. As in tornettools, the name of a host,
            such as perfclient1exit or perfclient2onionservice, determines the kind of its circuits.

    Raises:
        AnalysisError: a table is missing or cannot be read.
    """
    content: dict[str, Any] = {}
    require_tables(records, read_parse_report(records / files.PARSE_REPORT))
    perf = read_table(records / files.PERF_TABLE, PERF)
    clients = perf["client"].to_pylist()
    for circuit in ("exit", "onionservice"):
        rows = np.array([_is_perf(name, circuit) for name in clients], dtype=np.bool_)
        streams = PerfStreams.from_table(perf.filter(rows))
        late = streams.ended_in(CONVERGE_S, np.inf)
        content |= {
            f"time_to_first_byte_recv.{circuit}.json": _by_size(late, late.first_byte_s),
            f"time_to_last_byte_recv.{circuit}.json": _by_size(late, late.last_byte_s),
            f"round_trip_time.{circuit}.json": late.round_trips_s().tolist(),
            f"error_rate.{circuit}.json": _error_rates(late),
        }
        # For goodput, tornettools ignores the convergence time.
        for name, marks in zip(GOODPUT_NAMES, GOODPUTS, strict=True):
            speeds = streams.goodputs_bytes_per_s(*marks) / MIBIT_BYTES
            content[f"{name}.{circuit}.json"] = speeds.tolist()
    if (records / files.CIRCUITS_TABLE).is_file():
        table = read_table(records / files.CIRCUITS_TABLE, CIRCUITS)
        hosts = table["host"].to_pylist()
        for circuit in ("exit", "onionservice"):
            rows = np.array([_is_perf(name, circuit) for name in hosts], dtype=np.bool_)
            built = Circuits.from_table(table.filter(rows)).build_times_s(CONVERGE_S, np.inf)
            content[f"perfclient_circuit_build_time.{circuit}.json"] = built.tolist()
        written = relay_bytes_from_table(read_table(records / files.RELAY_BYTES_TABLE, RELAY_BYTES))
        per_second = written.per_second(CONVERGE_S, np.inf)
        content["relay_goodput.json"] = {str(second): sent for second, sent in per_second.items()}
    return content


def _is_perf(host: str, circuit: str) -> bool:
    number = host.removeprefix("perfclient").removesuffix(circuit)
    return host == f"perfclient{number}{circuit}" and number.isdecimal()


def _by_size(streams: PerfStreams, time_s: Any) -> dict[str, list[float]]:
    rows = streams.success & (streams.payload_bytes > 0) & np.isfinite(time_s)
    sizes = np.unique(streams.payload_bytes[rows])
    by_size = {str(size): time_s[rows & (streams.payload_bytes == size)].tolist() for size in sizes}
    return {"ALL": time_s[rows].tolist(), **by_size}


def _error_rates(streams: PerfStreams) -> dict[str, list[list[float]]]:
    """Return error -> pairs (rate, resolution) in per cent, one for each client with the error.

    The resolution is 100 / (number of the client's downloads). The key ALL has the rate of all
    errors, twice for each client with downloads. tornettools also adds this rate twice: once as the
    rate of all errors, and once as if ALL were a kind of error.
    """
    rates: dict[str, list[list[float]]] = {"ALL": []}
    for client in np.unique(streams.client):
        client_streams = streams.select_client(str(client))
        failed, total = client_streams.counts()
        if not total:
            continue
        for error, count in {"ALL": failed, **client_streams.errors()}.items():
            pair = [100.0 * count / total, 100.0 / total]
            rates.setdefault(error, []).extend([pair] * (2 if error == "ALL" else 1))
    return rates
