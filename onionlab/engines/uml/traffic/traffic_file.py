"""Read the file with the hosts that the driver plays.

A JSON object::

    {"format": 1, "seed": 7, "epoch_unix_s": 946684800, "stop_ms": 900000,
     "hosts": [{"name": "web1client", "graph": "/.../tgen.web.graphml", "start_ms": 301000,
                "log": "/.../tgen.1000.stdout", "netns": "/run/netns/web1client",
                "address": "11.0.0.5"}]}

Times are relative to ``epoch_unix_s`` of the wall clock. A host's ``netns`` is null for the
process's own network, and its ``address`` may be null. With ``bind``, all its sockets use this
local address (TGen's environment variable TGENIP). The following keys are optional.

``names``: name -> IPv4 address of hosts that are not played here, to resolve them without the
system's resolver and to name them in the servers' logs.

``receive_low_water_bytes``: the number of payload bytes that wake up the process (default 1: every
arrival). Use more only for hosts whose loopback acknowledges each segment immediately (``ip route
... quickack 1``); otherwise the sender would wait for delayed acknowledgements that reads like
TGen's would trigger.

``flush_interval_ms``: the maximum simulated time until a log line is on disk (default 10000).

``verify_payload``: whether to compare the payload's MD5 sum with the sender's (default false).
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onionlab.errors import UserError

FORMAT = 1


@dataclass(frozen=True)
class HostEntry:
    """One host. start_ms is relative to the file's epoch.

    directory: the directory that TGen would be started in, the base of models' paths; None for the
    graph's directory.
    """

    name: str
    graph: Path
    start_ms: int
    log: Path
    netns: str | None
    address: str | None
    bind: str | None = None
    directory: Path | None = None

    @property
    def start_directory(self) -> Path:
        """The base of models' paths."""
        return self.directory or self.graph.parent


@dataclass(frozen=True)
class TrafficFile:
    """All hosts, and the parameters that they share."""

    seed: int
    epoch_unix_s: int
    stop_ms: int
    hosts: tuple[HostEntry, ...]
    names: dict[str, str]
    receive_low_water_bytes: int
    verify_payload: bool
    flush_interval_ms: int


def load_traffic_file(path: Path) -> TrafficFile:
    """Read a traffic file. Raises UserError with the invalid key."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot read the traffic file: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    try:
        return _traffic_file(data)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def _traffic_file(data: Any) -> TrafficFile:
    where = "the traffic file"
    _check_keys(
        data,
        where,
        {"format", "seed", "epoch_unix_s", "stop_ms", "hosts"},
        {"names", "receive_low_water_bytes", "flush_interval_ms", "verify_payload"},
    )
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']!r} is not known; this driver reads {FORMAT}")
    hosts = _typed(data, "hosts", where, list)
    traffic = TrafficFile(
        seed=_integer(data, "seed", where),
        epoch_unix_s=_integer(data, "epoch_unix_s", where, minimum=0),
        stop_ms=_integer(data, "stop_ms", where, minimum=0),
        hosts=tuple(_host(host, f"hosts[{index}]") for index, host in enumerate(hosts)),
        names=_names(data.get("names", {})),
        receive_low_water_bytes=_integer(
            {"receive_low_water_bytes": 1, **data}, "receive_low_water_bytes", where, minimum=1
        ),
        flush_interval_ms=_integer(
            {"flush_interval_ms": 10_000, **data}, "flush_interval_ms", where, minimum=1
        ),
        verify_payload=_typed({"verify_payload": False, **data}, "verify_payload", where, bool),
    )
    for what, get in _UNIQUE.items():
        seen: set[str] = set()
        for host in traffic.hosts:
            if get(host) in seen:
                raise ValueError(f"two hosts have the {what} {get(host)}")
            seen.add(get(host))
    return traffic


_UNIQUE: dict[str, Callable[[HostEntry], str]] = {
    "name": lambda host: host.name,
    "log": lambda host: str(host.log),
}


def _host(data: Any, where: str) -> HostEntry:
    optional = {"netns", "address", "bind", "directory"}
    _check_keys(data, where, {"name", "graph", "start_ms", "log"}, optional)
    name = _typed(data, "name", where, str)
    if not name or any(character in name for character in " ,[]=\n"):
        raise ValueError(f"{where}: {name!r} cannot be a host's name")
    netns, address, bind = data.get("netns"), data.get("address"), data.get("bind")
    if netns is not None and not isinstance(netns, str):
        raise ValueError(f"{where}: netns must be a path or null")
    return HostEntry(
        name=name,
        graph=Path(_typed(data, "graph", where, str)),
        start_ms=_integer(data, "start_ms", where, minimum=0),
        log=Path(_typed(data, "log", where, str)),
        netns=netns,
        address=None if address is None else _address(address, where),
        bind=None if bind is None else _address(bind, where),
        directory=Path(_typed(data, "directory", where, str)) if "directory" in data else None,
    )


def _names(data: Any) -> dict[str, str]:
    if not isinstance(data, dict):
        raise ValueError("names must be an object of names and addresses")
    return {name: _address(address, f"names[{name}]") for name, address in data.items()}


def _address(value: Any, where: str) -> str:
    try:
        socket.inet_pton(socket.AF_INET, value)
    except (OSError, TypeError):
        raise ValueError(f"{where}: {value!r} is not an IPv4 address") from None
    return str(value)


def _check_keys(data: Any, where: str, required: set[str], optional: set[str]) -> None:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is not an object")
    if missing := required - data.keys():
        raise ValueError(f"{where} lacks {', '.join(sorted(missing))}")
    if unknown := data.keys() - required - optional:
        raise ValueError(f"{where} has the unknown key {', '.join(sorted(unknown))}")


def _typed(data: dict[str, Any], key: str, where: str, kind: type) -> Any:
    if not isinstance(data[key], kind):
        raise ValueError(f"{where}: {key} must be a {kind.__name__}")
    return data[key]


def _integer(data: dict[str, Any], key: str, where: str, minimum: int | None = None) -> int:
    value = data[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{where}: {key} must be an integer")
    if minimum is not None and value < minimum:
        raise ValueError(f"{where}: {key} must be at least {minimum}")
    return value
