"""A night: the experiments of a list, against a stored baseline, into the history.

    nightly/baselines/<experiment>-<key>.set.json    what nights are compared with
    nightly/history.parquet                          a row for each night and metric
    results/nightly/                                 the last night's summary.md, .html, junit.xml

The key is a hash of what may not differ between a night and its baseline: engine and version,
network, load, times, and what the numbers mean. Tor and this project may: they are what is watched.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from onionlab.questions.open_sets import set_of_study
from onionlab.runs.bench import Bench, open_bench
from onionlab.runs.commit import project_name
from onionlab.runs.plan import Plan
from onionlab.runs.planning import make_plan
from onionlab.runs.study_file import update_provenance
from onionlab.runs.workflow.drive import make_runs
from onionlab.runs.workflow.executor import Executor

REFERENCE_SEED = 1
"""Its network stands for what the generator draws, whatever networks a night has."""

ABOUT = ("tor", "project")
"""What may have changed since the baseline."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """An experiment before its runs: its plan and the key of its baseline."""

    entry: NightlyEntry
    plan: Plan
    key: str


@dataclass(frozen=True)
class NightPaths:
    """What a night wrote."""

    markdown: Path
    html: Path
    junit: Path
    history: Path


def run_night(
    root: Path,
    nightly: NightlyList,
    asked: Request,
    *,
    state: Path,
    accept: bool,
    jobs: int | None,
    say: Say,
    executor: Executor | None = None,
    accept_with: str = "make nightly UPDATE_BASELINE=1",
    prepare: Callable[[Path, NightlyEntry, Request, Say], Prepared] | None = None,
    measure: Callable[[Path, Prepared, int | None, Say], RunSet] | None = None,
    when: datetime | None = None,
) -> tuple[Night, NightPaths]:
    """Run all experiments of the list and judge them; then write baselines and history.

    Args:
        root: the checkout.
        nightly: the list.
        asked: what to change in every entry: engine, tools, networks, repeats.
        state: directory of baselines and history.
        accept: make this night's runs the baseline.
        jobs: simulations side by side.
        say: takes progress lines.
        executor: makes the runs, in place of this machine.
        accept_with: the command that makes this night's runs the baseline, for hints.
        prepare: plans an entry (for tests).
        measure: makes an entry's runs (for tests).
        when: the night's time.

    Raises:
        UserError: a baseline is missing (before anything runs), or a run fails.
    """
    prepare, measure = (
        prepare or prepare_entry,
        measure or functools.partial(measure_entry, executor=executor),
    )
    night = (when or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
    with _locked(state):
        history = read_history(state / HISTORY)
        prepared = [prepare(root, entry, asked, say) for entry in nightly.experiments]
        baselines = [None if accept else _baseline(state, item, accept_with) for item in prepared]
        results, searched, rows, accepted = [], set(), [], []
        for item, baseline in zip(prepared, baselines, strict=True):
            say(f"nightly: {item.entry.name}")
            tonight = measure(root, item, jobs, say)
            comparison = None
            if baseline is not None:
                comparison = _compare(baseline, tonight, nightly.level_per_experiment)
            new_rows = history_rows(
                night, item.entry.name, item.key, tonight, _verdicts(comparison, tonight)
            )
            before = last_records(history, item.entry.name, item.key)
            now = {(row["level"], row["variant"]): row["records"] for row in new_rows}
            # Against itself, to learn which metrics are endpoints.
            judged = comparison or _compare(tonight, tonight, nightly.level_per_experiment)
            repeated = bool(now) and before == now
            results.append(NightResult(item.entry.name, comparison, repeated, judged))
            rows += new_rows
            decide = {(r.judgement.class_name, r.judgement.metric.name) for r in judged.endpoints}
            searched |= {
                tuple(row[column] for column in TIME_SERIES)
                for row in new_rows
                if (row["class"], row["metric"]) in decide
            }
            accepted.append((item, tonight))
        history = add_rows(history, rows)
        made = Night(
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
        # Nothing is written before all is measured: an interrupted night changes nothing.
        for item, tonight in accepted if accept else ():
            _write_baseline(state, item, tonight, night)
        write_history(state / HISTORY, history)
    return made, _write_summaries(made, root / "results" / "nightly", state)


def request_of_entry(entry: NightlyEntry, asked: Request) -> Request:
    """What one entry asks for, changed as the night is."""
    return replace(
        asked,
        experiment=entry.name,
        scale=entry.scale,
        seeds=next(
            (one for one in (asked.seeds, entry.networks, entry.seeds) if one is not None), None
        ),
        repeats=asked.repeats or entry.repeats,
        variants=entry.variants,
        engine=entry.engine if asked.engine == "auto" else asked.engine,
    )


def prepare_entry(root: Path, entry: NightlyEntry, asked: Request, say: Say) -> Prepared:
    """Plan one entry. Raises UserError for all that can be known before a run."""
    request = request_of_entry(entry, asked)
    plan = make_plan(root, request, say, out=root / "results" / "nightly" / entry.name)
    return Prepared(entry, plan, baseline_key(open_bench(root, request, say)))


def baseline_key(bench: Bench) -> str:
    """Hash of what a night and its baseline must have in common."""
    levels = {}
    for name, level in bench.experiment.levels.items():
        settings = level.settings
        files = bench.compose(name, settings.baseline, REFERENCE_SEED).files
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
            "engine": dict(bench.engine.identity),
            "levels": levels,
            "variants": sorted(bench.selected),
            "definitions": [RECORDS, *sorted(metric.name for metric in METRICS)],
        }
    )


def measure_entry(
    root: Path,
    item: Prepared,
    jobs: int | None,
    say: Say,
    *,
    executor: Executor | None = None,
) -> RunSet:
    """Make an entry's runs that are missing and read them. Raises UserError."""
    make_runs(root, [item.plan], jobs=jobs, say=say, executor=executor)
    update_provenance(item.plan)
    return set_of_study(load_study(item.plan.study), item.plan.store, name=item.entry.name)


