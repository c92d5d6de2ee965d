"""Whether streams took rendezvous circuits: read from the lines that Tor logs."""

from __future__ import annotations

import pytest

from onionlab.rundir.rendezvous import Rendezvous, rendezvous_problem

GUARD, MIDDLE, POINT, OTHER = ("A" * 40, "B" * 40, "C" * 40, "D" * 40)
WANTED = Rendezvous(frozenset((GUARD,)), frozenset((GUARD, MIDDLE, POINT)))

SERVICE = (
    "[info] hs_client_receive_rendezvous2(): Got RENDEZVOUS2 cell from hidden service "
    "on circuit 39."
)
JOINED = (
    "[info] connection_ap_handshake_attach_circuit(): rend joined circ 39 (id: 14) already here. "
    "Attaching. (stream 4 sec old)"
)
PATH = (
    f"[info] internal (high-uptime) circ (length 3): ${GUARD}(open) ${MIDDLE}(open) ${POINT}(open)"
)
SENT = "[info] connection_ap_handshake_send_begin(): Address/port sent, ap socket 14, n_circ_id 39"
DIRECTORY = [
    "[info] internal circ (length 1): $" + "E" * 40 + "(open)",
    SENT.replace("socket 14", "socket -1").replace("39", "7"),
]
GOOD = [*DIRECTORY, SERVICE, JOINED, PATH, SENT, PATH, JOINED, PATH, SENT]


def test_streams_over_a_circuit_that_a_service_joined_are_what_is_wanted() -> None:
    assert rendezvous_problem(GOOD, WANTED) is None


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "no stream was ever attached"),
        (DIRECTORY, "no stream was ever attached"),
        (
            [*GOOD, SENT.replace("39", "40")],
            "1 of 3 streams were attached to a circuit that no service",
        ),
        ([line for line in GOOD if line != SERVICE], "2 of 2 streams"),
        ([line for line in GOOD if line != JOINED], "2 of 2 streams"),
        ([line.replace(MIDDLE, GUARD) for line in GOOD], "2 different relays"),
        ([line.replace(f"${MIDDLE}(open) ", "") for line in GOOD], "2 different relays"),
        ([line.replace(MIDDLE, OTHER) for line in GOOD], "relay of another network"),
        (
            [line.replace(GUARD, "X").replace(MIDDLE, GUARD).replace("X", MIDDLE) for line in GOOD],
            "starts at a relay that is not a guard",
        ),
    ],
)
def test_all_else_is_refused(lines: list[str], problem: str) -> None:
    assert problem in (rendezvous_problem(lines, WANTED) or "")
