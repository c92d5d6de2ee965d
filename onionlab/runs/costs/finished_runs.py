"""Read the costs of finished runs in the store, and find the runs that a request needs."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.json_files import read_as
from analysis.formats.manifest import Manifest, identity_hash, read_manifest
from analysis.formats.run_files import RunClock
from onionlab.errors import UserError
from onionlab.programs.building import NotBuiltError, no_builds
from onionlab.rundir.arti import BOOTSTRAPPED
from onionlab.runs.costs.requested_runs import Replicate, RequestedRuns, RunKind
from onionlab.runs.costs.run_cost import (
    IMPORTED,
    PEERS,
    PEERS_PROCESSES,
    TOR,
    Amounts,
    MeasuredCost,
    RunSize,
)
from onionlab.runs.provenance import host_facts
from onionlab.runs.run_builder import open_run_builder
from onionlab.runs.store import Store

MACHINE_FACTS = ("cpu", "cpus")
"""Keys of the facts about a machine in a manifest. If these facts equal the facts about this
machine, the run was performed here."""
DISK_PER_LOG_BYTE = 1.6
"""Ratio of the size of a run directory to the size of its logs. It is 1.57 to 1.67 in runs without
traces."""


@dataclass(frozen=True)
class FinishedRun:
    """A run of the store.

    cost: None if another machine performed the run, or its simulated time is unknown.
    """

    run_id: str
    level: str
    engine: str
    manifest: Manifest
    cost: MeasuredCost | None


def find_finished_runs(store: Store) -> list[FinishedRun]:
    """Return all runs of a store whose manifests can be read."""
    found = []
    for path in sorted(store.directory.glob(f"[0-9a-f]*/{files.MANIFEST}")):
        clock = path.with_name(files.RUN)
        try:
            manifest = read_manifest(path)
            # Without run.json, the simulated time of a run is unknown.
            stop_s = read_as(RunClock, clock, "clock").stop_s if clock.exists() else None
        except AnalysisError:
            continue
        # A title begins with level and variant.
        level = manifest.title.partition(f" {manifest.variant} ")[0]
        engine = str(manifest.identity.get("engine", {}).get("name"))
        cost = _read_cost(manifest, level, engine, stop_s) if stop_s else None
        found.append(FinishedRun(path.parent.name, level, engine, manifest, cost))
    return found


def _read_cost(manifest: Manifest, level: str, engine: str, stop_s: float) -> MeasuredCost | None:
    """Return the cost of a run; None if another machine performed it."""
    if any(manifest.host.get(name) != _this_machine()[name] for name in MACHINE_FACTS):
        return None
    names = manifest.identity.get("files", {})
    unit, processes = PEERS, PEERS_PROCESSES
    if files.PEERS not in names:
        unit = IMPORTED if files.HOST_ROLES in names else TOR
        # Each Tor has its torrc in the folder of its host, and each Arti is proved by its log.
        torrcs = [name for name in names if name.endswith("/torrc")]
        tors = sum(name.startswith(f"{files.HOST_TEMPLATES}/") for name in torrcs)
        processes = max(1, tors + manifest.proofs.get(BOOTSTRAPPED, 0))
    return MeasuredCost(
        RunSize(engine, level, unit, processes, stop_s, max(1, len(manifest.cpus))),
        Amounts(
            cpu_s=manifest.cpu_s or 0.0,
            wall_s=manifest.total_wall_s or manifest.wall_s or 0.0,
            memory_bytes=manifest.peak_memory_bytes or 0,
            disk_bytes=sum(manifest.log_bytes.values()) * DISK_PER_LOG_BYTE,
        ),
    )


_this_machine = functools.cache(host_facts)


def find_existing_runs(
    root: Path, requested: RequestedRuns, finished: Iterable[FinishedRun]
) -> tuple[set[tuple[RunKind, Replicate]], int]:
    """Return the requested runs that are in the store, and the number of uncertain stored runs.

    A stored run is uncertain if only building programs or generating keys, which this function does
    not do, would show whether it is a requested run. One run of each kind is composed. If the store
    has a run of the same name, all stored runs of the kind with the same programs and engine are
    assumed to be requested, because drawing a large network takes seconds.
    """
    kinds, replicates = set(requested.kinds), set(requested.experiment.replicates)
    candidates: dict[RunKind, dict[Replicate, list[FinishedRun]]] = defaultdict(dict)
    for run in finished:
        kind = RunKind(run.level, run.manifest.variant)
        replicate = (run.manifest.seed or 0, run.manifest.repeat)
        if run.engine == requested.engine and kind in kinds and replicate in replicates:
            candidates[kind].setdefault(replicate, []).append(run)
    total = sum(map(len, candidates.values()))
    if not total:
        return set(), 0
    try:
        with no_builds():
            builder = open_run_builder(root, requested.request)
    except (NotBuiltError, UserError):
        return set(), total
    found: set[tuple[RunKind, Replicate]] = set()
    unknown = 0
    for kind, runs in candidates.items():
        drawn = [replicate for replicate in runs if builder.is_drawn(replicate[0])]
        if not drawn:
            unknown += len(runs)
            continue
        first = builder.compose(kind.level, kind.variant, *min(drawn))
        identity = first.identity(builder.programs, builder.engine)
        if identity_hash(identity) in {run.run_id for run in runs[min(drawn)]}:
            found |= {
                (kind, replicate)
                for replicate, same_place in runs.items()
                # Everything but the hashes of the runs' initial files has to be equal.
                if any(
                    run.manifest.identity | {"files": None} == identity | {"files": None}
                    for run in same_place
                )
            }
    return found, unknown
