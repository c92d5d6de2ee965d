"""The checks of Tor's logs: proofs of variants, circuits of clients, and the watch during a run.

A watched run is ended early only if it can no longer be valid.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.formats.plan_file import Request
from onionlab.engines.base import WATCHED_LATE_S
from onionlab.experiment import Settings, load
from onionlab.programs.tor.tor_source import TorSource
from onionlab.programs.tor.variants import load_variants
from onionlab.rundir.arti import BOOTSTRAPPED
from onionlab.rundir.circuits import Rendezvous, SharedCircuit
from onionlab.rundir.compose import expectation
from onionlab.rundir.verify import (
    Expectation,
    ProofRequirement,
    ProofWatch,
    RunRefusedError,
    verify_tor_logs,
)
from onionlab.runs.run_builder import run_builder

REPOSITORY = Path(__file__).resolve().parents[2]

PREFIX = "Circuit policy in use: "
PREFIXES = [PREFIX, "Stream order in use: "]
RR, EWMA = (f"{PREFIX}{name}." for name in ("RR", "EWMA"))
LIST = "Stream order in use: list."
DUE_S = 90.0 + WATCHED_LATE_S

GUARD, MIDDLE, EXIT, OTHER = (letter * 40 for letter in "ABCD")
WANTED = SharedCircuit(2, (frozenset({GUARD}), frozenset({MIDDLE}), frozenset({EXIT})))
STAMP = "Jan 01 00:02:00.030 [info] "
NOISE = "Jan 01 00:02:00.031 [notice] Bootstrapped 100% (done): Done"


def attached(circuit: int, socket: int = 14) -> str:
    text = f"Address/port sent, ap socket {socket}, n_circ_id {circuit}"
    return f"{STAMP}connection_ap_handshake_send_begin(): {text}"


def connected(*hops: str, state: str = "open") -> str:
    names = " ".join(f"${hop}({state})" for hop in hops)
    return f"{STAMP}exit circ (length {len(hops)}): {names}"


PATH = connected(GUARD, MIDDLE, EXIT)
GOOD = [NOISE, attached(7), attached(7, 15), PATH, PATH]


def test_two_streams_on_one_circuit() -> None:
    assert WANTED.find_problem(GOOD) is None
    # Two kinds of lines are not problems: those about directory requests, which use internal
    # circuits, and a path that is logged again.
    own = f"{STAMP}connection_ap_handshake_send_begin(): Address/port sent, ap socket -1"
    internal = f"{STAMP}internal circ (length 1): ${OTHER}(open)"
    assert WANTED.find_problem([*GOOD, f"{own}, n_circ_id 9", internal, PATH]) is None


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([NOISE], "0 streams were attached to a circuit instead of 2"),
        ([*GOOD, attached(7)], "3 streams were attached to a circuit"),
        ([attached(7), attached(8), PATH, PATH], "spread over 2 circuits"),
        (GOOD[:4], "circuit 1 times"),
        ([*GOOD, connected(GUARD, OTHER, EXIT)], "2 different paths"),
        ([*GOOD[:3], *[connected(GUARD, EXIT)] * 2], "2 hops instead of 3"),
        ([*GOOD[:3], *[connected(GUARD, OTHER, EXIT)] * 2], "hop 2 of the circuit"),
        ([*GOOD[:3], *[connected(GUARD, MIDDLE, EXIT, state="closed")] * 2], "0 hops"),
        # The last line of the log is cut.
        ([*GOOD[:4], PATH[:-60]], "2 different paths"),
    ],
)
def test_other_circuits_are_reported(lines: list[str], problem: str) -> None:
    assert problem in str(WANTED.find_problem(lines))


OVER_RENDEZVOUS = Rendezvous(frozenset((GUARD,)), frozenset((GUARD, MIDDLE, EXIT)))

SERVICE = (
    "[info] hs_client_receive_rendezvous2(): Got RENDEZVOUS2 cell from hidden service "
    "on circuit 39."
)
JOINED = (
    "[info] connection_ap_handshake_attach_circuit(): rend joined circ 39 (id: 14) already here. "
    "Attaching. (stream 4 sec old)"
)
ITS_PATH = (
    f"[info] internal (high-uptime) circ (length 3): ${GUARD}(open) ${MIDDLE}(open) ${EXIT}(open)"
)
SENT = "[info] connection_ap_handshake_send_begin(): Address/port sent, ap socket 14, n_circ_id 39"
DIRECTORY = [
    "[info] internal circ (length 1): $" + "E" * 40 + "(open)",
    SENT.replace("socket 14", "socket -1").replace("39", "7"),
]
JOINED_LOG = [*DIRECTORY, SERVICE, JOINED, ITS_PATH, SENT, ITS_PATH, JOINED, ITS_PATH, SENT]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (JOINED_LOG, ""),
        (DIRECTORY, "no stream was ever attached"),
        ([*JOINED_LOG, SENT.replace("39", "40")], "1 of 3 streams were attached to a circuit that"),
        ([line for line in JOINED_LOG if line != SERVICE], "2 of 2 streams"),
        ([line for line in JOINED_LOG if line != JOINED], "2 of 2 streams"),
        ([line.replace(MIDDLE, GUARD) for line in JOINED_LOG], "2 different relays"),
        ([line.replace(MIDDLE, OTHER) for line in JOINED_LOG], "relay of another network"),
        (
            [
                line.replace(GUARD, "X").replace(MIDDLE, GUARD).replace("X", MIDDLE)
                for line in JOINED_LOG
            ],
            "starts at a relay that is not a guard",
        ),
    ],
)
def test_streams_must_be_on_a_circuit_joined_by_the_service(lines: list[str], problem: str) -> None:
    found = OVER_RENDEZVOUS.find_problem(lines) or ""
    assert problem in found
    assert bool(found) is bool(problem)


# Proofs of variants


def write_log(hosts: Path, host: str, *lines: str) -> None:
    (hosts / host).mkdir()
    (hosts / host / "tor-x.1000.stdout").write_text("".join(f"{line}\n" for line in lines))


def test_a_run_counts_when_every_relay_logged_its_policy(tmp_path: Path) -> None:
    write_log(tmp_path, "relay1", "Bootstrapped 100% (done): Done", f"[notice] {RR}")
    write_log(tmp_path, "client1", *GOOD)
    client = Expectation(RR, True, circuit=WANTED)
    expectations = {"relay1": Expectation(RR, False), "client1": client}
    assert verify_tor_logs(tmp_path, expectations, [PREFIX]) == {RR: 1, "": 1}


@pytest.mark.parametrize(
    ("lines", "expected", "message"),
    [
        ([], Expectation(RR, False), "Tor logged nothing: host1"),
        ([f"[notice] {RR}"], Expectation(RR, True), "never bootstrapped: host1"),
        ([NOISE], Expectation(RR, False), "did not log"),
        ([NOISE, EWMA], Expectation(RR, False), "instead of"),
        ([NOISE, RR, EWMA], Expectation(RR, False), "instead of"),
        ([NOISE, RR], Expectation(None, False), "unpatched Tor expected"),
        (
            [*GOOD[:2], attached(8), PATH, PATH],
            Expectation(None, True, circuit=WANTED),
            "spread over 2 circuits instead of one: host1",
        ),
    ],
)
def test_a_run_is_refused(
    tmp_path: Path, lines: list[str], expected: Expectation, message: str
) -> None:
    write_log(tmp_path, "host1", *lines)
    with pytest.raises(RunRefusedError, match=message):
        verify_tor_logs(tmp_path, {"host1": expected}, [PREFIX])


def test_a_source_of_ones_own_may_contain_a_series(tmp_path: Path) -> None:
    own = Expectation(None, False, any_proof=True)
    write_log(tmp_path, "relay1", NOISE, f"[notice] {RR}", f"[notice] {LIST}")
    write_log(tmp_path, "relay2", NOISE)
    expectations = {"relay1": own, "relay2": own}
    assert verify_tor_logs(tmp_path, expectations, PREFIXES) == {RR: 1, LIST: 1, "": 1}
    # That relay1 logged the line of RR does not prove that relay3 runs RR.
    relays = Relays(tmp_path, relay1=own, relay3=Expectation(RR, False))
    relays.log("relay3", NOISE)
    relays.watch.look(20)
    with pytest.raises(RunRefusedError, match=f'none of these logged "{RR}": relay3'):
        relays.watch.look(DUE_S)
    write_log(tmp_path, "relay4", f"[notice] {BOOTSTRAPPED}")
    with pytest.raises(RunRefusedError, match="unpatched Tor expected"):
        verify_tor_logs(tmp_path, {"relay4": own}, PREFIXES)


@pytest.mark.parametrize(
    ("source", "series", "any_proof"),
    [
        (None, None, False),
        ({"debian": "0.4.9.11"}, None, False),
        ({"git": "/tor", "ref": "main"}, None, True),
        ({"git": "/tor", "ref": "main"}, "circuit-policy", False),
        ({"tarball": "/tor.tar.gz", "sha256": "0" * 64}, None, True),
    ],
)
def test_only_commits_and_tarballs_may_contain_a_series(
    source: dict[str, str] | None, series: str | None, any_proof: bool
) -> None:
    stock = load_variants(REPOSITORY)["stock"]
    made = None if source is None else TorSource.model_validate(source)
    variant = stock.model_copy(update={"source": made, "series": series})
    assert expectation(variant, "guard", traced=False).any_proof is any_proof


@pytest.mark.parametrize(
    ("variant", "required"),
    [("rr", ["MUST", "MUST", "MAY"]), ("stream-list", ["MAY", "ONE_OF", "MAY"])],
)
def test_a_proof_of_waiting_streams_is_required_of_one_exit(
    variant: str, required: list[str]
) -> None:
    made = load_variants(REPOSITORY)[variant]
    found = [expectation(made, role, traced=False) for role in ("guard", "exit", "client")]
    assert [one.requirement.name for one in found] == required


def test_of_clients_of_an_imported_network_a_few_may_never_bootstrap(tmp_path: Path) -> None:
    expectations = {
        f"client{number}": Expectation(RR, True, may_never_bootstrap=True) for number in range(40)
    }
    for number, name in enumerate(expectations):
        write_log(tmp_path, name, "Opening" if number < 3 else "Bootstrapped 100%")
    told = r"Tor never bootstrapped \(3 of 40, at most 5% allowed\): client0, client1, client2"
    with pytest.raises(RunRefusedError, match=told):
        verify_tor_logs(tmp_path, expectations, [PREFIX])
    (tmp_path / "client0" / "tor-x.1000.stdout").write_text("Bootstrapped 100%\n")
    proofs = verify_tor_logs(tmp_path, expectations, [PREFIX])
    assert proofs == {"": 38, "Tor never bootstrapped": 2}


def test_of_relays_that_may_be_idle_one_is_enough(tmp_path: Path) -> None:
    write_log(tmp_path, "exit1", f"[notice] {RR}")
    write_log(tmp_path, "exit2", "[notice] Tor 0.4.9")
    write_log(tmp_path, "guard1", "[notice] Tor 0.4.9")
    expectations = {
        "exit1": Expectation(RR, False, ProofRequirement.ONE_OF),
        "exit2": Expectation(RR, False, ProofRequirement.ONE_OF),
        "guard1": Expectation(RR, False, ProofRequirement.MAY),
    }
    assert verify_tor_logs(tmp_path, expectations, [PREFIX]) == {RR: 1, "": 2}
    del expectations["exit1"]
    with pytest.raises(RunRefusedError, match=f'none of these logged "{RR}": exit2'):
        verify_tor_logs(tmp_path, expectations, [PREFIX])


# The watch during a run


class Relays:
    """Logs of some hosts, and the watch of these logs."""

    def __init__(self, hosts: Path, **expectations: Expectation) -> None:
        self.hosts = hosts
        self.watch = ProofWatch(hosts, expectations, PREFIXES, every_relay_s=90.0, an_exit_s=200.0)

    def log(self, host: str, text: str) -> None:
        (self.hosts / host).mkdir(exist_ok=True)
        with (self.hosts / host / "tor-x.1000.stdout").open("a") as log:
            log.write(text)


def test_another_proof_ends_the_run_when_it_is_logged(tmp_path: Path) -> None:
    relays = Relays(tmp_path, a=Expectation(RR, False), b=Expectation(RR, False))
    relays.watch.look(0)
    relays.log("a", f"[notice] {RR}\n")
    relays.log("b", f"[notice] Tor 0.4.9\n[notice] {EWMA[:-3]}")
    relays.watch.look(20)
    relays.log("b", f"{EWMA[-3:]}\n")
    with pytest.raises(RunRefusedError) as caught:
        relays.watch.look(21)
    assert caught.value.message == (
        f"Tor logged ['{EWMA}'] instead of \"{RR}\": b (detected during the run, which was stopped)"
    )
    assert caught.value.log_tail == ["[notice] Tor 0.4.9", f"[notice] {EWMA}"]


def test_a_proof_that_no_relay_logs_ends_the_run_when_it_is_due(tmp_path: Path) -> None:
    relays = Relays(tmp_path, a=Expectation(RR, False), b=Expectation(RR, False))
    relays.log("a", "[notice] Tor 0.4.9\n")
    relays.watch.look(DUE_S - 1)
    with pytest.raises(RunRefusedError, match=f'none of these logged "{RR}": a, b'):
        relays.watch.look(DUE_S)


def test_a_relay_that_is_late_may_still_come(tmp_path: Path) -> None:
    relays = Relays(tmp_path, a=Expectation(RR, False), b=Expectation(RR, False))
    relays.log("b", f"[notice] {RR}\n")
    for second in (20, DUE_S, DUE_S + 1000):
        relays.watch.look(second)


def test_of_exits_one_is_waited_for_until_streams_have_ended(tmp_path: Path) -> None:
    expectations = {
        "exit1": Expectation(LIST, False, ProofRequirement.ONE_OF),
        "exit2": Expectation(LIST, False, ProofRequirement.ONE_OF),
        "guard": Expectation(LIST, False, ProofRequirement.MAY),
    }
    idle, busy = tmp_path / "idle", tmp_path / "busy"
    for folder in (idle, busy):
        folder.mkdir()
    relays = Relays(idle, **expectations)
    relays.watch.look(DUE_S + 100)
    with pytest.raises(RunRefusedError, match=f'none of these logged "{LIST}": exit1, exit2'):
        relays.watch.look(200 + WATCHED_LATE_S)
    relays = Relays(busy, **expectations)
    relays.log("exit2", f"[notice] {LIST}\n")
    relays.watch.look(200 + WATCHED_LATE_S)


def test_an_exit_has_until_the_end_however_slow_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "onionlab.runs.run_builder.ProofWatch",
        lambda *_, **deadlines: SimpleNamespace(look=deadlines),
    )
    settings = load("starvation", root=REPOSITORY).levels["r20-s5"].settings
    assert isinstance(settings, Settings)
    builder: Any = run_builder(REPOSITORY, Request("starvation"))
    due = builder.watch(tmp_path, "r20-s5", SimpleNamespace(expectations={}))
    # On the embedded engine, the exit of network 1 logged its proof (the line that shows its
    # variant) at 1252 s. That is 922 s after the measured span, so exits have until the end of the
    # run.
    assert due["an_exit_s"] == settings.time.stop_s > 1252 > settings.time.measured_end_s
    assert due["every_relay_s"] == settings.time.bootstrap_s


def test_clients_are_left_to_the_end(tmp_path: Path) -> None:
    relays = Relays(tmp_path, a=Expectation(RR, True))
    relays.log("a", f"[notice] {EWMA}\n")
    relays.watch.look(DUE_S)


def test_lines_are_read_once(tmp_path: Path) -> None:
    relays = Relays(tmp_path, a=Expectation(RR, False))
    relays.log("a", f"{'x' * len(EWMA)}\n")
    relays.watch.look(1)
    # Replace the line that was already read by a wrong proof. The watch must not read this position
    # again.
    (tmp_path / "a" / "tor-x.1000.stdout").write_text(f"{EWMA}\n")
    relays.watch.look(2)
    relays.log("a", f"{RR}\n")
    relays.watch.look(3)
    # The watch no longer reads this log, because the proof was found in it.
    relays.log("a", f"{EWMA}\n")
    relays.watch.look(4)
