"""Verify from the logs of programs that a simulation is valid, during the run and at its end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from analysis.formats import files
from analysis.formats.run_files import read_clients, read_clock
from analysis.records.tgenlog import TgenLog
from onionlab.engines.base import WATCHED_LATE_S
from onionlab.rundir import arti
from onionlab.rundir.circuits import Rendezvous, SharedCircuit
from onionlab.rundir.trace import CELL_TRACE_IN_USE, TRACE_FILE

BOOTSTRAPPED = "Bootstrapped 100%"
NEVER_BOOTSTRAPPED = "Tor never bootstrapped"
MAX_NEVER_BOOTSTRAPPED_SHARE = 0.05
"""The largest accepted share of the hosts with `may_never_bootstrap` that do not bootstrap."""
MAX_NAMED_HOSTS = 5
DURING_RUN = " (detected during the run, which was stopped)"
LAST_LINES = 15
"""The number of last lines of a log that are shown when a run is rejected."""


class RunRefusedError(Exception):
    """A simulation was rejected, during the run or at its end."""

    def __init__(self, message: str, log_tail: list[str]) -> None:
        super().__init__(message)
        self.message = message
        self.log_tail = log_tail


class ProofRequirement(Enum):
    """The rule that decides if a relay must have logged its proof, see `Expectation`."""

    MUST = "must"
    ONE_OF = "one of"
    """At least one of the hosts with this value and the same proof has to log the proof."""
    MAY = "may"


@dataclass(frozen=True)
class Expectation:
    """The required log content of a host's Tor process.

    proof: the string that Tor logs if it runs the code of the host's variant; None if Tor is
    unpatched. A host must log no other proof. A client need not log its proof, and `requirement`
    says whether a relay must log its proof. (Tor logs some proofs when it opens a channel, which
    every relay does, and others when a stream waits, which does not happen at every exit.)
    any_proof: True if the host may log any proof of Tor, because the user's own source can contain
    the patches of a series.

    is_client: True for a client or an onion service, which must have bootstrapped. A relay need not
    bootstrap: in a network with two guards, a guard often cannot build any circuit.

    circuit: the circuits that the streams of a client have to use; None if any circuit is valid.
    traced: True if the relay must have logged that it writes a cell trace, and left the trace;
    False if it must not have logged this.
    bootstrapped: the string that a client logs when it has bootstrapped.
    may_never_bootstrap: True for clients and onion services of an imported network. A small share
    of them may fail to bootstrap.

    program: the name of the process in messages.
    """

    proof: str | None
    is_client: bool
    requirement: ProofRequirement = ProofRequirement.MUST
    circuit: SharedCircuit | Rendezvous | None = None
    traced: bool = False
    may_never_bootstrap: bool = False
    bootstrapped: str = BOOTSTRAPPED
    program: str = "Tor"
    any_proof: bool = False


ARTI_CLIENT = Expectation(
    arti.BOOTSTRAPPED, is_client=True, bootstrapped=arti.BOOTSTRAPPED, program="Arti"
)
"""The required log content of an Arti client."""


def verify_tor_logs(
    hosts: Path, expectations: Mapping[str, Expectation], proof_prefixes: Collection[str]
) -> dict[str, int]:
    """Check each host's Tor log below `hosts`. Return the number of hosts that logged each proof.

    The key "" counts hosts that logged no proof. The key NEVER_BOOTSTRAPPED counts hosts that never
    bootstrapped, if so few hosts may fail. proof_prefixes: the strings with which proofs begin.
    Raises RunRefusedError with the failed hosts' names and the last lines of the first one's log.
    """
    problems: dict[str, list[str]] = {}
    proofs: Counter[str] = Counter()
    one_of: dict[str, dict[str, bool]] = {}
    not_bootstrapped: list[str] = []
    for host, expectation in expectations.items():
        lines = read_logs(find_tor_logs(hosts / host))
        shown = shown_proofs(lines, [*proof_prefixes, arti.BOOTSTRAPPED])
        problem = _problem(lines, expectation, shown) or _trace_problem(
            lines, hosts / host / TRACE_FILE, expectation
        )
        if problem == NEVER_BOOTSTRAPPED and expectation.may_never_bootstrap:
            problem = contradiction(expectation, shown)
            if problem is None:
                not_bootstrapped.append(host)
                continue
        if problem is not None:
            problems.setdefault(problem, []).append(host)
            continue
        proofs.update(shown or [""])
        if expectation.requirement is ProofRequirement.ONE_OF and expectation.proof:
            one_of.setdefault(expectation.proof, {})[host] = bool(shown)
    problems |= {
        f'none of these logged "{proof}"': list(logged)
        for proof, logged in one_of.items()
        if not any(logged.values())
    }
    may = sum(expectation.may_never_bootstrap for expectation in expectations.values())
    count, most = len(not_bootstrapped), MAX_NEVER_BOOTSTRAPPED_SHARE
    if count > most * may:
        told = f"{NEVER_BOOTSTRAPPED} ({count} of {may}, at most {most:.0%} allowed)"
        problems[told] = not_bootstrapped
    elif count:
        proofs[NEVER_BOOTSTRAPPED] = count
    _require_none(problems, hosts)
    return dict(proofs)


def _require_none(problems: Mapping[str, list[str]], hosts: Path, note: str = "") -> None:
    """Raise RunRefusedError if there are problems. problems: description -> names of hosts."""
    if problems:
        text = "; ".join(f"{what}: {format_first_hosts(who)}" for what, who in problems.items())
        first = next(iter(problems.values()))[0]
        raise RunRefusedError(text + note, read_logs(find_tor_logs(hosts / first))[-LAST_LINES:])


def _problem(lines: list[str], expectation: Expectation, shown: list[str]) -> str | None:
    if not lines:
        return f"{expectation.program} logged nothing"
    if expectation.is_client and not any(expectation.bootstrapped in line for line in lines):
        return f"{expectation.program} never bootstrapped"
    if problem := contradiction(expectation, shown):
        return problem
    must = not expectation.is_client and expectation.requirement is ProofRequirement.MUST
    if must and expectation.proof is not None and not shown:
        return f'Tor did not log "{expectation.proof}"'
    return expectation.circuit.find_problem(lines) if expectation.circuit else None


def contradiction(expectation: Expectation, shown: list[str]) -> str | None:
    """Return why the proofs in a host's log contradict its variant; None if they agree with it."""
    wanted = expectation.proof
    if expectation.any_proof:
        shown = [proof for proof in shown if proof.startswith(arti.BOOTSTRAPPED)]
    if wanted is None and shown:
        return f"unpatched Tor expected, but it logged {sorted(shown)}"
    if wanted is not None and shown and shown != [wanted]:
        return f'Tor logged {sorted(shown)} instead of "{wanted}"'
    return None


