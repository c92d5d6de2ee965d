"""Joining of events to cells: one row per cell, with the time of each of its events."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from analysis.arrays import Ints
from analysis.celltrace.events import INWARD, RELAY, RELAY_EARLY, Event, Trace

NEVER = -1
"""Placeholder for a missing event time."""


class Fate(IntEnum):
    """The fate of a cell, derived from its events."""

    RELAYED = 0
    """inbuf, queue, outbuf and flush: it passed through."""
    MADE_HERE = 1
    """queue, outbuf and flush: this relay created it, for example from the bytes of a stream."""
    RECOGNIZED = 2
    """inbuf and recognized: it ended here."""
    NO_RELAY_CELL = 3
    """Only inbuf, as expected for a cell that is not relayed (CREATE, DESTROY, PADDING)."""
    DROPPED = 4
    """It was in a queue or an outbuf when its circuit or connection was closed."""
    IN_QUEUE = 5
    """It was still in the queue of its circuit when the trace ended."""
    IN_OUTBUF = 6
    """It was still in the outbuf of its connection when the trace ended."""
    NOT_TAKEN = 7
    """A RELAY cell with only an inbuf event: its circuit was gone or being closed."""
    BEGINNING_MISSING = 8
    """A later event without an earlier one: the trace started too late or lost events."""


JOINED = (Fate.RELAYED, Fate.MADE_HERE, Fate.RECOGNIZED, Fate.NO_RELAY_CELL)
"""Fates with all the events that such a cell should have."""

MEANINGS: dict[Fate, str] = {
    Fate.RELAYED: "relayed: inbuf, queue, outbuf, flush",
    Fate.MADE_HERE: "created here: queue, outbuf, flush",
    Fate.RECOGNIZED: "ended here: inbuf, recognized",
    Fate.NO_RELAY_CELL: "not circuit traffic (CREATE, DESTROY, PADDING): inbuf",
    Fate.DROPPED: "dropped with its circuit or connection",
    Fate.IN_QUEUE: "still in a circuit's queue at the end of the trace",
    Fate.IN_OUTBUF: "still in an outbuf at the end of the trace",
    Fate.NOT_TAKEN: "arrived after its circuit was closed",
    Fate.BEGINNING_MISSING: "its first events are missing",
}


@dataclass(frozen=True)
class Cells:
    """Cells of one relay, sorted by number; all arrays have the shape (n,).

    Attributes:
        seq: the number of the cell in its trace.
        inbuf_ns, recognized_ns, queue_ns, outbuf_ns, flush_ns, dropped_ns: times since 1970 in
            nanoseconds, NEVER without such an event.
        in_channel, in_circ: where it was received; NEVER for a cell that was created here.
        out_channel, out_circ: where it was sent; NEVER if it was not queued.
        command: the command of the cell.
        direction: INWARD, OUTWARD, or 0 without a circuit.
        fate: a Fate.
        repeated: number of repeated events of a cell; the first one counts.
    """

    seq: Ints
    inbuf_ns: Ints
    recognized_ns: Ints
    queue_ns: Ints
    outbuf_ns: Ints
    flush_ns: Ints
    dropped_ns: Ints
    in_channel: Ints
    in_circ: Ints
    out_channel: Ints
    out_circ: Ints
    command: Ints
    direction: Ints
    fate: Ints
    repeated: int = 0

    def __len__(self) -> int:
        return len(self.seq)

    def where(self, keep: NDArray[np.bool_]) -> Cells:
        """Return the cells for which ``keep``, shape (n,), is true."""
        chosen = {
            field.name: getattr(self, field.name)[keep]
            for field in fields(self)
            if field.name != "repeated"
        }
        return Cells(**chosen, repeated=self.repeated)

    @property
    def is_traffic(self) -> NDArray[np.bool_]:
        """True if each cell is a RELAY cell, which the text of 2019 counts."""
        result: NDArray[np.bool_] = self.command == RELAY
        return result

    def counts(self) -> dict[Fate, int]:
        """Return the number of cells with each fate."""
        found = np.bincount(self.fate, minlength=len(Fate))
        return {fate: int(found[fate]) for fate in Fate}

    def circuits(self) -> tuple[Ints, Ints]:
        """Return each cell's circuit by its side towards the client: channel and circuit ID.

        Cells of both directions of a circuit have the same pair. Cells without a circuit have
        NEVER, NEVER.
        """
        inward = self.direction == INWARD
        channel = np.where(inward, self.out_channel, self.in_channel)
        circ = np.where(inward, self.out_circ, self.in_circ)
        # For a cell that ended at the client, only the incoming side is known.
        ended = inward & (self.out_channel == NEVER)
        has_circuit = self.direction != 0
        channel = np.where(ended, self.in_channel, channel)
        circ = np.where(ended, self.in_circ, circ)
        return np.where(has_circuit, channel, NEVER), np.where(has_circuit, circ, NEVER)


def join(trace: Trace) -> Cells:
    """Join the events of each cell by its number, in linear time."""
    records = trace.records
    numbers = records["seq"].astype(np.int64)
    rows, seqs = _rows(numbers)
    n = len(seqs)
    times = {}
    repeated = 0
    columns = {name: np.full(n, NEVER, np.int64) for name in _COLUMNS}
    command = np.zeros(n, np.int64)
    direction = np.zeros(n, np.int64)
    for event in (
        Event.INBUF, Event.RECOGNIZED, Event.QUEUE, Event.OUTBUF, Event.FLUSH, Event.DROPPED,
    ):  # fmt: skip
        places = np.flatnonzero(records["event"] == event)
        if event is not Event.DROPPED:
            # Assign backwards, so that the first of two events of a cell wins.
            places = places[::-1]
        own, found = rows[places], records[places]
        time = np.full(n, NEVER, np.int64)
        time[own] = found["time_ns"].astype(np.int64)
        times[event] = time
        repeated += len(places) - int(np.count_nonzero(time != NEVER))
        if event is Event.DROPPED:
            continue
        command[own] = found["command"]
        direction[own] = np.where(found["direction"], found["direction"], direction[own])
        prefix = "in" if event in (Event.INBUF, Event.RECOGNIZED) else "out"
        columns[f"{prefix}_channel"][own] = found["channel"]
        columns[f"{prefix}_circ"][own] = found["circ_id"]
    return Cells(
        seq=seqs,
        inbuf_ns=times[Event.INBUF],
        recognized_ns=times[Event.RECOGNIZED],
        queue_ns=times[Event.QUEUE],
        outbuf_ns=times[Event.OUTBUF],
        flush_ns=times[Event.FLUSH],
        dropped_ns=times[Event.DROPPED],
        **columns,
        command=command,
        direction=direction,
        fate=_fates(times, command),
        repeated=repeated,
    )


_COLUMNS = ("in_channel", "in_circ", "out_channel", "out_circ")


def _rows(numbers: Ints) -> tuple[Ints, Ints]:
    """Return the row of each record's cell, and the number of each row."""
    if not len(numbers):
        return numbers, numbers
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < 4 * len(numbers):
        # Tor numbers its cells consecutively, so sorting is unnecessary.
        present = np.zeros(high - low + 1, bool)
        present[numbers - low] = True
        place = np.cumsum(present) - 1
        return place[numbers - low], np.flatnonzero(present) + low
    seqs, rows = np.unique(numbers, return_inverse=True)
    return rows.astype(np.int64), seqs


def _fates(times: dict[Event, Ints], command: Ints) -> Ints:
    had = {event: time != NEVER for event, time in times.items()}
    inbuf, queue, outbuf, flush = (
        had[event] for event in (Event.INBUF, Event.QUEUE, Event.OUTBUF, Event.FLUSH)
    )
    relay = (command == RELAY) | (command == RELAY_EARLY)
    # The first matching condition applies.
    choices = [
        ((had[Event.RECOGNIZED] & ~inbuf) | (outbuf & ~queue) | (flush & ~outbuf),
         Fate.BEGINNING_MISSING),
        (had[Event.DROPPED] & ~queue, Fate.BEGINNING_MISSING),
        (had[Event.DROPPED], Fate.DROPPED),
        (flush & inbuf, Fate.RELAYED),
        (flush, Fate.MADE_HERE),
        (outbuf, Fate.IN_OUTBUF),
        (queue, Fate.IN_QUEUE),
        (had[Event.RECOGNIZED], Fate.RECOGNIZED),
        (relay, Fate.NOT_TAKEN),
    ]  # fmt: skip
    return np.select(
        [condition for condition, _ in choices],
        [int(fate) for _, fate in choices],
        int(Fate.NO_RELAY_CELL),
    ).astype(np.int64)
