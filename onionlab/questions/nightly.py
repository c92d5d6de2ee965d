"""Run a list of experiments every night, compare each with its stored baseline, and keep a history.

    nightly/baselines/<experiment>-<key>.set.json    the baselines
    nightly/history.parquet                          a row for each nightly run and metric
    results/nightly/                                 summary.md, .html and junit.xml of the last run

In names and texts, "night" means one nightly run of the whole list. The key is a hash of everything
that must be equal in a night and its baseline: engine and version, network, load, times, and the
definitions of metrics. Tor and this project may change, since nightly runs exist to detect the
effects. A night can also watch a git repository of Tor. In this case, only Tor may change, so the
hash also covers all generated files.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.comparison.comparing import Comparison, compare_sets
from analysis.comparison.differences import classify_file
from analysis.comparison.history import (
    TIME_SERIES,
    add_rows,
    find_history_steps,
    history_rows,
    last_commit,
    last_records,
    read_history,
    write_history,
)
from analysis.comparison.run_sets import COMMIT_DIGITS, RunSet, read_run_set
from analysis.errors import AnalysisError
from analysis.figures.forest import write_forest
from analysis.formats.durable import write_whole
from analysis.formats.files import FOREST, HISTORY, RECORDS, RECORDS_FORMAT
from analysis.formats.manifest import identity_hash
from analysis.formats.plan_file import Request
from analysis.formats.study import load_study
from analysis.measures.catalogue import METRICS
from analysis.measures.data import ALL
from analysis.pages.night import CommitsSince, Night, NightResult, WatchedTor, html, junit, markdown
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.experiment.nightly_list import NightlyEntry, NightlyList
from onionlab.locks import file_lock
from onionlab.paths import build_directory
from onionlab.programs.git import commits_between, find_commit
from onionlab.programs.tor.build_trees import tor_directory
from onionlab.programs.tor.tor_source import TorSource, find_tor_source
from onionlab.questions.run_set_loader import load_run_set
from onionlab.questions.tor_commits import shorten, write_experiment
from onionlab.runs.plan import Plan, make_plan
from onionlab.runs.provenance import project_name
from onionlab.runs.run_builder import RunBuilder, open_run_builder
from onionlab.runs.study_file import update_provenance
from onionlab.runs.workflow.drive import make_runs
from onionlab.runs.workflow.executor import Where

LOG = logging.getLogger(__name__)
REFERENCE_SEED = 1
"""Seed of the network whose files are part of the key, even if only other networks are run."""

CHANGES = ("tor", "project")
"""Aspects of a run that may differ between a night and its baseline."""


WATCHED = "tor-git"
"""The variant that a night with a git repository of Tor runs.

The name is part of all keys, so it is the same for every branch and commit.
"""


@dataclass(frozen=True)
class PreparedEntry:
    """A planned experiment of the list.

    key: the hash of ``inputs``. The baseline's file name contains it.
    inputs: the result of `baseline_inputs`.
    """

    entry: NightlyEntry
    plan: Plan
    key: str
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the experiment."""
        return self.entry.experiment


@dataclass(frozen=True)
class Repository:
    """A local git repository of Tor, and the commit that a night measures.

    listed: name of an experiment -> the name or the path of this experiment in the list.
    """

    path: Path
    tor: WatchedTor
    listed: Mapping[str, str]


@dataclass(frozen=True)
class NightPaths:
    """The files that a night wrote."""

    markdown: Path
    html: Path
    junit: Path
    history: Path


