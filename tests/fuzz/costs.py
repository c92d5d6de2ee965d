"""What each kind of input took: how many there were, seconds and memory of the worst."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

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


def table() -> Iterator[str]:
    """For people, at the end of the tests."""
    yield f"{'mutated inputs':28}{'inputs':>8}{'refused':>9}{'s':>8}{'worst s':>9}{'worst MiB':>11}"
    total = Cost()
    for kind, cost in [*sorted(COSTS.items()), ("all", total)]:
        yield (
            f"{kind:28}{cost.inputs:8}{cost.statuses[2]:9}{cost.seconds:8.1f}{cost.worst_s:9.2f}"
            f"{cost.worst_bytes / 2**20:11.1f}"
        )
        total.inputs += cost.inputs
        total.seconds += cost.seconds
        total.statuses += cost.statuses
        total.worst_s = max(total.worst_s, cost.worst_s)
        total.worst_bytes = max(total.worst_bytes, cost.worst_bytes)
