"""Joining of events to cells: one row per cell, with the time of each of its events."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

from analysis.arrays import Bools, Ints
from analysis.celltrace.events import INWARD, RELAY, RELAY_EARLY, Event, Trace

NEVER = -1
"""Placeholder for a missing time, channel or circuit ID."""


class Fate(IntEnum):
    """The fate of a cell, derived from its events."""

    RELAYED = 0
    MADE_HERE = 1
    RECOGNIZED = 2
    NO_RELAY_CELL = 3
    DROPPED = 4
    IN_QUEUE = 5
    IN_OUTBUF = 6
    NOT_TAKEN = 7
    BEGINNING_MISSING = 8


JOINED = (Fate.RELAYED, Fate.MADE_HERE, Fate.RECOGNIZED, Fate.NO_RELAY_CELL)
"""Fates of complete cells: the trace has every event that ``MEANINGS`` names for the fate."""

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
        inbuf_ns, recognized_ns, queue_ns, outbuf_ns, flush_ns: times of the events in nanoseconds
            since 1970 or, if loaded from records, of simulated time; NEVER if there is no event.
        in_channel, in_circ: channel and circuit ID by which the cell was received; NEVER for a
            cell that was created at this relay.
        out_channel, out_circ: channel and circuit ID by which it was sent; NEVER if it was not
            queued.
        command: the command of the cell.
        direction: INWARD, OUTWARD, or 0 for a cell without a circuit.
        fate: a Fate.
        repeated: number of events that were ignored because the cell has an earlier event of the
            same type.
    """

    seq: Ints
    inbuf_ns: Ints
    recognized_ns: Ints
    queue_ns: Ints
    outbuf_ns: Ints
    flush_ns: Ints
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

    def where(self, keep: Bools) -> Cells:
        """Return the cells for which ``keep``, shape (n,), is true."""
        names = [field.name for field in fields(self) if field.name != "repeated"]
        chosen = {name: getattr(self, name)[keep] for name in names}
        return Cells(**chosen, repeated=self.repeated)

    def counts(self) -> dict[Fate, int]:
        """Return the number of cells with each fate."""
        found = np.bincount(self.fate, minlength=len(Fate))
        return {fate: int(found[fate]) for fate in Fate}

    def circuits(self) -> tuple[Ints, Ints]:
        """Return each cell's circuit: the channel and circuit ID on the side towards the client.

        Cells of both directions of a circuit have the same pair. Cells without a circuit have
        NEVER, NEVER.
        """
        # The side towards the client is the outgoing side of an inward cell, and the incoming side
        # of an outward cell. An inward cell that the relay never queued, for example because it
        # ended at a traced client, has no outgoing side, so use its incoming side.
        uses_out = (self.direction == INWARD) & (self.out_channel != NEVER)
        has_circuit = self.direction != 0
        channel = np.where(uses_out, self.out_channel, self.in_channel)
        circ = np.where(uses_out, self.out_circ, self.in_circ)
        return np.where(has_circuit, channel, NEVER), np.where(has_circuit, circ, NEVER)


def join(trace: Trace) -> Cells:
    """Return the cells of a trace. Events with the same cell number form one cell."""
    records = trace.records
    seqs, rows = np.unique(records["seq"].astype(np.int64), return_inverse=True)

    def missing() -> Ints:
        return np.full(seqs.size, NEVER, np.int64)

    times: dict[Event, Ints] = {}
    ends = {name: missing() for name in ("in_channel", "in_circ", "out_channel", "out_circ")}
    command, direction = np.zeros((2, seqs.size), np.int64)
    repeated = 0
    for event in trace.event_counts():
        # Assign in reverse order, so that the first event of each cell is kept.
        places = np.flatnonzero(records["event"] == event)[::-1]
        own, found = rows[places], records[places]
        times[event] = missing()
        times[event][own] = found["time_ns"].astype(np.int64)
        repeated += places.size - int(np.count_nonzero(times[event] != NEVER))
        if event is not Event.DROPPED:
            command[own] = found["command"]
            direction[own] = np.where(found["direction"], found["direction"], direction[own])
            side = "in" if event in (Event.INBUF, Event.RECOGNIZED) else "out"
            ends[f"{side}_channel"][own] = found["channel"]
            ends[f"{side}_circ"][own] = found["circ_id"]
    return Cells(
        seq=seqs,
        inbuf_ns=times[Event.INBUF],
        recognized_ns=times[Event.RECOGNIZED],
        queue_ns=times[Event.QUEUE],
        outbuf_ns=times[Event.OUTBUF],
        flush_ns=times[Event.FLUSH],
        **ends,
        command=command,
        direction=direction,
        fate=_fates(times, command),
        repeated=repeated,
    )


def _fates(times: dict[Event, Ints], command: Ints) -> Ints:
    inbuf, recognized, queue, outbuf, flush, dropped = (
        times[event] != NEVER for event in Event if event < Event.CHANNEL
    )
    # The first matching condition applies.
    choices = {
        Fate.BEGINNING_MISSING: (recognized & ~inbuf)
        | ((outbuf | dropped) & ~queue)
        | (flush & ~outbuf),
        Fate.DROPPED: dropped,
        Fate.RELAYED: flush & inbuf,
        Fate.MADE_HERE: flush,
        Fate.IN_OUTBUF: outbuf,
        Fate.IN_QUEUE: queue,
        Fate.RECOGNIZED: recognized,
        Fate.NOT_TAKEN: (command == RELAY) | (command == RELAY_EARLY),
    }
    fates = [int(fate) for fate in choices]
    return np.select(list(choices.values()), fates, int(Fate.NO_RELAY_CELL)).astype(np.int64)
