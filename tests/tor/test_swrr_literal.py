"""The vectors for Tor's test of ``SWRR-literal`` agree with the paper's pseudocode.

Tor's unit test ``circuitmux_swrr_literal/paper`` plays these vectors. Another unit test checks the
shares of circuits in ``docs/explanation/swrr.md``, and this module checks that the page and that
test state the same numbers. ``make check-variants`` and ``tests/tor/test_real_tor.py`` run both
unit tests.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from .swrr_paper import SEQUENCES, WEIGHT_FUNCTIONS, Node, Policy, algorithm_1, play, vectors

REPOSITORY = Path(__file__).resolve().parents[2]
SERIES = REPOSITORY / "tor-patches" / "circuit-policy"
PAGE = REPOSITORY / "docs" / "explanation" / "swrr.md"
VECTORS = "src/test/swrr_literal_vectors.inc"
FUNCTIONS = pytest.mark.parametrize("function", WEIGHT_FUNCTIONS)


def read_added_file(name: str) -> str:
    """Return the content of a file that a patch of the series adds."""
    for patch in sorted(SERIES.glob("*.patch")):
        _, found, rest = patch.read_text(encoding="utf-8").partition(f"\n+++ b/{name}\n")
        if found:
            lines = rest.partition("\ndiff --git ")[0].splitlines()[1:]
            assert all(line.startswith("+") for line in lines)
            return "".join(f"{line[1:]}\n" for line in lines)
    raise AssertionError(f"no patch adds {name}")


def shares_in_test(name: str) -> dict[tuple[str, int], list[str]]:
    """Return the ratios of the largest to the smallest circuit's share in Tor's unit test.

    The keys are (weight function, number of circuits). A list has a ratio for each number of cells
    (1, 10, 100 and 500) that are sent at one instant.
    """
    row = re.compile(r"\{ SWRR_WEIGHT_(\w+), (\d+), \{ (.*) \} \},")
    found = row.findall(read_added_file(f"src/test/{name}.c"))
    return {(function.lower(), int(n)): ratios.split(", ") for function, n, ratios in found}


def shares_in_page() -> dict[tuple[str, int], list[str]]:
    """Return the ratios of ``shares_in_test`` from the page's table.

    An empty cell of the table stands for the same value as in the cell above.
    """
    table = PAGE.read_text(encoding="utf-8").partition("\n| Function | Circuits |")[2]
    shares: dict[tuple[str, int], list[str]] = {}
    function = ""
    for line in table.partition("\n\n")[0].splitlines()[2:]:
        first, circuits, *ratios = (cell.strip() for cell in line.strip("|").split("|"))
        function = first or function
        shares[function, int(circuits)] = ratios
    return shares


def serve_circuits(function: str, queues: dict[str, int], cells: int) -> str:
    """Return the names of the circuits that Algorithms 2 and 3 serve, one cell per microsecond.

    cells: number of cells to serve.
    """
    policy = Policy(WEIGHT_FUNCTIONS[function])
    for name, queue in queues.items():
        policy.notify_circuit_active(Node(name, last_served_time=policy.now, queue=queue))
    names = ""
    while len(names) < cells:
        policy.now += 1
        node = policy.pick_active_circuit()
        assert node
        names += node.name
        policy.notify_xmit_cells(node)
    return names


def test_the_patch_has_the_vectors_that_the_transcription_makes() -> None:
    assert read_added_file(VECTORS) == vectors()


def test_the_vectors_go_through_all_of_the_pseudocode() -> None:
    visited: Counter[str] = Counter()
    for weight in WEIGHT_FUNCTIONS.values():
        for seed in range(SEQUENCES):
            visited += play(weight, seed).policy.visited
    assert set(visited) == {
        "a pass ends",
        "a round ends",
        "equal weights are sorted",
        "a newcomer waits",
        "a newcomer is served at once",
        "the next to be served leaves",
        "the last to be served leaves",
        "the last in range leaves",
        "the first that was dropped leaves",
    }
    assert min(visited.values()) >= 5


@FUNCTIONS
def test_algorithm_1_agrees_with_2_and_3_while_no_circuit_changes(function: str) -> None:
    queues = {"a": 5, "b": 200, "c": 17, "d": 3, "e": 90}
    once = algorithm_1(WEIGHT_FUNCTIONS[function], queues, 3000)
    assert once == serve_circuits(function, queues, 3000)
    assert once.startswith("abcdeabcdabcaba")


@FUNCTIONS
def test_a_lone_circuit_is_served(function: str) -> None:
    assert serve_circuits(function, {"a": 3}, 5) == "aaaaa"


def test_the_page_gives_the_shares_that_tor_is_tested_for() -> None:
    ours = shares_in_test("test_circuitmux_swrr")
    literal = shares_in_test("test_circuitmux_swrr_literal")
    page = shares_in_page()
    assert len(ours) == len(literal) == 15
    assert len(page) == 9
    for (function, circuits), ratios in page.items():
        if function == "linear, proportional":
            for tested in (ours, literal):
                assert tested["linear", circuits] == tested["proportional", circuits] == ratios
        elif function == "logarithmic":
            assert ours["logarithmic", circuits] == ratios
        else:
            assert function == "logarithmic, `SWRR-literal`"
            assert literal["logarithmic", circuits] == ratios
