"""Explain why a plan repeats finished runs: a program or the engine has changed."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.errors import AnalysisError
from analysis.formats.manifest import read_manifest
from analysis.formats.plan_file import PlannedRun
from onionlab.runs.run_builder import RunBuilder
from onionlab.runs.store import Store


def explain_outdated_runs(
    earlier: Sequence[PlannedRun], runs: Sequence[PlannedRun], store: Store, builder: RunBuilder
) -> str:
    """Return why finished runs of an earlier plan are repeated; "" if no run is repeated.

    A run's name is the hash of its identity, so a run is repeated if its identity has changed. To
    find the reason, one run of each variant is composed, and its identity is compared with the
    identity of the earlier run. Changed files of a run are not reported: the request has changed.
    """
    old_ids = {_place(run): run.run_id for run in earlier}
    replaced = [
        (run, old)
        for run in runs
        if (old := old_ids.get(_place(run), run.run_id)) != run.run_id
        and not store.is_finished(run.run_id)
        and store.is_finished(old)
    ]
    counts: Counter[str] = Counter()
    for variant in dict.fromkeys(run.variant for run, _ in replaced):
        own = [(run, old) for run, old in replaced if run.variant == variant]
        first, old = own[0]
        composed = builder.compose(first.level, variant, first.seed, first.repeat)
        try:
            before = read_manifest(store.manifest(old)).identity
        except AnalysisError:
            continue
        if reason := _changed_part(before, composed.identity(builder.programs, builder.engine)):
            counts[reason] += len(own)
    return "; ".join(f"{n} finished runs are repeated: {reason}" for reason, n in counts.items())


_place = operator.attrgetter("level", "variant", "seed", "repeat")


def _changed_part(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return why a run's identity differs from an earlier one; "" if the run's files differ."""
    if before.get("files") != now["files"]:
        return ""
    programs = [
        name
        for name, sha256 in now["programs"].items()
        if before.get("programs", {}).get(name) != sha256
    ]
    if programs:
        return (
            f"{' and '.join(programs)} is another build than theirs (its patches, its source or "
            "the compiler has changed)"
        )
    if before.get("processor", now["processor"]) != now["processor"]:
        return "this machine's processor differs from theirs in its instructions for AES"
    libraries = sorted(
        name
        for name, sha256 in now["libraries"].items()
        if before.get("libraries", {}).get(name, sha256) != sha256
    )
    if libraries:
        return f"this machine has another version of {' and '.join(libraries)}"
    return "the engine is another one than theirs, or another version or build of it"
