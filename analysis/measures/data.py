"""What one run's records say about a class of clients, of relays, or about all together: arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.arrays import Bools, Floats, Ints
from analysis.celltrace.serving import Served
from analysis.celltrace.statistics import Relayed
from analysis.celltrace.waiting import Waits
from analysis.formats.columns import Outcome
from analysis.measures.downloads import Downloads
from analysis.measures.peer_transfer import PeerTransfer
from analysis.measures.perf import Circuits, PerfStreams, RelayBytes
from analysis.measures.service import longest_gaps
from analysis.measures.time_series import cumulative_at

ALL = "all"
"""The name of all classes together."""


@dataclass(frozen=True)
class Streams:
    """Streams of one class in one run; all arrays have shape (n,). NaN: no such time.

    ``client`` is a code, the same for all classes and tables of a run. A published pack has no
    ``ttfb_from_command_s``.
    """

    client: Ints
    start_s: Floats
    end_s: Floats
    outcome: NDArray[np.str_]
    ttfb_s: Floats
    ttfb_from_command_s: Floats | None
    time_to_320kib_s: Floats
    time_to_last_byte_s: Floats
    bytes_requested: Floats | None = None

    def of_size(self, size_bytes: int) -> Streams:
        """The streams that asked for so much payload; those that do not tell are left out."""
        if self.bytes_requested is None:
            raise ValueError("these streams are without their sizes")
        return self._where(self.bytes_requested == size_bytes)

    def started_in(self, begin_s: float, end_s: float) -> Streams:
        """The streams whose start is in [begin, end)."""
        return self._where((self.start_s >= begin_s) & (self.start_s < end_s))

    def open_at(self, time_s: float) -> int:
        """How many have begun by a time and not ended by then."""
        going_on = (self.end_s > time_s) | (self.outcome == Outcome.OPEN)
        return int(np.count_nonzero((self.start_s <= time_s) & going_on))

    def _where(self, keep: Bools) -> Streams:
        kept: dict[str, Any] = {
            name: None if (column := getattr(self, name)) is None else column[keep]
            for name in Streams.__dataclass_fields__
        }
        return Streams(**kept)


@dataclass(frozen=True)
class Beats:
    """Heartbeat intervals of one class in one run; all arrays have shape (m,)."""

    client: Ints
    begin_s: Floats
    end_s: Floats
    bytes_read: Floats


@dataclass(frozen=True)
class BytesRead:
    """How much a class had read by any time: all that throughput takes.

    Attributes:
        begin_s: when the first heartbeat interval begins.
        end_s: when the last one ends.
        beat_s: median length of the intervals.
        by: times in seconds to bytes read by them, of one shape.
    """

    begin_s: float
    end_s: float
    beat_s: float
    by: Callable[[Floats], Floats]


@dataclass(frozen=True)
class ClassData:
    """What one run's records say about one class, or about all together.

    Attributes:
        streams: all streams of the run; none of a class that is there for the load alone.
        beats: all heartbeat intervals of the run; None in a published pack, which has but their
            sums: ``published_read``.
        begin_s: start of the measured span.
        end_s: its end.
        horizon_s: limit of the restricted means; None where classes are mixed.
        side_by_side: of each client that made several downloads side by side in the measured span,
            those downloads, oldest first; known only from logs with stream-status lines.
        clients: name of each client, by its code.
    """

    streams: Streams
    beats: Beats | None
    begin_s: float
    end_s: float
    horizon_s: float | None
    side_by_side: tuple[Downloads, ...] = ()
    clients: tuple[str, ...] = ()
    not_side_by_side: tuple[str, ...] = ()
    """Clients that also made downloads side by side, but with a stream of unknown fate or size."""
    load: bool = False
    """Whether the class is there for the load alone: nothing but how much of it there is and what
    it carries is a metric."""
    open_streams: tuple[int, int] | None = None
    """Of such a class: how many of its streams were under way when the measured span began, and
    when it ended. A published pack does not have it."""
    transfer: PeerTransfer | None = None
    """What peers say of a transfer between them; such a class has no streams and no beats."""
    relayed: Relayed | None = None
    """The cells that traced relays of one role relayed; neither has such a class."""
    served: Served | None = None
    """When these relays served their channels towards clients."""
    waits: Waits | None = None
    """Where their cells towards clients waited."""
    perf: PerfStreams | None = None
    """Of a class of perf clients in a network of tornettools: their streams that ended."""
    circuits: Circuits | None = None
    """Of a class of clients whose Tors OnionTrace watched: their circuits."""
    relay_bytes: RelayBytes | None = None
    """Of all classes together, where OnionTrace watched the relays: what these wrote."""
    published_read: BytesRead | None = None
    """Of a published pack: what its clients read together; None without any heartbeat."""
    unknown_bytes_reason: str = ""
    """Why it is not known how much all its clients read; empty if it is."""

    @property
    def measured(self) -> Streams:
        """The streams that count: those started in the measured span."""
        return self.streams.started_in(self.begin_s, self.end_s)

    @property
    def bytes_read(self) -> BytesRead | None:
        """What its clients read over time; None if that is not known of each of them."""
        if self.unknown_bytes_reason:
            return None
        if self.beats is None:
            return self.published_read
        begin_s, end_s, amount = self.beats.begin_s, self.beats.end_s, self.beats.bytes_read
        if end_s.size == 0:
            return None
        return BytesRead(
            begin_s=float(begin_s.min()),
            end_s=float(end_s.max()),
            beat_s=float(np.median(end_s - begin_s)),
            by=lambda grid_s: cumulative_at(grid_s, begin_s, end_s, amount),
        )

    @cached_property
    def longest_gaps_s(self) -> Floats | None:
        """Longest service gap of every stream of the run; NaN where it cannot be told.

        None in a published pack, which does not know what each client read.
        """
        if self.beats is None:
            return None
        # Of all streams, since those outside of the span may overlap with those inside.
        return longest_gaps(
            self.streams.client,
            self.streams.start_s,
            self.streams.end_s,
            self.streams.ttfb_s,
            self.beats.client,
            self.beats.begin_s,
            self.beats.end_s,
            self.beats.bytes_read,
        )
