"""What an imported network is: the model of tornet.json, and the hash that names its content."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import Field

from analysis.formats.format_model import FormatModel

EPOCH_UNIX_S = 946684800
"""Shadow's simulated time starts at 2000-01-01 00:00:00 UTC; keys have to be valid then."""

Program = Literal["tor", "tgen", "oniontrace"]
PROGRAMS: tuple[Program, ...] = get_args(Program)
"""What hosts of tornettools run."""

Role = Literal[
    "authority",
    "exitguard",
    "guard",
    "exit",
    "middle",
    "server",
    "onion-service",
    "markov-client",
    "perf-client",
]
ROLES: tuple[Role, ...] = get_args(Role)
RELAY_ROLES = ROLES[:5]
"""With identities, authorities included."""


class TornetProcess(FormatModel):
    """One program of a host, as Shadow would start it."""

    program: Program = Field(description="base name; which executable that is, the run decides")
    arguments: tuple[str, ...] = Field(
        description="paths among them are relative to shadow.data/hosts/HOST"
    )
    start_ms: int = Field(ge=0, description="simulated time at which it starts")
    environment: dict[str, str] = Field(default={}, description="its environment variables")
    runs_to_end: bool = Field(description="whether it must still run when the simulation ends")


class TornetHost(FormatModel):
    """One simulated machine."""

    role: Role = Field(description="what its files make it")
    uses_onion_services: bool = Field(
        default=False, description="of a client: whether its peers are onion services"
    )
    node: int = Field(description="id of its node in the graph of paths")
    address: str | None = Field(
        default=None, description="its IPv4 address; null: Shadow gives it one"
    )
    up_bit_per_s: int = Field(gt=0, description="its link, to the network")
    down_bit_per_s: int = Field(gt=0, description="its link, from the network")
    rate_bytes_per_s: int | None = Field(default=None, description="torrc's BandwidthRate")
    burst_bytes: int | None = Field(default=None, description="torrc's BandwidthBurst")
    fingerprint: str | None = Field(
        default=None, description="of a relay: its identity, 40 hexadecimal digits"
    )
    processes: tuple[TornetProcess, ...] = Field(description="in the order of the configuration")


class Atlas(FormatModel):
    """The graph of paths between nodes, before it was cut and after."""

    sha256: str = Field(description="of the file that was read, as it was")
    nodes: int = Field(description="that it had")
    edges: int = Field(description="that it had")
    nodes_kept: int = Field(description="those that hosts attach to")
    edges_kept: int = Field(description="those between them")


class Origin(FormatModel):
    """Where a network comes from, as far as its directory tells; tornettools writes no version."""

    directory: str = Field(description="name of the directory that was imported")
    generate: dict[str, int | float | str | bool | None] = Field(
        default={}, description="options of tornettools generate, from its log if there is one"
    )
    atlas: Atlas = Field(description="the graph of paths")


class Tornet(FormatModel):
    """tornet.json: a network of tornettools that was imported, one seed of a set."""

    format: Literal[1] = Field(default=1, description="version")
    content_sha256: str = Field(
        default="", description="over all that determines a run: every other key but origin"
    )
    origin: Origin = Field(description="where it comes from")
    counts: dict[str, int] = Field(description="hosts, by role")
    programs: dict[str, int] = Field(description="processes, by the base name of the executable")
    stop_ms: int = Field(gt=0, description="simulated time at which the simulation ends")
    bootstrap_end_ms: int = Field(
        ge=0, description="simulated time until which Shadow limits no bandwidth and loses nothing"
    )
    options: dict[str, dict[str, Any]] = Field(
        default={},
        description="what else the configuration sets for Shadow, by section: general, "
        "experimental, host_option_defaults",
    )
    hosts: dict[str, TornetHost] = Field(description="by name")
    files: dict[str, str] = Field(description="path -> SHA-256, of each file that was kept")

    def by_role(self, *roles: Role) -> dict[str, TornetHost]:
        """The hosts of the given roles, by name, in order."""
        return {name: host for name, host in sorted(self.hosts.items()) if host.role in roles}

    def sealed(self) -> Tornet:
        """The same with its hash."""
        return self.model_copy(update={"content_sha256": content_hash(self)})


def counts_of(hosts: Mapping[str, TornetHost]) -> dict[str, int]:
    """How many hosts of each role there are, in the order of ROLES."""
    found = Counter(host.role for host in hosts.values())
    return {role: found[role] for role in ROLES if found[role]}


def programs_of(hosts: Mapping[str, TornetHost]) -> dict[str, int]:
    """How many processes of each program there are, in the order of PROGRAMS."""
    found = Counter(process.program for host in hosts.values() for process in host.processes)
    return {name: found[name] for name in PROGRAMS if found[name]}


def content_hash(tornet: Tornet) -> str:
    """SHA-256 over all that determines a run, in hexadecimal digits.

    The order of hosts, of keys and of files plays no part, and neither do the times and modes of
    files or the place of the directory.
    """
    content = tornet.model_dump(mode="json", exclude={"content_sha256", "origin"})
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
