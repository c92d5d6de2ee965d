"""Whether a finished simulation is what it claims to be, from Tor's own logs.

A run is refused, and never reported, where a Tor did not bootstrap, did not run the variant that
the experiment asked of it, spread a client's streams over circuits where they were to share one, or
reached an onion service in another way than over rendezvous circuits.
This reads only the layout that all engines share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from onionlab.rundir.circuits import OneCircuit, circuit_problem
from onionlab.rundir.rendezvous import Rendezvous, rendezvous_problem
from onionlab.rundir.trace import CELL_TRACE_IN_USE, TRACE_FILE

BOOTSTRAPPED = "Bootstrapped 100%"
NEVER_BOOTSTRAPPED = "Tor never bootstrapped"
MOST_NEVER_BOOTSTRAPPED = 0.05
"""Share of the hosts for which it is no fault each."""
MAX_NAMED_HOSTS = 5
LAST_LINES = 15
"""Of a log, which tell why a run does not count."""


class RunRefusedError(Exception):
    """A simulation that ended but does not count."""

    def __init__(self, message: str, log_tail: list[str]) -> None:
        super().__init__(message)
        self.message = message
        self.log_tail = log_tail


class Shows(Enum):
    """Whether a relay has to have logged its proof."""

    MUST = "must"
    ONE_OF = "one of"
    """At least one of the hosts that have this and the same proof."""
    MAY = "may"


@dataclass(frozen=True)
class Expectation:
    """What a host's Tor must have logged.

    proof: the text that names its variant, or None where Tor is unpatched and must name none. A
    client must have bootstrapped, and what it names may only not contradict the proof. A relay must
    have shown the proof as `shows` says: each opens channels for certain, while streams may end at
    one exit and never at another. Whether a relay could also build circuits of its own says
    nothing: in a network with two guards a guard often cannot.

    circuit: of a client whose streams had to share one circuit, what that circuit is. rendezvous:
    of a client of onion services, which relays its circuits may have.

    traced: it must have said that it writes a cell trace, and have left one.

    may_never_bootstrap: of a client in a network that was made elsewhere and whose load is what it
    is; of all such hosts a small share may.
    """

    proof: str | None
    is_client: bool
    shows: Shows = Shows.MUST
    circuit: OneCircuit | None = None
    traced: bool = False
    rendezvous: Rendezvous | None = None
    may_never_bootstrap: bool = False


def verify_tor_logs(
    hosts: Path, expectations: Mapping[str, Expectation], proof_prefixes: Collection[str]
) -> dict[str, int]:
    """Check each host's Tor log below `hosts`; return how many hosts proved which variant.

    Those that never bootstrapped, and need not have, are counted as such. proof_prefixes: what a
    line that names a variant begins with, of every patch series. Raises RunRefusedError naming the
    hosts, with the last lines of the first one's log.
    """
    problems: dict[str, list[str]] = {}
    proofs: dict[str, int] = {}
    silent: dict[str, list[str]] = {}
    loud: set[str] = set()
    without: dict[str, list[str]] = {}
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
                without[host] = lines
                continue
        if problem is None:
            proof = next(iter(shown), "")
            proofs[proof] = proofs.get(proof, 0) + 1
            if expectation.shows is Shows.ONE_OF and expectation.proof is not None:
                if proof:
                    loud.add(proof)
                else:
                    silent.setdefault(expectation.proof, []).append(host)
        else:
            problems.setdefault(problem, []).append(host)
            first_bad = first_bad or lines
    for proof, names in silent.items():
        if proof not in loud:
            problems[f'none of these logged "{proof}"'] = names
            first_bad = first_bad or _tor_log(hosts / names[0])
    may = sum(expectation.may_never_bootstrap for expectation in expectations.values())
    if len(without) > MOST_NEVER_BOOTSTRAPPED * may:
        share = f"{len(without)} of {may}, where {MOST_NEVER_BOOTSTRAPPED:.0%} may"
        problems[f"{NEVER_BOOTSTRAPPED} ({share})"] = list(without)
        first_bad = first_bad or next(iter(without.values()))
    elif without:
        proofs[NEVER_BOOTSTRAPPED] = len(without)
    if problems:
        text = "; ".join(f"{what}: {some(who)}" for what, who in problems.items())
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
    must = not expectation.is_client and expectation.shows is Shows.MUST
    if wanted is not None and not shown and must:
        return f'Tor did not log "{wanted}"'
    if expectation.circuit is not None:
        return circuit_problem(lines, expectation.circuit)
    if expectation.rendezvous is not None:
        return rendezvous_problem(lines, expectation.rendezvous)
    return None


def contradiction(expectation: Expectation, shown: list[str]) -> str | None:
    """Return why the proofs that a host has shown are not its variant's; None where they may be."""
    wanted = expectation.proof
    if wanted is None and shown:
        return f"unpatched Tor expected, but it logged {sorted(shown)}"
    if wanted is not None and shown and shown != [wanted]:
        return f'Tor logged {sorted(shown)} instead of "{wanted}"'
    return None


def shown_proofs(lines: list[str], proof_prefixes: Collection[str]) -> list[str]:
    """The proofs in a log, each once."""
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
        return "Tor wrote a cell trace that nobody asked for" if says_so else None
    if not says_so:
        return f'Tor did not log "{CELL_TRACE_IN_USE}"'
    if not trace.is_file():
        return f"Tor left no cell trace {trace.name}"
    return None


def _tor_log(folder: Path) -> list[str]:
    lines: list[str] = []
    for path in logs_of(folder):
        lines += path.read_text(errors="replace").splitlines()
    return lines


def logs_of(folder: Path) -> list[Path]:
    """The logs of the Tors of a host, by its folder."""
    return sorted(folder.glob("tor-*.stdout"))


def some(hosts: list[str]) -> str:
    """The first hosts' names, for people."""
    more = f" and {len(hosts) - MAX_NAMED_HOSTS} more" if len(hosts) > MAX_NAMED_HOSTS else ""
    return ", ".join(hosts[:MAX_NAMED_HOSTS]) + more
