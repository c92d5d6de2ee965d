"""What each kind of input took: how many there were, seconds and memory of the worst."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES = int(os.environ.get("ONIONLAB_FUZZ_EXAMPLES", "0"))
"""Inputs of each kind, where somebody lets the fuzzers run for long."""

MOST_S = 20.0
MOST_BYTES = 2**30
"""Of one input, beyond what the process had before: more is a fault."""

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@dataclass
class Cost:
    """Of one kind of input."""

    inputs: int = 0
    seconds: float = 0.0
    worst_s: float = 0.0
    worst_bytes: int = 0
    statuses: Counter[int] = field(default_factory=Counter)

    def add(self, other: Cost) -> None:
        """The same of more inputs."""
        self.inputs += other.inputs
        self.seconds += other.seconds
        self.statuses += other.statuses
        self.worst_s = max(self.worst_s, other.worst_s)
        self.worst_bytes = max(self.worst_bytes, other.worst_bytes)


COSTS: dict[str, Cost] = {}


@contextmanager
def measured(kind: str) -> Iterator[Cost]:
    """Count one input; fails where it took more than any may take."""
    cost = COSTS.setdefault(kind, Cost())
    before_bytes = _resident_bytes("VmRSS")
    # From here on the system counts the peak anew.
    _CLEAR.write_text("5")
    before_s = time.process_time()
    yield cost
    took_s = time.process_time() - before_s
    took_bytes = _resident_bytes("VmHWM") - before_bytes
    cost.inputs += 1
    cost.seconds += took_s
    cost.worst_s = max(cost.worst_s, took_s)
    cost.worst_bytes = max(cost.worst_bytes, took_bytes)
    assert took_s < MOST_S
    assert took_bytes < MOST_BYTES


def _resident_bytes(name: str) -> int:
    line = next(one for one in _STATUS.read_text().splitlines() if one.startswith(name))
    return int(line.split()[1]) * 1024


def plain() -> dict[str, dict[str, Any]]:
    """What was measured, as what can be sent to another process."""
    return {
        kind: {**asdict(cost), "statuses": [list(one) for one in cost.statuses.items()]}
        for kind, cost in COSTS.items()
    }


def merge(measured: Mapping[str, Mapping[str, Any]]) -> None:
    """Add what another process measured."""
    for kind, one in measured.items():
        cost = COSTS.setdefault(kind, Cost())
        cost.add(Cost(**{**one, "statuses": Counter(dict(one["statuses"]))}))


def table() -> Iterator[str]:
    """For people, at the end of the tests."""
    yield f"{'mutated inputs':28}{'inputs':>8}{'refused':>9}{'s':>8}{'worst s':>9}{'worst MiB':>11}"
    total = Cost()
    for kind, cost in [*sorted(COSTS.items()), ("all", total)]:
        yield (
            f"{kind:28}{cost.inputs:8}{cost.statuses[2]:9}{cost.seconds:8.1f}{cost.worst_s:9.2f}"
            f"{cost.worst_bytes / 2**20:11.1f}"
        )
        if cost is not total:
            total.add(cost)
