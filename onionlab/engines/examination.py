"""The data types of checks that precede a run on a machine.

Each engine provides its own checks (`EngineKind.examine`); onionlab.doctor provides the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

OK = "ok"
WARN = "warn"
MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One result of the examination; ``fix`` is empty if there is nothing to do."""

    status: str
    subject: str
    text: str
    fix: str = ""


@dataclass(frozen=True)
class Need:
    """The resources that an experiment needs.

    Attributes:
        name: The experiment.
        memory_bytes: The memory of its largest run.
        disk_bytes: The disk space of all its runs together.
        processes: The number of simulated processes of its largest run.
    """

    name: str
    memory_bytes: int
    disk_bytes: int
    processes: int


@dataclass(frozen=True)
class Question:
    """The subject of an examination.

    Attributes:
        root: The checkout.
        engine: The name of the engine that will run.
        need: The needs of the experiment; None to examine only the machine.
        shadow: Shadow's executable, if it is specified.
        tgen: TGen's executable, if it is specified.
    """

    root: Path
    engine: str
    need: Need | None = None
    shadow: str | None = None
    tgen: str | None = None


SMALLER = "make the network smaller (SCALE=0.1, or `traffic: markov_clients` for an imported one)"
"""The hint if a run is too large for a machine."""


def size_text(count: int) -> str:
    """Format a number of bytes for people."""
    if count < 2**30:
        return f"{count / 2**20:.0f} MiB"
    return f"{count / 2**30:.1f} GiB"
