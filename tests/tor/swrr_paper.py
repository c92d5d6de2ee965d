"""Algorithms 1 to 3 of the SWRR paper in Python, line by line, and random test vectors.

Lu, Yan, Li, Yin, Chen, Zou: *SWRR: The Link Scheduling Algorithm Based on Weighted Round-Robin*,
2019. The number in a comment is a line of the algorithm that the function's docstring names. The
code shares nothing with Tor or the patches, because it serves to test their policy
``SWRR-literal``. ``python tests/tor/swrr_paper.py`` prints a C file with the events and answers for
Tor's unit test ``circuitmux_swrr_literal/paper``.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

WEIGHT_FUNCTIONS: dict[str, Callable[[int, int], float]] = {
    "LINEAR": lambda t, d: 10000.0 * t - d,  # (1)
    "PROPORTIONAL": lambda t, d: (t + 1000.0) / (d + 1000.0),  # (2)
    "LOGARITHMIC": lambda t, d: math.log1p(t) / math.log(d + 2.0),  # (3), with C = 1
}
"""The paper's weight functions F(T, D), with the numbers of their formulas.

T is the time since the circuit was last served, in microseconds. D is its number of queued cells.
"""

SEQUENCES = 10
"""The number of sequences of events for each weight function."""
EVENTS = 70
CIRCUITS = "abcdefgh"
START_USEC = 1_000_000
LONGEST_WORD = 40


@dataclass(eq=False)
class Node:
    """A node of the doubly linked list: a circuit, or one of the two ends."""

    name: str
    weight: float = 0.0
    last_served_time: int = 0
    queue: int = 0


@dataclass
class Policy:
    """The paper's list of circuits, and a clock in microseconds.

    The circuits before ``cur_tail`` are in range. A pass serves each circuit in range once, and
    ``cur`` is the next one to serve. After a pass, the last circuit in range leaves the range. If
    no circuit is left in range, the round ends: all circuits are sorted by new weights, and are in
    range again.

    ``head`` is a node before the first circuit. The paper does not say whether ``tail`` is the last
    circuit or a node after it. Here it is a node after the last circuit, because otherwise a single
    circuit would never be served.
    """

    weight: Callable[[int, int], float]
    now: int = START_USEC
    head: Node = field(default_factory=lambda: Node("head"))
    tail: Node = field(default_factory=lambda: Node("tail"))
    visited: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.nodes = [self.head, self.tail]
        self.cur = self.cur_tail = self.tail

    def next(self, node: Node) -> Node:
        return self.nodes[self.nodes.index(node) + 1]

    def prev(self, node: Node) -> Node:
        return self.nodes[self.nodes.index(node) - 1]

    def insert_behind(self, node: Node, new: Node) -> None:
        self.nodes.insert(self.nodes.index(node) + 1, new)

    @property
    def size(self) -> int:
        return len(self.nodes) - 2

    # Algorithms that the paper prints.

    def notify_circuit_active(self, new: Node) -> None:
        """Run Algorithm 2. The numbers in comments are its lines.

        By the paper's text above the algorithm, the queue has one cell.
        """
        self.set_weight(new, cells=1)  # 2 to 5
        if self.size == 0:  # 6
            self.insert_behind(self.head, new)  # 7
            self.cur = new  # 8
            self.cur_tail = self.tail  # 9
        else:  # 10
            temp = self.next(self.head)  # 11, 12
            while temp is not self.cur_tail:  # 13
                if temp.weight < new.weight:  # 14
                    break  # 15
                temp = self.next(temp)  # 16, 17
            self.note_place_of(temp)
            self.insert_behind(self.prev(temp), new)  # 18, 19

    def notify_xmit_cells(self, node: Node) -> None:
        """Run Algorithm 3. The numbers in comments are its lines."""
        node.last_served_time = self.now  # 4 to 8
        self.cur = self.next(self.cur)  # 9
        if self.cur is self.cur_tail:  # 10, 11
            self.visited["a pass ends"] += 1
            self.cur_tail = self.prev(self.cur_tail)  # 12
            self.cur = self.next(self.head)  # 13, 14
        if self.cur_tail is self.next(self.head):  # 15
            self.visited["a round ends"] += 1
            self.new_round()  # 16 to 23

    def new_round(self) -> None:
        """Run lines 16 to 22 of Algorithm 3."""
        circuits = self.nodes[1:-1]
        for node in circuits:  # 16, 17
            self.set_weight(node, cells=node.queue)
        weights = [node.weight for node in circuits]
        self.visited["equal weights are sorted"] += len(set(weights)) < len(weights)
        # Lines 18 and 19. Circuits with equal weights keep their order, as in Algorithm 2, line 14.
        circuits.sort(key=lambda node: node.weight, reverse=True)
        self.nodes = [self.head, *circuits, self.tail]
        self.cur_tail = self.tail  # 20, 21
        self.cur = self.next(self.head)  # 22

    def set_weight(self, node: Node, *, cells: int) -> None:
        """Set the weight by section 4.1. T is the time since the last service, and at least 0."""
        waited = max(0, self.now - node.last_served_time)
        node.weight = self.weight(waited, cells)

    # Functions that the paper names without an algorithm.

    def pick_active_circuit(self) -> Node | None:
        """Return the current circuit (section 3.3, item 8)."""
        return self.cur if self.size else None

    def notify_circ_inactive(self, node: Node) -> None:
        """Remove a circuit (section 3.3, item 6).

        The other circuits keep their order, and stay in or out of range (see ``Policy``).

        If no circuit remains to be served in the pass, the pass ends as in lines 11 to 14 of
        Algorithm 3. If no circuit remains in range, the round ends as in lines 15 to 23.
        """
        end = self.nodes.index(self.cur_tail)
        in_range = [one for one in self.nodes[1:end] if one is not node]
        dropped = [one for one in self.nodes[end:-1] if one is not node]
        to_serve = [one for one in self.nodes[self.nodes.index(self.cur) : end] if one is not node]
        self.visited["the next to be served leaves"] += node is self.cur
        self.visited["the first that was dropped leaves"] += node is self.cur_tail
        self.nodes = [self.head, *in_range, *dropped, self.tail]
        if not self.size:
            return
        if not in_range:
            self.visited["the last in range leaves"] += 1
            self.new_round()
            return
        self.cur_tail = [*dropped, self.tail][0]
        if to_serve:
            self.cur = to_serve[0]
            return
        self.visited["the last to be served leaves"] += 1
        self.cur_tail = in_range[-1]
        self.cur = in_range[0]
        if len(in_range) == 1:
            self.new_round()

    def note_place_of(self, temp: Node) -> None:
        """Count whether a new circuit waits for the next pass or is served in this one.

        It waits if its place in the list is before the circuit that is served next.
        """
        waits = self.nodes.index(temp) <= self.nodes.index(self.cur)
        self.visited["a newcomer waits" if waits else "a newcomer is served at once"] += 1


def algorithm_1(weight: Callable[[int, int], float], queues: dict[str, int], cells: int) -> str:
    """Return the circuits that Algorithm 1 serves if all stay active, one cell per microsecond.

    The numbers in comments are lines of Algorithm 1. Lines 6 to 8 mark all circuits of the curlist
    as served, one after another, while the clock advances. By section 3.2, line 14 puts all
    circuits into the curlist again.
    """
    now = START_USEC
    last_served_time = dict.fromkeys(queues, now)
    weights = dict.fromkeys(queues, 0.0)
    order = list(queues)
    curlist = list(order)
    served = ""
    while len(served) < cells:  # 5
        for circuit in curlist:  # 6
            now += 1
            last_served_time[circuit] = now  # 7
            served += circuit
        # Lines 8 and 9. If several circuits have the smallest weight, the last of them is removed.
        smallest = min(reversed(curlist), key=weights.__getitem__)
        curlist.remove(smallest)
        if not curlist:  # 10
            for circuit in queues:  # 11
                waited = now - last_served_time[circuit]
                weights[circuit] = weight(waited, queues[circuit])  # 12, 13
            order = sorted(order, key=weights.__getitem__, reverse=True)
            curlist = list(order)  # 14
    return served[:cells]


class Player:
    """Plays events on the circuits of a channel, and records them as words.

    ``a5``: circuit a has 5 cells now. ``a!``: it is detached, and attached again without cells.
    ``+20``: the clock advances by 20 us. ``>abb-``: a, b and b are served, and then no circuit is
    active.
    """

    def __init__(self, weight: Callable[[int, int], float]) -> None:
        self.policy = Policy(weight)
        self.nodes = {name: self.attach(name) for name in CIRCUITS}
        self.words: list[str] = []

    def attach(self, name: str) -> Node:
        """Attach a circuit. It counts as served at this time; the paper does not define this."""
        return Node(name, last_served_time=self.policy.now)

    def wait(self, usec: int) -> None:
        self.policy.now += usec
        self.words.append(f"+{usec}")

    def queue(self, name: str, cells: int) -> None:
        node = self.nodes[name]
        before, node.queue = node.queue, cells
        if cells and not before:
            self.policy.notify_circuit_active(node)
        elif before and not cells:
            self.policy.notify_circ_inactive(node)
        self.words.append(f"{name}{cells}")

    def replace(self, name: str) -> None:
        if self.nodes[name].queue:
            self.policy.notify_circ_inactive(self.nodes[name])
        self.nodes[name] = self.attach(name)
        self.words.append(f"{name}!")

    def serve(self) -> None:
        node = self.policy.pick_active_circuit()
        last = self.words[-1] if self.words else ""
        if not last.startswith(">") or len(last) == LONGEST_WORD:
            self.words.append(">")
        self.words[-1] += node.name if node else "-"
        if node:
            # Tor counts the cell, notifies the policy, and then reports the circuit if it is empty.
            node.queue -= 1
            self.policy.notify_xmit_cells(node)
            if not node.queue:
                self.policy.notify_circ_inactive(node)


def play(weight: Callable[[int, int], float], seed: int, events: int = EVENTS) -> Player:
    """Play random events: cells arrive, are dropped or are served, or time advances.

    A circuit may also be replaced.
    """
    # Only random() of Python's generator is guaranteed to give the same numbers in all versions.
    draw = random.Random(seed).random
    player = Player(weight)
    circuits = CIRCUITS[: 2 + int(draw() * (len(CIRCUITS) - 1))]
    for _ in range(events):
        event, name = draw(), circuits[int(draw() * len(circuits))]
        if event < 0.35:
            player.queue(name, 1 + int(draw() * (3 if draw() < 0.5 else 300)))
        elif event < 0.5:
            player.queue(name, 0)
        elif event < 0.53:
            player.replace(name)
        elif event < 0.65:
            player.wait(int(10 ** (6 * draw())))
        else:
            for _ in range(1 + int(draw() * 12)):
                player.serve()
                if draw() < 0.1:
                    player.wait(int(draw() * 1000))
    return player


def lines_of_c(words: list[str]) -> list[str]:
    """Return the words as string literals of C, in lines of at most 79 characters."""
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > 71:
            lines.append("")
        lines[-1] += f"{word} "
    return [f'    "{line}"' for line in lines]


def vectors() -> str:
    """Return the content of ``src/test/swrr_literal_vectors.inc``."""
    text = [
        "/* Made by tests/tor/swrr_paper.py of onionlab, a transcription of the",
        " * paper's Algorithms 2 and 3 in Python. Don't edit.",
        " *",
        " * a5     circuit a has 5 cells now",
        " * a!     it is detached, and attached again, without cells",
        " * +20    the clock moves by 20 us",
        " * >abb-  a, b and b are served, and then there is nobody to serve */",
    ]
    for name, weight in WEIGHT_FUNCTIONS.items():
        for seed in range(SEQUENCES):
            lines = lines_of_c(play(weight, seed).words)
            text += [f"  {{ SWRR_WEIGHT_{name},", *lines, "  },"]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    print(vectors(), end="")
