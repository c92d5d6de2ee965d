"""What is asked of a machine before anything runs on it, and how the answer looks.

Each engine answers for itself (`EngineKind.examine`); onionlab.doctor asks for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

OK = "ok"
WARN = "warn"
MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One line of the examination; ``mend`` is empty where there is nothing to do."""

    status: str
    subject: str
    text: str
    mend: str = ""


@dataclass(frozen=True)
class Need:
    """What a named experiment takes.

    Attributes:
        name: The experiment.
        memory_bytes: Of the largest run.
        disk_bytes: Of all runs together.
        processes: Simulated processes of the largest run.
    """

    name: str
    memory_bytes: int
    disk_bytes: int
    processes: int


@dataclass(frozen=True)
class Question:
    """What the examination is about.

    Attributes:
        root: The checkout.
        engine: Name of the engine that will run.
        need: What the experiment takes; None to judge the machine alone.
        shadow: Shadow's executable, if it is named.
        tgen: TGen's executable, if it is named.
    """

    root: Path
    engine: str
    need: Need | None = None
    shadow: str | None = None
    tgen: str | None = None


SMALLER = "make the network smaller (SCALE=0.1, or where it is imported `traffic: markov_clients`)"
"""What to do where a run is too large for a machine."""


def size_text(count: int) -> str:
    """A number of bytes for a reader."""
    if count < 2**30:
        return f"{count / 2**20:.0f} MiB"
    return f"{count / 2**30:.1f} GiB"
