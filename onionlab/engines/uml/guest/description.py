"""The simulation in the format that the guest reads: conf/uml.json of the run directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onionlab.engines.base import Process

FORMAT = 1

TRAFFIC_PROGRAM = "tgen"
"""The program that the traffic driver replaces."""
BIND_VARIABLE = "TGENIP"
"""An environment variable that TGen reads: the local address of its sockets."""


@dataclass(frozen=True)
class GuestHost:
    """One simulated machine.

    address: its IPv4 address. place: the index of its place in the matrices of `Description`.
    up_bit_per_s, down_bit_per_s: the rates of its access link.
    """

    name: str
    address: str
    place: int
    up_bit_per_s: int
    down_bit_per_s: int
    programs: tuple[Process, ...]


@dataclass(frozen=True)
class Description:
    """A complete simulation.

    latency_us: one-way latency in microseconds, [place][place]. packet_loss: the share of TCP
    packets with payload that each path loses if path_loss is None. path_loss: this share for each
    path, [place][place]. bootstrap_end_ms: the simulated time before which links have no limits and
    paths lose no packets. memory_bytes: the guest's memory, from which Tor derives limits.
    """

    seed: int
    epoch_unix_s: int
    stop_ms: int
    memory_bytes: int
    packet_loss: float
    congestion_control: str
    latency_us: tuple[tuple[int, ...], ...]
    hosts: tuple[GuestHost, ...]
    path_loss: tuple[tuple[float, ...], ...] | None = None
    bootstrap_end_ms: int = 0

    def loss(self, source: int, target: int) -> float:
        """Return the share of TCP packets with payload that the path between two places loses."""
        return self.packet_loss if self.path_loss is None else self.path_loss[source][target]


def read_description(path: Path) -> Description:
    """Read conf/uml.json. Raises ValueError if it has another format."""
    data: dict[str, Any] = json.loads(path.read_text())
    if data.pop("format") != FORMAT:
        raise ValueError(f"{path} has another format than {FORMAT}")
    data["latency_us"] = tuple(tuple(row) for row in data["latency_us"])
    if "path_loss" in data:
        data["path_loss"] = tuple(tuple(row) for row in data["path_loss"])
    data["hosts"] = tuple(
        GuestHost(
            **{
                **host,
                "programs": tuple(
                    Process(**{**program, "arguments": tuple(program["arguments"])})
                    for program in host["programs"]
                ),
            }
        )
        for host in data["hosts"]
    )
    return Description(**data)
