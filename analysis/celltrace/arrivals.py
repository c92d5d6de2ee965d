"""Arrival times of cells at the next traced relay.

A circuit has the same circuit ID at both ends of a connection, and TLS preserves order: the n-th
RELAY cell that one relay flushed on a hop of a circuit is the n-th that its peer read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.arrays import Ints
from analysis.celltrace.cell_paths import Relay
from analysis.celltrace.cells import NEVER
from analysis.celltrace.events import RELAY, RELAY_EARLY


@dataclass(frozen=True)
class Arrivals:
    """The cells of one relay whose arrival at the next relay is known; arrays of shape (n,).

    Attributes:
        seq: the number of the cell in the sending relay's trace, ascending.
        channel: the sending relay's channel on which it sent the cell.
        arrived_ns: when the next relay read the cell, on the same clock as the times in ``Cells``.
    """

    seq: Ints
    channel: Ints
    arrived_ns: Ints


def arrivals(relays: Mapping[str, Relay]) -> dict[str, Arrivals]:
    """Return for each relay the cells that it sent to other relays, with their arrival times.

    Only RELAY and RELAY_EARLY cells are returned, in both directions. A hop of a circuit is
    excluded if its cells cannot be counted reliably. There are three such cases: its two relays
    used the circuit ID on several connections, a cell would have arrived before it left, or the
    trace of either relay has missing or malformed records.
    """
    complete = [r for r in relays.values() if not (r.trace.malformed or r.trace.missing)]
    numbers = {relay.address: number for number, relay in enumerate(complete)}
    read = [_count_cells(relay, numbers, sent=False) for relay in complete]
    none = np.zeros(0, np.int64)
    result = {name: Arrivals(none, none, none) for name in relays}
    for number, relay in enumerate(complete):
        found = [
            _match(sent, read[peer][number])
            for peer, sent in _count_cells(relay, numbers, sent=True).items()
            if number in read[peer]
        ]
        if found:
            cells = pd.concat(found).sort_values("row")
            result[relay.name] = Arrivals(
                relay.cells.seq[cells["row"]],
                cells["channel"].to_numpy(),
                cells["time_ns_read"].to_numpy(),
            )
    return result


def _count_cells(
    relay: Relay, numbers: Mapping[str, int], *, sent: bool
) -> dict[int, pd.DataFrame]:
    """Return the RELAY and RELAY_EARLY cells that a relay sent to, or read from, known peers.

    The result maps the number of a peer to a table with a row for each cell, in order. The columns
    are the cell's index in ``Cells``, its time, its channel, its circuit ID, the number of the
    peer, and n, the cell's index among the cells with this circuit ID. Circuit IDs that the peer
    and the relay used on several channels are left out.

    numbers: address of each known peer -> its number.
    """
    cells = relay.cells
    time_ns, channel, circ = (
        (cells.flush_ns, cells.out_channel, cells.out_circ)
        if sent
        else (cells.inbuf_ns, cells.in_channel, cells.in_circ)
    )
    is_relay = (cells.command == RELAY) | (cells.command == RELAY_EARLY)
    rows = np.flatnonzero(is_relay & (time_ns != NEVER))
    peers = {
        number: numbers[address]
        for number, address in relay.trace.peers.items()
        if address is not None and address in numbers
    }
    passed = pd.DataFrame(
        {"row": rows, "time_ns": time_ns[rows], "channel": channel[rows], "circ": circ[rows]}
    )
    passed = passed.assign(peer=passed["channel"].map(peers)).dropna()
    hops = passed.groupby(["peer", "circ"])
    channels = hops["channel"]
    has_one_channel = channels.transform("min") == channels.transform("max")
    counted = passed.assign(n=hops.cumcount())[has_one_channel]
    groups: Any = counted.groupby("peer")
    return {int(peer): own for peer, own in groups}


def _match(sent: pd.DataFrame, read: pd.DataFrame) -> pd.DataFrame:
    """Return the sent cells that the peer read; column ``time_ns_read`` has the time of reading.

    Circuits on which a cell would have been read before it was sent are left out.
    """
    both = sent.merge(read, on=["circ", "n"], suffixes=("", "_read"))
    way_ns = both["time_ns_read"] - both["time_ns"]
    return both[way_ns.groupby(both["circ"]).transform("min") >= 0]
