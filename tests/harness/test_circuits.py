"""Whether a client's log shows that its streams shared one circuit."""

from __future__ import annotations

from pathlib import Path

import pytest

from onionlab.rundir.circuits import SharedCircuit, circuit_problem
from onionlab.rundir.verify_tor import Expectation, RunRefusedError, verify_tor_logs

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
    assert circuit_problem(GOOD, WANTED) is None
    # Directory requests have circuits of their own; a path is told more than once.
    own = f"{STAMP}connection_ap_handshake_send_begin(): Address/port sent, ap socket -1"
    internal = f"{STAMP}internal circ (length 1): ${OTHER}(open)"
    assert circuit_problem([*GOOD, f"{own}, n_circ_id 9", internal, PATH], WANTED) is None


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([NOISE], "0 streams were attached to a circuit instead of 2"),
        (GOOD[1:2] + GOOD[3:], "1 streams were attached to a circuit"),
        ([*GOOD, attached(7)], "3 streams were attached to a circuit"),
        ([attached(7), attached(8), PATH, PATH], "spread over 2 circuits"),
        (GOOD[:4], "circuit 1 times"),
        ([*GOOD, connected(GUARD, OTHER, EXIT)], "2 different paths"),
        ([*GOOD[:3], *[connected(GUARD, EXIT)] * 2], "2 hops instead of 3"),
        ([*GOOD[:3], *[connected(GUARD, OTHER, EXIT)] * 2], "hop 2 of the circuit"),
        ([*GOOD[:3], *[connected(GUARD, MIDDLE, EXIT, state="closed")] * 2], "0 hops"),
        # A log that is cut within a line.
        ([*GOOD[:4], PATH[:-60]], "2 different paths"),
    ],
)
def test_anything_else_is_told(lines: list[str], problem: str) -> None:
    assert problem in str(circuit_problem(lines, WANTED))


def test_a_run_is_refused_for_it(tmp_path: Path) -> None:
    (tmp_path / "client1").mkdir()
    log = tmp_path / "client1" / "tor-stock.1000.stdout"
    expectations = {"client1": Expectation(None, True, circuit=WANTED)}
    log.write_text("".join(f"{line}\n" for line in GOOD))
    assert verify_tor_logs(tmp_path, expectations, []) == {"": 1}
    log.write_text("".join(f"{line}\n" for line in [*GOOD[:2], attached(8), PATH, PATH]))
    with pytest.raises(RunRefusedError, match="spread over 2 circuits instead of one: client1"):
        verify_tor_logs(tmp_path, expectations, [])
