"""Measurements of perf clients and OnionTrace in a tornettools network, by tornettools' rules.

Arrays in, arrays out. Streams and circuits are assigned to the second in which they end, regardless
of their start. Failed and open ones have no time. The definitions follow parse_tgen.py and
parse_oniontrace.py in tornettools 2.0; docs/reference/metrics.md describes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from analysis.arrays import Bools, Floats, Ints

SIZES_BYTES = {"50kib": 50 * 2**10, "1mib": 2**20, "5mib": 5 * 2**20}
"""Sizes of the downloads of perf clients, by the part of a metric's name."""

Mark = str
"""An amount of payload: 500kib, 1mib, 4mib or 5mib."""

MARK_BYTES: dict[Mark, int] = {"500kib": 500 * 2**10, "1mib": 2**20, "4mib": 2**22, "5mib": 5 << 20}

GOODPUTS: tuple[tuple[Mark, Mark], ...] = (("500kib", "1mib"), ("4mib", "5mib"))
"""The amounts of payload between which the goodput of a download is measured."""


@dataclass(frozen=True)
class PerfStreams:
    """Streams of perf clients that ended; arrays of shape (n,), NaN if there is no such time.

    Attributes:
        client: host names.
        end_s: simulated time of the end.
        success: whether TGen reports success.
        error: name of the error in tgentools; "" without one.
        payload_bytes: received payload.
        response_s: from the command to the server's response.
        first_byte_s: from the command to the first payload byte.
        last_byte_s: from the command to the last payload byte.
        at_s: amount of payload -> time from the stream's start until it was received.
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

    def _select(self, rows: Bools) -> PerfStreams:
        selected = {
            one.name: getattr(self, one.name)[rows] for one in fields(self) if one.name != "at_s"
        }
        return PerfStreams(
            **selected, at_s={mark: time_s[rows] for mark, time_s in self.at_s.items()}
        )

    def ended_in(self, begin_s: float, end_s: float) -> PerfStreams:
        """Return the streams that ended in [begin, end)."""
        return self._select((self.end_s >= begin_s) & (self.end_s < end_s))

    def select_client(self, client: str) -> PerfStreams:
        """Return the streams of one client."""
        return self._select(self.client == client)

    def _times(self, time_s: Floats, rows: Bools) -> Floats:
        return time_s[self.success & rows & np.isfinite(time_s)]

    def first_bytes_s(self) -> Floats:
        """Return times to first byte of all sizes."""
        return self._times(self.first_byte_s, self.payload_bytes > 0)

    def last_bytes_s(self, size_bytes: int | None = None) -> Floats:
        """Return times to last byte of one size, or of all."""
        rows = self.payload_bytes > 0
        if size_bytes is not None:
            rows &= self.payload_bytes == size_bytes
        return self._times(self.last_byte_s, rows)

    def round_trips_s(self) -> Floats:
        """Return times from the command to the response, one round trip through the circuit."""
        return self._times(self.response_s, np.full(self.success.shape, True))

    def goodputs_bytes_per_s(self, low: Mark, high: Mark) -> Floats:
        """Return the speed of each download from one amount of payload to another.

        Downloads that reached both in the same line of the log are omitted.
        """
        elapsed_s = self.at_s[high] - self.at_s[low]
        elapsed_s = elapsed_s[self.success & np.isfinite(elapsed_s) & (elapsed_s > 0)]
        return (MARK_BYTES[high] - MARK_BYTES[low]) / elapsed_s

    def reached(self, mark: Mark) -> int:
        """Return how many completed downloads reached this amount of payload."""
        return int((self.success & np.isfinite(self.at_s[mark])).sum())

    def counts(self) -> tuple[int, int]:
        """Return the number of failed downloads, and of failed or completed ones."""
        failed = int((~self.success).sum())
        return failed, failed + int(self.last_bytes_s().size)

    def errors(self) -> dict[str, int]:
        """Return error -> number of downloads that failed with it."""
        names, counts = np.unique(self.error[~self.success], return_counts=True)
        return {str(name): int(count) for name, count in zip(names, counts, strict=True)}


@dataclass(frozen=True)
class Circuits:
    """Circuits of one class of clients; arrays of shape (n,), NaN if there is no such time.

    Attributes:
        end_s: simulated time at which the circuit was built, failed or was closed.
        duration_s: time from its creation to ``end_s``.
        result: built, failed, closed or open.
    """

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
        """Return the numbers of circuits that failed, and failed or were built, in [begin, end)."""
        failed = int(self._ended("failed", begin_s, end_s).sum())
        return failed, failed + int(self._ended("built", begin_s, end_s).sum())


MAX_LOG_GAP_S = 2.0
"""Maximum time between the last line of a relay's log and the end of the measured span."""


@dataclass(frozen=True)
class RelayBytes:
    """Bytes written by all relays and authorities, a row per host and second; shape (n,).

    Attributes:
        time_s: simulated time of the line.
        bytes_written: bytes written in the preceding second.
        seen_until_s: earliest end of the relays' logs; infinite without relays, minus infinity if a
            log covers no second.
    """

    time_s: Floats
    bytes_written: Ints
    seen_until_s: float = np.inf

    def watched_until(self, end_s: float) -> bool:
        """Return whether the log of every relay reaches a time, up to the tolerance."""
        return self.seen_until_s >= end_s - MAX_LOG_GAP_S

    def per_second(self, begin_s: float, end_s: float) -> dict[int, int]:
        """Return second in [begin, end) -> bytes written by all hosts, if any has a line."""
        second = np.floor(self.time_s).astype(np.int64)
        rows = (second >= begin_s) & (second < end_s)
        seconds, place = np.unique(second[rows], return_inverse=True)
        total = np.zeros(seconds.shape, dtype=np.int64)
        np.add.at(total, place, self.bytes_written[rows])
        return {int(second): int(sent) for second, sent in zip(seconds, total, strict=True)}