def watch_repository(
    root: Path, nightly: NightlyList, path: Path, ref: str
) -> tuple[NightlyList, Repository]:
    """Let a commit of Tor replace the variants of all experiments in the list.

    Return the changed list, and the repository with this commit.

    Args:
        root: The checkout. The files of the changed experiments are written below it.
        nightly: The list.
        path: The repository of Tor.
        ref: A branch, tag or commit of the repository. Uncommitted changes are ignored.

    Raises:
        UserError: The repository or the commit does not exist, the commit does not contain Tor, or
            an experiment does not run Tor.
    """
    path = path.expanduser().resolve()
    commit = find_commit(path, ref).hash
    source = find_tor_source(tor_directory(root), TorSource(git=str(path), ref=commit))
    assert source is not None
    entries = []
    for entry in nightly.experiments:
        experiment = load(entry.name, root=root, any_tor=True)
        if experiment.kind == "peers":
            raise UserError(
                f"{entry.name} does not run Tor, so it cannot watch {path}",
                "remove it from the list, or name another list: CONFIG=FILE",
            )
        # Each commit has its own folder. Jobs read its files while simulations run, so a nightly
        # run of another commit must not replace them.
        folder = build_directory(root) / "nightly-tor" / shorten(commit)
        variants = {WATCHED: (commit, shorten(ref))}
        file = write_experiment(root, folder, experiment.name, entry.name, path, variants)
        entries.append(entry.model_copy(update={"name": str(file), "variants": (WATCHED,)}))
    tor = WatchedTor(ref, commit, source.version or "")
    watched = nightly.model_copy(update={"experiments": tuple(entries)})
    listed = {entry.experiment: entry.name for entry in nightly.experiments}
    return watched, Repository(path, tor, listed)


def run_nightly(
    root: Path,
    nightly: NightlyList,
    overrides: Request,
    *,
    state: Path,
    update_baseline: bool,
    where: Where,
    baseline_command: str = "make nightly UPDATE_BASELINE=1",
    repository: Repository | None = None,
) -> tuple[Night, NightPaths]:
    """Run and judge all experiments of the list; then write baselines and history.

    Args:
        root: The checkout.
        nightly: The list.
        overrides: Engine, tools, networks and repeats that replace the settings of every entry.
        state: The folder of baselines and history.
        update_baseline: Whether to replace the baselines by this night's runs.
        where: Where the simulations run.
        baseline_command: The command, without REF, that makes a night's runs the baseline. Hints
            in error messages contain it.
        repository: The second result of ``watch_repository`` if the night watches a repository of
            Tor, so that only Tor may differ from the baseline; otherwise None.

    Raises:
        UserError: A baseline is missing (before anything runs), or a run fails.
    """
    state.mkdir(parents=True, exist_ok=True)
    busy = UserError(f"another night is running in {state}", "wait for its end")
    with file_lock(state / ".lock", timeout_s=0, refusal=busy):
        summaries = _summary_paths(root, state)
        for former in (summaries.markdown, summaries.html, summaries.junit):
            # If this night fails, no summary of an earlier night must remain.
            former.unlink(missing_ok=True)
        night = utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
        history = read_history(state / HISTORY)
        only_tor = repository is not None
        prepared = [
            prepare_entry(root, entry, overrides, only_tor=only_tor)
            for entry in nightly.experiments
        ]
        ref = "" if repository is None else repository.tor.ref
        baselines = [
            None if update_baseline else _read_baseline(state, item, baseline_command, ref)
            for item in prepared
        ]
        results, searched, rows, measured = [], set(), [], []
        for item, baseline in zip(prepared, baselines, strict=True):
            name = item.name
            LOG.info("nightly: %s", name)
            runs = measure_entry(root, item, where)
            runs = runs.model_copy(update={"name": f"night of {night}"})
            measured.append((item, runs))
            comparison = None
            if baseline is not None:
                comparison = compare_sets(baseline, runs, CHANGES, nightly.level_per_experiment)
            new_rows = history_rows(night, name, item.key, runs, _verdicts(comparison, runs))
            before = last_records(history, name, item.key)
            now = {(row["level"], row["variant"]): row["records"] for row in new_rows}
            # Without a baseline, compare the runs with themselves, only to find the endpoints.
            judged = comparison or compare_sets(runs, runs, CHANGES, nightly.level_per_experiment)
            step = _next_step(item, baseline, comparison, repository)
            results.append(NightResult(name, comparison, bool(now) and before == now, judged, step))
            rows += new_rows
            endpoints = {
                (r.judgement.class_name, r.judgement.metric.name) for r in judged.endpoints
            }
            searched |= {
                tuple(row[column] for column in TIME_SERIES)
                for row in new_rows
                if (row["class"], row["metric"]) in endpoints
            }
        tor = None if repository is None else _with_ranges(repository, history, prepared, baselines)
        history = add_rows(history, rows)
        steps, unsearched = find_history_steps(history, nightly.false_steps_per_year, searched)
        result = Night(
            night,
            project_name(),
            nightly.false_alarms_per_year,
            nightly.nights_per_year,
            nightly.false_steps_per_year,
            tuple(results),
            tuple(steps),
            len(searched),
            unsearched,
            tor,
        )
        # Write last, so that an interrupted night changes neither baselines nor history.
        for item, runs in measured if update_baseline else ():
            names = {"name": f"baseline of {night}", "notes": (*runs.notes, f"accepted {night}")}
            write_whole(_baseline_path(state, item), runs.model_copy(update=names).sealed().text())
        write_history(state / HISTORY, history)
        # Still under the lock: each night removes the summaries of earlier nights when it starts.
        _write_summaries(result, summaries)
    return result, summaries


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def entry_request(entry: NightlyEntry, overrides: Request) -> Request:
    """Return the request for the runs of one entry, with the settings of ``overrides``."""
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


