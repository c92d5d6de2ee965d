"""Check from a client's Tor log that its streams used the required circuits.

Tor logs these lines at level info in its domains APP and REND (src/feature/hs/hs_client.c and
src/core/or/connection_edge.c, circuituse.c and circuitbuild.c)::

    [info] connection_ap_handshake_send_begin(): Address/port sent, ap socket 14, n_circ_id 2957
    [info] exit circ (length 3): $A...(open) $B...(open) $C...(open)

Tor logs the first line when it attaches a stream to a circuit. It logs the second line, with the
circuit's hops, at that time and again when the exit has connected. The id of a circuit is unique
only on the channel to the guard. So the hops, which include the guard, are also compared. Tor's own
directory requests have the socket -1 and are ignored. For a stream to an onion service, Tor logs::

    [info] hs_client_receive_rendezvous2(): Got RENDEZVOUS2 cell from hidden service on circuit 39.
    [info] ...: rend joined circ 39 (id: 14) already here. Attaching. (stream 4 sec old)
    [info] internal (high-uptime) circ (length 3): $A...(open) $B...(open) $C...(open)
    [info] ...: Address/port sent, ap socket 14, n_circ_id 39

Tor logs the first line once for each circuit that a service has joined at its rendezvous point. Tor
logs the other three lines for each stream: the stream's circuit, the relays of the circuit, and the
request. The last relay is the rendezvous point. A client cannot know the service's relays behind
this point.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

APP_LOG = "[app]info-info stdout"
"""The value of torrc's `Log` with which Tor logs the lines that `SharedCircuit` reads."""
RENDEZVOUS_LOG = "[app,rend]info-info stdout"
"""The value of torrc's `Log` with which Tor logs the lines that `Rendezvous` reads."""
MIN_HOPS = 3
"""The minimum length of a client's half of a rendezvous circuit. Vanguards may add a relay."""

_ATTACHED = re.compile(r"Address/port sent, ap socket \d+, n_circ_id (\d+)")
_EXIT_PATH = re.compile(r"\bexit circ \(length \d+[^)]*\): (\S.*)$")
_HOP = re.compile(r"\$([0-9A-F]{40})\(open\)")
_JOINED_BY_SERVICE = re.compile(r"Got RENDEZVOUS2 cell from hidden service on circuit (\d+)")
_JOINED = re.compile(r"rend joined circ (\d+) ")
_INTERNAL_PATH = re.compile(r"\binternal (?:\([^)]*\) )?circ \(length \d+[^)]*\): (\S.*)$")


@dataclass(frozen=True)
class SharedCircuit:
    """The circuit that a client's streams have to share.

    streams: the number of streams. hops: for each position of the circuit, from the guard on, the
    fingerprints (40 upper-case hexadecimal digits) of the allowed relays.
    """

    streams: int
    hops: tuple[frozenset[str], ...]

    def find_problem(self, lines: Iterable[str]) -> str | None:
        """Return why a log does not prove that the streams shared a circuit; None if it does so."""
        circuits: list[str] = []
        paths: list[tuple[str, ...]] = []
        for line in lines:
            if found := _ATTACHED.search(line):
                circuits.append(found[1])
            elif found := _EXIT_PATH.search(line):
                paths.append(tuple(_HOP.findall(found[1])))
        if len(circuits) != self.streams:
            return (
                f"{len(circuits)} streams were attached to a circuit instead of {self.streams}, "
                "so some were attached repeatedly or never"
            )
        if len(set(circuits)) > 1:
            return f"the streams were spread over {len(set(circuits))} circuits instead of one"
        if len(paths) < self.streams or len(set(paths)) != 1:
            return (
                f"the log contains the path of a stream's circuit {len(paths)} times, with "
                f"{len(set(paths))} different paths"
            )
        (path,) = set(paths)
        if len(path) != len(self.hops):
            return f"the circuit has {len(path)} hops instead of {len(self.hops)}"
        for position, (hop, allowed) in enumerate(zip(path, self.hops, strict=True), start=1):
            if hop not in allowed:
                return f"hop {position} of the circuit is a relay of another role (${hop})"
        return None


@dataclass(frozen=True)
class Rendezvous:
    """The fingerprints of relays that are allowed in a client's half of a rendezvous circuit.

    guards: fingerprints allowed in the first position. relays: fingerprints allowed anywhere.
    """

    guards: frozenset[str]
    relays: frozenset[str]

    def find_problem(self, lines: Iterable[str]) -> str | None:
        """Return why a log does not prove that all streams used these relays; None if it does."""
        by_service: set[str] = set()
        paths: dict[str, tuple[str, ...]] = {}
        streams: list[str] = []
        joined: str | None = None
        for line in lines:
            if found := _JOINED_BY_SERVICE.search(line):
                by_service.add(found[1])
            elif found := _JOINED.search(line):
                joined = found[1]
            elif (found := _INTERNAL_PATH.search(line)) and joined is not None:
                paths[joined] = tuple(_HOP.findall(found[1]))
                joined = None
            elif found := _ATTACHED.search(line):
                streams.append(found[1])
        if not streams:
            return "no stream was ever attached to a circuit to an onion service"
        if strays := sum(circuit not in by_service & paths.keys() for circuit in streams):
            return (
                f"{strays} of {len(streams)} streams were attached to a circuit that no service "
                "joined"
            )
        for path in dict.fromkeys(paths.values()):
            shown = " ".join(f"${fingerprint}" for fingerprint in path)
            if len(set(path)) < max(MIN_HOPS, len(path)):
                return f"a rendezvous circuit has {len(set(path))} different relays: {shown}"
            if path[0] not in self.guards:
                return f"a rendezvous circuit starts at a relay that is not a guard (${path[0]})"
            if not self.relays.issuperset(path):
                return f"a rendezvous circuit has a relay of another network: {shown}"
        return None
