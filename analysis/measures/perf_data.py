"""Loading of perf clients, circuits and relays of a tornettools network from records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from analysis.arrays import Floats
from analysis.formats import files
from analysis.formats.columns import CIRCUITS, PERF, RELAY_BYTES
from analysis.formats.record_files import ParseReport
from analysis.formats.tables import read_table
from analysis.measures.data import ALL, ClassData
from analysis.measures.perf import MARK_BYTES, Circuits, PerfStreams, RelayBytes


def with_tornet(
    records: Path, classes: dict[str, ClassData], report: ParseReport
) -> dict[str, ClassData]:
    """Return the classes with the content of these tables; unchanged if there are none.

    Raises:
        AnalysisError: a table cannot be read.
    """
    found = dict(classes)
    for name, perf in load_perf(records).items():
        if name in found:
            found[name] = replace(found[name], perf=perf)
    for name, circuits in load_circuits(records).items():
        if name in found:
            found[name] = replace(found[name], circuits=circuits)
    relay_bytes = load_relay_bytes(records, report.damaged_relays())
    if relay_bytes is not None and ALL in found:
        found[ALL] = replace(found[ALL], relay_bytes=relay_bytes)
    return found


def load_perf(records: Path) -> dict[str, PerfStreams]:
    """Return class of perf clients -> its streams. Raises as ``with_tornet``."""
    path = records / files.PERF_TABLE
    if not path.is_file():
        return {}
    table = read_table(path, PERF)
    return {name: perf_from_table(rows) for name, rows in _by_class(table).items()}


def perf_from_table(table: pa.Table) -> PerfStreams:
    """Convert rows of perf.parquet to arrays."""
    return PerfStreams(
        client=_texts(table, "client"),
        end_s=_floats(table, "end_s"),
        success=np.asarray(table["success"].to_numpy(), dtype=np.bool_),
        error=_texts(table, "error"),
        payload_bytes=table["payload_bytes"].to_numpy(),
        response_s=_floats(table, "response_s"),
        first_byte_s=_floats(table, "first_byte_s"),
        last_byte_s=_floats(table, "last_byte_s"),
        at_s={mark: _floats(table, f"at_{mark}_s") for mark in MARK_BYTES},
    )


def load_circuits(records: Path) -> dict[str, Circuits]:
    """Return class of clients -> circuits of their Tor processes. Raises as ``with_tornet``."""
    path = records / files.CIRCUITS_TABLE
    if not path.is_file():
        return {}
    return {
        name: circuits_from_table(rows)
        for name, rows in _by_class(read_table(path, CIRCUITS)).items()
    }


def circuits_from_table(table: pa.Table) -> Circuits:
    """Convert rows of circuits.parquet to arrays."""
    return Circuits(_floats(table, "end_s"), _floats(table, "duration_s"), _texts(table, "result"))


def load_relay_bytes(records: Path, damaged: Sequence[str]) -> RelayBytes | None:
    """Return the bytes written by relays; None without OnionTrace. Raises as ``with_tornet``.

    damaged: relays whose log is incomplete.
    """
    path = records / files.RELAY_BYTES_TABLE
    if not path.is_file():
        return None
    table = read_table(path, RELAY_BYTES)
    found = relay_bytes_from_table(table)
    # A relay whose log covers no second has no row either.
    unseen = set(damaged) - set(_texts(table, "host").tolist())
    return replace(found, seen_until_s=-np.inf) if unseen else found


def relay_bytes_from_table(table: pa.Table) -> RelayBytes:
    """Convert rows of relay_bytes.parquet to arrays."""
    # A large network has millions of rows, so find the last row of every relay in one pass.
    ends = table.group_by("host").aggregate([("time_s", "max")])["time_s_max"].to_pylist()
    written = table["bytes_written"].to_numpy()
    return RelayBytes(_floats(table, "time_s"), written, min(ends, default=np.inf))


def _by_class(table: pa.Table) -> dict[str, pa.Table]:
    """Return class -> its rows. Rows without a class are omitted."""
    classes = table["class"].cast(pa.string())
    names = sorted(pc.unique(classes.drop_null()).to_pylist())
    return {name: table.filter(pc.equal(classes, name)) for name in names}


def _texts(table: pa.Table, name: str) -> NDArray[np.str_]:
    values = table[name].cast(pa.string()).to_pylist()
    return np.asarray([value or "" for value in values], dtype=np.str_)


def _floats(table: pa.Table, name: str) -> Floats:
    """Return a column as floats of shape (n,), NaN for null."""
    column = table[name].cast(pa.float64()).combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
