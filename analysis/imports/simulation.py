"""The imported data of one simulation, and its statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from analysis.comparison.imported_metrics import (
    DURATIONS,
    ERROR_RATE,
    GOODPUTS,
    RELAY_GOODPUT,
)
from analysis.measures.data import ALL
from analysis.measures.metric import QUANTILES, Statistic, rank

NO_DOWNLOAD = "no such download completed"

UNITS = ((2**20, "MiB"), (2**10, "KiB"))


@dataclass
class ImportedSimulation:
    """The imported data of one simulation.

    Attributes:
        name: name of its folder.
        durations: (class, duration of ``DURATIONS``) -> seconds, one per completed download.
        goodputs: (class, goodput of ``GOODPUTS``) -> bytes per second, one per completed download.
        downloads: class -> (failed, all) downloads.
        relay_goodput: bytes per second of all relays, one per second.
        notes: notes on ignored parts of its files.
        content: hash of its files; "" if unknown.
        network: identifies its network; "" if only its name does.
    """

    name: str
    durations: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    goodputs: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    downloads: dict[str, tuple[float, float]] = field(default_factory=dict)
    relay_goodput: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    content: str = ""
    network: str = ""

    def add(self, class_name: str, duration: str, seconds: list[float]) -> None:
        """Add times of completed downloads."""
        self.durations.setdefault((class_name, duration), []).extend(seconds)

    def count(self, class_name: str, failed: float, total: float) -> None:
        """Add numbers of downloads."""
        before = self.downloads.get(class_name, (0.0, 0.0))
        self.downloads[class_name] = (before[0] + failed, before[1] + total)

    @property
    def empty(self) -> bool:
        """True if no download completed."""
        return not any(self.durations.values())


def size_class(circuit: str, size_bytes: int) -> str:
    """Return the class of downloads of one size over one kind of circuit."""
    for unit, name in UNITS:
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{circuit} {size_bytes // unit} {name}"
    return f"{circuit} {size_bytes} B"


def imported_statistics(
    simulation: ImportedSimulation, keys: set[tuple[str, str]]
) -> dict[tuple[str, str], Statistic]:
    """Return (class, metric) -> statistic.

    Args:
        simulation: one of a set.
        keys: (class, duration or goodput) of the whole set. If only other simulations have
            downloads of a key, this simulation gets a statistic without a value.
    """
    result: dict[tuple[str, str], Statistic] = {}
    for class_name, name in sorted(keys):
        if name in DURATIONS:
            seconds = simulation.durations.get((class_name, name), [])
            for q in QUANTILES:
                result[class_name, f"{name}_{rank(q)}_s"] = _quantile(seconds, q)
        elif name in GOODPUTS:
            speeds = simulation.goodputs.get((class_name, name), [])
            result[class_name, f"{name}_p50_bytes_per_s"] = _quantile(speeds, 0.5)
        elif name == ERROR_RATE:
            failed, total = simulation.downloads.get(class_name, (0.0, 0.0))
            result[class_name, ERROR_RATE] = (
                Statistic(min(1.0, failed / total))
                if total > 0
                else Statistic(None, "no download, or their number is unknown")
            )
        else:
            result[ALL, RELAY_GOODPUT] = (
                Statistic(float(np.mean(simulation.relay_goodput)))
                if simulation.relay_goodput
                else Statistic(None, "no goodput of relays")
            )
    return result


def collect_keys(simulations: list[ImportedSimulation]) -> set[tuple[str, str]]:
    """Return (class, duration or goodput or other quantity) of any of the simulations."""
    keys: set[tuple[str, str]] = set()
    for simulation in simulations:
        keys |= {key for key, values in simulation.durations.items() if values}
        keys |= {key for key, values in simulation.goodputs.items() if values}
        keys |= {(class_name, ERROR_RATE) for class_name in simulation.downloads}
        if simulation.relay_goodput:
            keys.add((ALL, RELAY_GOODPUT))
    return keys


def _quantile(values: list[float], q: float) -> Statistic:
    # Use numpy's default, as in tornettools.
    return Statistic(float(np.quantile(values, q))) if values else Statistic(None, NO_DOWNLOAD)
