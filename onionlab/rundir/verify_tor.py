"""Verify from Tor's logs that a finished simulation is valid.

A run is rejected and never reported if a Tor process did not bootstrap, did not run the requested
variant, spread a client's streams over several circuits although they had to share one, or reached
an onion service without rendezvous circuits. Only the layout that all engines have in common is
read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from onionlab.rundir.circuits import SharedCircuit, circuit_problem
from onionlab.rundir.rendezvous import Rendezvous, rendezvous_problem
from onionlab.rundir.trace import CELL_TRACE_IN_USE, TRACE_FILE

BOOTSTRAPPED = "Bootstrapped 100%"
NEVER_BOOTSTRAPPED = "Tor never bootstrapped"
MAX_NEVER_BOOTSTRAPPED_SHARE = 0.05
"""The share of the hosts with `may_never_bootstrap` for which this is accepted."""
MAX_NAMED_HOSTS = 5
LAST_LINES = 15
"""The number of lines of a log that explain why a run was rejected."""


class RunRefusedError(Exception):
    """A completed simulation was rejected."""

    def __init__(self, message: str, log_tail: list[str]) -> None:
        super().__init__(message)
        self.message = message
        self.log_tail = log_tail


class ProofRequirement(Enum):
    """The requirement on a relay to have logged its proof."""

    MUST = "must"
    ONE_OF = "one of"
    """At least one of the hosts with this value and the same proof has to log it."""
    MAY = "may"


@dataclass(frozen=True)
class Expectation:
    """The required log content of a host's Tor process.

    proof: the text that identifies its variant, or None if Tor is unpatched and must log no proof.
    A client must have bootstrapped, and a proof that it logs must not contradict the expected one.
    A relay must have logged the proof if `requirement` says so: every relay opens channels, but
    streams may end at one exit and never at another. A relay's ability to build its own circuits is
    not checked: in a network with two guards, a guard often cannot build any.

    circuit: the circuit that all streams of a client have to share. rendezvous: the relays that the
    circuits of a client of onion services may use.

    traced: Tor must have logged that it writes a cell trace, and the trace must exist.
    may_never_bootstrap: set for clients of an imported network with its own load; a small share of
    such hosts may fail to bootstrap.
    """

    proof: str | None
    is_client: bool
    requirement: ProofRequirement = ProofRequirement.MUST
    circuit: SharedCircuit | None = None
    traced: bool = False
    rendezvous: Rendezvous | None = None
    may_never_bootstrap: bool = False


def verify_tor_logs(
    hosts: Path, expectations: Mapping[str, Expectation], proof_prefixes: Collection[str]
) -> dict[str, int]:
    """Check each host's Tor log below `hosts`. Return the number of hosts that proved each variant.

    Hosts that never bootstrapped and need not have are counted separately. proof_prefixes: the
    prefixes of lines that identify a variant, for every patch series. Raises RunRefusedError with
    the hosts' names and the last lines of the first one's log.
    """
    problems: dict[str, list[str]] = {}
    proofs: dict[str, int] = {}
    unproven: dict[str, list[str]] = {}
    proven: set[str] = set()
    not_bootstrapped: dict[str, list[str]] = {}
    first_bad: list[str] = []
    for host, expectation in expectations.items():
        lines = _tor_log(hosts / host)
        shown = shown_proofs(lines, proof_prefixes)
        problem = _problem(lines, expectation, shown) or _trace_problem(
            lines, hosts / host / TRACE_FILE, expectation
        )
        if problem == NEVER_BOOTSTRAPPED and expectation.may_never_bootstrap:
            problem = contradiction(expectation, shown)
            if problem is None:
                not_bootstrapped[host] = lines
                continue
        if problem is None:
            proof = next(iter(shown), "")
            proofs[proof] = proofs.get(proof, 0) + 1
            if expectation.requirement is ProofRequirement.ONE_OF and expectation.proof is not None:
                if proof:
                    proven.add(proof)
                else:
                    unproven.setdefault(expectation.proof, []).append(host)
        else:
            problems.setdefault(problem, []).append(host)
            first_bad = first_bad or lines
    for proof, names in unproven.items():
        if proof not in proven:
            problems[f'none of these logged "{proof}"'] = names
            first_bad = first_bad or _tor_log(hosts / names[0])
    may = sum(expectation.may_never_bootstrap for expectation in expectations.values())
    if len(not_bootstrapped) > MAX_NEVER_BOOTSTRAPPED_SHARE * may:
        share = (
            f"{len(not_bootstrapped)} of {may}, at most {MAX_NEVER_BOOTSTRAPPED_SHARE:.0%} allowed"
        )
        problems[f"{NEVER_BOOTSTRAPPED} ({share})"] = list(not_bootstrapped)
        first_bad = first_bad or next(iter(not_bootstrapped.values()))
    elif not_bootstrapped:
        proofs[NEVER_BOOTSTRAPPED] = len(not_bootstrapped)
    if problems:
        text = "; ".join(f"{what}: {format_first_hosts(who)}" for what, who in problems.items())
        raise RunRefusedError(text, first_bad[-LAST_LINES:])
    return proofs


def _problem(lines: list[str], expectation: Expectation, shown: list[str]) -> str | None:
    if not lines:
        return "Tor logged nothing"
    if expectation.is_client and not any(BOOTSTRAPPED in line for line in lines):
        return NEVER_BOOTSTRAPPED
    problem = contradiction(expectation, shown)
    if problem is not None:
        return problem
    wanted = expectation.proof
    must = not expectation.is_client and expectation.requirement is ProofRequirement.MUST
    if wanted is not None and not shown and must:
        return f'Tor did not log "{wanted}"'
    if expectation.circuit is not None:
        return circuit_problem(lines, expectation.circuit)
    if expectation.rendezvous is not None:
        return rendezvous_problem(lines, expectation.rendezvous)
    return None


def contradiction(expectation: Expectation, shown: list[str]) -> str | None:
    """Return why the proofs that a host has logged contradict its variant, or None."""
    wanted = expectation.proof
    if wanted is None and shown:
        return f"unpatched Tor expected, but it logged {sorted(shown)}"
    if wanted is not None and shown and shown != [wanted]:
        return f'Tor logged {sorted(shown)} instead of "{wanted}"'
    return None


def shown_proofs(lines: list[str], proof_prefixes: Collection[str]) -> list[str]:
    """Return the proofs in a log, each once."""
    found = (
        line[line.index(prefix) :].strip()
        for line in lines
        for prefix in proof_prefixes
        if prefix in line
    )
    return list(dict.fromkeys(found))


def _trace_problem(lines: list[str], trace: Path, expectation: Expectation) -> str | None:
    says_so = any(CELL_TRACE_IN_USE in line for line in lines)
    if not expectation.traced:
        return "Tor wrote a cell trace that was not requested" if says_so else None
    if not says_so:
        return f'Tor did not log "{CELL_TRACE_IN_USE}"'
    if not trace.is_file():
        return f"Tor left no cell trace {trace.name}"
    return None


def _tor_log(folder: Path) -> list[str]:
    lines: list[str] = []
    for path in find_tor_logs(folder):
        lines += path.read_text(errors="replace").splitlines()
    return lines


def find_tor_logs(folder: Path) -> list[Path]:
    """Return the logs of all Tor processes of a host, by its folder."""
    return sorted(folder.glob("tor-*.stdout"))


def format_first_hosts(hosts: list[str]) -> str:
    """Return the first hosts' names, for messages."""
    more = f" and {len(hosts) - MAX_NAMED_HOSTS} more" if len(hosts) > MAX_NAMED_HOSTS else ""
    return ", ".join(hosts[:MAX_NAMED_HOSTS]) + more
