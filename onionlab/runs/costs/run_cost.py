"""The cost of one run: constants of its engine, and their correction by finished runs.

Time and disk space are proportional to the number of processes times the simulated seconds. Memory
grows with the number of processes. Finished runs on this machine correct the shipped constants by
the mean ratio of measured to predicted cost, preferably runs of the same level, which are similar.
docs/reference/cost.md has the measured error.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from onionlab.engines import ENGINES
from onionlab.engines.base import ENDLESS_STREAM_BYTES
from onionlab.experiment import AnySettings, Settings
from onionlab.experiment.tornettools import TornetSettings
from onionlab.programs.tor.variants import load_variants
from onionlab.rundir.arti import EXTRA_MEMORY_BYTES
from onionlab.rundir.compose import engine_options
from onionlab.rundir.traffic import expected_endless_streams

MIB = 2**20
PEERS_PROCESSES = 2

TOR, IMPORTED, PEERS = "Tor", "imported Tor", "libtorrent peer"
"""Kinds of processes. The cost of a run depends on the number of its processes of one kind."""
SAME_LEVEL = "finished runs of the same level"
OTHER_LEVELS = "finished runs of other levels"
CONSTANTS = "the shipped constants"

SAME_LEVEL_ERROR = 2.0
"""Factor between measured and estimated CPU time if there are finished runs of the same level. In
nine of ten experiments, the actual factor is not larger."""
MEMORY_RESERVE = 1.5
DISK_RESERVE = 2.0
WALL_FACTOR = 1.3
"""Ratio of wall time to CPU time of a run on one CPU. This is the mean of the published runs."""
PARALLEL_CPU_FACTOR = 1.27
"""Ratio of a run's CPU time on several CPUs to its CPU time on one CPU
(docs/explanation/performance.md)."""
IMPORTED_FACTOR = 3.3
"""A Tor process in an imported network needs this many times the CPU time and memory of a Tor
process in a network that onionlab generates. The factors measured in the experiment
swrr-tornettools on the embedded engine were 3.4 for CPU time and 3.2 for memory."""


@dataclass(frozen=True)
class Rates:
    """The shipped constants of an engine, or of libtorrent's peers.

    Attributes:
        cpu_s: CPU time per simulated second and process.
        disk_bytes: Disk space per simulated second and process.
        run_memory_bytes: Memory of a run, apart from its processes.
        memory_bytes: Memory per process.
        error: Used in place of `SAME_LEVEL_ERROR` for levels without finished runs.
    """

    cpu_s: float
    disk_bytes: float
    run_memory_bytes: float
    memory_bytes: float
    error: float


TOR_RATES = {
    "uml": Rates(0.0035, 240, 80 * MIB, 3.0 * MIB, error=3.0),
    "shadow": Rates(0.0083, 390, 125 * MIB, 4.8 * MIB, error=1.8),
}
"""Rates by engine. Other engines get the rates of Shadow, which are the highest."""
PEER_RATES = Rates(0.1, 10_000, 125 * MIB, 30 * MIB, error=2.3)
"""Rates of libtorrent's peers on any engine."""


class Amounts(NamedTuple):
    """Cost of a run.

    wall_s: the wall time from the start of the engine to the check of the logs, if no other program
    uses the run's CPUs.
    """

    cpu_s: float
    wall_s: float
    memory_bytes: float
    disk_bytes: float


@dataclass(frozen=True)
class RunSize:
    """Quantities that determine the cost of a run.

    unit: the kind of the run's processes; cpus: the number of CPUs that the run uses.
    """

    engine: str
    level: str
    unit: str
    processes: int
    simulated_s: float
    cpus: int = 1

    @property
    def rates(self) -> Rates:
        """The shipped constants for this kind of run."""
        if self.unit == PEERS:
            return PEER_RATES
        rates = TOR_RATES.get(self.engine, TOR_RATES["shadow"])
        factor = IMPORTED_FACTOR if self.unit == IMPORTED else 1.0
        return replace(rates, cpu_s=rates.cpu_s * factor, memory_bytes=rates.memory_bytes * factor)

    def predict(self) -> Amounts:
        """Return the cost that the shipped constants predict."""
        rates, process_s = self.rates, self.processes * self.simulated_s
        cpu_s = rates.cpu_s * process_s * (PARALLEL_CPU_FACTOR if self.cpus > 1 else 1.0)
        return Amounts(
            cpu_s=cpu_s,
            wall_s=cpu_s / self.cpus * WALL_FACTOR,
            memory_bytes=rates.run_memory_bytes + rates.memory_bytes * self.processes,
            disk_bytes=rates.disk_bytes * process_s,
        )


