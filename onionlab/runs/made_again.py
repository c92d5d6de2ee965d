"""Runs that are there, and that a plan makes again because a program or the engine has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.formats.manifest import read_manifest
from analysis.formats.plan_file import PlannedRun
from onionlab.errors import UserError
from onionlab.runs.plan import read_plan
from onionlab.runs.store import Store


def builds_that_changed(
    earlier: Path,
    store: Store,
    runs: Sequence[PlannedRun],
    identity_of: Callable[[PlannedRun], Mapping[str, Any]],
) -> str | None:
    """What to tell somebody whose finished runs are made again, though nothing was asked anew.

    A change of what was asked for, which the run's own files hold, is no news to who made it.

    Args:
        earlier: the plan.json that `runs` replace; there may be none.
        store: where the runs are.
        runs: those planned now.
        identity_of: everything that determines a run; asked for one run of each variant.
    """
    before = _by_place(earlier)
    replaced = [
        (run, before[_place(run)])
        for run in runs
        if before.get(_place(run), run.run_id) != run.run_id and not store.is_finished(run.run_id)
    ]
    replaced = [(run, old) for run, old in replaced if store.is_finished(old)]
    changed: dict[str, int] = {}
    for variant in dict.fromkeys(run.variant for run, _ in replaced):
        own = [(run, old) for run, old in replaced if run.variant == variant]
        what = _changed(store, *own[0], identity_of)
        if what is not None:
            changed[what] = changed.get(what, 0) + len(own)
    if not changed:
        return None
    return "; ".join(
        f"{count} finished runs are made again: {what}" for what, count in changed.items()
    )


def _place(run: PlannedRun) -> tuple[str, str, int, int]:
    """Return what a run is in its experiment."""
    return run.level, run.variant, run.seed, run.repeat


def _by_place(plan: Path) -> dict[tuple[str, str, int, int], str]:
    """Return the runs of a plan by their place."""
    try:
        return {_place(run): run.run_id for run in read_plan(plan).runs}
    except UserError:
        return {}  # There is none, or one that nobody can read.


def _changed(
    store: Store,
    run: PlannedRun,
    old: str,
    identity_of: Callable[[PlannedRun], Mapping[str, Any]],
) -> str | None:
    """Why a run has another name than the old one of its place."""
    try:
        was = read_manifest(store.manifest(old)).identity
    except AnalysisError:
        return None
    now = identity_of(run)
    if was.get("files") != now["files"]:
        return None
    programs = [
        name
        for name, digest in now["programs"].items()
        if was.get("programs", {}).get(name) != digest
    ]
    if programs:
        return (
            f"{' and '.join(programs)} is another build than theirs (its patches, its source or "
            "the compiler has changed)"
        )
    if was.get("processor", now["processor"]) != now["processor"]:
        return "this machine's processor differs from theirs in its instructions for AES"
    libraries = sorted(
        name
        for name, digest in now["libraries"].items()
        if was.get("libraries", {}).get(name, digest) != digest
    )
    if libraries:
        return f"this machine has another version of {' and '.join(libraries)}"
    return "the engine is another one than theirs, or another version or build of it"
