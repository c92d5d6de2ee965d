"""Cell traces (the events of each cell in a relay) with known contents, for tests."""

from __future__ import annotations

import ipaddress
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from analysis_synthetic import write_run

from analysis.celltrace.cell_paths import Network, Relay
from analysis.celltrace.cells import join
from analysis.celltrace.events import (
    BYTE_ORDER_MARK,
    HEADER,
    INWARD,
    MAGIC,
    OUTWARD,
    RECORD,
    VERSION,
    Event,
    Trace,
)
from analysis.formats.files import TRACE_PLAN

NOW_NS = 946684800_000000000


def trace_of(*rows: tuple[int, ...], ended: bool = True) -> Trace:
    """Return a trace of rows (time, seq, channel, circuit, event, command, direction).

    Times are nanoseconds after NOW_NS. ``ended`` states whether Tor closed the trace.
    """
    records = np.array([(NOW_NS + row[0], *row[1:], 0) for row in rows], RECORD)
    return Trace(records, {1: "11.0.0.1", 2: "11.0.0.2"}, ended=ended)


def write_trace(path: Path, trace: Trace) -> None:
    """Write a trace in Tor's format."""
    header = np.zeros(1, HEADER)
    header["magic"], header["byte_order"], header["version"] = MAGIC, BYTE_ORDER_MARK, VERSION
    header["header_size"], header["record_size"] = HEADER.itemsize, RECORD.itemsize
    header["with_addresses"] = any(trace.peers.values())
    channels = np.zeros(len(trace.peers), RECORD)
    channels["event"] = Event.CHANNEL
    channels["channel"] = list(trace.peers)
    channels["seq"] = [int(ipaddress.IPv4Address(address or 0)) for address in trace.peers.values()]
    end = np.zeros(int(trace.ended), RECORD)
    end["event"], end["seq"] = Event.END, len(channels) + len(trace.records)
    path.write_bytes(b"".join(part.tobytes() for part in (header, channels, trace.records, end)))


PLAIN = trace_of(
    (0, 1, 1, 77, Event.INBUF, 3, 0),
    (1, 1, 2, 78, Event.QUEUE, 3, 2),
    (2, 1, 2, 78, Event.OUTBUF, 3, 2),
    (3, 1, 2, 78, Event.FLUSH, 3, 2),
)


CLIENTS = ("11.0.1.1", "11.0.1.2")
NAMES = ("guard1", "middle1", "exit1")
LATENCY_NS = 1_000


@dataclass
class ModelRelay:
    """Collects the events of one relay. The relay has one channel to each address."""

    address: str
    channels: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    cells: int = 0

    def channel(self, address: str) -> int:
        return self.channels.setdefault(address, 10 * (len(self.channels) + 1))

    def event(self, time: int, seq: int, peer: str, circ: int, event: Event, way: int) -> None:
        row = (NOW_NS + time, seq, self.channel(peer), circ, event, 3, way, 0)
        self.rows.append(row)

    def number(self) -> int:
        self.cells += 1
        return self.cells

    def traced(self, name: str) -> Relay:
        # Sorting is stable, so events with the same time keep their order.
        records = np.array(sorted(self.rows, key=lambda row: row[0]), RECORD)
        peers: dict[int, str | None] = {n: address for address, n in self.channels.items()}
        trace = Trace(records, peers)
        role = name.rstrip("1")
        return Relay(name, role, self.address, trace, join(trace))


