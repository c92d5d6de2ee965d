"""A plan that repeats finished runs names the changed program, library, processor or engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.formats.manifest import Manifest
from analysis.formats.plan_file import PlannedRun
from onionlab.runs.outdated_runs import explain_outdated_runs
from onionlab.runs.store import Store

OLD: dict[str, Any] = {
    "files": {"run.json": "f"},
    "programs": {"tor-circuit-policy": "1", "tor-stock": "2"},
    "libraries": {"libssl.so.3": "3", "libz.so.1": "4"},
    "processor": {"aes": True},
    "engine": {"name": "shadow", "version": "3.2.0"},
}
OTHER_BUILD = {"programs": {"tor-circuit-policy": "9", "tor-stock": "2"}}


def runs(prefix: str) -> list[PlannedRun]:
    return [
        PlannedRun(f"{prefix}{variant}{seed}", "5mid", variant, seed)
        for seed in (1, 2)
        for variant in ("rr", "ewma")
    ]


@pytest.mark.parametrize(
    ("change", "finished", "prefix", "reason"),
    [
        (OTHER_BUILD, "rr", "b", "2 finished runs are repeated: tor-circuit-policy is another"),
        ({"libraries": {"libssl.so.3": "5"}}, "rr ewma", "b", "another version of libssl.so.3"),
        ({"processor": {"aes": False}}, "rr ewma", "b", "this machine's processor differs"),
        ({"engine": {"name": "uml"}}, "rr ewma", "b", "the engine is another one than theirs"),
        (OTHER_BUILD, "", "b", ""),
        (OTHER_BUILD | {"files": {"run.json": "g"}}, "rr ewma", "b", ""),
        (OTHER_BUILD, "rr ewma", "a", ""),
    ],
)
def test_the_reason_for_repeated_runs(
    tmp_path: Path, change: dict[str, Any], finished: str, prefix: str, reason: str
) -> None:
    store = Store(tmp_path)
    for run in runs("a"):
        if run.variant in finished:
            store.partial(run.run_id).mkdir(parents=True)
            store.finish(run.run_id, Manifest(run_id=run.run_id, identity=OLD))
    composed = SimpleNamespace(identity=lambda *_: OLD | change)
    builder: Any = SimpleNamespace(compose=lambda *_: composed, programs={}, engine=None)
    text = explain_outdated_runs(runs("a"), runs(prefix), store, builder)
    assert reason in text
    assert bool(text) is bool(reason)
    assert explain_outdated_runs([], runs(prefix), store, builder) == ""
