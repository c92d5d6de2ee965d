"""What one run's records say about a class of clients, of relays, or about all together: arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analysis.arrays import Floats, Ints
from analysis.celltrace.serving import Served
from analysis.celltrace.statistics import Relayed
from analysis.measures.downloads import Downloads
from analysis.measures.peer_transfer import PeerTransfer
from analysis.measures.service import longest_gaps

ALL = "all"
"""The name of all classes together."""


@dataclass(frozen=True)
class Streams:
    """Streams of one class in one run; all arrays have shape (n,). NaN: no such time.

    ``client`` is a code, the same for all classes and tables of a run.
    """

    client: Ints
    start_s: Floats
    end_s: Floats
    outcome: NDArray[np.str_]
    ttfb_s: Floats
    ttfb_from_command_s: Floats
    time_to_320kib_s: Floats
    time_to_last_byte_s: Floats

    def started_in(self, begin_s: float, end_s: float) -> Streams:
        """The streams whose start is in [begin, end)."""
        keep = (self.start_s >= begin_s) & (self.start_s < end_s)
        return Streams(*(getattr(self, name)[keep] for name in Streams.__dataclass_fields__))


@dataclass(frozen=True)
class Beats:
    """Heartbeat intervals of one class in one run; all arrays have shape (m,)."""

    client: Ints
    begin_s: Floats
    end_s: Floats
    bytes_read: Floats


@dataclass(frozen=True)
class ClassData:
    """What one run's records say about one class, or about all together.

    Attributes:
        streams: all streams of the run.
        beats: all heartbeat intervals of the run.
        begin_s: start of the measured span.
        end_s: its end.
        horizon_s: limit of the restricted means; None where classes are mixed.
        side_by_side: of each client that made several downloads side by side in the measured span,
            those downloads, oldest first; known only from logs with stream-status lines.
        clients: name of each client, by its code.
    """

    streams: Streams
    beats: Beats
    begin_s: float
    end_s: float
    horizon_s: float | None
    side_by_side: tuple[Downloads, ...] = ()
    clients: tuple[str, ...] = ()
    transfer: PeerTransfer | None = None
    """What peers say of a transfer between them; such a class has no streams and no beats."""
    relayed: Relayed | None = None
    """The cells that traced relays of one role relayed; neither has such a class."""
    served: Served | None = None
    """When these relays served their channels towards clients."""

    @property
    def measured(self) -> Streams:
        """The streams that count: those started in the measured span."""
        return self.streams.started_in(self.begin_s, self.end_s)

    @cached_property
    def longest_gaps_s(self) -> Floats:
        """Longest service gap of every stream of the run; NaN where it cannot be told."""
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
