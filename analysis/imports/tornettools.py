"""Import of a simulation from tornettools: the JSON files of ``tornet.plot.data``.

The older files of "Once is Never Enough" (2021) are supported as well: their names lack the kind of
circuit, and the names of OnionTrace's files differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.imports.reading import LocatedValue, read_located
from analysis.imports.simulation import ImportedSimulation, size_class

FOLDER = "tornet.plot.data"

LEGACY_CIRCUIT = "exit"
"""The kind of circuit of files that do not name one."""

MIBIT_BYTES = 2**20 / 8
"""tornettools reports client goodput in Mibit/s."""

_NAME = re.compile(r"(?P<base>[A-Za-z_0-9]+?)(\.(?P<circuit>[a-z]+))?\.json(\.xz)?\Z")


def _first_bytes(simulation: ImportedSimulation, circuit: str, part: LocatedValue) -> None:
    by_size = dict(part.items())
    all_sizes = next((by_size.pop(key) for key in ("ALL", "all") if key in by_size), None)
    for value in [all_sizes] if all_sizes is not None else by_size.values():
        simulation.add(circuit, "download_ttfb", value.numbers())


def _last_bytes(simulation: ImportedSimulation, circuit: str, part: LocatedValue) -> None:
    for key, value in part.items():
        if key not in ("ALL", "all"):
            name = size_class(circuit, part.key_number(key))
            simulation.add(name, "download_ttlb", value.numbers())


def _round_trips(simulation: ImportedSimulation, circuit: str, part: LocatedValue) -> None:
    simulation.add(circuit, "round_trip_time", part.numbers())


def _circuit_builds(simulation: ImportedSimulation, circuit: str, part: LocatedValue) -> None:
    """Add a list of times. Files of 2020 contain such a list for each second."""
    if not isinstance(part.value, dict):
        simulation.add(circuit, "circuit_build_time", part.numbers())
        return
    for _, times in part.items():
        simulation.add(circuit, "circuit_build_time", times.numbers())


def _errors(simulation: ImportedSimulation, circuit: str, part: LocatedValue) -> None:
    """Add numbers of downloads from (error rate, resolution) pairs of clients, both in per cent.

    Both determine the numbers of all and of failed downloads of a client. tornettools writes each
    client twice under ALL. Files of 2018 contain only rates, which cannot be combined.
    """
    clients = part.required("ALL")
    if any(isinstance(rate.value, float) for rate in clients.elements()):
        simulation.notes.append(f"error rates of {circuit} circuits without numbers of downloads")
        return
    pairs = []
    for pair in clients.elements():
        values = pair.numbers()
        if len(values) != 2 or not 0 <= values[0] <= 100.001 or not 0 < values[1] <= 100.001:
            raise pair.wrong("an error rate and its resolution in per cent")
        pairs.append(values)
    times = 2 if pairs[::2] == pairs[1::2] else 1
    failed = sum(rate / step for rate, step in pairs) / times
    total = sum(100 / step for _, step in pairs) / times
    if total:
        simulation.count(circuit, failed, total)


def _goodput(name: str) -> Callable[[ImportedSimulation, str, LocatedValue], None]:
    def add(simulation: ImportedSimulation, circuit: str, part: LocatedValue) -> None:
        speeds = [value * MIBIT_BYTES for value in part.numbers()]
        simulation.goodputs.setdefault((circuit, name), []).extend(speeds)

    return add


def _relays(simulation: ImportedSimulation, circuit: str, part: LocatedValue) -> None:
    simulation.relay_goodput += [value.number() for _, value in part.items()]


FILES: dict[str, Callable[[ImportedSimulation, str, LocatedValue], None]] = {
    "time_to_first_byte_recv": _first_bytes,
    "time_to_last_byte_recv": _last_bytes,
    "round_trip_time": _round_trips,
    "error_rate": _errors,
    "perfclient_goodput": _goodput("download_goodput_500kib_1mib"),
    "perfclient_goodput_5MiB": _goodput("download_goodput_4mib_5mib"),
    "perfclient_circuit_build_time": _circuit_builds,
    "oniontrace_perfclient_cbt": _circuit_builds,
    "relay_goodput": _relays,
    "oniontrace_tput": _relays,
}
"""Base name -> function that adds the file."""

NO_RESULTS = ("resource_usage", "simulation_info", "packet_count", "packet_counts", "byte_counts")
"""Base names of files about the simulation itself."""

MARKS = ("time_to_first_byte_recv", "time_to_last_byte_recv")
"""A folder with one of these files is that of a simulation."""


def is_plot_data(folder: Path) -> bool:
    """Return whether a folder contains a simulation's files."""
    names = [match["base"] for path in folder.glob("*.json*") if (match := _NAME.match(path.name))]
    return any(mark in names for mark in MARKS)


def read_plot_data(folder: Path) -> ImportedSimulation:
    """Read the folder of one simulation.

    Raises:
        AnalysisError: a file is damaged or of another kind, with the location.
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
        FILES[match["base"]](simulation, circuit, read_located(path))
    if unread:
        simulation.notes.append(f"ignored files: {', '.join(unread)}")
    return simulation
