"""The check of a client's log that its streams used the required circuits."""

from __future__ import annotations

from pathlib import Path

import pytest

from onionlab.rundir.circuits import Rendezvous, SharedCircuit
from onionlab.rundir.verify import Expectation, RunRefusedError, verify_tor_logs

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


def test_a_run_is_refused_for_it(tmp_path: Path) -> None:
    (tmp_path / "client1").mkdir()
    log = tmp_path / "client1" / "tor-stock.1000.stdout"
    expectations = {"client1": Expectation(None, True, circuit=WANTED)}
    log.write_text("".join(f"{line}\n" for line in GOOD))
    assert verify_tor_logs(tmp_path, expectations, []) == {"": 1}
    log.write_text("".join(f"{line}\n" for line in [*GOOD[:2], attached(8), PATH, PATH]))
    with pytest.raises(RunRefusedError, match="spread over 2 circuits instead of one: client1"):
        verify_tor_logs(tmp_path, expectations, [])


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
