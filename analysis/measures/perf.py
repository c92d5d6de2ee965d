"""Measurements of perf clients and OnionTrace in a tornettools network, by tornettools' rules.

A stream or circuit belongs to the second in which it ends, regardless of its start. Only completed
streams and built circuits have times. The definitions follow parse_tgen.py and parse_oniontrace.py
in tornettools 2.0; docs/reference/metrics.md describes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from analysis.arrays import Bools, Floats, Ints, Rows
from analysis.formats import files
from analysis.formats.columns import CIRCUITS, PERF, RELAY_BYTES, Column
from analysis.formats.tables import floats, read_table, texts

SIZES_BYTES = {"50kib": 50 * 2**10, "1mib": 2**20, "5mib": 5 * 2**20}
"""Part of a metric's name -> size of the perf clients' downloads that the metric is about."""

MARK_BYTES = {"500kib": 500 * 2**10, "1mib": 2**20, "4mib": 2**22, "5mib": 5 << 20}
"""Name of a mark, an amount of payload -> the amount in bytes."""

GOODPUTS = (("500kib", "1mib"), ("4mib", "5mib"))
"""The amounts of payload between which the goodput of a download is measured."""


T = TypeVar("T", bound="_TableRows")


@dataclass(frozen=True)
class _TableRows(Rows):
    """Base of classes with the columns of a table of records: one field for each column."""

    @classmethod
    def from_table(cls, table: pa.Table) -> Self:
        """Create an object from the columns of a table whose names are fields of the class."""
        return cls(**{one.name: _array(table, one.name) for one in fields(cls)})


def _array(table: pa.Table, name: str) -> NDArray[Any]:
    kind = table.schema.field(name).type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return np.asarray(table[name].to_numpy())
    return floats(table, name) if pa.types.is_floating(kind) else texts(table, name)


@dataclass(frozen=True)
class PerfStreams(_TableRows):
    """Streams of perf clients that ended. The fields are columns of perf.parquet, of shape (n,).

    Missing times are NaN, and missing errors are "".
    """

    client: NDArray[np.str_]
    end_s: Floats
    success: Bools
    error: NDArray[np.str_]
    payload_bytes: Ints
    response_s: Floats
    first_byte_s: Floats
    last_byte_s: Floats
    at_500kib_s: Floats
    at_1mib_s: Floats
    at_4mib_s: Floats
    at_5mib_s: Floats

    def at_s(self, mark: str) -> Floats:
        """Return the times from the streams' starts until ``mark`` was received; NaN if never."""
        times: Floats = getattr(self, f"at_{mark}_s")
        return times

    def ended_in(self, begin_s: float, end_s: float) -> PerfStreams:
        """Return the streams that ended in [begin, end)."""
        return self.where((self.end_s >= begin_s) & (self.end_s < end_s))

    def select_client(self, client: str) -> PerfStreams:
        """Return the streams of one client."""
        return self.where(self.client == client)

    def first_bytes_s(self) -> Floats:
        """Return the times to first byte of completed downloads of all sizes."""
        rows = self.success & (self.payload_bytes > 0) & np.isfinite(self.first_byte_s)
        return self.first_byte_s[rows]

    def last_bytes_s(self, size_bytes: int | None = None) -> Floats:
        """Return the times to last byte of completed downloads of one size (None: of all sizes)."""
        rows = self.success & (self.payload_bytes > 0) & np.isfinite(self.last_byte_s)
        if size_bytes is not None:
            rows &= self.payload_bytes == size_bytes
        return self.last_byte_s[rows]

    def round_trips_s(self) -> Floats:
        """Return the times from command to response of streams that succeeded.

        This is one round trip through the circuit.
        """
        return self.response_s[self.success & np.isfinite(self.response_s)]

    def goodputs_bytes_per_s(self, low: str, high: str) -> Floats:
        """Return the speed of each completed download between two amounts of payload.

        Downloads that reached both amounts in the same line of the log are omitted.
        """
        elapsed_s = self.at_s(high) - self.at_s(low)
        elapsed_s = elapsed_s[self.success & np.isfinite(elapsed_s) & (elapsed_s > 0)]
        return (MARK_BYTES[high] - MARK_BYTES[low]) / elapsed_s

    def reached(self, mark: str) -> int:
        """Return how many completed downloads reached this amount of payload."""
        return int((self.success & np.isfinite(self.at_s(mark))).sum())

    def counts(self) -> tuple[int, int]:
        """Return the number of failed downloads, and of downloads that failed or completed."""
        failed = int((~self.success).sum())
        return failed, failed + int(self.last_bytes_s().size)

    def errors(self) -> dict[str, int]:
        """Return error -> number of downloads that failed with this error."""
        names, counts = np.unique(self.error[~self.success], return_counts=True)
        return {str(name): int(count) for name, count in zip(names, counts, strict=True)}


