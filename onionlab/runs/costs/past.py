"""Finished runs of the store: which of those that are asked for are there, and what others took."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.formats.manifest import Manifest, read_manifest
from onionlab.errors import UserError
from onionlab.experiment import Settings
from onionlab.experiment.tornettools import TornetSettings
from onionlab.programs.building import NotBuiltError, only_what_is_built
from onionlab.runs.bench import Bench, open_bench
from onionlab.runs.costs.asking import Asked, Kind
from onionlab.runs.host_facts import host_facts
from onionlab.runs.plan import read_plan
from onionlab.runs.store import Store

COMPARING_S = 2.0
"""So long runs are composed to see whether they are there; a large one takes seconds."""
MACHINE_FACTS = ("cpu", "cpus", "memory_bytes")
"""Facts of a manifest's host by which a machine is the same."""


@dataclass(frozen=True)
class Finished:
    """A run of the store."""

    run_id: str
    manifest: Manifest
    tors: int

    @property
    def engine(self) -> str:
        """The name of its engine."""
        engine = self.manifest.identity.get("engine")
        return str(engine.get("name")) if isinstance(engine, dict) else ""

    @property
    def cpu_s(self) -> float | None:
        """CPU time that it took; None where its manifest does not say."""
        cpu_s = self.manifest.cpu_s
        return cpu_s if cpu_s is not None and 0 < cpu_s < math.inf else None

    @property
    def is_of_this_machine(self) -> bool:
        """Whether its times are this machine's."""
        here = _this_machine()
        return all(self.manifest.host.get(name) == here[name] for name in MACHINE_FACTS)


@functools.cache
def _this_machine() -> Mapping[str, Any]:
    return host_facts()


def finished_runs(store: Store) -> list[Finished]:
    """All runs of the store whose manifests can be read."""
    found = []
    for path in sorted(store.directory.glob("[0-9a-f]*/manifest.json")):
        try:
            manifest = read_manifest(path)
        except AnalysisError:
            continue
        files = manifest.identity.get("files")
        names = files if isinstance(files, dict) else ()
        tors = sum(name.startswith(_TEMPLATES) and name.endswith("/torrc") for name in names)
        found.append(Finished(path.parent.name, manifest, tors))
    return found


_TEMPLATES = "shadow.data.template/hosts/"


@dataclass(frozen=True)
class There:
    """Which of the runs that are asked for are in the store.

    Attributes:
        runs: Kind, and network and repeat -> the run.
        assumed: So many of them were not compared to the last byte, only the first of their kind.
        unknown: So many runs of the store may be among those asked for, and nobody can tell before
            what they take is built.
    """

    runs: Mapping[tuple[Kind, tuple[int, int]], Finished]
    assumed: int = 0
    unknown: int = 0


def runs_there(root: Path, asked: Asked, finished: Iterable[Finished]) -> There:
    """Look for the runs that are asked for. Builds nothing and draws no keys."""
    candidates = {
        (kind, replicate): alike
        for kind in asked.kinds
        for replicate in asked.replicates
        if (alike := _alike(asked, kind, replicate, finished))
    }
    if not candidates:
        return There({})
    try:
        with only_what_is_built():
            bench = open_bench(root, asked.request, lambda line: None)
    except (NotBuiltError, UserError):
        return There({}, unknown=len(candidates))
    return _compared(bench, candidates)


def _alike(
    asked: Asked, kind: Kind, replicate: tuple[int, int], finished: Iterable[Finished]
) -> list[Finished]:
    """Return runs that may be the one asked for.

    They have its network, repeat, variant, engine and number of Tors.
    """
    settings = asked.experiment.levels[kind.level].settings
    tors = 0
    if isinstance(settings, Settings):
        tors = settings.host_count - settings.network.servers.count
    elif isinstance(settings, TornetSettings):
        tors = settings.tors
    return [
        run
        for run in finished
        if run.tors == tors
        and (run.manifest.seed, run.manifest.repeat) == replicate
        and run.manifest.variant == kind.variant
        and run.engine == asked.engine
    ]


def _compared(
    bench: Bench, candidates: Mapping[tuple[Kind, tuple[int, int]], list[Finished]]
) -> There:
    """Compose candidates, network by network, and return which are what they seem."""
    found: dict[tuple[Kind, tuple[int, int]], Finished] = {}
    verdicts: dict[Kind, list[bool]] = {}
    left: list[tuple[Kind, tuple[int, int]]] = []
    until_s = time.monotonic() + COMPARING_S
    # What a network's runs have in common is drawn once.
    for kind, (seed, repeat) in sorted(candidates, key=lambda place: place[1]):
        place = kind, (seed, repeat)
        if time.monotonic() > until_s or not bench.is_drawn(seed):
            left.append(place)
            continue
        run = bench.compose(kind.level, kind.variant, seed, repeat)
        run_id = run.run_id(bench.programs, bench.engine)
        same = [one for one in candidates[place] if one.run_id == run_id]
        verdicts.setdefault(kind, []).append(bool(same))
        if same:
            found[place] = same[0]
    assumed = {
        place: candidates[place][0] for place in left if all(verdicts.get(place[0], [False]))
    }
    unknown = sum(place[0] not in verdicts for place in left)
    return There({**found, **assumed}, len(assumed), unknown)


@dataclass(frozen=True)
class Past:
    """A finished run and the place that some plan gave it."""

    experiment: str
    scale: float | None
    kind: Kind
    run: Finished


def past_runs(root: Path, finished: Iterable[Finished]) -> Iterator[Past]:
    """Finished runs of this machine by the plans of `results/` that list them."""
    by_id = {run.run_id: run for run in finished if run.is_of_this_machine}
    if not by_id:
        return
    for path in sorted((root / "results").glob("**/plan.json")):
        try:
            plan = read_plan(path)
        except UserError:
            continue
        for planned in plan.runs:
            if planned.run_id in by_id:
                yield Past(
                    plan.request.experiment,
                    plan.request.scale,
                    Kind(planned.level, planned.variant),
                    by_id[planned.run_id],
                )


def disk_bytes(folder: Path) -> int:
    """What a finished run takes on the disk, in whole blocks."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if not path.is_dir())
