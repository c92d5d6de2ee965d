"""Finished runs that a plan makes again: the user hears why, where it was not their own doing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.formats.manifest import Manifest
from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.runs.made_again import builds_that_changed
from onionlab.runs.plan import Plan, write_plan
from onionlab.runs.store import Store

OLD: dict[str, Any] = {
    "files": {"run.json": "f"},
    "programs": {"tor-circuit-policy": "1", "tor-stock": "2"},
    "libraries": {"libssl.so.3": "3", "libz.so.1": "4"},
    "processor": {"aes": True},
    "engine": {"name": "shadow", "version": "3.2.0"},
}
OTHER_BUILD = OLD | {"programs": {"tor-circuit-policy": "9", "tor-stock": "2"}}
OTHER_ENGINE = OLD | {"engine": {"name": "shadow", "version": "3.3.0"}}
OTHER_LIBRARY = OLD | {"libraries": {"libssl.so.3": "5", "libz.so.1": "4"}}
OTHER_PROCESSOR = OLD | {"processor": {"aes": False}}
OTHER_FILES = OTHER_BUILD | {"files": {"run.json": "g"}}


def runs(prefix: str) -> tuple[PlannedRun, ...]:
    return tuple(
        PlannedRun(f"{prefix}{variant}{seed}", "5mid", variant, seed)
        for seed in (1, 2)
        for variant in ("rr", "ewma")
    )


def told(tmp_path: Path, now: Mapping[str, Any], finished: str = "abcd") -> str | None:
    """What is said where the plan had the runs a..., and those of some variants were finished."""
    store = Store(tmp_path / "runs")
    plan = Plan(Request("quick"), runs("a"), store.directory, tmp_path, 1, Resources(1, 1, 1))
    write_plan(plan)
    for run in runs("a"):
        if run.variant in finished:
            store.partial(run.run_id).mkdir(parents=True)
            store.finish(run.run_id, Manifest(run_id=run.run_id, identity=OLD))
    return builds_that_changed(plan.file, store, runs("b"), lambda run: now)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (OTHER_BUILD, "4 finished runs are made again: tor-circuit-policy is another build than"),
        (
            OTHER_LIBRARY,
            "4 finished runs are made again: this machine has another version of libssl",
        ),
        (OTHER_PROCESSOR, "4 finished runs are made again: this machine's processor differs"),
        (OTHER_ENGINE, "4 finished runs are made again: the engine is another one than theirs"),
    ],
)
def test_whose_runs_are_made_again_hears_why(
    tmp_path: Path, now: Mapping[str, Any], words: str
) -> None:
    said = told(tmp_path, now, "rr ewma")
    assert said is not None
    assert said.startswith(words)


def test_runs_that_were_not_finished_are_no_loss(tmp_path: Path) -> None:
    said = told(tmp_path, OTHER_BUILD, "rr")
    assert said is not None
    assert said.startswith("2 finished runs are made again")
    assert told(tmp_path / "none", OTHER_BUILD, "") is None


def test_what_somebody_asked_for_anew_is_no_news(tmp_path: Path) -> None:
    assert told(tmp_path, OTHER_FILES, "rr ewma") is None


def test_nothing_is_said_where_there_is_no_earlier_plan(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert builds_that_changed(tmp_path / "plan.json", store, runs("b"), lambda run: OLD) is None


def test_the_same_runs_are_not_made_again(tmp_path: Path) -> None:
    told(tmp_path, OLD, "rr ewma")
    store = Store(tmp_path / "runs")
    plan = tmp_path / "plan.json"
    assert builds_that_changed(plan, store, runs("a"), lambda run: OTHER_BUILD) is None