def prepare_entry(
    root: Path, entry: NightlyEntry, overrides: Request, *, only_tor: bool = False
) -> PreparedEntry:
    """Plan one entry. Raises UserError for every problem that can be found before a run.

    only_tor: whether nothing but Tor may differ from the baseline.
    """
    request = entry_request(entry, overrides)
    plan = make_plan(root, request, out=root / "results" / "nightly" / entry.experiment)
    inputs = baseline_inputs(open_run_builder(root, request), only_tor=only_tor)
    return PreparedEntry(entry, plan, identity_hash(inputs), inputs)


def baseline_inputs(builder: RunBuilder, *, only_tor: bool = False) -> dict[str, Any]:
    """Return everything that must be equal in a night and its baseline.

    only_tor: whether nothing but Tor may differ. If so, the result covers all generated files, each
    without the parts that depend on Tor's version or commit.
    """
    if only_tor:
        # A run's torrc lacks the options that its version of Tor does not support. Include them
        # here, so that the result does not depend on the version.
        builder.known_options = None
    aspects = {"network", "load", "time"}
    ids = [variant.source_id for variant in builder.variants.values() if only_tor]
    levels = {}
    for name, level in builder.experiment.levels.items():
        settings = level.settings
        files = builder.compose(name, settings.compared.baseline, REFERENCE_SEED).files
        levels[name] = {
            "settings": json.loads(
                settings.model_dump_json(include={"network", "traffic", "time"})
            ),
            "files": {
                path: hashlib.sha256(_without(content, ids)).hexdigest()
                for path, content in sorted(files.items())
                if only_tor or classify_file(path) in aspects
            },
        }
    return {
        "engine": dict(builder.engine.identity),
        "levels": levels,
        "variants": sorted(builder.selected),
        "definitions": [RECORDS, *sorted(metric.name for metric in METRICS)],
    }


def _without(content: bytes, ids: Sequence[str]) -> bytes:
    """Return a file's content without ``ids``, the ids of Tor's sources.

    These ids differ between commits. Files contain them in the names of Tor's programs.
    """
    for source_id in filter(None, ids):
        content = content.replace(source_id.encode(), b"")
    return content


def measure_entry(root: Path, item: PreparedEntry, where: Where) -> RunSet:
    """Perform the missing runs of an entry, and read all of its runs.

    Raises UserError if a run fails or cannot be read.
    """
    make_runs(root, [item.plan], where)
    update_provenance(item.plan.study, item.plan.store)
    return load_run_set(load_study(item.plan.study), item.plan.store, name=item.name)


