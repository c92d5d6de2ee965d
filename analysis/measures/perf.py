"""What perf clients and OnionTrace measured in a network of tornettools, as tornettools selects it.

Arrays in, arrays out. A stream or a circuit belongs to the second in which it ended, whenever it
began; what failed or was still open has no time. tornettools 2.0, parse_tgen.py and
parse_oniontrace.py, are the source of each definition; docs/reference/metrics.md tells them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from analysis.arrays import Bools, Floats, Ints

SIZES_BYTES = {"50kib": 50 * 2**10, "1mib": 2**20, "5mib": 5 * 2**20}
"""What perf clients download, by the part of a metric's name."""

Mark = str
"""An amount of payload: 500kib, 1mib, 4mib or 5mib."""

MARK_BYTES: dict[Mark, int] = {"500kib": 500 * 2**10, "1mib": 2**20, "4mib": 2**22, "5mib": 5 << 20}

GOODPUTS: tuple[tuple[Mark, Mark], ...] = (("500kib", "1mib"), ("4mib", "5mib"))
"""Between which amounts of payload the goodput of a download is taken."""


@dataclass(frozen=True)
class PerfStreams:
    """Streams of perf clients that ended; arrays of shape (n,), NaN: no such time.

    Attributes:
        client: host names.
        end_s: simulated time of the end.
        success: whether TGen calls it one.
        error: tgentools' name of the error, "" without one.
        payload_bytes: received.
        response_s: from the command to the server's response.
        first_byte_s: from the command to the first payload byte.
        last_byte_s: from the command to the last payload byte.
        at_s: amount of payload -> from the stream's start until so much had come.
    """

    client: NDArray[np.str_]
    end_s: Floats
    success: Bools
    error: NDArray[np.str_]
    payload_bytes: Ints
    response_s: Floats
    first_byte_s: Floats
    last_byte_s: Floats
    at_s: Mapping[Mark, Floats]

    def _where(self, rows: Bools) -> PerfStreams:
        kept = {
            one.name: getattr(self, one.name)[rows] for one in fields(self) if one.name != "at_s"
        }
        return PerfStreams(**kept, at_s={mark: time_s[rows] for mark, time_s in self.at_s.items()})

    def ended_in(self, begin_s: float, end_s: float) -> PerfStreams:
        """Those that ended in [begin, end)."""
        return self._where((self.end_s >= begin_s) & (self.end_s < end_s))

    def of(self, client: str) -> PerfStreams:
        """Those of one client."""
        return self._where(self.client == client)

    def _times(self, time_s: Floats, rows: Bools) -> Floats:
        return time_s[self.success & rows & np.isfinite(time_s)]

    def first_bytes_s(self) -> Floats:
        """Times to first byte of all sizes."""
        return self._times(self.first_byte_s, self.payload_bytes > 0)

    def last_bytes_s(self, size_bytes: int | None = None) -> Floats:
        """Times to last byte, of all sizes or of one."""
        rows = self.payload_bytes > 0
        if size_bytes is not None:
            rows &= self.payload_bytes == size_bytes
        return self._times(self.last_byte_s, rows)

    def round_trips_s(self) -> Floats:
        """Times from the command to the response: once through the circuit and back."""
        return self._times(self.response_s, np.full(self.success.shape, True))

    def goodputs_bytes_per_s(self, low: Mark, high: Mark) -> Floats:
        """Speed of each download from one amount of payload to another.

        Downloads that reached both in one line of the log have none.
        """
        taken_s = self.at_s[high] - self.at_s[low]
        taken_s = taken_s[self.success & np.isfinite(taken_s) & (taken_s > 0)]
        return (MARK_BYTES[high] - MARK_BYTES[low]) / taken_s

    def reached(self, mark: Mark) -> int:
        """Return how many completed downloads reached this amount of payload."""
        return int((self.success & np.isfinite(self.at_s[mark])).sum())

    def counts(self) -> tuple[int, int]:
        """How many downloads failed, and how many failed or completed."""
        failed = int((~self.success).sum())
        return failed, failed + int(self.last_bytes_s().size)

    def errors(self) -> dict[str, int]:
        """Error -> how many downloads failed so."""
        names, counts = np.unique(self.error[~self.success], return_counts=True)
        return {str(name): int(count) for name, count in zip(names, counts, strict=True)}


@dataclass(frozen=True)
class Circuits:
    """Circuits of the Tors of one class of clients; arrays of shape (n,), NaN: no such time.

    Attributes:
        end_s: simulated time at which it was built, failed or was closed.
        duration_s: from its creation to that.
        result: built, failed, closed or open.
    """

    end_s: Floats
    duration_s: Floats
    result: NDArray[np.str_]

    def _ended(self, result: str, begin_s: float, end_s: float) -> Bools:
        ended: Bools = np.asarray(self.result == result)
        return ended & (self.end_s >= begin_s) & (self.end_s < end_s)

    def build_times_s(self, begin_s: float, end_s: float) -> Floats:
        """How long those took that were built in [begin, end)."""
        return self.duration_s[self._ended("built", begin_s, end_s)]

    def counts(self, begin_s: float, end_s: float) -> tuple[int, int]:
        """How many failed in [begin, end), and how many failed or were built."""
        failed = int(self._ended("failed", begin_s, end_s).sum())
        return failed, failed + int(self._ended("built", begin_s, end_s).sum())


LEAST_SEEN_S = 2.0
"""How long before the end of the measured span the last line of a relay's log may be."""


@dataclass(frozen=True)
class RelayBytes:
    """What all relays and authorities wrote, a row for each of them and second; shape (n,).

    Attributes:
        time_s: simulated time of the line.
        bytes_written: in the second before.
        seen_until_s: when the first of the relays' logs ends; infinite if there is none, minus
            infinity if one of them does not have a second.
    """

    time_s: Floats
    bytes_written: Ints
    seen_until_s: float = np.inf

    def watched_until(self, end_s: float) -> bool:
        """Whether each relay's log goes on to a time, but for its last lines."""
        return self.seen_until_s >= end_s - LEAST_SEEN_S

    def per_second(self, begin_s: float, end_s: float) -> dict[int, int]:
        """Second in [begin, end) -> bytes that all of them wrote; seconds without a line lack."""
        second = np.floor(self.time_s).astype(np.int64)
        rows = (second >= begin_s) & (second < end_s)
        seconds, place = np.unique(second[rows], return_inverse=True)
        total = np.zeros(seconds.shape, dtype=np.int64)
        np.add.at(total, place, self.bytes_written[rows])
        return {int(second): int(sent) for second, sent in zip(seconds, total, strict=True)}
