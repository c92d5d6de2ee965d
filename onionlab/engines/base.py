"""The interface of engines. An engine, such as Shadow, simulates the content of a run directory.

Code outside an engine's own package must not depend on which engine ran, and uses only this
interface and `onionlab.engines`. docs/how-to/add-an-engine.md describes what an engine consists of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from onionlab.network.layout import Network

EPOCH_UNIX_S = 946684800
"""Simulated time starts at 2000-01-01 00:00:00 UTC, in every engine."""

WATCHED_LATE_S = 10.0
"""The maximum delay, in simulated time, until the output of a watched host can be read (see
`Simulation.watched`).
"""

ENDLESS_STREAM_BYTES = 6 * 2**20
"""The memory that a continuously sending stream needs for the buffers of both ends and of the Tor
processes. The value was measured on the embedded engine with 189 such streams.
"""


@dataclass(frozen=True)
class Process:
    """One program of one host, with its start time in simulated time.

    The program's working directory is `shadow.data/hosts/<host>`. Its standard output goes to
    `<program>.<pid>.stdout` in this directory. program: the base name of the executable. The
    argument `programs` of `Engine.run` contains the executable's path, unless the engine uses its
    own code instead. runs_to_end: True if the program must still run when the simulation ends;
    False if it must have ended with status 0. extra_memory_bytes: the memory that the program needs
    in addition to the memory of a Tor process.
    """

    program: str
    arguments: tuple[str, ...]
    start_ms: int
    environment: Mapping[str, str] = field(default_factory=dict)
    runs_to_end: bool = True
    extra_memory_bytes: int = 0


@dataclass(frozen=True)
class Simulation:
    """The inputs of an engine for one run.

    processes: the programs of each host, by host name. options: the experiment's options for this
    engine, as in its YAML. watched: hosts whose programs' output can be read in the run directory
    during the simulation, with a delay of at most `WATCHED_LATE_S`. Results do not depend on this.
    bootstrap_end_ms: the simulated time before which links have no rate limits and paths lose no
    packets. shadow_options: Shadow's options in an imported network, by section; `options` override
    them. endless_streams: the expected number of streams that are open at the end of the simulation
    and that only a timeout would end. An engine may have to reserve memory for them.
    """

    network: Network
    processes: Mapping[str, tuple[Process, ...]]
    seed: int
    stop_ms: int
    options: Mapping[str, Any]
    watched: tuple[str, ...] = ()
    bootstrap_end_ms: int = 0
    shadow_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    endless_streams: int = 0


@dataclass(frozen=True)
class Progress:
    """The progress of a running simulation. memory_bytes: the total memory of its processes."""

    simulated_s: float
    stop_s: float
    wall_s: float
    memory_bytes: int


@dataclass(frozen=True)
class Usage:
    """The resources that all processes of a finished simulation used.

    peak_memory_bytes: the largest sample of their total memory (one every few seconds).
    """

    wall_s: float
    cpu_s: float
    peak_memory_bytes: int


class EngineFailureError(Exception):
    """A simulation failed before its end; `log_tail` contains the last lines of its log."""

    def __init__(self, message: str, log_tail: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.log_tail = list(log_tail)


class Engine(Protocol):
    """An engine that is ready to run: its constructor has found all programs that it needs."""

    name: str

    @property
    def identity(self) -> dict[str, str]:
        """The properties that determine this engine's results in addition to its inputs."""

    @property
    def programs(self) -> dict[str, Path]:
        """The programs that the engine provides for hosts: base name (such as tgen) -> path."""

    def configuration(self, simulation: Simulation) -> dict[str, bytes]:
        """Return the engine's own files of a run directory: relative path -> content."""

    def check_files(self, simulation: Simulation, files: Mapping[str, bytes]) -> None:
        """Raise UserError if a program uses a file that the engine does not support.

        files: the contents of files, by path relative to the run directory.
        """

    def run(
        self,
        directory: Path,
        *,
        simulation: Simulation,
        programs: Mapping[str, Path],
        on_progress: Callable[[Progress], None],
    ) -> Usage:
        """Run the simulation in a complete run directory, on the CPUs of the calling process.

        programs: executables by base name. Raises EngineFailureError if the simulation fails.
        """