def _baseline_path(state: Path, item: PreparedEntry) -> Path:
    return state / "baselines" / f"{item.name}-{item.key}.set.json"


def _read_baseline(state: Path, item: PreparedEntry, baseline_command: str, ref: str) -> RunSet:
    path = _baseline_path(state, item)
    make_new = functools.partial(_new_baseline_hint, path.parent, baseline_command, ref)
    if path.exists():
        try:
            baseline = read_run_set(path)
        except AnalysisError as error:
            raise UserError(error.message, f"restore it from a copy, or {make_new()}") from error
        planned = {(run.level, run.variant) for run in item.plan.runs}
        known = {(run.level, run.variant) for run in baseline.runs}
        # The key in the file's name covers record format, levels and variants. If these differ from
        # the plan, the file is therefore damaged.
        if (
            baseline.records_format != RECORDS_FORMAT
            or not planned <= known
            or baseline.sha256 != baseline.sealed().sha256
        ):
            raise UserError(
                f"{path} is damaged: it has another SHA-256, experiment or record format",
                f"restore it from a copy, or {make_new()}",
            )
        return baseline
    # All keys have the same length. A "*" in place of the key would also match other experiments
    # whose names begin with this experiment's name.
    others = list(path.parent.glob(f"{item.name}-{'?' * len(item.key)}.set.json"))
    former = _newest_of_repository(others) if item.entry.variants == (WATCHED,) else None
    if former is not None:
        changed = _harness_changes(former, item.inputs)
        commit = _commits(former)[0]
        raise UserError(
            f"{item.name} has no baseline for these runs ({path}). A new commit or version of Tor "
            "needs no new baseline, but the runs differ from those of the newest baseline (commit "
            f"{commit[:COMMIT_DIGITS]} of Tor) in {', '.join(changed)}: the list, the experiment "
            "or onionlab was changed",
            make_new(),
        )
    why = (
        f"; there are {len(others)} for another engine or version, network, load, or definition "
        "of the metrics"
        if others
        else ""
    )
    raise UserError(
        f"{item.name} has no baseline for this engine, network and metrics ({path}){why}",
        make_new(),
    )


def _new_baseline_hint(baselines: Path, baseline_command: str, ref: str) -> str:
    """Return a hint with the commands that make a missing baseline.

    If an older baseline exists, the first command measures the commit of this baseline again. With
    the night's commit as the baseline, all changes of Tor since the older commit would be hidden.
    """
    accept = f"{baseline_command} REF={shlex.quote(ref)}" if ref else baseline_command
    accept = f"make this night's runs the baseline of the whole list: {accept}"
    newest = _newest_of_repository(sorted(baselines.glob("*.set.json"))) if ref else None
    if newest is None:
        return accept
    repeat = f"{baseline_command} REF={_commits(newest)[0]}"
    return f"repeat the commit of the {newest.name}, and then this night: {repeat}\nor {accept}"


def _commits(runs: RunSet) -> list[str]:
    """Return the distinct commits of Tor with which the runs of a set were performed."""
    builds = (build for run in runs.runs for build in run.tor.values())
    return list(dict.fromkeys(build.commit for build in builds if build.commit))


def _newest_of_repository(paths: Sequence[Path]) -> RunSet | None:
    """Return the newest baseline from a night that watched a repository; None if there is none.

    Damaged files are ignored.
    """
    found = []
    for path in paths:
        with contextlib.suppress(AnalysisError):
            found.append(read_run_set(path))
    # Compare the names, because they contain the night's time. The modification time of a file may
    # only show when git checked it out.
    return max(
        (one for one in found if one.variants == (WATCHED,) and _commits(one)),
        key=lambda one: one.name,
        default=None,
    )


