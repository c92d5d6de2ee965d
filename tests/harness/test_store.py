"""The run store, and the end of processes whose caller ends."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from analysis.formats.attempt import RunFailure
from analysis.formats.files import ERROR, MANIFEST, PROGRESS
from analysis.formats.json_files import read_json, write_json
from analysis.formats.manifest import Manifest
from onionlab.engines.processes import (
    SESSION_FILE,
    MemorySampler,
    kill_processes_below,
    record_session,
    with_parent_death_signal,
)
from onionlab.errors import UserError
from onionlab.runs import results_lock
from onionlab.runs.store import Store

from .whole_runs import write_records


def python(code: str) -> subprocess.Popen[bytes]:
    """Run Python code in a separate process, which can be killed."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[2],
    )


def require_end(pid: int) -> None:
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


LOG = "shadow.data/hosts/web1/tgen.1000.stdout"


@pytest.mark.parametrize(
    ("change", "whole"),
    [
        (lambda run: None, True),
        (lambda run: (run / MANIFEST).write_text(""), False),
        (lambda run: (run / MANIFEST).write_text('{"format": 1,'), False),
        (lambda run: (run / LOG).write_text(""), False),
        (lambda run: (run / LOG).write_text("lo"), False),
        (lambda run: (run / LOG).unlink(), False),
        (lambda run: (run / LOG).rename(run / f"{LOG}.xz"), True),
        (lambda run: shutil.rmtree(run / "shadow.data"), True),
    ],
)
def test_an_incomplete_run_does_not_count(
    tmp_path: Path, change: Callable[[Path], object], whole: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    log = store.partial("ab") / LOG
    log.parent.mkdir(parents=True)
    log.write_text("log")
    store.finish("ab", Manifest(run_id="ab"))
    change(store.run("ab"))
    assert store.is_finished("ab") is whole
    store.remove_damaged(["ab", "nowhere"])
    assert store.run("ab").exists() is whole
    message = f"{tmp_path}/ab is incomplete: the run is repeated"
    assert caplog.messages == ([] if whole else [message])


@pytest.mark.parametrize("leftover", ["records-v1", "records-v1/.extract-1", "shadow.data/hosts"])
def test_a_finished_run_replaces_what_is_left_of_an_incomplete_one(
    tmp_path: Path, leftover: str
) -> None:
    store = Store(tmp_path)
    (store.run("ab") / leftover).mkdir(parents=True)
    (store.partial("ab") / "shadow.data").mkdir(parents=True)
    store.finish("ab", Manifest(run_id="ab"))
    assert store.is_finished("ab")
    assert not (store.run("ab") / leftover).exists()


def test_an_incomplete_run_that_cannot_be_removed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have made the folder as root. The error comes before the run is simulated."""
    store = Store(tmp_path)
    store.run("ab").mkdir()

    def rmdir(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.rmdir", rmdir)
    refusals: list[Callable[[], None]] = [
        lambda: store.remove_damaged(["ab"]),
        lambda: store.remove_unfinished("ab"),
        lambda: store.finish("ab", Manifest(run_id="ab")),
    ]
    for refused in refusals:
        store.partial("ab").mkdir(parents=True, exist_ok=True)
        with pytest.raises(UserError, match="ab is incomplete and cannot be removed: ") as caught:
            refused()
        assert caught.value.hint
        assert "sudo rm -r" in caught.value.hint
    assert store.partial("ab").exists()


def test_records_of_another_node_may_appear_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    assert store.await_records(["ab"], timeout_s=0) == {"ab"}

    def appear(_: float) -> None:
        write_records(store.partial("ab") / "records-v1", "rr")
        store.finish("ab", Manifest(run_id="ab"))

    monkeypatch.setattr("onionlab.runs.store.time.sleep", appear)
    assert store.await_records(["ab"], timeout_s=60) == set()


@pytest.mark.parametrize("file", ["streams.parquet", "parse.json"])
def test_cut_records_are_extracted_again(
    tmp_path: Path, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    records = store.partial("ab") / "records-v1"
    write_records(records, "rr")
    store.finish("ab", Manifest(run_id="ab"))
    store.remove_damaged(["ab"])
    assert caplog.messages == []
    cut = store.run("ab") / "records-v1" / file
    cut.write_bytes(cut.read_bytes()[:-9])
    store.remove_damaged(["ab"])
    assert caplog.messages == [f"{cut.parent} is incomplete: the records are extracted again"]
    assert store.is_finished("ab")
    assert not cut.parent.exists()


@pytest.mark.parametrize("file", ["streams.parquet", "parse.json"])
def test_records_that_another_command_replaces_are_not_damaged(tmp_path: Path, file: str) -> None:
    """A file may be listed and then be missing. Here a symbolic link to nowhere imitates this."""
    store = Store(tmp_path)
    records = store.partial("ab") / "records-v1"
    write_records(records, "rr")
    (records / file).unlink()
    (records / file).symlink_to("nowhere")
    store.finish("ab", Manifest(run_id="ab"))
    store.remove_damaged(["ab"])
    assert (store.run("ab") / "records-v1").exists()


def test_processes_of_a_killed_caller_end(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"echo $$ > {pid}.part; mv {pid}.part {pid}; exec sleep 60"]
    caller = python(
        f"""
        import subprocess
        from onionlab.engines.processes import with_parent_death_signal
        subprocess.run(with_parent_death_signal({command!r}))
        """
    )
    while not pid.exists():
        assert caller.poll() is None
        time.sleep(0.01)
    caller.kill()
    caller.communicate()
    require_end(int(pid.read_text()))


def test_a_process_does_not_run_if_its_caller_has_ended(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    own = with_parent_death_signal(["touch", str(mark)])
    position = own.index(str(os.getpid()))
    orphan = [*own[:position], str(os.getppid()), *own[position + 1 :]]
    assert subprocess.run(orphan, check=False).returncode == 1
    assert not mark.exists()
    assert subprocess.run(own, check=False).returncode == 0
    assert mark.exists()


def test_an_experiment_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_lock, "TIMEOUT_S", 0.3)
    lock = results_lock.results_lock
    with lock(tmp_path), pytest.raises(UserError, match="in use"), lock(tmp_path):
        pass


def test_processes_of_a_simulation_are_killed_and_no_others(tmp_path: Path) -> None:
    """The first process has ended. Its child remains, and a user looks at the run's files."""
    (tmp_path / "run" / "hosts").mkdir(parents=True)
    (tmp_path / "run-2").mkdir()
    code = "cd hosts && sleep 60 & echo $! >child; cd ../run-2; sleep 60 & echo $! >other; read x"
    first = subprocess.Popen(
        ["sh", "-c", code], cwd=tmp_path / "run", start_new_session=True, stdin=subprocess.PIPE
    )
    user = subprocess.Popen(["sleep", "60"], cwd=tmp_path / "run" / "hosts", start_new_session=True)
    here = subprocess.Popen(["sleep", "60"], cwd=tmp_path / "run")
    try:
        assert kill_processes_below(tmp_path / "run") == []
        record_session(tmp_path / "run", first.pid)
        while not (tmp_path / "run-2" / "other").exists():
            time.sleep(0.01)
        first.communicate()
        child = int((tmp_path / "run" / "child").read_text())
        other = psutil.Process(int((tmp_path / "run-2" / "other").read_text()))
        assert kill_processes_below(tmp_path / "run") == [child]
        require_end(child)
        assert user.poll() is None
        assert here.poll() is None
        assert other.status() == psutil.STATUS_SLEEPING
        # Process ids of another node of a cluster mean nothing here.
        (tmp_path / "run-2" / SESSION_FILE).write_text(f"{first.pid} another-node")
        assert kill_processes_below(tmp_path / "run-2") == []
        record_session(tmp_path / "run-2", other.pid)
        assert kill_processes_below(tmp_path / "run-2") == [other.pid]
    finally:
        for process in (user, here):
            process.kill()
            process.wait()


def test_memory_is_measured_again_soon_after_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    measured_at: list[float] = []
    monkeypatch.setattr("onionlab.engines.processes.time.monotonic", lambda: now[0])

    def private_bytes(pid: int) -> int:
        measured_at.append(now[0] - 100)
        return 1 if len(measured_at) == 1 else 7

    monkeypatch.setattr("onionlab.engines.processes._private_bytes", private_bytes)
    sampler = MemorySampler(os.getpid(), tmp_path / "free.log")
    for later in (0.125, 0.25, 0.5, 1, 2, 4, 5, 8, 9, 13, 17, 19):
        now[0] = 100 + later
        sampler.sample()
    assert measured_at == [0.125, 0.25, 0.5, 1, 2, 4, 8, 13, 19]
    assert sampler.peak_bytes == 7


def test_a_full_disk_keeps_no_sample_and_ends_nothing() -> None:
    sampler = MemorySampler(os.getpid(), Path("/dev/full"))
    assert sampler.sample() > 0


def test_the_reason_of_a_failure_is_kept_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    progress = store.partial("ab") / PROGRESS
    write_json(progress, {})

    def write(path: Path, data: Any) -> None:
        if progress.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        write_json(path, data)

    monkeypatch.setattr("onionlab.runs.store.write_json", write)
    store.fail("ab", RunFailure(message="it"))
    assert read_json(store.failed("ab") / ERROR)["message"] == "it"


def test_the_memory_of_a_tree_counts_its_children(tmp_path: Path) -> None:
    parent = python(
        """
        import subprocess, sys
        hold = "x = bytearray(80_000_000); print('held', flush=True); __import__('time').sleep(60)"
        subprocess.run([sys.executable, "-c", hold], check=False)
        """
    )
    try:
        assert parent.stdout
        parent.stdout.readline()
        sampler = MemorySampler(parent.pid, tmp_path / "free.log")
        assert 80_000_000 < sampler.sample() < 200_000_000
        assert sampler.peak_bytes >= 80_000_000
    finally:
        # The child processes hold the pipe, too, so communicate() would wait for them.
        for child in psutil.Process(parent.pid).children():
            child.kill()
        parent.kill()
        parent.communicate()
    lines = (tmp_path / "free.log").read_text().splitlines()
    # tornettools expects the date, the header and the values of Mem: in this order of lines.
    assert "UTC" in lines[0]
    assert lines[1].split()[0] == "total"
    assert lines[2].startswith("Mem:")
    assert len(lines[2].split()) == len(lines[1].split()) + 1


def test_the_wait_for_a_run_that_another_command_makes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    holder = python(
        f"""
        import sys
        from pathlib import Path
        from onionlab.runs.store import Store
        with Store(Path({str(tmp_path)!r})).exclusive("ab"):
            print("held", flush=True)
            sys.stdin.read()
        """
    )
    assert holder.stdout
    holder.stdout.readline()
    entered, said = threading.Event(), threading.Event()

    def wait() -> None:
        with store.exclusive("ab", said.set):
            entered.set()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    # The other process keeps the lock of the run, so the wait cannot succeed, however slow the
    # machine is.
    assert not entered.wait(timeout=0.5)
    assert said.is_set()
    assert store.locked_among(["ab", "other"]) == {"ab"}
    holder.communicate()
    assert entered.wait(timeout=30)
    waiter.join()
    assert store.locked_among(["ab"]) == set()


WAITING_JOB = """
import logging, signal, sys
from pathlib import Path
from onionlab.runs.results_lock import exit_with_command
from onionlab.runs.store import Store

def interrupt(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGTERM, interrupt)
logging.basicConfig(format="%(message)s", level="INFO", stream=sys.stdout)
try:
    with exit_with_command(Path(sys.argv[1])):
        print("waiting", flush=True)
        with Store(Path(sys.argv[1])).exclusive("ab"):
            print("never", flush=True)
except KeyboardInterrupt:
    print("ended", flush=True)
"""


@pytest.mark.parametrize("victim", ["command", "wrapper"])
def test_a_waiting_job_ends_with_its_command(tmp_path: Path, victim: str) -> None:
    """A command starts a shell, and the shell starts a job. The job waits for the lock of a run."""
    job = tmp_path / "job.py"
    job.write_text(WAITING_JOB)
    with Store(tmp_path).exclusive("ab"):
        command = python(
            f"""
            import subprocess, sys
            from pathlib import Path
            from onionlab.runs.results_lock import results_lock
            with results_lock(Path({str(tmp_path)!r})):
                script = '"$0" "$1" "$2"; exit 0'
                words = ["sh", "-c", script, sys.executable, {str(job)!r}, {str(tmp_path)!r}]
                wrapper = subprocess.Popen(words)
                print(wrapper.pid, flush=True)
                sys.stdin.read()
            """
        )
        assert command.stdout
        wrapper = int(command.stdout.readline())
        assert command.stdout.readline() == b"waiting\n"
        os.kill(command.pid if victim == "command" else wrapper, signal.SIGKILL)
        assert command.stdout.readline().startswith(b"the command that started")
        assert command.stdout.readline() == b"ended\n"
        command.communicate()


def test_helpers_end_with_a_killed_starter() -> None:
    # The worker processes are started as in onionlab.runs.plan. A killed starter cannot end them,
    # so they have to end by themselves.
    starter = python(
        """
        import os
        import time
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context
        from onionlab.runs.results_lock import exit_with_parent

        if __name__ == "__main__":
            with ProcessPoolExecutor(1, get_context("spawn"), exit_with_parent) as pool:
                print(pool.submit(os.getpid).result(), flush=True)
                time.sleep(60)
        """
    )
    assert starter.stdout is not None
    helper = int(starter.stdout.readline())
    os.kill(helper, 0)
    starter.kill()
    starter.wait()
    require_end(helper)