@dataclass(frozen=True)
class Circuits(_TableRows):
    """Circuits of some clients. The fields are columns of circuits.parquet, of shape (n,)."""

    end_s: Floats
    duration_s: Floats
    result: NDArray[np.str_]

    def _ended(self, result: str, begin_s: float, end_s: float) -> Bools:
        ended: Bools = np.asarray(self.result == result)
        return ended & (self.end_s >= begin_s) & (self.end_s < end_s)

    def build_times_s(self, begin_s: float, end_s: float) -> Floats:
        """Return the build times of circuits built in [begin, end)."""
        return self.duration_s[self._ended("built", begin_s, end_s)]

    def counts(self, begin_s: float, end_s: float) -> tuple[int, int]:
        """Return the number of circuits that failed, and the number that failed or were built.

        Only results in [begin, end) count.
        """
        failed = int(self._ended("failed", begin_s, end_s).sum())
        return failed, failed + int(self._ended("built", begin_s, end_s).sum())


MAX_LOG_GAP_S = 2.0
"""Maximum time between the last line of a relay's log and the end of the measured span."""


@dataclass(frozen=True)
class RelayBytes:
    """Bytes written by all relays and authorities, with a row for each host and second.

    Attributes:
        time_s: simulated time of the log line, shape (n,).
        bytes_written: bytes written in the preceding second, shape (n,).
        seen_until_s: earliest time at which any relay's log ends; infinite without relays, minus
            infinity if a log covers no second.
    """

    time_s: Floats
    bytes_written: Ints
    seen_until_s: float = np.inf

    def watched_until(self, end_s: float) -> bool:
        """Return whether every relay's log reaches ``end_s``, with a tolerance of MAX_LOG_GAP_S."""
        return self.seen_until_s >= end_s - MAX_LOG_GAP_S

    def per_second(self, begin_s: float, end_s: float) -> dict[int, int]:
        """Return the bytes written by all hosts in each second of [begin, end): second -> bytes.

        Seconds in which no host has a line are omitted.
        """
        second = np.floor(self.time_s).astype(np.int64)
        rows = (second >= begin_s) & (second < end_s)
        seconds, place = np.unique(second[rows], return_inverse=True)
        # Sums of bytes per second are exact as floats.
        total = np.bincount(place, weights=self.bytes_written[rows])
        return {int(second): int(sent) for second, sent in zip(seconds, total, strict=True)}


def load_perf(records: Path) -> dict[str, PerfStreams]:
    """Return the streams of each class of perf clients; empty without such clients."""
    return _by_class(records / files.PERF_TABLE, PERF, PerfStreams)


def load_circuits(records: Path) -> dict[str, Circuits]:
    """Return the circuits of each class of clients; empty without OnionTrace."""
    return _by_class(records / files.CIRCUITS_TABLE, CIRCUITS, Circuits)


def load_relay_bytes(records: Path, damaged: Sequence[str]) -> RelayBytes | None:
    """Return the bytes written by relays; None without OnionTrace.

    damaged: relays whose log is incomplete.
    """
    path = records / files.RELAY_BYTES_TABLE
    if not path.is_file():
        return None
    table = read_table(path, RELAY_BYTES)
    found = relay_bytes_from_table(table)
    # A relay whose log covers no second has no row in the table.
    unseen = set(damaged) - set(texts(table, "host").tolist())
    return replace(found, seen_until_s=-np.inf) if unseen else found


def relay_bytes_from_table(table: pa.Table) -> RelayBytes:
    """Convert rows of relay_bytes.parquet to arrays."""
    # A large network has millions of rows, so find the last row of every relay in one pass.
    ends = table.group_by("host").aggregate([("time_s", "max")])["time_s_max"].to_pylist()
    written = table["bytes_written"].to_numpy()
    return RelayBytes(floats(table, "time_s"), written, min(ends, default=np.inf))


def _by_class(path: Path, columns: tuple[Column, ...], kind: type[T]) -> dict[str, T]:
    """Return class -> its rows; empty without a table. Rows without a class are omitted."""
    if not path.is_file():
        return {}
    table = read_table(path, columns)
    classes = table["class"].cast(pa.string())
    names = sorted(pc.unique(classes.drop_null()).to_pylist())
    return {name: kind.from_table(table.filter(pc.equal(classes, name))) for name in names}
