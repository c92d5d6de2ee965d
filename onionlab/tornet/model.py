"""The model of tornet.json, which describes an imported network, and the hash of its content."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, get_args

from pydantic import Field

from analysis.formats.format_model import FormatModel

EPOCH_UNIX_S = 946684800
"""Shadow's simulated time starts at 2000-01-01 00:00:00 UTC. Keys have to be valid at this time."""

Program = Literal["tor", "tgen", "oniontrace"]
PROGRAMS: tuple[Program, ...] = get_args(Program)
"""The programs that hosts of tornettools run."""

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
"""The roles of Tor relays, including authorities. Their hosts have a fingerprint."""


class TornetProcess(FormatModel):
    """One program of a host, as Shadow would start it."""

    program: Program = Field(description="base name; the run determines the executable")
    arguments: tuple[str, ...] = Field(
        description="paths among them are relative to shadow.data/hosts/HOST"
    )
    start_ms: int = Field(ge=0, description="simulated time at which it starts")
    environment: dict[str, str] = Field(default={}, description="its environment variables")
    runs_to_end: bool = Field(description="whether it must still run when the simulation ends")


class TornetHost(FormatModel):
    """One simulated machine."""

    role: Role = Field(description="role, determined from its files")
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
    """The size of the graph of paths, before and after it was cut to the nodes with hosts."""

    sha256: str = Field(description="of the original file")
    nodes: int = Field(description="nodes of the original file")
    edges: int = Field(description="edges of the original file")
    nodes_kept: int = Field(description="nodes that hosts attach to")
    edges_kept: int = Field(description="edges between these nodes")


class Origin(FormatModel):
    """The origin of a network, as its directory shows it. tornettools' version is not known."""

    directory: str = Field(description="name of the directory that was imported")
    generate: dict[str, int | float | str | bool | None] = Field(
        default={}, description="options of tornettools generate, from its log if there is one"
    )
    atlas: Atlas = Field(description="the graph of paths")


class Tornet(FormatModel):
    """tornet.json: an imported network of tornettools, one of a set."""

    format: Literal[1] = Field(default=1, description="version")
    content_sha256: str = Field(
        default="", description="over everything that determines a run: every other key but origin"
    )
    origin: Origin = Field(description="where it comes from")
    counts: dict[str, int] = Field(description="hosts, by role")
    programs: dict[str, int] = Field(description="processes, by the base name of the executable")
    stop_ms: int = Field(gt=0, description="simulated time at which the simulation ends")
    bootstrap_end_ms: int = Field(
        ge=0,
        description="simulated time until which Shadow limits no bandwidth and drops no packet",
    )
    options: dict[str, dict[str, Any]] = Field(
        default={},
        description="other options of Shadow in the configuration, by section: general, "
        "experimental, host_option_defaults",
    )
    hosts: dict[str, TornetHost] = Field(description="by name")
    files: dict[str, str] = Field(description="path -> SHA-256 of each imported file")


def content_hash(tornet: Tornet) -> str:
    """Return the SHA-256 of everything in a network that determines a run, in hexadecimal digits.

    The hash does not depend on the order of hosts, keys and files, on the times and modes of the
    files, or on the path of the directory.
    """
    content = tornet.model_dump(mode="json", exclude={"content_sha256", "origin"})
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