def shown_proofs(lines: list[str], proof_prefixes: Collection[str]) -> list[str]:
    """Return the distinct proofs in a log. A proof reaches from a prefix to the line end."""
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


def read_logs(paths: Iterable[Path]) -> list[str]:
    """Return the lines of some logs, one log after the other."""
    return [line for path in paths for line in path.read_text(errors="replace").splitlines()]


def find_tor_logs(folder: Path) -> list[Path]:
    """Return the paths of the logs of all processes of Tor and Arti in a host's folder."""
    return sorted([*folder.glob("tor-*.stdout"), *folder.glob("arti-*.stderr")])


def format_first_hosts(hosts: list[str]) -> str:
    """Return the first hosts' names, for messages."""
    more = f" and {len(hosts) - MAX_NAMED_HOSTS} more" if len(hosts) > MAX_NAMED_HOSTS else ""
    return ", ".join(hosts[:MAX_NAMED_HOSTS]) + more


TAIL_BYTES = 1 << 16
"""The number of bytes at the end of a TGen log that are read first. At TGen's log level `message`,
they contain several heartbeats, the lines that TGen writes at regular intervals."""


def verify_log_ends(run_directory: Path) -> None:
    """Check that each client's TGen logs are complete to the end of the run or to TGen's exit.

    Raises RunRefusedError with the failed clients' names and the last lines of the first one's log.
    """
    clock = read_clock(run_directory)
    problems: dict[str, tuple[str, list[bytes]]] = {}
    for host in sorted(read_clients(run_directory)):
        for path in sorted((run_directory / files.HOSTS / host).glob("tgen*.stdout")):
            lines = _last_lines(path)
            log = TgenLog()
            log.feed(lines)
            if (problem := log.early_end(clock)) is not None:
                problems.setdefault(host, (problem, lines))
    if problems:
        first, (problem, lines) = next(iter(problems.items()))
        raise RunRefusedError(
            f"{len(problems)} clients have an incomplete log "
            f"({format_first_hosts(list(problems))}). The log of {first}: {problem}",
            [line.decode(errors="replace")[:200] for line in lines[-LAST_LINES:]],
        )