class Model:
    """A guard, a middle relay and an exit, and circuits through them for two clients.

    Attributes:
        kernel_wait_ns: Upper bound of a random wait. Each cell waits between its flush in one relay
            and the moment when the next relay reads it. The latency is not part of this wait.
        crossings: For each cell that went from one relay to another: the sender, the direction, and
            this wait in nanoseconds.
    """

    def __init__(self, seed: int, kernel_wait_ns: int = 1) -> None:
        self.draw = random.Random(seed)
        self.waiting = random.Random(seed)
        self.kernel_wait_ns = kernel_wait_ns
        self.crossings: list[tuple[str, int, int]] = []
        self.relays = [ModelRelay(f"11.0.0.{i}") for i in (1, 2, 3)]
        self.now = 0

    def send(self, client: str, circ: int, way: int) -> list[tuple[int, int, int]]:
        """Send one cell over the whole circuit, and advance the time until it has arrived.

        Return the durations of the cell's three stages at each relay, from the guard to the exit,
        in nanoseconds.
        """
        places = range(3) if way == OUTWARD else range(2, -1, -1)
        stages = {}
        for i in places:
            relay = self.relays[i]
            before = client if i == 0 else self.relays[i - 1].address
            after = self.relays[i + 1].address if i < 2 else "server"
            came, goes = (before, after) if way == OUTWARD else (after, before)
            in_circ, out_circ = (circ + i, circ + i + 1) if way == OUTWARD else (
                circ + i + 1, circ + i,
            )  # fmt: skip
            seq = relay.number()
            made = way == INWARD and i == 2
            waits = [self.draw.randrange(50) for _ in range(3)]
            if made:
                waits[0] = 0
            else:
                relay.event(self.now, seq, came, in_circ, Event.INBUF, 0)
                self.now += waits[0]
            if way == OUTWARD and i == 2:
                relay.event(self.now, seq, came, in_circ, Event.RECOGNIZED, way)
                stages[i] = (waits[0], 0, 0)
                continue
            relay.event(self.now, seq, goes, out_circ, Event.QUEUE, way)
            self.now += waits[1]
            relay.event(self.now, seq, goes, out_circ, Event.OUTBUF, way)
            self.now += waits[2]
            relay.event(self.now, seq, goes, out_circ, Event.FLUSH, way)
            stages[i] = (waits[0], waits[1], waits[2])
            kernel_ns = self.waiting.randrange(self.kernel_wait_ns)
            self.now += LATENCY_NS + kernel_ns
            if way == OUTWARD or i > 0:
                self.crossings.append((NAMES[i], way, kernel_ns))
        return [stages[i] for i in range(3)]

    def download(self, client: str, circ: int) -> tuple[int, int, list[list[tuple[int, int, int]]]]:
        """Simulate a download. Return its start, its first byte's time, and results of ``send``.

        These results are the stages of the four cells that pass before the first byte: BEGIN,
        CONNECTED, the request and the first answer. Up to eight more cells follow. Times are in
        nanoseconds.
        """
        start = self.now
        self.now += 10
        legs = []
        for way in (OUTWARD, INWARD, OUTWARD, INWARD):
            legs.append(self.send(client, circ, way))
            self.now += self.draw.randrange(1, 500)
        first_byte = self.now
        for _ in range(self.draw.randrange(5)):
            self.send(client, circ, INWARD)
            self.send(client, circ, self.draw.choice((INWARD, OUTWARD)))
        self.now += 10
        return start, first_byte, legs

    def network(self, traced: tuple[str, ...] = NAMES) -> Network:
        relays = {
            name: relay.traced(name)
            for name, relay in zip(NAMES, self.relays, strict=True)
            if name in traced
        }
        return Network(relays)


def eight_downloads(model: Model) -> list[tuple[int, int]]:
    """Simulate four downloads of each client; return their starts and first bytes, in ns."""
    return [model.download(CLIENTS[index % 2], 100 + 1000 * (index % 2))[:2] for index in range(8)]


def write_traces(run_directory: Path, model: Model, clients: Iterable[str]) -> None:
    """Write the traces of a model's relays, and trace.json with the traced hosts.

    clients: names of the two hosts that are the model's clients.
    """
    hosts = {
        host: {"role": "client", "address": address}
        for host, address in zip(clients, CLIENTS, strict=True)
    }
    for name, relay in zip(NAMES, model.relays, strict=True):
        folder = run_directory / "shadow.data" / "hosts" / name
        folder.mkdir(parents=True)
        write_trace(folder / "cells", relay.traced(name).trace)
        hosts[name] = {"role": name.rstrip("1"), "address": relay.address}
    plan = {"epoch_unix_s": NOW_NS // 10**9, "file": "cells", "traced": list(NAMES), "hosts": hosts}
    (run_directory / TRACE_PLAN).write_text(json.dumps(plan))


def write_traced_run(run_directory: Path) -> None:
    """Write the run of two web clients, and traces of eight downloads in three relays."""
    write_run(run_directory, 1, web=2, bulk=0)
    model = Model(5)
    eight_downloads(model)
    write_traces(run_directory, model, ["web1client", "web2client"])
