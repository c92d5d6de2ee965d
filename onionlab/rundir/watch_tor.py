"""Detect during a simulation that Tor does not run the required variant.

Tor logs the variant in use within seconds of simulated time. A run that verify_tor.py would reject
for it need not continue for hours. Anything uncertain is left to the check at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from onionlab.engines.base import WATCHED_LATE_S
from onionlab.rundir.verify_tor import (
    LAST_LINES,
    Expectation,
    ProofRequirement,
    RunRefusedError,
    contradiction,
    find_tor_logs,
    format_first_hosts,
    shown_proofs,
)


@dataclass(frozen=True)
class ProofDeadlines:
    """The simulated second by which at least one of several hosts has to have logged their proof.

    every_relay_s: for proofs that relays log when they open channels, which every relay does;
    an_exit_s: for proofs that only exits of streams log.
    """

    every_relay_s: float
    an_exit_s: float

    def of(self, expectation: Expectation) -> float:
        """Return the deadline of a host's proof in its log as seen outside the simulation."""
        one_of = expectation.requirement is ProofRequirement.ONE_OF
        return (self.an_exit_s if one_of else self.every_relay_s) + WATCHED_LATE_S


class ProofWatch:
    """A watch on the logs of relays, each until it contains its proof or the proof is overdue."""

    def __init__(
        self,
        hosts: Path,
        expectations: Mapping[str, Expectation],
        proof_prefixes: Collection[str],
        due: ProofDeadlines,
    ) -> None:
        self._hosts = hosts
        self._prefixes = proof_prefixes
        self._due = due
        self._open = {host: own for host, own in expectations.items() if not own.is_client}
        self._proved: set[str] = set()
        self._read: dict[Path, int] = {}

    def look(self, simulated_s: float) -> None:
        """Read new lines. Raises RunRefusedError if the run can no longer be valid."""
        wrong: dict[str, list[str]] = {}
        for host, expectation in list(self._open.items()):
            shown = shown_proofs(self._new_lines(host), self._prefixes)
            problem = contradiction(expectation, shown)
            if problem is not None:
                wrong.setdefault(problem, []).append(host)
            elif shown:
                self._proved.add(shown[0])
                del self._open[host]
        self._refuse(wrong)
        absent: dict[str, list[str]] = {}
        for host, expectation in list(self._open.items()):
            if simulated_s >= self._due.of(expectation):
                del self._open[host]
                proof = expectation.proof
                must = expectation.requirement is not ProofRequirement.MAY
                # If other hosts have logged this proof, a late host may still log it.
                if must and proof is not None and proof not in self._proved:
                    absent.setdefault(f'none of these logged "{proof}"', []).append(host)
        self._refuse(absent)

    def _refuse(self, problems: Mapping[str, list[str]]) -> None:
        if not problems:
            return
        text = "; ".join(f"{what}: {format_first_hosts(who)}" for what, who in problems.items())
        first = next(iter(problems.values()))[0]
        lines = [
            line
            for path in find_tor_logs(self._hosts / first)
            for line in path.read_text(errors="replace").splitlines()
        ]
        raise RunRefusedError(
            f"{text} (detected during the run, which was stopped)", lines[-LAST_LINES:]
        )

    def _new_lines(self, host: str) -> list[str]:
        """Return the complete lines that a host's Tor has logged since the last call."""
        lines: list[str] = []
        for path in find_tor_logs(self._hosts / host):
            with path.open("rb") as log:
                log.seek(self._read.get(path, 0))
                new = log.read()
            end = new.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + end
            lines += new[:end].decode(errors="replace").splitlines()
        return lines
