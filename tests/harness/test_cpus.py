"""CPU locks exclude other commands and other users, and name their owner."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from onionlab.errors import UserError
from onionlab.runs import cpus

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = 65534
# Python processes of other users need the psutil of the tests' environment.
PYTHONPATH = f"{REPOSITORY}:{Path(psutil.__file__).parents[1]}"

# This program reserves argv[2] CPUs with locks in the folder argv[1]. If it has to wait, it prints
# "waits". Then it prints the CPUs' numbers, and holds the CPUs until its standard input ends.
HOLDER = """
import sys
from pathlib import Path
from onionlab.runs import cpus
cpus.SHARED_FOLDERS = (Path(sys.argv[1]),)
cpus.BUSY_PERCENT = 1000
with cpus.reserve_cpus(int(sys.argv[2]), sys.argv[3], lambda: print("waits", flush=True)) as mine:
    print(*mine, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lock_folder_of_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder for this test's locks, with the permissions of /run/lock.

    Other users can reach it, in contrast to ``tmp_path``.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o1777)
        monkeypatch.delenv(cpus.FOLDER_VARIABLE)
        monkeypatch.setattr(cpus, "SHARED_FOLDERS", (folder,))
        monkeypatch.setattr(cpus, "RETRY_INTERVAL_S", 0.05)
        # The machine's load must not change which CPU is chosen.
        monkeypatch.setattr(cpus, "BUSY_PERCENT", 1000)
        yield folder


