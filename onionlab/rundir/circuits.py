"""Check from a client's Tor log that all its streams used one circuit.

Tor logs two kinds of lines for streams at level info in its domain APP
(src/core/or/connection_edge.c, circuituse.c and circuitbuild.c)::

    [info] connection_ap_handshake_send_begin(): Address/port sent, ap socket 14, n_circ_id 2957
    [info] exit circ (length 3): $A...(open) $B...(open) $C...(open)

Tor logs the first when it attaches a stream to a circuit. It logs the second, with the circuit's
hops, at the same time and when the exit has connected. A circuit's id is unique on the channel to
its guard, and the hops include the guard. Tor's own directory requests have the socket -1 and are
ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

APP_LOG = "[app]info-info stdout"
"""The value of torrc's `Log` that makes Tor log these lines but no others of that level."""

_ATTACHED = re.compile(r"Address/port sent, ap socket \d+, n_circ_id (\d+)")
_PATH = re.compile(r"\bexit circ \(length \d+[^)]*\): (\S.*)$")
_HOP = re.compile(r"\$([0-9A-F]{40})\(open\)")


@dataclass(frozen=True)
class SharedCircuit:
    """The circuit that a client's streams have to share.

    streams: their number; hops: fingerprints (40 upper-case hexadecimal digits) of the relays that
    are allowed in each position of the circuit, starting with the guard.
    """

    streams: int
    hops: tuple[frozenset[str], ...]


def circuit_problem(lines: Iterable[str], wanted: SharedCircuit) -> str | None:
    """Return why a client's log does not prove that its streams shared one circuit, or None."""
    circuits: list[str] = []
    paths: list[tuple[str, ...]] = []
    for line in lines:
        if found := _ATTACHED.search(line):
            circuits.append(found[1])
        elif found := _PATH.search(line):
            paths.append(tuple(_HOP.findall(found[1])))
    if len(circuits) != wanted.streams:
        return (
            f"{len(circuits)} streams were attached to a circuit instead of {wanted.streams}, "
            "so some were attached repeatedly or never"
        )
    if len(set(circuits)) > 1:
        return f"the streams were spread over {len(set(circuits))} circuits instead of one"
    if len(paths) < wanted.streams or len(set(paths)) != 1:
        return (
            f"the log contains the path of a stream's circuit {len(paths)} times, with "
            f"{len(set(paths))} different paths"
        )
    (path,) = set(paths)
    if len(path) != len(wanted.hops):
        return f"the circuit has {len(path)} hops instead of {len(wanted.hops)}"
    for position, (hop, allowed) in enumerate(zip(path, wanted.hops, strict=True), start=1):
        if hop not in allowed:
            return f"hop {position} of the circuit is a relay of another role (${hop})"
    return None
