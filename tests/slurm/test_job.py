"""A run as a job: how it knows that its command is there, its CPUs, and what it leaves."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.formats import files
from analysis.formats.attempt import RunFailure
from analysis.formats.json_files import read_as
from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.errors import UserError
from onionlab.runs import cluster_job, cpus, presence
from onionlab.runs.cluster_job import Job, make_as_job
from onionlab.runs.plan import Plan
from onionlab.runs.store import Store


def test_a_command_beats_and_takes_its_file_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "BEAT_S", 0.01)
    (tmp_path / ".command-of-one-that-was-killed").touch()
    with presence.beating(tmp_path) as file:
        first = file.read_bytes()
        deadline_s = time.monotonic() + 10
        while file.read_bytes() == first:
            assert time.monotonic() < deadline_s
        assert list(tmp_path.glob(".command-*")) == [file]
        beats = presence.Beats(file)
        assert beats.are_there()
    assert not list(tmp_path.iterdir())
    assert not beats.are_there()


def test_a_file_that_stays_as_it_is_means_that_the_command_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(presence, "time", SimpleNamespace(monotonic=lambda: now.s))
    file = tmp_path / "beat"
    file.write_text("1")
    beats = presence.Beats(file)
    assert beats.are_there()
    now.s += presence.LOST_S - 1
    assert beats.are_there()
    file.write_text("2")
    now.s += presence.LOST_S - 1
    assert beats.are_there()
    now.s += presence.LOST_S
    assert not beats.are_there()


def test_a_job_of_a_command_that_has_ended_does_not_begin(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="the command that started this run has ended"),
        presence.ending_with_beats(tmp_path / "gone", print),
    ):
        raise AssertionError("it began")


def test_cpus_of_an_allocation_take_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5})
    monkeypatch.setattr(cpus, "lock_directory", lambda: pytest.fail("it asked for locks"))
    with cpus.own_cpus(2, allocated=True) as taken:
        assert taken == [3, 5]


def test_cpus_of_a_node_that_confines_nobody_are_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpus, "lock_directory", lambda: tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, mask: None)
    with cpus.own_cpus(1, allocated=True) as taken:
        assert len(taken) == 1
        assert [holder.cpu for holder in cpus.holders([0, 1])] == taken


class OneRun:
    """A plan of one run, whose simulation is a function of the test."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root, Store(root / "runs")
        self.made: list[str] = []
        self.command = root / "command"
        self.command.touch()
        self.error: UserError | None = None
        self.plan = Plan(
            Request("one"),
            (PlannedRun("0a", "level", "rr", 1),),
            self.store.directory,
            root / "results",
            1,
            Resources(1, 1, 1),
        )

    def execute(
        self, root: Path, plan: Plan, planned: PlannedRun, say: object, *, elsewhere: bool
    ) -> None:
        assert elsewhere
        self.made.append(planned.run_id)
        if self.error is not None:
            raise self.error

    def make(self, attempt: int = 1) -> None:
        make_as_job(self.root, self.plan, "0a", Job(self.command, attempt), lambda line: None)

    def failure(self) -> RunFailure:
        return read_as(RunFailure, self.store.failed("0a") / files.ERROR, "reason of a failure")


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OneRun:
    run = OneRun(tmp_path)
    monkeypatch.setattr(cluster_job, "execute_watched", run.execute)
    monkeypatch.setattr(cluster_job, "_extract", lambda directory: run.made.append("records"))
    return run


def test_a_job_makes_a_run_and_its_records(one: OneRun) -> None:
    one.make()
    assert one.made == ["0a", "records"]


def test_what_a_node_lacks_is_left_with_its_name(one: OneRun) -> None:
    one.error = UserError("Shadow is not installed", "install it")
    with pytest.raises(UserError, match="Shadow is not installed"):
        one.make()
    assert one.failure().message == f"on node {os.uname().nodename}: Shadow is not installed"
    assert one.failure().log == ("install it",)


def test_a_run_that_failed_by_itself_is_not_tried_again(one: OneRun) -> None:
    one.error = UserError("its logs may lack lines")
    for attempt in (1, 2):
        with pytest.raises(UserError, match="its logs may lack lines"):
            one.make(attempt)
    assert one.made == ["0a"]


def test_a_run_that_was_ended_is_tried_again(one: OneRun) -> None:
    one.make(attempt=2)
    assert one.made == ["0a", "records"]
