"""From folders of other programs to one set of runs, each simulation a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.comparison.imported_metrics import NOTES
from analysis.comparison.run_sets import RunSet, SetRun, values_of
from analysis.errors import AnalysisError
from analysis.formats.record_files import first_names
from analysis.imports.identity import content_hash, network_hash
from analysis.imports.simulation import ImportedSimulation, keys_of, statistics_of
from analysis.imports.tgentools import NAME, ONIONPERF_ENDING, read_analysis
from analysis.imports.tornettools import FOLDER, MARKS, is_plot_data, read_plot_data
from analysis.judgement.judging import Statistics

LEVEL = VARIANT = "imported"


@dataclass(frozen=True)
class ImportOptions:
    """How to import.

    Attributes:
        begin_s: simulated time from which downloads of a tgen.analysis.json count.
        end_s: simulated time before which they count.
        leave_out_empty: leave out simulations in which no download completed.
        network: finds in a simulation's name what tells its network; None: the relays' keys do, or
            else the whole name.
    """

    begin_s: float | None = None
    end_s: float | None = None
    leave_out_empty: bool = False
    network: re.Pattern[str] | None = None


def import_runs(paths: Sequence[Path], name: str, options: ImportOptions) -> RunSet:
    """All simulations at or below some paths as one set.

    Args:
        paths: files tgen.analysis.json[.xz], folders of simulations, or folders of these.
        name: of the set.
        options: how.

    Raises:
        AnalysisError: nothing to import, or a file that cannot be understood.
    """
    sources = [source for path in paths for source in find_simulations(path)]
    empty_folders = [name for path in paths for name in _without_results(path, sources)]
    simulations: list[ImportedSimulation] = []
    for source in dict.fromkeys(source.resolve() for source in sources):
        if source.is_dir():
            read = read_plot_data(source)
        else:
            read = read_analysis(source, begin_s=options.begin_s, end_s=options.end_s)
        read.content = content_hash(source)
        read.network = _network(options.network, read.name) or network_hash(source)
        simulations.append(read)
    notes = [*NOTES]
    if empty_folders:
        notes.append(f"Folders without results: {', '.join(empty_folders)}.")
    simulations = _each_once(simulations, notes)
    analyses = any(not source.is_dir() for source in sources)
    if analyses and (options.begin_s, options.end_s) != (None, None):
        bounds = [
            f"{b:g} s" if b is not None else "the end" for b in (options.begin_s, options.end_s)
        ]
        notes.append(f"Downloads completed from {bounds[0]} to {bounds[1]} of simulated time.")
    empty = [simulation.name for simulation in simulations if simulation.empty]
    if empty and options.leave_out_empty:
        simulations = [simulation for simulation in simulations if not simulation.empty]
        notes.append(
            f"Left out, as asked, since no download completed in them: {', '.join(empty)}. What is "
            "left is a selection."
        )
    elif empty:
        notes.append(f"No download completed in: {', '.join(empty)}.")
    notes += _not_counted(simulations)
    if not simulations:
        raise AnalysisError(
            "no download completed in any of the simulations", "import other simulations"
        )
    return RunSet(
        name=name,
        definitions="tornettools",
        # A number is all that a seed is here. Runs of the same network are known by that.
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
        values=values_of(_statistics(simulations)),
    )


def _not_counted(simulations: Sequence[ImportedSimulation]) -> Iterator[str]:
    """Yield notes on what of the simulations' files did not count, and on numbers of downloads."""
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
    """What tells the network in a simulation's name; "" where nothing was said to."""
    if pattern is None:
        return ""
    found = pattern.search(name)
    if found is None or not found[0]:
        raise AnalysisError(
            f"{name} has nothing that matches {pattern.pattern!r}",
            "give a regular expression that finds the network in the name of every simulation",
        )
    return found[0]


def _each_once(simulations: list[ImportedSimulation], notes: list[str]) -> list[ImportedSimulation]:
    """Without those whose files are the bytes of an earlier one; says so in ``notes``.

    A copy is no further replicate, and two simulations that were really made never agree so.
    """
    first: dict[str, ImportedSimulation] = {}
    copies = []
    for simulation in simulations:
        if simulation.content in first:
            copies.append(f"{simulation.name} (as {first[simulation.content].name})")
        else:
            first[simulation.content] = simulation
    if copies:
        notes.append(
            f"Counted once, since their files are the same bytes as another's: {', '.join(copies)}."
        )
    return list(first.values())


def find_simulations(path: Path) -> list[Path]:
    """Files and folders that hold one simulation each, at or below a path, in order.

    Where a simulation has its plot data, which are selected by time, its analysis is left.

    Raises:
        AnalysisError: there is none, or nothing at the path.
    """
    if path.name.endswith(".tar.xz"):
        raise AnalysisError(
            f"{path} is called as packs of runs are, and these take no import",
            f"compare with it as it is: make compare A={path}:EXPERIMENT:VARIANT",
        )
    if path.is_file():
        if not path.name.endswith((".json", ".json.xz")):
            raise AnalysisError(
                f"{path} is not a JSON file",
                f"name a {NAME}[.xz], which `tgentools parse` makes of TGen's logs, a file of "
                f"OnionPerf's, *.{ONIONPERF_ENDING}[.xz], or a folder of such",
            )
        return [path]
    if not path.is_dir():
        raise AnalysisError(f"{path} is missing", "name a file or folder to import")
    found: list[Path] = []
    for folder in [path, *sorted(p for p in path.rglob("*") if p.is_dir())]:
        if is_plot_data(folder):
            found.append(folder)
        elif not is_plot_data(folder / FOLDER):
            found += _analyses(folder)
    if not found:
        raise AnalysisError(
            f"{path} holds neither {NAME}[.xz] nor *{ONIONPERF_ENDING}[.xz] nor {FOLDER} with "
            f"{' or '.join(MARKS)}",
            "name a simulation that tornettools or tgentools has parsed, or a folder of such",
        )
    return found


def _analyses(folder: Path) -> list[Path]:
    """Return the analyses in a folder. Raises AnalysisError if one is both plain and compressed."""
    stems = {
        path: path.name.removesuffix(".xz")
        for path in sorted(folder.glob("*.analysis.json*"))
        if path.is_file()
    }
    found = [path for path, stem in stems.items() if stem == NAME or ONIONPERF_ENDING in stem]
    found = [path for path in found if stems[path].endswith(".json")]
    for path in found:
        if [stems[other] for other in found].count(stems[path]) > 1:
            raise AnalysisError(
                f"{folder} holds {stems[path]} twice", "remove the plain or the compressed copy"
            )
    return found


def _without_results(path: Path, sources: Sequence[Path]) -> list[str]:
    """Return the names of the folders directly in ``path`` that hold no simulation."""
    own = {source if source.is_dir() else source.parent for source in sources}
    if not path.is_dir() or path in own or path / FOLDER in own:
        return []
    return [
        one.name
        for one in sorted(path.iterdir())
        if one.is_dir() and not any(source.is_relative_to(one) for source in sources)
    ]


def _statistics(simulations: list[ImportedSimulation]) -> Statistics:
    keys = keys_of(simulations)
    made: Statistics = {}
    for number, simulation in enumerate(simulations, 1):
        for (class_name, metric), statistic in statistics_of(simulation, keys).items():
            by_variant = made.setdefault((LEVEL, class_name), {})
            by_variant.setdefault((metric, VARIANT), {})[number] = statistic
    return made
