"""A run as a cluster job: its parts, and where it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.formats.manifest import Manifest
from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.runs import runner
from onionlab.runs.plan import Plan
from onionlab.runs.runner import _attempt_folder, execute_on_cluster
from onionlab.runs.store import Store

RUN = "0a"


def plan(root: Path, disk_bytes: int = 1) -> Plan:
    planned = (PlannedRun(RUN, "level", "rr", 1),)
    resources = Resources(1, disk_bytes, 1)
    return Plan(Request("one"), planned, root / "runs", root / "results", 1, resources)


class Job:
    """A job whose simulation only counts its calls."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan = plan(root)
        self.store = Store(self.plan.store)
        self.made: list[str] = []
        monkeypatch.setattr(runner, "execute", self._execute)
        monkeypatch.setattr(runner, "extract_records", lambda *_: self.made.append("records"))

    def _execute(self, *arguments: object, on_cluster: bool) -> None:
        assert on_cluster
        self.made.append("run")

    def execute(self) -> None:
        execute_on_cluster(Path(), self.plan, RUN)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(tmp_path, monkeypatch)


def test_a_job_makes_a_run_and_its_records(job: Job) -> None:
    job.execute()
    assert job.made == ["run", "records"]


def test_a_job_writes_to_the_disk_of_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setenv("TMPDIR", str(disk))
    store = Store(tmp_path / "runs")
    with _attempt_folder(store, plan(tmp_path), RUN, on_cluster=True) as folder:
        assert folder.is_relative_to(disk)
        folder.mkdir()
        (folder / "log").write_text("line")
        store.finish(RUN, Manifest(run_id=RUN), folder)
    assert store.is_finished(RUN)
    assert (store.run(RUN) / "log").read_text() == "line"
    assert store.run(RUN).stat().st_mode & 0o777 == (tmp_path / "runs").stat().st_mode & 0o777
    assert not list(disk.iterdir())
    assert not list((store.directory / ".partial").iterdir())


@pytest.mark.parametrize(
    ("folder", "on_cluster", "disk_bytes"),
    [(".", False, 1), (".", True, 10**18), ("missing", True, 1), ("file", True, 1)],
)
def test_other_attempts_are_made_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, on_cluster: bool, disk_bytes: int
) -> None:
    (tmp_path / "file").write_text("a folder cannot be made in it")
    monkeypatch.setenv("TMPDIR", str(tmp_path / folder))
    store, made = Store(tmp_path / "runs"), plan(tmp_path, disk_bytes)
    with _attempt_folder(store, made, RUN, on_cluster=on_cluster) as attempt:
        assert attempt == store.partial(RUN)
