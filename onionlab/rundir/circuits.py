"""Which circuit each stream of a client took, from its Tor's log.

Tor logs two kinds of lines for streams at level info in its domain APP
(src/core/or/connection_edge.c, circuituse.c and circuitbuild.c)::

    [info] connection_ap_handshake_send_begin(): Address/port sent, ap socket 14, n_circ_id 2957
    [info] exit circ (length 3): $A...(open) $B...(open) $C...(open)

The first comes when the stream is put on a circuit; the second, with that circuit's hops, then and
when the exit has connected. A circuit's id is unique on the channel to its guard, and hops name the
guard. Tor's own directory requests have -1 for a socket and count for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

APP_LOG = "[app]info-info stdout"
"""Value of torrc's `Log` that has Tor write these lines, and no others of that level."""

_ATTACHED = re.compile(r"Address/port sent, ap socket \d+, n_circ_id (\d+)")
_PATH = re.compile(r"\bexit circ \(length \d+[^)]*\): (\S.*)$")
_HOP = re.compile(r"\$([0-9A-F]{40})\(open\)")


@dataclass(frozen=True)
class OneCircuit:
    """What a client's streams had to share.

    streams: how many there are; hops: fingerprints (40 upper-case hexadecimal digits) of the relays
    that may stand in each position of the circuit, from the guard on.
    """

    streams: int
    hops: tuple[frozenset[str], ...]


def circuit_problem(lines: Iterable[str], wanted: OneCircuit) -> str | None:
    """Return why a client's log does not show that all its streams shared one circuit, or None."""
    circuits: list[str] = []
    paths: list[tuple[str, ...]] = []
    for line in lines:
        if found := _ATTACHED.search(line):
            circuits.append(found[1])
        elif found := _PATH.search(line):
            paths.append(tuple(_HOP.findall(found[1])))
    if len(circuits) != wanted.streams:
        return (
            f"{len(circuits)} streams were put on a circuit instead of {wanted.streams}, "
            "so some were put on one again, or never"
        )
    if len(set(circuits)) > 1:
        return f"the streams were spread over {len(set(circuits))} circuits instead of one"
    if len(paths) < wanted.streams or len(set(paths)) != 1:
        return (
            f"the log tells the path of a stream's circuit {len(paths)} times, and "
            f"{len(set(paths))} different ones"
        )
    (path,) = set(paths)
    if len(path) != len(wanted.hops):
        return f"the circuit has {len(path)} hops instead of {len(wanted.hops)}"
    for position, (hop, allowed) in enumerate(zip(path, wanted.hops, strict=True), start=1):
        if hop not in allowed:
            return f"hop {position} of the circuit is a relay of another role (${hop})"
    return None
