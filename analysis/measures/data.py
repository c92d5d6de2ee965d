"""The records of one run as arrays, for one class of clients or relays, or for all classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analysis.arrays import Floats, Ints, Rows
from analysis.celltrace.queueing import ServiceInstants, Waits
from analysis.celltrace.statistics import Relayed
from analysis.formats.columns import Outcome
from analysis.measures.downloads import Downloads
from analysis.measures.peer_transfer import PeerTransfer
from analysis.measures.perf import Circuits, PerfStreams, RelayBytes
from analysis.measures.service import cumulative_at, longest_gaps

ALL = "all"
"""The name for all classes together, used in place of the name of a class."""


@dataclass(frozen=True)
class Streams(Rows):
    """Streams of one class in one run; arrays of shape (n,). Unknown times and sizes are NaN.

    ``client`` contains indices into ``ClassData.clients``, which is the same for all classes of a
    run. ``start_s`` and ``end_s`` are simulated times. The other times count from the stream's
    start, except for ``ttfb_from_command_s``, which is None in a published pack (reduced records).
    ``marks_s`` maps each column in ``BYTE_MARKS`` to the times until its byte mark was received.
    """

    client: Ints
    start_s: Floats
    end_s: Floats
    outcome: NDArray[np.str_]
    ttfb_s: Floats
    ttfb_from_command_s: Floats | None
    marks_s: Mapping[str, Floats]
    time_to_last_byte_s: Floats
    bytes_requested: Floats

    def select_size(self, size_bytes: int) -> Streams:
        """Return the streams with this requested payload, without streams of unknown size."""
        return self.where(self.bytes_requested == size_bytes)

    def started_in(self, begin_s: float, end_s: float) -> Streams:
        """Return the streams whose start is in [begin, end)."""
        return self.where((self.start_s >= begin_s) & (self.start_s < end_s))

    def open_at(self, time_s: float) -> int:
        """Return the number of streams that are in progress at `time_s`."""
        going_on = (self.end_s > time_s) | (self.outcome == Outcome.OPEN)
        return int(np.count_nonzero((self.start_s <= time_s) & going_on))


@dataclass(frozen=True)
class Beats:
    """Intervals between heartbeats of one class; shape (m,), ``client`` as in ``Streams``."""

    client: Ints
    begin_s: Floats
    end_s: Floats
    bytes_read: Floats


_NO_CODES, _NOTHING = np.empty(0, dtype=np.int64), np.empty(0)
NO_STREAMS = Streams(
    client=_NO_CODES,
    start_s=_NOTHING,
    end_s=_NOTHING,
    outcome=np.empty(0, dtype=np.str_),
    ttfb_s=_NOTHING,
    ttfb_from_command_s=_NOTHING,
    marks_s={},
    time_to_last_byte_s=_NOTHING,
    bytes_requested=_NOTHING,
)
NO_BEATS = Beats(_NO_CODES, _NOTHING, _NOTHING, _NOTHING)


@dataclass(frozen=True)
class BytesRead:
    """Cumulative bytes read by a class, from which its throughput is computed.

    The heartbeat intervals are in [begin, end] and have the median length ``beat_s``. ``by`` maps
    an array of times, in seconds, to the whole bytes read until each.
    """

    begin_s: float
    end_s: float
    beat_s: float
    by: Callable[[Floats], Floats]


@dataclass(frozen=True)
class ClassData:
    """The records of one run for one class, or for all classes together.

    Attributes:
        streams: all streams of the class in the run; empty for a class of background load.
        beats: all heartbeat intervals of the class in the run; None in a published pack, from which
            only the sums over the class's clients are known (``published_read``).
        begin_s, end_s: the measured span.
        horizon_s: every measured stream is observed for at least this time from its start. It
            limits the times in restricted means. None for all classes together, and for classes
            without streams.
        side_by_side: for each client with parallel downloads in the measured span, the downloads
            that start in the span, oldest first. Empty if the logs have no stream-status lines.
        clients: names of the clients; ``streams`` and ``beats`` contain indices into this tuple.
    """

    streams: Streams
    beats: Beats | None
    begin_s: float
    end_s: float
    horizon_s: float | None
    side_by_side: tuple[Downloads, ...] = ()
    clients: tuple[str, ...] = ()
    not_side_by_side: tuple[str, ...] = ()
    """Clients with parallel downloads that include a stream of unknown outcome or size."""
    load: bool = False
    """True if the class only generates background load.

    The usual metrics of streams, except for throughput, do not apply to such a class.
    """
    open_streams: tuple[int, int] | None = None
    """For background load: the numbers of open streams at the start and end of the measured span.

    None for other classes, and in published packs.
    """
    transfer: PeerTransfer | None = None
    """For a transfer between two BitTorrent peers: their logs. The class has no streams."""
    relayed: Relayed | None = None
    """For a role of traced relays: the cells that its relays relayed. The class has no streams."""
    served: ServiceInstants | None = None
    """For a role of traced relays: when its relays served their channels towards clients."""
    waits: Waits | None = None
    """For a role of traced relays: how long cells towards clients waited in each place."""
    perf: PerfStreams | None = None
    """For perf clients in a tornettools network: their streams that ended."""
    circuits: Circuits | None = None
    """For clients whose Tor processes are observed by OnionTrace: their circuits."""
    relay_bytes: RelayBytes | None = None
    """For all classes together, with OnionTrace on the relays: the bytes written by the relays."""
    published_read: BytesRead | None = None
    """In a published pack: the bytes read by the class's clients; None without heartbeats."""
    unknown_bytes_reason: str = ""
    """Why the throughput of the class is unknown; empty if it is known."""

    @property
    def measured(self) -> Streams:
        """The streams that started in the measured span."""
        return self.streams.started_in(self.begin_s, self.end_s)

    @property
    def bytes_read(self) -> BytesRead | None:
        """The bytes read by the class's clients; None if unknown, or without heartbeats."""
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
            # Whole bytes are exact as floats, and a published pack compresses them well.
            by=lambda grid_s: np.rint(cumulative_at(grid_s, begin_s, end_s, amount)),
        )

    @cached_property
    def longest_gaps_s(self) -> Floats | None:
        """The service gap of every stream of the class: the longest time without a byte.

        A gap is NaN if it is unknown. The result is None in a published pack, which omits the bytes
        read by each client.
        """
        if self.beats is None:
            return None
        # Include streams outside of the measured span: they may overlap with streams inside.
        streams, beats = self.streams, self.beats
        return longest_gaps(
            *(streams.client, streams.start_s, streams.end_s, streams.ttfb_s),
            *(beats.client, beats.begin_s, beats.end_s, beats.bytes_read),
        )
