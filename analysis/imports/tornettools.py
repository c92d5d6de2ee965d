"""Import of a simulation from tornettools: the JSON files of ``tornet.plot.data``.

The older files of "Once is Never Enough" (2021) are supported as well: their names lack the kind of
circuit, and the names of OnionTrace's files differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from analysis.comparison.imported_metrics import CIRCUIT_BUILD_TIME, RELAY_GOODPUT
from analysis.errors import AnalysisError
from analysis.imports.simulation import (
    ImportedSimulation,
    Measured,
    WholeNumber,
    read_other,
    size_class,
)
from analysis.measures.data import ALL
from analysis.measures.plot_data import MIBIT_BYTES

FOLDER = "tornet.plot.data"

LEGACY_CIRCUIT = "exit"
"""The kind of circuit if the name of a file does not contain one."""

_NAME = re.compile(r"(?P<base>[A-Za-z_0-9]+?)(\.(?P<circuit>[a-z]+))?\.json(\.xz)?\Z")


Numbers = list[Measured]
BySize = dict[Literal["ALL", "all"] | WholeNumber, Numbers]


def _first_bytes(simulation: ImportedSimulation, circuit: str, by_size: BySize) -> None:
    all_sizes = [by_size[key] for key in ("ALL", "all") if key in by_size]
    for seconds in all_sizes[:1] or by_size.values():
        simulation.add(circuit, "download_ttfb", seconds)


def _last_bytes(simulation: ImportedSimulation, circuit: str, by_size: BySize) -> None:
    for size, seconds in by_size.items():
        if isinstance(size, int):
            simulation.add(size_class(circuit, size), "download_ttlb", seconds)


def _circuit_builds(
    simulation: ImportedSimulation, circuit: str, times: Numbers | dict[str, Numbers]
) -> None:
    """Add circuit build times. Files of 2020 have a list of times for each second."""
    for seconds in [times] if isinstance(times, list) else times.values():
        simulation.add(circuit, CIRCUIT_BUILD_TIME, seconds)


class _ErrorRates(BaseModel):
    """For each client, its error rate and the rate's resolution, both in per cent.

    The resolution is 100 / (number of the client's downloads). Files of 2018 have only rates.
    """

    ALL: list[
        tuple[
            Annotated[float, Field(strict=True, ge=0, le=100.001)],
            Annotated[float, Field(strict=True, gt=0, le=100.001)],
        ]
        | Measured
    ]


def _errors(simulation: ImportedSimulation, circuit: str, rates: _ErrorRates) -> None:
    """Add the numbers of failed and of all downloads.

    They are computed from each client's error rate and its resolution (see ``_ErrorRates``). If
    ALL lists each client twice, as in files of tornettools, the sums are halved. Rates without a
    resolution cannot be combined, so they only add a note.
    """
    pairs = [pair for pair in rates.ALL if isinstance(pair, tuple)]
    if len(pairs) < len(rates.ALL):
        simulation.notes.append(f"error rates of {circuit} circuits without numbers of downloads")
        return
    times = 2 if pairs[::2] == pairs[1::2] else 1
    failed = sum(rate / step for rate, step in pairs) / times
    total = sum(100 / step for _, step in pairs) / times
    if total:
        simulation.count(circuit, failed, total)


def _numbers(name: str, unit: float = 1.0) -> Callable[[ImportedSimulation, str, Numbers], None]:
    def add(simulation: ImportedSimulation, circuit: str, values: Numbers) -> None:
        simulation.add(circuit, name, (value * unit for value in values))

    return add


def _relays(simulation: ImportedSimulation, circuit: str, speeds: dict[str, Measured]) -> None:
    simulation.add(ALL, RELAY_GOODPUT, speeds.values())


FILES: dict[str, tuple[Any, Callable[[ImportedSimulation, str, Any], None]]] = {
    "time_to_first_byte_recv": (BySize, _first_bytes),
    "time_to_last_byte_recv": (BySize, _last_bytes),
    "round_trip_time": (Numbers, _numbers("round_trip_time")),
    "error_rate": (_ErrorRates, _errors),
    "perfclient_goodput": (Numbers, _numbers("download_goodput_500kib_1mib", MIBIT_BYTES)),
    "perfclient_goodput_5MiB": (Numbers, _numbers("download_goodput_4mib_5mib", MIBIT_BYTES)),
    "perfclient_circuit_build_time": (Numbers | dict[str, Numbers], _circuit_builds),
    "oniontrace_perfclient_cbt": (Numbers | dict[str, Numbers], _circuit_builds),
    "relay_goodput": (dict[str, Measured], _relays),
    "oniontrace_tput": (dict[str, Measured], _relays),
}
"""Base name of a file -> type of its content, and the function that adds the content."""

NO_RESULTS = ("resource_usage", "simulation_info", "packet_count", "packet_counts", "byte_counts")
"""Base names of files about the simulation itself, which are not imported."""

MARKS = ("time_to_first_byte_recv", "time_to_last_byte_recv")
"""Base names of files. A folder with one of these files is the folder of a simulation."""


def is_plot_data(folder: Path) -> bool:
    """Return whether a folder contains a simulation's files."""
    names = [match["base"] for path in folder.glob("*.json*") if (match := _NAME.match(path.name))]
    return any(mark in names for mark in MARKS)


def read_plot_data(folder: Path) -> ImportedSimulation:
    """Read the folder of one simulation.

    Raises:
        AnalysisError: a file is damaged or of another kind (the message names the location), or two
            files have the same base name and kind of circuit.
    """
    named = folder.parent if folder.name == FOLDER else folder
    simulation = ImportedSimulation(named.resolve().name)
    seen: set[tuple[str, str]] = set()
    unread = []
    for path in sorted(folder.glob("*.json*")):
        match = _NAME.match(path.name)
        if match is None or match["base"] not in FILES:
            if match is None or match["base"] not in NO_RESULTS:
                unread.append(path.name)
            continue
        circuit = match["circuit"] or LEGACY_CIRCUIT
        if (match["base"], circuit) in seen:
            raise AnalysisError(
                f"{folder} contains {match['base']} of {circuit} circuits twice",
                "remove the plain or the compressed copy",
            )
        seen.add((match["base"], circuit))
        kind, add = FILES[match["base"]]
        add(simulation, circuit, read_other(kind, path))
    if unread:
        simulation.notes.append(f"ignored files: {', '.join(unread)}")
    return simulation
