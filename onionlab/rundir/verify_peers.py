"""Verify from the peers' logs that a finished simulation ran the requested variant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onionlab.rundir.verify_tor import RunRefusedError

HEADER = re.compile(r"onionlab-peer \d+ role=(\w+) rule=([a-z-]+) ")
PROOF_PREFIX = "request rule: "


@dataclass(frozen=True)
class PeersExpectation:
    """The required log content of a host's peer. rule: its request rule."""

    rule: str


def verify_peer_logs(hosts: Path, expectations: Mapping[str, PeersExpectation]) -> dict[str, int]:
    """Check each host's log below `hosts`. Return the number of hosts that logged each rule.

    Raises RunRefusedError with the host's name if a peer logged nothing, used another rule, or was
    never connected.
    """
    proofs: dict[str, int] = {}
    for host, expectation in expectations.items():
        lines = [
            line
            for path in sorted((hosts / host).glob("libtorrent-peer-*.stdout"))
            for line in path.read_text(errors="replace").splitlines()
        ]
        problem = _problem(lines, expectation)
        if problem is not None:
            raise RunRefusedError(f"{problem}: {host}", lines[-15:])
        proof = f"{PROOF_PREFIX}{expectation.rule}"
        proofs[proof] = proofs.get(proof, 0) + 1
    return proofs


def _problem(lines: list[str], expectation: PeersExpectation) -> str | None:
    if not lines:
        return "the peer logged nothing"
    header = HEADER.match(lines[0])
    if header is None:
        return "the peer's log has no first line"
    if header[2] != expectation.rule:
        return f"the peer follows the rule {header[2]} instead of {expectation.rule}"
    if not any(line.split(" ", 2)[1:2] == ["connected"] for line in lines[1:]):
        return "the peer was never connected"
    return None
