"""The file by which the guest passes the TGen hosts of a simulation to the driver."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrafficHost:
    """One host that the driver plays in the place of TGen.

    graph: the path of its action graph. directory: the directory in which TGen would be started;
    paths of models are relative to it. start_ms: time since the file's epoch. log: the path of its
    log. netns: the path of its network namespace, or None for the process's own namespace. bind:
    the local address of all its sockets (TGen's variable TGENIP), or None for any address.
    """

    name: str
    graph: str
    directory: str
    start_ms: int
    log: str
    netns: str | None = None
    bind: str | None = None


@dataclass(frozen=True)
class TrafficFile:
    """All hosts, and the parameters that they share.

    epoch_unix_s: a time of the wall clock, to which all other times are relative. names: the IPv4
    address of each host of the simulation by its name. receive_low_water_bytes: the number of
    payload bytes that must have arrived before a socket wakes up the process. If it is more than 1,
    the loopback must acknowledge each segment immediately (``ip route ... quickack 1``). Otherwise
    the sender would wait for delayed acknowledgements, because the driver reads rarely. TGen's
    frequent reads cause early acknowledgements.
    """

    seed: int
    epoch_unix_s: int
    stop_ms: int
    names: Mapping[str, str]
    receive_low_water_bytes: int
    hosts: tuple[TrafficHost, ...]

    def write(self, path: Path) -> None:
        """Write the file that `read_traffic_file` reads."""
        path.write_text(json.dumps(asdict(self)))

    @functools.cached_property
    def names_by_address(self) -> Mapping[str, str]:
        """Each host's name by its IPv4 address."""
        return {**{address: name for name, address in self.names.items()}, "127.0.0.1": "localhost"}


def read_traffic_file(path: Path) -> TrafficFile:
    """Read a traffic file."""
    data = json.loads(path.read_bytes())
    hosts = tuple(TrafficHost(**host) for host in data.pop("hosts"))
    return TrafficFile(**data, hosts=hosts)
