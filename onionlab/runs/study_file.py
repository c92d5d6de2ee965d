"""Create study.json, which describes an experiment and its runs for the analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from analysis.formats import files
from analysis.formats.manifest import read_manifest
from analysis.formats.plan_file import PlannedRun
from analysis.formats.study import (
    ClassLoad,
    Endpoint,
    FigureSpec,
    Level,
    Looks,
    PublicTor,
    PublishedCellTimes,
    RoleCapacity,
    Run,
    Study,
    Variant,
    load_study,
    write_study,
)
from onionlab.experiment import AnySettings, Experiment, Settings
from onionlab.experiment.tornettools import TornetSettings
from onionlab.programs.registry import VariantDisplay
from onionlab.runs.provenance import host_facts
from onionlab.runs.run_builder import RunBuilder
from onionlab.runs.store import Store

RUN_FIELDS = ("run_id", "level", "variant", "seed", "repeat")
MANIFEST_FIELDS = ("wall_s", "cpu_s", "peak_memory_bytes", "proofs", "host")
DISPLAY_FIELDS = ("name", *VariantDisplay.model_fields)


def build_study(builder: RunBuilder, runs: Sequence[PlannedRun], looks: Looks | None) -> Study:
    """Return the study of an experiment's runs.

    looks: the interim analyses (looks) of the results; None if they are analysed only at the end.
    """
    experiment, header = builder.experiment, builder.experiment.header
    return Study(
        format=1,
        name=experiment.name,
        title=header.title,
        description=header.description,
        baseline=experiment.baseline if experiment.baseline in builder.selected else None,
        variants=tuple(
            # A study has the properties of a variant that tables and figures show (name, label,
            # colour), but no information on how to build the variant.
            Variant(**{key: getattr(builder.variants[name], key) for key in DISPLAY_FIELDS})
            for name in builder.selected
        ),
        levels=tuple(
            _level(name, level.label, level.settings, builder)
            for name, level in experiment.levels.items()
        ),
        figures=tuple(
            FigureSpec.model_validate(figure.model_dump()) for figure in experiment.figures
        ),
        runs=tuple(
            Run(**asdict(run), directory=run.run_id, records=f"{run.run_id}/{files.RECORDS}")
            for run in runs
        ),
        networks=_networks(builder),
        margins=header.margins,
        endpoints=tuple(Endpoint(**entry.model_dump()) for entry in header.endpoints),
        published_cell_times=published_cell_times(experiment),
        public_tor=_public_tor(builder.root, experiment),
        scope=header.scope,
        looks=looks,
        asked=experiment.asked,
        shrunk=tuple(experiment.shrunk),
        provenance={
            "engine": builder.engine.identity,
            "tor": [
                {
                    "program": name,
                    "series": getattr(built, "series", None),
                    "version": built.version,
                    "sha256": built.sha256,
                    "source": built.source,
                }
                for name, built in sorted(builder.programs.items())
            ],
            "machine": host_facts(),
        },
    )


def update_provenance(path: Path, store_folder: Path) -> None:
    """Copy each run's times, memory, proofs and machine from its manifest into study.json.

    A proof is a log line which shows that a variant's code is active.

    Raises:
        AnalysisError: A manifest is missing or damaged.
    """
    study, store = load_study(path), Store(store_folder)
    used = []
    for run in study.runs:
        with study.naming(run):
            manifest = read_manifest(store.manifest(run.run_id))
        described = {name: getattr(run, name) for name in RUN_FIELDS}
        used.append(described | {name: getattr(manifest, name) for name in MANIFEST_FIELDS})
    provenance = {**study.provenance, "runs": used}
    write_study(path, study.model_copy(update={"provenance": provenance}))


def published_cell_times(experiment: Experiment) -> PublishedCellTimes | None:
    """Return the cell times that a paper published for the levels of the experiment.

    Return None if the experiment's file has no published cell times.
    """
    published = getattr(experiment.header, "published_cell_times", None)
    if published is None:
        return None
    groups = {
        level: {
            group: {"count" if key == "cells" else key: value for key, value in times.items()}
            for group, times in by_group.model_dump(exclude_none=True).items()
        }
        for level, by_group in published.levels.items()
        if level in experiment.levels
    }
    return PublishedCellTimes.model_validate(
        {"source": published.source, "role": published.role, "levels": groups}
    )


def _level(name: str, label: str, settings: AnySettings, builder: RunBuilder) -> Level:
    return Level(
        name=name,
        label=label,
        measured_start_s=settings.time.measured_start_s,
        measured_end_s=settings.time.measured_end_s,
        stop_s=settings.time.stop_s,
        coordinates=dict(builder.coordinates(name)),
        capacities_bytes_per_s=dict(builder.capacities_bytes_per_s(name)),
        classes={name: ClassLoad(**load) for name, load in settings.classes.items()},
        relays=_relays(settings),
    )


def _networks(builder: RunBuilder) -> dict[str, dict[int, dict[str, RoleCapacity]]]:
    """Return how each role's capacity is distributed over its relays, by level and network.

    Networks whose distribution is not known are omitted.
    """
    found = {
        level: {
            seed: facts
            for seed in builder.experiment.seeds
            if (facts := builder.network_facts(level, seed))
        }
        for level in builder.experiment.levels
    }
    return {level: of_seed for level, of_seed in found.items() if of_seed}


def _relays(settings: AnySettings) -> dict[str, int]:
    """Return the number of simulated relays of each role."""
    if isinstance(settings, Settings):
        counts = {role: entry.count for role, entry in settings.network.relays.items()}
        return {role: count for role, count in counts.items() if count}
    if isinstance(settings, TornetSettings):
        return {role: n for role, n in settings.facts.relays.items() if role != "authority"}
    return {}


def _public_tor(root: Path, experiment: Experiment) -> PublicTor | None:
    """Return the measurements of the public Tor network in the file that the experiment names.

    Return None if it names no file. Raises AnalysisError if the measurements cannot be read.
    """
    path = getattr(experiment.header, "public_tor", None)
    if path is None:
        return None
    # Import this only here: it imports statistical modules. That takes time, and most plans do not
    # need these modules.
    from analysis.imports.tor_metrics import read_tor_metrics

    first = next(iter(experiment.levels.values())).settings
    return read_tor_metrics(root / path, first.facts.network_scale)
