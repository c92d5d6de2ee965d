"""Whether Tor runs the variant that it has to, seen while the simulation runs.

Tor logs which variant is in use within seconds of simulated time; a run that will be refused for it
(verify_tor.py) need not go on for hours. What is not certain yet is left to the check at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from onionlab.engines.base import WATCHED_LATE_S
from onionlab.rundir.verify_tor import (
    LAST_LINES,
    Expectation,
    RunRefusedError,
    Shows,
    contradiction,
    logs_of,
    shown_proofs,
    some,
)


@dataclass(frozen=True)
class ProofsDue:
    """The simulated second by which at least one of several hosts has logged their proof.

    every_relay_s: where each opens channels for certain; an_exit_s: where one that streams end at
    logs it.
    """

    every_relay_s: float
    an_exit_s: float

    def of(self, expectation: Expectation) -> float:
        """When a host's proof is due, on the host's side of the engine."""
        one_of = expectation.shows is Shows.ONE_OF
        return (self.an_exit_s if one_of else self.every_relay_s) + WATCHED_LATE_S


class ProofWatch:
    """Reads the logs of relays as they grow, each until it has shown its proof or that is due."""

    def __init__(
        self,
        hosts: Path,
        expectations: Mapping[str, Expectation],
        proof_prefixes: Collection[str],
        due: ProofsDue,
    ) -> None:
        self._hosts = hosts
        self._prefixes = proof_prefixes
        self._due = due
        self._open = {host: own for host, own in expectations.items() if not own.is_client}
        self._proved: set[str] = set()
        self._read: dict[Path, int] = {}

    def look(self, simulated_s: float) -> None:
        """Read what is new. Raises RunRefusedError where the run cannot count any more."""
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
                must = expectation.shows is not Shows.MAY
                # One that is late, where others are not, may still come.
                if must and proof is not None and proof not in self._proved:
                    absent.setdefault(f'none of these logged "{proof}"', []).append(host)
        self._refuse(absent)

    def _refuse(self, problems: Mapping[str, list[str]]) -> None:
        if not problems:
            return
        text = "; ".join(f"{what}: {some(who)}" for what, who in problems.items())
        first = next(iter(problems.values()))[0]
        lines = [
            line
            for path in logs_of(self._hosts / first)
            for line in path.read_text(errors="replace").splitlines()
        ]
        raise RunRefusedError(f"{text} (seen while it ran, and ended there)", lines[-LAST_LINES:])

    def _new_lines(self, host: str) -> list[str]:
        """The whole lines that a host's Tor has logged since the last look."""
        lines: list[str] = []
        for path in logs_of(self._hosts / host):
            with path.open("rb") as log:
                log.seek(self._read.get(path, 0))
                new = log.read()
            end = new.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + end
            lines += new[:end].decode(errors="replace").splitlines()
        return lines
