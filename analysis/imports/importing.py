"""Import of other programs' results as one set of runs, with a run for each simulation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from analysis.comparison.imported_metrics import NOTES
from analysis.comparison.run_sets import RunSet, SetRun, values_from_statistics
from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.record_files import first_names
from analysis.imports.simulation import ImportedSimulation
from analysis.imports.tgentools import NAME, ONIONPERF_ENDING, read_analysis
from analysis.imports.tornettools import FOLDER, MARKS, is_plot_data, read_plot_data
from analysis.judgement.estimates import Statistics

LEVEL = VARIANT = "imported"

FINGERPRINT = "fingerprint"
"""Name of the files with the fingerprints of relays. Together, they identify a network."""


def import_runs(
    paths: Sequence[Path],
    name: str,
    *,
    begin_s: float | None = None,
    end_s: float | None = None,
    leave_out_empty: bool = False,
    network: re.Pattern[str] | None = None,
) -> RunSet:
    """Import all simulations at or below some paths as one set.

    Args:
        paths: analysis files of tgentools or OnionPerf (``*.json[.xz]``), or folders that contain
            simulations at any depth.
        name: name of the set.
        begin_s: for a tgen.analysis.json, the simulated time from which completions of downloads
            are counted; None means the start.
        end_s: the simulated time before which completions are counted; None means the end.
        leave_out_empty: whether to exclude simulations without a completed download.
        network: pattern for the part of a simulation's name that identifies its network. If it is
            None, the keys of the relays identify the network or, without keys, the whole name.

    Raises:
        AnalysisError: there is nothing to import, or a file cannot be understood.
    """
    sources = [source for path in paths for source in find_simulations(path)]
    empty_folders = [name for path in paths for name in _without_results(path, sources)]
    simulations: list[ImportedSimulation] = []
    for source in dict.fromkeys(source.resolve() for source in sources):
        is_folder = source.is_dir()
        read = read_plot_data(source) if is_folder else read_analysis(source, begin_s, end_s)
        read.content = content_hash(source)
        read.network = _network(network, read.name) or network_hash(source)
        simulations.append(read)
    notes = [*NOTES]
    if empty_folders:
        notes.append(f"Folders without results: {', '.join(empty_folders)}.")
    simulations = _remove_copies(simulations, notes)
    analyses = any(not source.is_dir() for source in sources)
    if analyses and (begin_s, end_s) != (None, None):
        bounds = [f"{b:g} s" if b is not None else "the end" for b in (begin_s, end_s)]
        notes.append(f"Downloads completed from {bounds[0]} to {bounds[1]} of simulated time.")
    empty = [simulation.name for simulation in simulations if simulation.empty]
    if empty and leave_out_empty:
        simulations = [simulation for simulation in simulations if not simulation.empty]
        notes.append(
            f"Excluded as requested, because no download completed: {', '.join(empty)}. The "
            "remaining simulations are a selection."
        )
    elif empty:
        notes.append(f"No download completed in: {', '.join(empty)}.")
    notes += _ignored_notes(simulations)
    if not simulations:
        raise AnalysisError(
            "no download completed in any of the simulations", "import other simulations"
        )
    return RunSet(
        name=name,
        definitions="tornettools",
        # The seeds only number the simulations, so runs with the same seed in two sets are not a
        # pair. Runs of the same network have the same ``network``.
        paired=False,
        notes=tuple(notes),
        runs=tuple(
            SetRun(
                run_id=simulation.name,
                level=LEVEL,
                variant=VARIANT,
                seed=number,
                records={"import": simulation.content},
                network=simulation.network or simulation.name,
            )
            for number, simulation in enumerate(simulations, 1)
        ),
        values=values_from_statistics(_statistics(simulations)),
    )


def _ignored_notes(simulations: Sequence[ImportedSimulation]) -> Iterator[str]:
    """Yield notes on the ignored parts of files, and on the number of downloads of each class."""
    named: dict[str, list[str]] = {}
    for simulation in simulations:
        for note in simulation.notes:
            named.setdefault(note, []).append(simulation.name)
    for note, names in named.items():
        yield f"Not counted of {first_names(names)}: {note}."
    for class_name in sorted({name for one in simulations for name in one.downloads}):
        counts = [one.downloads.get(class_name, (0.0, 0.0)) for one in simulations]
        failed, total = (round(sum(numbers)) for numbers in zip(*counts, strict=True))
        yield f"Downloads of {class_name}: {total} completed or failed, of which {failed} failed."


def _network(pattern: re.Pattern[str] | None, name: str) -> str:
    """Return the part of a simulation's name that identifies its network; "" without a pattern.

    Raises AnalysisError if no part of the name matches.
    """
    if pattern is None:
        return ""
    found = pattern.search(name)
    if found is None or not found[0]:
        raise AnalysisError(
            f"no part of {name} matches {pattern.pattern!r}",
            "give a regular expression that finds the network in the name of every simulation",
        )
    return found[0]


def _remove_copies(
    simulations: list[ImportedSimulation], notes: list[str]
) -> list[ImportedSimulation]:
    """Return the simulations without copies, and add a note about the copies.

    A copy has the same files as an earlier simulation. It is not another replicate, because
    independent simulations never agree exactly.
    """
    first: dict[str, ImportedSimulation] = {}
    copies = []
    for one in simulations:
        if first.setdefault(one.content, one) is not one:
            copies.append(f"{one.name} (as {first[one.content].name})")
    if copies:
        notes.append(
            "Counted once, because their files are identical to those of another simulation: "
            f"{', '.join(copies)}."
        )
    return list(first.values())


def find_simulations(path: Path) -> list[Path]:
    """Return the file or folder of each simulation at or below a path, in order.

    If a simulation has plot data, its analysis file is ignored, because tornettools has limited
    the plot data to the measured time.

    Raises:
        AnalysisError: the path does not exist, has no simulation, or is another kind of file, or an
            analysis file exists both plain and compressed.
    """
    if path.name.endswith(".tar.xz"):
        raise AnalysisError(
            f"{path} has the name of a pack of runs, and packs are not imported",
            f"use it directly: make compare A={path}:EXPERIMENT:VARIANT",
        )
    if path.is_file():
        if not path.name.endswith((".json", ".json.xz")):
            raise AnalysisError(
                f"{path} is not a JSON file",
                f"give a {NAME}[.xz] from `tgentools parse`, a file of "
                f"OnionPerf's, *.{ONIONPERF_ENDING}[.xz], or a folder with such files",
            )
        return [path]
    if not path.is_dir():
        raise AnalysisError(f"{path} is missing", "give a file or folder to import")
    found: list[Path] = []
    for folder in [path, *sorted(p for p in path.rglob("*") if p.is_dir())]:
        if is_plot_data(folder):
            found.append(folder)
        elif not is_plot_data(folder / FOLDER):
            found += _analyses(folder)
    if not found:
        raise AnalysisError(
            f"{path} contains neither {NAME}[.xz] nor *{ONIONPERF_ENDING}[.xz] nor {FOLDER} with "
            f"{' or '.join(MARKS)}",
            "give a simulation that tornettools or tgentools has parsed, or a folder with some",
        )
    return found


def _analyses(folder: Path) -> list[Path]:
    """Return the analysis files in a folder.

    Raises AnalysisError if a file exists both plain and compressed.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.analysis.json*")):
        stem = path.name.removesuffix(".xz")
        is_analysis = stem == NAME or stem.endswith(ONIONPERF_ENDING)
        if is_analysis and path.is_file() and found.setdefault(stem, path) != path:
            raise AnalysisError(
                f"{folder} contains {stem} twice", "remove the plain or the compressed copy"
            )
    return list(found.values())


