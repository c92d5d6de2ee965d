"""Whether a finished simulation is what it claims to be, from Tor's own logs.

A run is refused, and never reported, where a Tor did not bootstrap or did not run the circuit
policy that the experiment asked of it. This reads only the layout that all engines share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BOOTSTRAPPED = "Bootstrapped 100%"
MAX_NAMED_HOSTS = 5


class RunRefusedError(Exception):
    """A simulation that ended but does not count."""

    def __init__(self, message: str, log_tail: list[str]) -> None:
        super().__init__(message)
        self.message = message
        self.log_tail = log_tail


@dataclass(frozen=True)
class Expectation:
    """What a host's Tor must have logged.

    proof: the text that names its circuit policy, or None where Tor is unpatched and must name
    none. A client must have bootstrapped, and its policy may only not contradict the proof. A relay
    must have shown the proof, since it opens channels for certain; whether it could also build
    circuits of its own says nothing: in a network with two guards a guard often cannot.
    """

    proof: str | None
    is_client: bool


def verify_tor_logs(
    hosts: Path, expectations: Mapping[str, Expectation], proof_prefix: str
) -> dict[str, int]:
    """Check each host's Tor log below `hosts`; return how many hosts proved which policy.

    Raises RunRefusedError naming the hosts, with the last lines of the first one's log.
    """
    problems: dict[str, list[str]] = {}
    proofs: dict[str, int] = {}
    first_bad: list[str] = []
    for host, expectation in expectations.items():
        lines = _tor_log(hosts / host)
        problem = _problem(lines, expectation, proof_prefix)
        if problem is None:
            shown = next(
                (_policy(line, proof_prefix) for line in lines if proof_prefix in line), ""
            )
            proofs[shown] = proofs.get(shown, 0) + 1
        else:
            problems.setdefault(problem, []).append(host)
            first_bad = first_bad or lines
    if problems:
        text = "; ".join(f"{what}: {_some(who)}" for what, who in problems.items())
        raise RunRefusedError(text, first_bad[-15:])
    return proofs


def _problem(lines: list[str], expectation: Expectation, proof_prefix: str) -> str | None:
    if not lines:
        return "Tor logged nothing"
    if expectation.is_client and not any(BOOTSTRAPPED in line for line in lines):
        return "Tor never bootstrapped"
    shown = {_policy(line, proof_prefix) for line in lines if proof_prefix in line}
    wanted = expectation.proof
    if wanted is None:
        return f"unpatched Tor expected, but it logged {sorted(shown)}" if shown else None
    if not shown:
        return None if expectation.is_client else f'Tor did not log "{wanted}"'
    if shown != {wanted}:
        return f'Tor logged {sorted(shown)} instead of "{wanted}"'
    return None


def _policy(line: str, proof_prefix: str) -> str:
    return line[line.index(proof_prefix) :].strip()


def _tor_log(folder: Path) -> list[str]:
    lines: list[str] = []
    for path in sorted(folder.glob("tor-*.stdout")):
        lines += path.read_text(errors="replace").splitlines()
    return lines


def _some(hosts: list[str]) -> str:
    more = f" and {len(hosts) - MAX_NAMED_HOSTS} more" if len(hosts) > MAX_NAMED_HOSTS else ""
    return ", ".join(hosts[:MAX_NAMED_HOSTS]) + more
