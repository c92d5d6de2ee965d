"""Limits of time and memory for one input."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXAMPLES = int(os.environ.get("ONIONLAB_FUZZ_EXAMPLES", "0"))
"""Number of inputs of each kind for a long run of the fuzzers. 0 means a few."""

MAX_S = 20.0
MAX_BYTES = 2**30
"""Limits for one input. The memory is in addition to what the process used before."""


@contextmanager
def limited() -> Iterator[None]:
    """Fail if the block exceeds the limits."""
    before_bytes = _resident_bytes("VmRSS")
    # The kernel's peak memory counter restarts here.
    Path("/proc/self/clear_refs").write_text("5")
    before_s = time.process_time()
    yield
    assert time.process_time() - before_s < MAX_S
    assert _resident_bytes("VmHWM") - before_bytes < MAX_BYTES


def _resident_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(one for one in lines if one.startswith(name)).split()[1]) * 1024
