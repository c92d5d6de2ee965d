"""CPU locks hold between users and commands, and say who holds them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from onionlab.errors import UserError
from onionlab.runs import cpus

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = 65534

# Takes CPUs in the locks' folder argv[1], and tells which.
HOLDER = """
import sys
from pathlib import Path
from onionlab.runs import cpus
cpus.SHARED_PLACES = (Path(sys.argv[1]),)
cpus.BUSY_PERCENT = 1000
with cpus.own_cpus(int(sys.argv[2]), sys.argv[3], lambda: print("waits", flush=True)) as mine:
    print(*mine, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as /run/lock is, for the locks of this test."""
    folder = tmp_path / "lock"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.delenv(cpus.PLACE_VARIABLE)
    monkeypatch.setattr(cpus, "SHARED_PLACES", (folder,))
    monkeypatch.setattr(cpus, "RETRY_S", 0.05)
    # These tests are about locks, whatever else the machine does.
    monkeypatch.setattr(cpus, "BUSY_PERCENT", 1000)
    return folder


def start(
    place: Path, count: int, what: str, python: Sequence[str] = (sys.executable,)
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*python, "-c", HOLDER, str(place), str(count), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
    )


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def everything() -> int:
    return len(os.sched_getaffinity(0))


def test_the_place_follows_from_the_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from TMPDIR, which users may have of their own."""
    mine, sticky = tmp_path / "mine", tmp_path / "sticky"
    for folder, mode in ((mine, 0o755), (sticky, 0o1777)):
        folder.mkdir()
        folder.chmod(mode)
    monkeypatch.delenv(cpus.PLACE_VARIABLE)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(cpus, "SHARED_PLACES", (tmp_path / "missing", mine, sticky))
    assert cpus.lock_directory() == sticky
    monkeypatch.setattr(cpus, "SHARED_PLACES", (mine,))
    assert cpus.lock_directory() == tmp_path / f"onionlab-cpus-{os.getuid()}"


def test_the_suites_runs_do_not_wait_for_the_machines() -> None:
    """Whatever long runs hold: all processes of this suite have one place of their own."""
    taken = subprocess.run(
        [sys.executable, "-c", "from onionlab.runs.cpus import *; print(lock_directory())"],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    assert taken.stdout.strip() == str(cpus.lock_directory()) not in map(str, cpus.SHARED_PLACES)
    assert cpus.lock_directory().is_dir()


def test_whoever_waits_can_tell_for_whom(place: Path) -> None:
    holder = start(place, everything(), "quick: 5mid rr seed 1")
    numbers = [int(word) for word in said(holder).split()]
    assert set(numbers) == os.sched_getaffinity(0)
    first, *_ = cpus.holders(numbers)
    user = first.user
    assert (first.pid, first.what) == (holder.pid, "quick: 5mid rr seed 1")
    assert str(first) == (
        f"CPU {numbers[0]} is held by {user}'s process {holder.pid} (quick: 5mid rr seed 1)"
    )
    assert len(cpus.holders(numbers)) == everything()
    waiting = start(place, 1, "another")
    assert said(waiting) == "waits"
    holder.communicate()
    assert int(said(waiting)) in numbers
    assert [one.what for one in cpus.holders(numbers)] == ["another"]
    # Killed, it frees its CPU, and is named no more.
    waiting.kill()
    waiting.communicate()
    assert cpus.holders(numbers) == []
    with cpus.own_cpus(everything()) as ours:
        assert set(ours) == set(numbers)


def test_a_free_cpu_is_taken_without_waiting(place: Path) -> None:
    waits: list[str] = []
    with cpus.own_cpus(1, "mine", lambda: waits.append("waits")):
        pass
    assert waits == []


@pytest.fixture
def as_nobody() -> list[str]:
    """Words that run Python as another user; skipped, by name, where that cannot be done.

    What the locks need is Python's own; the one that runs this may be hidden from others.
    """
    if os.getuid() != 0:
        pytest.skip("needs root: acts as a second user")
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    for python in (sys.executable, "/usr/bin/python3"):
        command = [*words, "sh", "-c", 'exec "$@"', "sh", python, "-c", "import onionlab.runs.cpus"]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        if (
            subprocess.run(command, env=environment, capture_output=True, check=False).returncode
            == 0
        ):
            return [*words, python]
    pytest.skip("needs a checkout and a Python that every user may read")


@pytest.fixture
def common_place() -> Iterator[Path]:
    """As `place`, but where another user finds it."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@pytest.mark.parametrize("first", ["root", "nobody"])
def test_two_users_never_share_a_cpu(
    common_place: Path, monkeypatch: pytest.MonkeyPatch, as_nobody: list[str], first: str
) -> None:
    """Whoever made the locks' files, and with the umask of a careful user."""
    monkeypatch.setattr(cpus, "SHARED_PLACES", (common_place,))
    as_root = [sys.executable]
    one, other = (as_root, as_nobody) if first == "root" else (as_nobody, as_root)
    careful = ["sh", "-c", 'umask 077; exec "$@"', "sh"]
    holder = start(common_place, everything(), "theirs", [*careful, *one])
    second = None
    try:
        numbers = [int(word) for word in said(holder).split()]
        owners = {path.stat().st_uid for path in common_place.iterdir()}
        assert owners == {0 if first == "root" else NOBODY}
        second = start(common_place, 1, "ours", other)
        assert said(second) == "waits"
        assert {one.user for one in cpus.holders(numbers)} == {first}
        holder.communicate()
        assert int(said(second)) in numbers
        second.communicate()
    finally:
        for process in (holder, second):
            if process is not None:
                process.kill()
                process.wait()


def test_a_lock_that_was_removed_is_none(place: Path) -> None:
    """Whoever has it open still locks a file that nobody else will find."""
    lock = cpus._locked(place / "onionlab-cpu0")
    assert lock is not None
    (place / "onionlab-cpu0").unlink()
    again = cpus._locked(place / "onionlab-cpu0")
    assert again is not None
    assert not cpus._is_there(lock, place / "onionlab-cpu0")
    os.close(lock)
    os.close(again)


@pytest.mark.parametrize("trap", ["symlink", "hard link", "folder"])
def test_nobody_is_led_to_write_elsewhere(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    monkeypatch.setattr(cpus, "MAKER_PATIENCE_S", 0.1)
    mine = tmp_path / "mine"
    mine.write_text("precious")
    for cpu in os.sched_getaffinity(0):
        lock = place / f"onionlab-cpu{cpu}"
        if trap == "symlink":
            lock.symlink_to(mine)
        elif trap == "hard link":
            lock.hardlink_to(mine)
        else:
            lock.mkdir()
    with pytest.raises(UserError, match="which locks CPUs for all users"), cpus.own_cpus(1):
        pass
    assert mine.read_text() == "precious"


@pytest.mark.parametrize(
    "text", ["", "no json", "[" * 4000, '{"pid": 1}', json.dumps({"pid": "x", "what": "y"})]
)
def test_what_others_wrote_into_a_lock_does_no_harm(place: Path, text: str) -> None:
    (place / "onionlab-cpu0").write_text(text)
    assert cpus.holders([0]) == []


def test_what_others_wrote_is_shown_as_text(place: Path) -> None:
    text = json.dumps({"pid": os.getpid(), "what": "\x1b[2J" + "x" * 999})
    (place / "onionlab-cpu0").write_text(text)
    (holder,) = cpus.holders([0])
    assert holder.what.startswith("?[2Jxxx")
    assert len(holder.what) == cpus.SHOWN_LETTERS


def test_whoever_waits_in_the_queue_says_so_too(place: Path) -> None:
    heads: list[str] = []

    def wait(name: str) -> None:
        with cpus.own_cpus(1, name, lambda: heads.append(name)):
            pass

    with cpus.own_cpus(everything()):
        threads = [threading.Thread(target=wait, args=(name,)) for name in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        deadline_s = time.monotonic() + 10
        while len(heads) < len(threads) and time.monotonic() < deadline_s:
            time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert sorted(heads) == ["a", "b", "c"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU")
def test_who_waits_for_one_cpu_does_not_keep_others_from_another(place: Path) -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    started: list[subprocess.Popen[str]] = []

    def bound_to(cpu: int, what: str) -> subprocess.Popen[str]:
        process = start(place, 1, what, ("taskset", "-c", str(cpu), sys.executable))
        started.append(process)
        return process

    try:
        assert said(bound_to(first, "holds")) == str(first)
        assert said(bound_to(first, "waits")) == "waits"
        assert said(bound_to(second, "is free")) == str(second)
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("busy", "order"),
    [
        ((0, 0, 0), [0, 1, 2]),
        ((100, 3, 0), [1, 2, 0]),
        ((100, 100, 100), [0, 1, 2]),
        # As many CPUs as may be used are not as many as there are.
        ((0, 0, 99, 99), [0, 1, 2]),
    ],
)
def test_what_others_keep_busy_is_taken_last(
    monkeypatch: pytest.MonkeyPatch, busy: Sequence[float], order: list[int]
) -> None:
    looked: list[bool] = []

    def look(interval_s: float, percpu: bool) -> list[float]:
        looked.append(percpu and interval_s > 0)
        return list(busy)

    monkeypatch.setattr("psutil.cpu_percent", look)
    assert cpus._idle_first([0, 1, 2]) == order
    assert looked == [True]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU leaves no choice")
def test_a_run_takes_the_cpu_that_is_not_busy(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(cpus, "_idle_first", lambda allowed: [second, first])
    with cpus.own_cpus(1) as mine:
        assert mine == [second]
