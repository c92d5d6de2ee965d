"""What the analysis is told of an experiment: study.json, made from its bench and its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.formats import files
from analysis.formats.manifest import read_manifest
from analysis.formats.plan_file import PlannedRun
from analysis.formats.public_tor import PublicTor
from analysis.formats.study import (
    ClassLoad,
    Endpoint,
    FigureSpec,
    Level,
    Looks,
    PublishedCellTimes,
    RoleCapacity,
    Run,
    Study,
    Variant,
    load_study,
    write_study,
)
from onionlab.errors import UserError
from onionlab.experiment import AnySettings, Experiment, Settings
from onionlab.experiment.tornettools import TornetSettings
from onionlab.programs.registry import VariantDisplay
from onionlab.runs.bench import Bench
from onionlab.runs.host_facts import host_facts
from onionlab.runs.plan import Plan
from onionlab.runs.store import Store


def study_of(bench: Bench, runs: Sequence[PlannedRun], looks: Looks | None) -> Study:
    """Return the study of an experiment's runs.

    looks: when the results were looked at so far, where seeds are added until they suffice. Raises
    UserError where the experiment's levels have different baselines.
    """
    experiment = bench.experiment
    baselines = {level.settings.baseline for level in experiment.levels.values()}
    if len(baselines) > 1:
        raise UserError(
            f"{experiment.name}: its levels have different baselines: {sorted(baselines)}"
        )
    baseline = baselines.pop()
    return Study(
        format=1,
        name=experiment.name,
        title=experiment.title,
        description=experiment.description,
        baseline=baseline if baseline in bench.selected else None,
        variants=tuple(_variant(bench.variants[name]) for name in bench.selected),
        levels=tuple(
            _level(name, level.label, level.settings, bench)
            for name, level in experiment.levels.items()
        ),
        figures=tuple(
            FigureSpec(
                id=figure.id,
                kind=figure.kind,
                level=figure.level or "",
                title=figure.title or "",
                paper=figure.paper,
            )
            for figure in experiment.figures
        ),
        runs=tuple(
            Run(
                run_id=run.run_id,
                level=run.level,
                variant=run.variant,
                seed=run.seed,
                repeat=run.repeat,
                directory=run.run_id,
                records=f"{run.run_id}/{files.RECORDS}",
            )
            for run in runs
        ),
        networks=_networks(bench),
        margins=experiment.margins,
        endpoints=tuple(Endpoint(**entry.model_dump()) for entry in experiment.endpoints),
        published_cell_times=published_cell_times(experiment),
        public_tor=_public_tor(bench.root, experiment),
        scope=experiment.scope,
        looks=looks,
        asked=experiment.asked,
        shrunk=tuple(experiment.shrunk),
        provenance={
            "engine": bench.engine.identity,
            "tor": [
                {
                    "program": name,
                    "series": getattr(built, "series", None),
                    "version": built.version,
                    "sha256": built.sha256,
                    "source": built.source,
                }
                for name, built in sorted(bench.programs.items())
            ],
            "machine": host_facts(),
        },
    )


def update_provenance(plan: Plan) -> None:
    """Put what the finished runs used, from their manifests, into study.json.

    Raises AnalysisError where a manifest is missing or damaged.
    """
    study = load_study(plan.study)
    store = Store(plan.store)
    used = []
    for run in plan.runs:
        with study.naming(run):
            manifest = read_manifest(store.manifest(run.run_id))
        used.append(
            {
                "run_id": run.run_id,
                "level": run.level,
                "variant": run.variant,
                "seed": run.seed,
                "repeat": run.repeat,
                "wall_s": manifest.wall_s,
                "cpu_s": manifest.cpu_s,
                "peak_memory_bytes": manifest.peak_memory_bytes,
                "proofs": manifest.proofs,
                "host": manifest.host,
            }
        )
    provenance = {**study.provenance, "runs": used}
    write_study(plan.study, study.model_copy(update={"provenance": provenance}))


def published_cell_times(experiment: Experiment) -> PublishedCellTimes | None:
    """Return what others measured of cells at the experiment's levels; None where there is none."""
    published = experiment.published_cell_times
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


def _variant(look: VariantDisplay) -> Variant:
    return Variant(
        name=look.name,
        label=look.label,
        description=look.description,
        color=look.color,
        marker=look.marker,
        linestyle=look.linestyle,
    )


def _level(name: str, label: str, settings: AnySettings, bench: Bench) -> Level:
    return Level(
        name=name,
        label=label,
        measured_start_s=settings.time.measured_start_s,
        measured_end_s=settings.time.measured_end_s,
        stop_s=settings.time.stop_s,
        coordinates=dict(bench.coordinates(name)),
        capacities_bytes_per_s=dict(bench.capacities_bytes_per_s(name)),
        classes={name: ClassLoad(**load) for name, load in settings.classes.items()},
        relays=_relays(settings),
    )


def _networks(bench: Bench) -> dict[str, dict[int, dict[str, RoleCapacity]]]:
    """Level -> network -> role -> how its capacity is divided; levels without any are left out."""
    found = {
        level: {
            seed: facts
            for seed in bench.experiment.seeds
            if (facts := bench.network_facts(level, seed))
        }
        for level in bench.experiment.levels
    }
    return {level: of_seed for level, of_seed in found.items() if of_seed}


def _relays(settings: AnySettings) -> dict[str, int]:
    """Role -> relays that are simulated; none where there are none."""
    if isinstance(settings, Settings):
        counts = {role: entry.count for role, entry in settings.network.relays.items()}
        return {role: count for role, count in counts.items() if count}
    if isinstance(settings, TornetSettings):
        return {role: n for role, n in settings.facts.relays.items() if role != "authority"}
    return {}


def _public_tor(root: Path, experiment: Experiment) -> PublicTor | None:
    """What the experiment's file tells of the public Tor; None where it names none.

    Raises AnalysisError where it cannot be read.
    """
    if experiment.public_tor is None:
        return None
    # Late: it brings statistics, which plans have no use for.
    from analysis.imports.tor_metrics import read_tor_metrics

    first = next(iter(experiment.levels.values())).settings
    return read_tor_metrics(root / experiment.public_tor, first.facts.network_scale)
