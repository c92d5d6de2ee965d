"""Attempts of jobs: on the node's own disk, whole into the store, nothing left of killed ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from analysis.formats.attempt import RunFailure
from analysis.formats.files import ERROR, MANIFEST
from analysis.formats.manifest import Manifest
from onionlab.runs import attempts
from onionlab.runs.attempts import attempt, node_directory
from onionlab.runs.store import Store

RUN = "0a"
MEMORY_DISK = Path("/dev/shm")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node's own, which is the store's here."""
    return own_disk(tmp_path / "node", monkeypatch)


@pytest.fixture
def other_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The node's own, on another file system than the store; skips the test without one."""
    if not MEMORY_DISK.is_dir() or MEMORY_DISK.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip(f"needs a second file system: {MEMORY_DISK}")
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as folder:
        yield own_disk(Path(folder) / "node", monkeypatch)


def own_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    found = node_directory()
    assert found is not None
    assert found.parent == folder
    return found


def left_on(disk: Path) -> list[str]:
    return sorted(path.name for path in disk.iterdir() if path.name != attempts.LOCK)


def make(store: Store) -> Path:
    """Make a run as a job does; returns where it was written."""
    with attempt(store, RUN, elsewhere=True, disk_bytes=1.0) as place:
        (place / "hosts").mkdir()
        (place / "hosts" / "log").write_text("line")
        (place / "latest").symlink_to("hosts")
        store.finish(RUN, Manifest(run_id=RUN), place)
    return place


def require_whole(store: Store) -> None:
    assert store.is_finished(RUN)
    assert (store.run(RUN) / "hosts" / "log").read_text() == "line"
    assert (store.run(RUN) / "latest").readlink() == Path("hosts")
    assert not list((store.directory / ".partial").iterdir())


def test_a_job_writes_to_the_disk_of_its_node(store: Store, disk: Path) -> None:
    assert make(store).is_relative_to(disk)
    require_whole(store)
    assert left_on(disk) == []


def test_a_run_goes_whole_from_one_disk_to_another(store: Store, other_disk: Path) -> None:
    assert make(store).is_relative_to(other_disk)
    require_whole(store)
    assert left_on(other_disk) == []


def test_a_failure_goes_from_one_disk_to_another(store: Store, other_disk: Path) -> None:
    with attempt(store, RUN, elsewhere=True, disk_bytes=1.0) as place:
        (place / "log").write_text("why")
        store.fail(RUN, RunFailure(message="it"), place)
    assert (store.failed(RUN) / "log").read_text() == "why"
    assert (store.failed(RUN) / ERROR).exists()
    assert not store.is_finished(RUN)
    assert not store.partial(RUN).exists()
    assert left_on(other_disk) == []


def test_an_attempt_here_is_made_in_the_store_and_stays(store: Store, disk: Path) -> None:
    with attempt(store, RUN, elsewhere=False, disk_bytes=1.0) as place:
        place.mkdir(parents=True)
        (place / "log").write_text("to be looked at")
    assert place == store.partial(RUN)
    assert (place / "log").exists()
    assert left_on(disk) == []


def test_a_disk_without_room_is_not_taken(store: Store, disk: Path) -> None:
    with attempt(store, RUN, elsewhere=True, disk_bytes=1e18) as place:
        assert place == store.partial(RUN)


def test_a_move_that_was_cut_short_is_no_run(
    store: Store, other_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(source: Path, to: Path, **_: object) -> None:
        to.mkdir()
        (to / MANIFEST).write_text("{}")
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr("onionlab.runs.store.shutil.copytree", cut)
        make(store)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not store.is_finished(RUN)
    assert list((store.directory / ".partial").glob(f"{RUN}-*"))
    assert len(left_on(other_disk)) == 2  # a place and its lock
    make(store)
    require_whole(store)
    assert left_on(other_disk) == []


JOB = """
import subprocess, sys
from pathlib import Path
from onionlab.runs.attempts import attempt
from onionlab.runs.store import Store

with attempt(Store(Path(sys.argv[1])), sys.argv[2], elsewhere=True, disk_bytes=1.0) as place:
    simulation = subprocess.Popen(["sleep", "600"], cwd=place)
    print(simulation.pid, flush=True)
    simulation.wait()
"""


def start_job(store: Store, run_id: str) -> tuple[subprocess.Popen[str], psutil.Process]:
    """Start an attempt in another process; returns it, and its simulation."""
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, str(store.directory), run_id], stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    return job, psutil.Process(int(job.stdout.readline()))


def test_the_next_job_on_a_node_clears_what_a_killed_one_left(store: Store, disk: Path) -> None:
    job, simulation = start_job(store, "0b")
    job.kill()
    job.wait()
    assert simulation.is_running()
    assert len(left_on(disk)) == 2
    make(store)
    assert left_on(disk) == []
    deadline_s = time.monotonic() + 10
    while simulation.is_running() and simulation.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline_s


def test_a_job_leaves_the_attempts_of_others_alone(store: Store, disk: Path) -> None:
    job, simulation = start_job(store, "0b")
    try:
        make(store)
        assert len(left_on(disk)) == 2
        assert simulation.status() != psutil.STATUS_ZOMBIE
        assert simulation.is_running()
    finally:
        simulation.kill()
        job.wait()
    assert left_on(disk) == []


def test_a_folder_of_somebody_else_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"onionlab-attempts-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    assert node_directory() is None


def test_files_in_memory_are_no_disk_unless_somebody_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(attempts, "_file_system", lambda path: "tmpfs")
    monkeypatch.delenv("TMPDIR", raising=False)
    assert node_directory() is None
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert node_directory() is not None