def _last_lines(path: Path) -> list[bytes]:
    """Return the last complete lines of a log, with at least two heartbeats if it has so many."""
    with path.open("rb") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
        file.seek(begin)
        lines = file.read().split(b"\n")[bool(begin) : -1]
        if begin and sum(b"[driver-heartbeat]" in line for line in lines) < 2:
            file.seek(0)
            lines = file.read().split(b"\n")[:-1]
    return lines


class ProofWatch:
    """Watches the log of each relay until it contains the relay's proof or the proof is overdue.

    A proof is overdue if no relay has logged it before a limit, a simulated time in seconds. The
    limit is `every_relay_s` for a proof that every relay logs when it opens a channel. It is
    `an_exit_s` for a proof that an exit logs when a stream has to wait for the first time. Such a
    wait can be late: with a link of 20 KiB/s, no stream waited in the first 15 minutes. Therefore
    `an_exit_s` should be the end of the run.
    """

    def __init__(
        self,
        hosts: Path,
        expectations: Mapping[str, Expectation],
        proof_prefixes: Collection[str],
        *,
        every_relay_s: float,
        an_exit_s: float,
    ) -> None:
        self._hosts = hosts
        self._prefixes = proof_prefixes
        self._every_relay_s, self._an_exit_s = every_relay_s, an_exit_s
        self._open = {
            host: own
            for host, own in expectations.items()
            if not own.is_client and not own.any_proof
        }
        self._proved: set[str] = set()
        self._read: dict[Path, int] = {}

    def look(self, simulated_s: float) -> None:
        """Read the new lines of the logs. Raises RunRefusedError if the run cannot become valid."""
        wrong: dict[str, list[str]] = {}
        for host, expectation in list(self._open.items()):
            shown = shown_proofs(self._new_lines(host), self._prefixes)
            problem = contradiction(expectation, shown)
            if problem is not None:
                wrong.setdefault(problem, []).append(host)
            elif shown:
                self._proved.add(shown[0])
                del self._open[host]
        _require_none(wrong, self._hosts, DURING_RUN)
        absent: dict[str, list[str]] = {}
        for host, expectation in list(self._open.items()):
            is_one_of = expectation.requirement is ProofRequirement.ONE_OF
            due_s = self._an_exit_s if is_one_of else self._every_relay_s
            if simulated_s >= due_s + WATCHED_LATE_S:
                del self._open[host]
                proof = expectation.proof
                must = expectation.requirement is not ProofRequirement.MAY
                # A proof that other hosts have logged is not overdue. This host may still log it.
                # The host is checked again at the end of the run.
                if must and proof is not None and proof not in self._proved:
                    absent.setdefault(f'none of these logged "{proof}"', []).append(host)
        _require_none(absent, self._hosts, DURING_RUN)

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
