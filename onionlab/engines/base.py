"""What an engine is: it takes a run directory and makes simulated time pass in it.

Nothing outside an engine's own package may know which engine ran: plan, run directory, store and
analysis see only this interface. A new engine is one package with a class that satisfies `Engine`,
a function that examines the machine for it, and one line in `onionlab.engines.ENGINES`.
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
"""Simulated time after which, at the latest, what a watched host printed can be read."""

ENDLESS_STREAM_BYTES = 6 * 2**20
"""Memory of a stream that sends without a pause: the buffers of both ends and of the Tors. Measured
on the embedded engine with 189 such streams."""


@dataclass(frozen=True)
class Process:
    """One program of one host: it starts at a time.

    program: the base name of an executable; an engine finds it in `ProgramPaths`. Standard output
    goes to `shadow.data/hosts/<host>/<program>.<pid>.stdout`, the working directory is
    `shadow.data/hosts/<host>`. runs_to_end: whether it must still run when the simulation ends.
    """

    program: str
    arguments: tuple[str, ...]
    start_ms: int
    environment: Mapping[str, str] = field(default_factory=dict)
    runs_to_end: bool = True


@dataclass(frozen=True)
class Simulation:
    """All that an engine needs to know of a run.

    options: the experiment's options for this engine alone, as in its YAML; watched: hosts whose
    programs' output can be read in the run directory while the simulation runs, all of it that is
    older than `WATCHED_LATE_S`. Watching changes no result. bootstrap_end_ms: simulated time until
    which no link limits anything and no path loses anything. shadow_options: Shadow's options that
    an imported network brings along, by section; `options` win over them. endless_streams: how many
    streams are open at the end, in the mean, of those that only a timeout ends.
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
    """How far a running simulation is. memory_bytes: of all its processes together."""

    simulated_s: float
    stop_s: float
    wall_s: float
    memory_bytes: int


@dataclass(frozen=True)
class Usage:
    """What a finished simulation used.

    cpu_s: user and system time of all its processes; peak_memory_bytes: the largest sum of their
    private memory among the samples (one each few seconds).
    """

    wall_s: float
    cpu_s: float
    peak_memory_bytes: int


class EngineFailureError(Exception):
    """A simulation that did not reach its end as it should; `log_tail` holds its last words."""

    def __init__(self, message: str, log_tail: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.log_tail = list(log_tail)


class Engine(Protocol):
    """An engine, ready to run (its tools were found when it was made)."""

    name: str

    @property
    def identity(self) -> dict[str, str]:
        """What decides this engine's results besides its inputs: name, version, commit."""

    @property
    def programs(self) -> dict[str, Path]:
        """The executables that the engine brings along for hosts to run (such as tgen)."""

    def configuration(self, simulation: Simulation) -> dict[str, bytes]:
        """Return the engine's own files of a run directory: relative path -> content."""

    def check_files(self, simulation: Simulation, files: Mapping[str, bytes]) -> None:
        """Raise UserError where programs start from a file that the engine cannot play.

        files: of the run directory, by relative path.
        """

    def cpus_per_run(self, options: Mapping[str, Any]) -> int:
        """Return how many CPUs one run is to have for itself."""

    def run(
        self,
        directory: Path,
        *,
        simulation: Simulation,
        programs: Mapping[str, Path],
        on_progress: Callable[[Progress], None],
    ) -> Usage:
        """Run the simulation in a complete run directory, on the CPUs of the calling process.

        Raises EngineFailureError when it doesn't end as it should.
        """