def _harness_changes(baseline: RunSet, inputs: Mapping[str, Any]) -> list[str]:
    """Return the differences, except in Tor, of a baseline and a night's `baseline_inputs`."""
    run = baseline.runs[0]
    engine = {key: str(value) for key, value in inputs["engine"].items()}
    keys = [key for key in {**run.engine, **engine} if run.engine.get(key) != engine.get(key)]
    found = [f"engine ({', '.join(keys)})"] if keys else []
    for run in baseline.runs:
        level = inputs["levels"].get(run.level)
        if level is not None and run.seed == REFERENCE_SEED:
            paths = {**run.files, **level["files"]}
            differing = [path for path in paths if run.files.get(path) != level["files"].get(path)]
            found += [classify_file(path) for path in differing]
    # Report the engine's files only if nothing else differs. They always differ, because they name
    # Tor's programs, whose names contain the commit.
    return list(dict.fromkeys(one for one in found if one != "engine files")) or ["engine files"]


def _with_ranges(
    repository: Repository,
    history: Any,
    prepared: Sequence[PreparedEntry],
    baselines: Sequence[RunSet | None],
) -> WatchedTor:
    """Return the night's Tor with its attribute `ranges` set.

    There are two kinds of ranges: the commits since the last night, and since the baselines.
    """
    earlier: dict[str, list[str]] = {}
    for item, baseline in zip(prepared, baselines, strict=True):
        if commit := last_commit(history, item.name, WATCHED):
            earlier.setdefault(commit, []).append("the last night")
        for commit in [] if baseline is None else _commits(baseline):
            earlier.setdefault(commit[:COMMIT_DIGITS], []).append("the baseline")
    ranges = []
    for commit, measurements in earlier.items():
        found = commits_between(repository.path, commit, repository.tor.commit)
        lacking, count, lines = found or (0, None, ())
        what = " and ".join(dict.fromkeys(measurements))
        ranges.append(CommitsSince(what, commit, count, lines, lacking))
    return replace(repository.tor, ranges=tuple(ranges))


def _next_step(
    item: PreparedEntry,
    baseline: RunSet | None,
    comparison: Comparison | None,
    repository: Repository | None,
) -> tuple[str, str] | None:
    """Return the next step after a shown or a suggested regression: its purpose, and its command.

    Return None if there is no such regression, or if no command of make can examine it.
    """
    commits = [] if baseline is None else _commits(baseline)
    if repository is None or comparison is None or not commits:
        return None
    before, now = commits[0][:COMMIT_DIGITS], repository.tor.commit[:COMMIT_DIGITS]
    request = item.plan.request
    values = {
        "TOR_GIT": repository.path,
        "NAME": repository.listed[item.name],
        "SCALE": request.scale,
        "REPEATS": request.repeats,
        "ENGINE": "" if request.engine == "auto" else request.engine,
    }
    words = [f"{name}={shlex.quote(str(value))}" for name, value in values.items() if value]
    options = " ".join(words)
    if comparison.regressions:
        if len({run.level for run in item.plan.runs}) > 1:
            return None  # `make bisect` needs an experiment with only one level.
        judged = comparison.regressions[0].judgement
        endpoint = judged.metric.name
        if judged.class_name != ALL:
            endpoint = f"{judged.class_name}:{endpoint}"
        command = f"make bisect GOOD={before} BAD={now} ENDPOINT={endpoint} {options}"
        return "To find the commit", command
    if comparison.suggested_regressions:
        return "For an answer", f"make compare-tor A={before} B={now} NETWORKS=auto {options}"
    return None


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


def _summary_paths(root: Path, state: Path) -> NightPaths:
    out = root / "results" / "nightly"
    return NightPaths(out / "summary.md", out / "summary.html", out / "junit.xml", state / HISTORY)


def _write_summaries(night: Night, paths: NightPaths) -> None:
    out = paths.markdown.parent
    out.mkdir(parents=True, exist_ok=True)
    paths.markdown.write_text(markdown(night), encoding="utf-8")
    forests = {
        result.name: write_forest(result.compared, out / f"{FOREST}-{result.name}")
        for result in night.results
    }
    drawn = {name: forest for name, forest in forests.items() if forest is not None}
    paths.html.write_text(html(night, drawn), encoding="utf-8")
    paths.junit.write_text(junit(night), encoding="utf-8")