def _without_results(path: Path, sources: Sequence[Path]) -> list[str]:
    """Return the names of the folders directly in ``path`` that contain no simulation.

    There are none if ``path`` itself is a simulation.
    """
    own = {source if source.is_dir() else source.parent for source in sources}
    if not path.is_dir() or path in own or path / FOLDER in own:
        return []
    return [
        one.name
        for one in sorted(path.iterdir())
        if one.is_dir() and not any(source.is_relative_to(one) for source in sources)
    ]


def _statistics(simulations: list[ImportedSimulation]) -> Statistics:
    keys = {key for simulation in simulations for key in simulation.keys}
    result: Statistics = {}
    for number, simulation in enumerate(simulations, 1):
        for (class_name, metric), statistic in simulation.statistics(keys).items():
            by_variant = result.setdefault((LEVEL, class_name), {})
            by_variant.setdefault((metric, VARIANT), {})[number] = statistic
    return result


def content_hash(source: Path) -> str:
    """Return a hash of a simulation's files: of a single file, or of a folder's JSON files."""
    found = [source] if source.is_file() else sorted(source.glob("*.json*"))
    return _hash((file.name, file) for file in found if file.is_file())


def network_hash(source: Path) -> str:
    """Return a hash of the keys of a simulation's relays; "" if it has no files with the keys.

    source: the file or folder with the results, next to which the keys are searched.
    """
    folder = source.parent if source.is_file() or source.name == FOLDER else source
    # tornettools puts the hosts of a network into this folder.
    found = sorted((folder / files.TEMPLATE / "hosts").glob(f"*/{FINGERPRINT}"))
    return _hash((file.parent.name, file) for file in found) if found else ""


def _hash(named: Iterable[tuple[str, Path]]) -> str:
    total = hashlib.sha256()
    for name, file in named:
        with file.open("rb") as content:
            total.update(f"{name}\0{hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()
