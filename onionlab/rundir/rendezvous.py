"""Check from a client's Tor log that its streams used rendezvous circuits to onion services.

Tor logs these lines at level info in its domains APP and REND (src/feature/hs/hs_client.c and
src/core/or/connection_edge.c, circuituse.c and circuitbuild.c)::

    [info] hs_client_receive_rendezvous2(): Got RENDEZVOUS2 cell from hidden service on circuit 39.
    [info] ...: rend joined circ 39 (id: 14) already here. Attaching. (stream 4 sec old)
    [info] internal (high-uptime) circ (length 3): $A...(open) $B...(open) $C...(open)
    [info] ...: Address/port sent, ap socket 14, n_circ_id 39

Tor logs the first line once for each circuit that a service has joined at its rendezvous point. It
logs the others for each stream: the stream's circuit, the relays of the circuit, and the request.
The last relay is the rendezvous point; a client cannot know the service's relays beyond it. Tor's
own directory requests have the socket -1 and are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

RENDEZVOUS_LOG = "[app,rend]info-info stdout"
"""The value of torrc's `Log` that makes Tor log these lines but no others of that level."""
MIN_HOPS = 3
"""The minimum length of a client's half: guard, relay, rendezvous point. Vanguards may add one."""

_JOINED_BY_SERVICE = re.compile(r"Got RENDEZVOUS2 cell from hidden service on circuit (\d+)")
_JOINED = re.compile(r"rend joined circ (\d+) ")
_PATH = re.compile(r"\binternal (?:\([^)]*\) )?circ \(length \d+[^)]*\): (\S.*)$")
_HOP = re.compile(r"\$([0-9A-F]{40})\(open\)")
_ATTACHED = re.compile(r"Address/port sent, ap socket \d+, n_circ_id (\d+)")


@dataclass(frozen=True)
class Rendezvous:
    """The fingerprints of relays that are allowed in a client's half of a rendezvous circuit.

    guards: in the first position; relays: in all others.
    """

    guards: frozenset[str]
    relays: frozenset[str]


def rendezvous_problem(lines: Iterable[str], wanted: Rendezvous) -> str | None:
    """Return None if a log shows that all streams used rendezvous circuits, else the problem."""
    by_service: set[str] = set()
    paths: dict[str, tuple[str, ...]] = {}
    streams: list[str] = []
    path_follows: str | None = None
    for line in lines:
        if found := _JOINED_BY_SERVICE.search(line):
            by_service.add(found[1])
        elif found := _JOINED.search(line):
            path_follows = found[1]
        elif (found := _PATH.search(line)) and path_follows is not None:
            paths[path_follows] = tuple(_HOP.findall(found[1]))
            path_follows = None
        elif found := _ATTACHED.search(line):
            streams.append(found[1])
    if not streams:
        return "no stream was ever attached to a circuit to an onion service"
    if strays := sum(circuit not in by_service & paths.keys() for circuit in streams):
        return (
            f"{strays} of {len(streams)} streams were attached to a circuit that no service joined"
        )
    for path in dict.fromkeys(paths.values()):
        if len(set(path)) < max(MIN_HOPS, len(path)):
            return f"a rendezvous circuit has {len(set(path))} different relays: {_shown(path)}"
        if path[0] not in wanted.guards:
            return f"a rendezvous circuit starts at a relay that is not a guard (${path[0]})"
        if not wanted.relays.issuperset(path):
            return f"a rendezvous circuit has a relay of another network: {_shown(path)}"
    return None


def _shown(path: Iterable[str]) -> str:
    return " ".join(f"${fingerprint}" for fingerprint in path)