def _baseline_path(state: Path, item: Prepared) -> Path:
    return state / "baselines" / f"{item.entry.name}-{item.key}.set.json"


def _baseline(state: Path, item: Prepared, accept_with: str) -> RunSet:
    path = _baseline_path(state, item)
    if path.exists():
        baseline = read_run_set(path)
        planned = {(run.level, run.variant) for run in item.plan.runs}
        known = {(run.level, run.variant) for run in baseline.runs}
        # The key of its name says that these are the same.
        if (
            baseline.records_format != RECORDS_FORMAT
            or not planned <= known
            or baseline.sha256 != baseline.sealed().sha256
        ):
            raise UserError(
                f"{path} is damaged: it has another SHA-256, experiment or record format",
                f"restore it from a copy, or make this night's runs the baseline: {accept_with}",
            )
        return baseline
    others = sorted(path.parent.glob(f"{item.entry.name}-*.set.json"))
    why = (
        f"; there are {len(others)} for another engine or version, network, load, or definition "
        "of the metrics"
        if others
        else ""
    )
    raise UserError(
        f"{item.entry.name} has no baseline for this engine, network and metrics ({path}){why}",
        f"make this night's runs the baseline: {accept_with}",
    )


def _write_baseline(state: Path, item: Prepared, tonight: RunSet, night: str) -> None:
    made = tonight.model_copy(
        update={"name": f"baseline of {night}", "notes": (*tonight.notes, f"accepted {night}")}
    )
    write_whole(_baseline_path(state, item), made.sealed().text())


def _compare(baseline: RunSet, tonight: RunSet, level: float) -> Comparison:
    return compare_sets(baseline, tonight, ABOUT, level)


def _verdicts(
    comparison: Comparison | None, tonight: RunSet
) -> dict[tuple[str, str, str, str], str]:
    if comparison is None:
        return {}
    if comparison.identical:
        return {
            (run.level, run.variant, value.class_name, value.metric): "identical"
            for run in tonight.runs
            for value in tonight.values
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


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    state.mkdir(parents=True, exist_ok=True)
    with (state / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another night is running in {state}", "wait for its end") from None
        yield