@dataclass(frozen=True)
class MeasuredCost:
    """Cost of a finished run. Amounts that were not recorded are 0."""

    size: RunSize
    amounts: Amounts


@dataclass(frozen=True)
class RunCost:
    """Estimated cost of one run.

    Attributes:
        expected: The expected times and sizes.
        memory_bytes, disk_bytes: The reserved memory and disk space.
        cpus: Number of CPUs that are reserved for the run.
        source: The origin of the estimate: `SAME_LEVEL`, `OTHER_LEVELS` or `CONSTANTS`.
        error: In nine of ten experiments, times differ from the estimate by at most this factor.
    """

    expected: Amounts
    memory_bytes: float
    disk_bytes: float
    cpus: int
    source: str
    error: float


def estimate_level_cost(
    root: Path, level: str, settings: AnySettings, engine: str, finished: Iterable[MeasuredCost]
) -> RunCost:
    """Estimate the cost of one run of a level.

    finished: costs of finished runs on this machine. If there are no finished runs of the level,
    memory for endless streams and for Arti is added. Otherwise the measured memory includes it. If
    the experiment limits the memory of a run, this limit is reserved.
    """
    options = engine_options(settings, engine)
    unit, processes, endless_streams, arti = PEERS, PEERS_PROCESSES, 0, 0
    if isinstance(settings, Settings):
        # Every host except the servers runs Tor or Arti.
        unit, processes = TOR, settings.host_count - settings.network.servers.count
        endless_streams = expected_endless_streams(root, settings)
        variants = load_variants(root)
        if any(variants[name].client for name in settings.tor.variants):
            arti = settings.client_count
    elif isinstance(settings, TornetSettings):
        unit, processes = IMPORTED, settings.tors
    cpus = ENGINES[engine].cpus_per_run(options)
    size = RunSize(engine, level, unit, processes, settings.time.stop_s, cpus)
    of_engine = [run for run in finished if run.size.engine == engine]
    same_level = [run for run in of_engine if run.size.level == level]
    ratios = _mean_ratios(same_level or of_engine)
    expected = Amounts(*(a * b for a, b in zip(size.predict(), ratios, strict=True)))
    if not same_level:
        extra_bytes = endless_streams * ENDLESS_STREAM_BYTES + arti * EXTRA_MEMORY_BYTES
        expected = expected._replace(memory_bytes=expected.memory_bytes + extra_bytes)
    return RunCost(
        expected=expected,
        memory_bytes=options.get("memory_bytes") or expected.memory_bytes * MEMORY_RESERVE,
        disk_bytes=expected.disk_bytes * DISK_RESERVE,
        cpus=cpus,
        source=SAME_LEVEL if same_level else OTHER_LEVELS if of_engine else CONSTANTS,
        error=SAME_LEVEL_ERROR if same_level else size.rates.error,
    )


def _mean_ratios(finished: Sequence[MeasuredCost]) -> Amounts:
    """Return the geometric mean of the ratio of measured to predicted cost, for each amount.

    All levels have the same weight. The mean is 1 if no run recorded the amount.
    """
    logs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in finished:
        for name, predicted, measured in zip(
            Amounts._fields, run.size.predict(), run.amounts, strict=True
        ):
            if measured > 0:
                logs[name][run.size.level].append(math.log(measured / predicted))
    means = {
        name: math.exp(statistics.fmean(map(statistics.fmean, levels.values())))
        for name, levels in logs.items()
    }
    return Amounts(*(means.get(name, 1.0) for name in Amounts._fields))