def start(
    lock_folder_of_test: Path, count: int, what: str, python: Sequence[str] = (sys.executable,)
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*python, "-c", HOLDER, str(lock_folder_of_test), str(count), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def count_usable_cpus() -> int:
    return len(os.sched_getaffinity(0))


def test_the_lock_folder_does_not_depend_on_a_users_tmpdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, sticky = tmp_path / "mine", tmp_path / "sticky"
    for folder, mode in ((mine, 0o755), (sticky, 0o1777)):
        folder.mkdir()
        folder.chmod(mode)
    monkeypatch.delenv(cpus.FOLDER_VARIABLE)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(cpus, "SHARED_FOLDERS", (tmp_path / "missing", mine, sticky))
    assert cpus.lock_folder() == sticky
    monkeypatch.setattr(cpus, "SHARED_FOLDERS", (mine,))
    assert cpus.lock_folder() == tmp_path / f"onionlab-cpus-{os.getuid()}"


def test_waiting_processes_know_the_owner_of_a_lock(lock_folder_of_test: Path) -> None:
    holder = start(lock_folder_of_test, count_usable_cpus(), "quick: 5mid rr seed 1")
    numbers = [int(word) for word in read_line(holder).split()]
    assert set(numbers) == os.sched_getaffinity(0)
    first, *_ = cpus.lock_owners(numbers)
    assert (first.pid, first.purpose) == (holder.pid, "quick: 5mid rr seed 1")
    assert str(first) == (
        f"CPU {numbers[0]} is held by {first.user}'s process {holder.pid} (quick: 5mid rr seed 1)"
    )
    assert len(cpus.lock_owners(numbers)) == count_usable_cpus()
    waiting = start(lock_folder_of_test, 1, "another")
    assert read_line(waiting) == "waits"
    holder.communicate()
    assert int(read_line(waiting)) in numbers
    assert [one.purpose for one in cpus.lock_owners(numbers)] == ["another"]
    # A killed process no longer holds its locks.
    waiting.kill()
    waiting.communicate()
    assert cpus.lock_owners(numbers) == []
    with cpus.reserve_cpus(count_usable_cpus()) as ours:
        assert set(ours) == set(numbers)


def test_processes_get_a_cpu_in_the_order_of_arrival(lock_folder_of_test: Path) -> None:
    served: list[str] = []
    is_waiting = threading.Event()

    def wait_for_one() -> None:
        with cpus.reserve_cpus(1, "waits", is_waiting.set):
            served.append("waiting")

    with cpus.reserve_cpus(count_usable_cpus()):
        waiting = threading.Thread(target=wait_for_one)
        waiting.start()
        assert is_waiting.wait(10)
    for _ in range(20):
        # This thread asks for all CPUs again at once, but the other thread has waited longer and is
        # served first.
        with cpus.reserve_cpus(count_usable_cpus()):
            served.append("again")
    waiting.join(10)
    assert served[0] == "waiting"


@pytest.fixture
def command_of_other_user() -> list[str]:
    """Return the first words of a command line that runs Python as another user.

    Skip the test if this is impossible.
    """
    if os.getuid() != 0:
        pytest.skip("needs root: acts as a second user")
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    for python in (sys.executable, "/usr/bin/python3"):
        command = [*words, "sh", "-c", 'exec "$@"', "sh", python, "-c", "import onionlab.runs.cpus"]
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        if done.returncode == 0:
            return [*words, python]
    pytest.skip("needs a checkout and a Python that every user may read")


@pytest.mark.parametrize("first", ["root", "nobody"])
def test_two_users_never_share_a_cpu(
    lock_folder_of_test: Path, command_of_other_user: list[str], first: str
) -> None:
    """Two users share no CPU, even if one of them created the lock files with a strict umask."""
    as_root = [sys.executable]
    one, other = (
        (as_root, command_of_other_user) if first == "root" else (command_of_other_user, as_root)
    )
    careful = ["sh", "-c", 'umask 077; exec "$@"', "sh"]
    holder = start(lock_folder_of_test, count_usable_cpus(), "theirs", [*careful, *one])
    with contextlib.ExitStack() as started:
        started.callback(holder.wait)
        started.callback(holder.kill)
        numbers = [int(word) for word in read_line(holder).split()]
        owners = {path.stat().st_uid for path in lock_folder_of_test.iterdir()}
        assert owners == {0 if first == "root" else NOBODY}
        second = start(lock_folder_of_test, 1, "ours", other)
        started.callback(second.kill)
        assert read_line(second) == "waits"
        assert {one.user for one in cpus.lock_owners(numbers)} == {first}
        holder.communicate()
        assert int(read_line(second)) in numbers
        second.communicate()


@pytest.mark.parametrize("trap", ["symlink", "hard link", "folder"])
def test_another_file_is_not_overwritten_through_a_lock(
    lock_folder_of_test: Path, trap: str
) -> None:
    mine = lock_folder_of_test / "mine"
    mine.write_text("precious")
    for cpu in os.sched_getaffinity(0):
        lock = lock_folder_of_test / f"onionlab-cpu{cpu}"
        if trap == "symlink":
            lock.symlink_to(mine)
        elif trap == "hard link":
            lock.hardlink_to(mine)
        else:
            lock.mkdir()
    with pytest.raises(UserError, match="which locks CPUs for all users"), cpus.reserve_cpus(1):
        pass
    assert mine.read_text() == "precious"


@pytest.mark.parametrize(
    "text", ["", "no json", "[" * 4000, '{"pid": 1}', json.dumps({"pid": "x", "what": "y"})]
)
def test_a_lock_file_with_other_content_has_no_owner(lock_folder_of_test: Path, text: str) -> None:
    (lock_folder_of_test / "onionlab-cpu0").write_text(text)
    assert cpus.lock_owners([0]) == []


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU")
def test_a_process_bound_to_one_cpu_does_not_block_the_others(lock_folder_of_test: Path) -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as started:
        for cpu, what, line in (
            (first, "holds", str(first)),
            (first, "waits", "waits"),
            (second, "is free", str(second)),
        ):
            python = ("taskset", "-c", str(cpu), sys.executable)
            process = start(lock_folder_of_test, 1, what, python)
            started.callback(process.wait)
            started.callback(process.kill)
            assert read_line(process) == line


def test_the_load_of_cpus_is_known_although_others_are_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psutil returns one load for each CPU that is online, without its number."""
    (tmp_path / "stat").write_text("cpu  9 9\ncpu0 1 1\ncpu4 1 1\ncpu5 1 1\nintr 7 7\n")
    monkeypatch.setattr(cpus, "PROC_STAT", tmp_path / "stat")
    monkeypatch.setattr("psutil.cpu_percent", lambda *_, **__: [2.0, 99.0, 3.0])
    assert cpus._idle_first([0, 4, 5]) == [0, 5, 4]


def test_allocated_cpus_need_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5})
    monkeypatch.setattr(cpus, "lock_folder", lambda: pytest.fail("it looked for locks"))
    with cpus.reserve_cpus(2, allocated=True) as mine:
        assert mine == [3, 5]


@pytest.mark.skipif(count_usable_cpus() < 2, reason="one CPU leaves no choice")
def test_cpus_of_a_cluster_that_confines_no_job_are_locked(lock_folder_of_test: Path) -> None:
    with cpus.reserve_cpus(1, "job", allocated=True) as mine:
        assert [owner.cpu for owner in cpus.lock_owners(os.sched_getaffinity(0))] == mine
