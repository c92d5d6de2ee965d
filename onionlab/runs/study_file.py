"""Create study.json, which describes an experiment and its runs for the analysis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from onionlab.network.sample import capacity_shares
from onionlab.programs.registry import VariantDisplay
from onionlab.rundir.compose import mean_capacity_bit_per_s, network_request
from onionlab.runs.provenance import host_facts
from onionlab.runs.run_builder import RunBuilder
from onionlab.runs.store import Store

RUN_FIELDS = ("run_id", "level", "variant", "seed", "repeat")
MANIFEST_FIELDS = ("wall_s", "cpu_s", "peak_memory_bytes", "proofs", "host")
DISPLAY_FIELDS = ("name", *VariantDisplay.model_fields)
DEFAULT_CC_ALG = 2
"""Tor Vegas, the congestion control of Tor 0.4.9 if the consensus does not set cc_alg."""


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
            describe_level(builder.root, name, level.label, level.settings)
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

    Raises AnalysisError if a manifest is missing or damaged.
    """
    study, store, used = load_study(path), Store(store_folder), []
    for run in study.runs:
        with study.naming(run):
            manifest = read_manifest(store.manifest(run.run_id))
        described = {name: getattr(run, name) for name in RUN_FIELDS}
        used.append(described | {name: getattr(manifest, name) for name in MANIFEST_FIELDS})
    provenance = {**study.provenance, "runs": used}
    write_study(path, study.model_copy(update={"provenance": provenance}))


def published_cell_times(experiment: Experiment) -> PublishedCellTimes | None:
    """Return the cell times that a paper published for the levels of the experiment, if any."""
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


def describe_level(root: Path, name: str, label: str, settings: AnySettings) -> Level:
    """Return the entry of a level in the study."""
    relays = _relays(settings)
    limits_bit_per_s: Mapping[str, float] = {}
    coordinates: Mapping[str, float] = {}
    if isinstance(settings, Settings):
        limits_bit_per_s = _limits_bit_per_s(root, settings)
        coordinates = {
            # The bottleneck is the role whose relays have the least capacity on average.
            "bottleneck_kib_per_s": round(min(limits_bit_per_s.values()) / 8192, 3),
            "streams": max(entry.streams for entry in settings.traffic.values()),
            "cc_alg": settings.tor.consensus_params.get("cc_alg", DEFAULT_CC_ALG),
        }
    return Level(
        name=name,
        label=label,
        measured_start_s=settings.time.measured_start_s,
        measured_end_s=settings.time.measured_end_s,
        stop_s=settings.time.stop_s,
        coordinates=dict(coordinates),
        capacities_bytes_per_s={
            role: relays[role] * limit / 8 for role, limit in limits_bit_per_s.items()
        },
        classes={name: ClassLoad(**load) for name, load in settings.classes.items()},
        relays=relays,
    )


def _limits_bit_per_s(root: Path, settings: Settings) -> dict[str, float]:
    """Return the mean capacity of one relay of each role, limited by link and BandwidthRate."""
    return {
        role: min(
            entry.bandwidth_rate_bit_per_s or math.inf,
            mean_capacity_bit_per_s(root, settings.network, entry)
            * settings.network.capacity_total_factor(role),
        )
        for role, entry in settings.network.relays.items()
        if entry.count
    }


def _networks(builder: RunBuilder) -> dict[str, dict[int, dict[str, RoleCapacity]]]:
    """Return how each role's capacity is distributed over its relays, by level and network.

    Only networks that onionlab generates are included.
    """
    return {
        name: {
            seed: {
                role: RoleCapacity(limited=limited, largest=largest)
                for role, (limited, largest) in capacity_shares(request, seed).items()
            }
            for seed in builder.experiment.seeds
        }
        for name, level in builder.experiment.levels.items()
        if isinstance(level.settings, Settings)
        for request in [network_request(builder.root, level.settings)]
    }


def _relays(settings: AnySettings) -> dict[str, int]:
    """Return the number of simulated relays of each role."""
    if isinstance(settings, Settings):
        counts = {role: entry.count for role, entry in settings.network.relays.items()}
        return {role: count for role, count in counts.items() if count}
    if isinstance(settings, TornetSettings):
        return {role: n for role, n in settings.facts.relays.items() if role != "authority"}
    return {}


def _public_tor(root: Path, experiment: Experiment) -> PublicTor | None:
    """Return the measurements of the public Tor in the file that the experiment names, if any.

    Raises AnalysisError if the measurements cannot be read.
    """
    path = getattr(experiment.header, "public_tor", None)
    if path is None:
        return None
    # Import this only here: it imports statistical modules. That takes time, and most plans do not
    # need these modules.
    from analysis.imports.tor_metrics import read_tor_metrics

    first = next(iter(experiment.levels.values())).settings
    return read_tor_metrics(root / path, first.facts.network_scale)
