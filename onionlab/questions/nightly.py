"""Nightly runs: compare the experiments of a list with a stored baseline, and keep a history.

    nightly/baselines/<experiment>-<key>.set.json    the baselines
    nightly/history.parquet                          a row for each night and metric
    results/nightly/                                 the last night's summary.md, .html, junit.xml

The key is a hash of everything that must be equal in a night and its baseline: engine and version,
network, load, times, and the definitions of metrics. Tor and this project may change, since nightly
runs exist to detect the effects.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from analysis.comparison.comparing import Comparison, compare_sets
from analysis.comparison.differences import classify_file
from analysis.comparison.history import (
    TIME_SERIES,
    add_rows,
    find_history_steps,
    history_rows,
    last_records,
    read_history,
    unsearched,
    write_history,
)
from analysis.comparison.run_sets import RunSet, read_run_set
from analysis.figures.forest import write_forest
from analysis.formats.durable import write_whole
from analysis.formats.files import FOREST, HISTORY, RECORDS, RECORDS_FORMAT
from analysis.formats.manifest import identity_hash
from analysis.formats.plan_file import Request
from analysis.formats.study import load_study
from analysis.measures.catalogue import METRICS
from analysis.pages.night import Night, NightResult, html, junit, markdown
from onionlab.errors import UserError
from onionlab.experiment.nightly_list import NightlyEntry, NightlyList
from onionlab.locks import file_lock
from onionlab.questions.run_set_loader import load_run_set
from onionlab.runs.plan import Plan, make_plan
from onionlab.runs.provenance import project_name
from onionlab.runs.run_builder import RunBuilder, open_run_builder
from onionlab.runs.study_file import update_provenance
from onionlab.runs.workflow.drive import make_runs
from onionlab.runs.workflow.executor import Where

LOG = logging.getLogger(__name__)
REFERENCE_SEED = 1
"""The network whose files are part of the key, even if other networks run."""

CHANGES = ("tor", "project")
"""Aspects that may have changed since the baseline."""


@dataclass(frozen=True)
class PreparedEntry:
    """An experiment before its runs: its plan and the key of its baseline."""

    entry: NightlyEntry
    plan: Plan
    key: str


@dataclass(frozen=True)
class NightPaths:
    """The files that a night wrote."""

    markdown: Path
    html: Path
    junit: Path
    history: Path


def run_nightly(
    root: Path,
    nightly: NightlyList,
    overrides: Request,
    *,
    state: Path,
    update_baseline: bool,
    where: Where,
    baseline_command: str = "make nightly UPDATE_BASELINE=1",
) -> tuple[Night, NightPaths]:
    """Run and judge all experiments of the list; then write baselines and history.

    Args:
        root: The checkout.
        nightly: The list.
        overrides: Settings that replace those of every entry: engine, tools, networks, repeats.
        state: The folder of baselines and history.
        update_baseline: Make this night's runs the baseline.
        where: Where the simulations run.
        baseline_command: The command that makes this night's runs the baseline, for hints.

    Raises:
        UserError: A baseline is missing (before anything runs), or a run fails.
    """
    state.mkdir(parents=True, exist_ok=True)
    busy = UserError(f"another night is running in {state}", "wait for its end")
    with file_lock(state / ".lock", timeout_s=0, refusal=busy):
        night = utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
        history = read_history(state / HISTORY)
        prepared = [prepare_entry(root, entry, overrides) for entry in nightly.experiments]
        baselines = [
            None if update_baseline else _read_baseline(state, item, baseline_command)
            for item in prepared
        ]
        results, searched, rows, measured = [], set(), [], []
        for item, baseline in zip(prepared, baselines, strict=True):
            name = item.entry.name
            LOG.info("nightly: %s", name)
            runs = measure_entry(root, item, where)
            measured.append((item, runs))
            comparison = None
            if baseline is not None:
                comparison = compare_sets(baseline, runs, CHANGES, nightly.level_per_experiment)
            new_rows = history_rows(night, name, item.key, runs, _verdicts(comparison, runs))
            before = last_records(history, name, item.key)
            now = {(row["level"], row["variant"]): row["records"] for row in new_rows}
            # Without a baseline, the runs are compared with themselves to find the endpoints.
            judged = comparison or compare_sets(runs, runs, CHANGES, nightly.level_per_experiment)
            results.append(NightResult(name, comparison, bool(now) and before == now, judged))
            rows += new_rows
            endpoints = {
                (r.judgement.class_name, r.judgement.metric.name) for r in judged.endpoints
            }
            searched |= {
                tuple(row[column] for column in TIME_SERIES)
                for row in new_rows
                if (row["class"], row["metric"]) in endpoints
            }
        history = add_rows(history, rows)
        result = Night(
            night,
            project_name(),
            nightly.false_alarms_per_year,
            nightly.nights_per_year,
            nightly.false_steps_per_year,
            tuple(results),
            tuple(find_history_steps(history, nightly.false_steps_per_year, searched)),
            len(searched),
            unsearched(history, searched),
        )
        # Write only after everything is computed, so that an interrupted night changes nothing.
        for item, runs in measured if update_baseline else ():
            names = {"name": f"baseline of {night}", "notes": (*runs.notes, f"accepted {night}")}
            write_whole(_baseline_path(state, item), runs.model_copy(update=names).sealed().text())
        write_history(state / HISTORY, history)
    return result, _write_summaries(result, root / "results" / "nightly", state)


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def entry_request(entry: NightlyEntry, overrides: Request) -> Request:
    """Return the request of one entry of the list, with the overrides for all entries."""
    networks = (overrides.seeds, entry.networks, entry.seeds)
    return replace(
        overrides,
        experiment=entry.name,
        scale=entry.scale,
        seeds=next((seeds for seeds in networks if seeds is not None), None),
        repeats=overrides.repeats or entry.repeats,
        variants=entry.variants,
        engine=entry.engine if overrides.engine == "auto" else overrides.engine,
    )


def prepare_entry(root: Path, entry: NightlyEntry, overrides: Request) -> PreparedEntry:
    """Plan one entry. Raises UserError for each problem that can be found before a run."""
    request = entry_request(entry, overrides)
    plan = make_plan(root, request, out=root / "results" / "nightly" / entry.name)
    return PreparedEntry(entry, plan, baseline_key(open_run_builder(root, request)))


def baseline_key(builder: RunBuilder) -> str:
    """Return a hash of everything that must be equal in a night and its baseline."""
    levels = {}
    for name, level in builder.experiment.levels.items():
        settings = level.settings
        files = builder.compose(name, settings.compared.baseline, REFERENCE_SEED).files
        levels[name] = {
            "settings": json.loads(
                settings.model_dump_json(include={"network", "traffic", "time"})
            ),
            "files": {
                path: hashlib.sha256(content).hexdigest()
                for path, content in sorted(files.items())
                if classify_file(path) in ("network", "load", "time")
            },
        }
    return identity_hash(
        {
            "engine": dict(builder.engine.identity),
            "levels": levels,
            "variants": sorted(builder.selected),
            "definitions": [RECORDS, *sorted(metric.name for metric in METRICS)],
        }
    )


def measure_entry(root: Path, item: PreparedEntry, where: Where) -> RunSet:
    """Perform the missing runs of an entry, and read all of its runs.

    Raises UserError if a run fails or cannot be read.
    """
    make_runs(root, [item.plan], where)
    update_provenance(item.plan.study, item.plan.store)
    return load_run_set(load_study(item.plan.study), item.plan.store, name=item.entry.name)


def _baseline_path(state: Path, item: PreparedEntry) -> Path:
    return state / "baselines" / f"{item.entry.name}-{item.key}.set.json"


def _read_baseline(state: Path, item: PreparedEntry, baseline_command: str) -> RunSet:
    path = _baseline_path(state, item)
    if path.exists():
        baseline = read_run_set(path)
        planned = {(run.level, run.variant) for run in item.plan.runs}
        known = {(run.level, run.variant) for run in baseline.runs}
        # Record format, levels and variants are part of the key in the file's name, so the file is
        # damaged if they differ.
        if (
            baseline.records_format != RECORDS_FORMAT
            or not planned <= known
            or baseline.sha256 != baseline.sealed().sha256
        ):
            raise UserError(
                f"{path} is damaged: it has another SHA-256, experiment or record format",
                "restore it from a copy, or make this night's runs the baseline: "
                f"{baseline_command}",
            )
        return baseline
    others = len(list(path.parent.glob(f"{item.entry.name}-*.set.json")))
    why = (
        f"; there are {others} for another engine or version, network, load, or definition of the "
        "metrics"
        if others
        else ""
    )
    raise UserError(
        f"{item.entry.name} has no baseline for this engine, network and metrics ({path}){why}",
        f"make this night's runs the baseline: {baseline_command}",
    )


def _verdicts(comparison: Comparison | None, runs: RunSet) -> dict[tuple[str, str, str, str], str]:
    if comparison is None:
        return {}
    if comparison.identical:
        return {
            (run.level, run.variant, value.class_name, value.metric): "identical"
            for run in runs.runs
            for value in runs.values
        }
    return {
        (
            row.match.level_b,
            row.match.variant_b,
            row.judgement.class_name,
            row.judgement.metric.name,
        ): row.judgement.verdict.word
        for row in comparison.rows
    }


def _write_summaries(night: Night, out: Path, state: Path) -> NightPaths:
    out.mkdir(parents=True, exist_ok=True)
    paths = NightPaths(out / "summary.md", out / "summary.html", out / "junit.xml", state / HISTORY)
    paths.markdown.write_text(markdown(night), encoding="utf-8")
    forests = {
        result.name: write_forest(result.compared, out / f"{FOREST}-{result.name}")
        for result in night.results
    }
    drawn = {name: forest for name, forest in forests.items() if forest is not None}
    paths.html.write_text(html(night, drawn), encoding="utf-8")
    paths.junit.write_text(junit(night), encoding="utf-8")
    return paths
