"""A lease has one holder, and none that has lost its holder keeps others out."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from onionlab.runs import leases, presence
from onionlab.runs.leases import lease, wait_for_lease
from onionlab.runs.store import Store

HOLDER = """\
import sys, time
from pathlib import Path
from onionlab.runs import presence
presence.BEAT_S = 0.05
from onionlab.runs.leases import lease
with lease(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "BEAT_S", 0.05)
    monkeypatch.setattr(presence, "LOST_S", 2.0)
    monkeypatch.setattr(leases, "RETRY_S", 0.05)


def holder(file: Path) -> subprocess.Popen[str]:
    """Another process that holds a lease."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(file)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lease_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "held"
    with lease(file):
        assert file.exists()
    assert not list(tmp_path.iterdir())
    wait_for_lease(file)


def test_who_waits_gets_it_when_the_holder_has_done(tmp_path: Path) -> None:
    file, order = tmp_path / "held", ["first"]

    def second() -> None:
        with lease(file):
            order.append("second")

    with lease(file):
        thread = threading.Thread(target=second)
        thread.start()
        # Longer than a lease without beats lasts.
        time.sleep(2.5)
        assert order == ["first"]
    thread.join(10)
    assert order == ["first", "second"]


def test_a_lease_whose_holder_was_killed_is_taken_away(tmp_path: Path) -> None:
    file = tmp_path / "held"
    process = holder(file)
    process.kill()
    process.wait()
    started_s = time.monotonic()
    with lease(file):
        assert time.monotonic() - started_s > 1.5
    assert not list(tmp_path.iterdir())


def test_a_holder_that_hung_ends_when_another_one_has_its_lease(tmp_path: Path) -> None:
    file = tmp_path / "held"
    process = holder(file)
    process.send_signal(signal.SIGSTOP)
    with lease(file):
        process.send_signal(signal.SIGCONT)
        assert process.wait(10) == -signal.SIGTERM
        assert file.exists()


def test_a_lease_that_is_younger_than_it_was_thought_stays(tmp_path: Path) -> None:
    file = tmp_path / "held"
    with lease(file):
        leases._take_away(file, b"of an earlier holder")
        assert file.exists()
        time.sleep(0.2)
    assert not list(tmp_path.iterdir())


def test_a_lease_that_is_put_back_was_never_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who takes it for lost has it aside for an instant, which may be just when its holder looks.
    monkeypatch.setattr(leases, "RETRY_S", 1.0)
    file, aside = tmp_path / "held", tmp_path / "aside"
    with lease(file):
        file.rename(aside)
        time.sleep(0.3)
        aside.rename(file)
        time.sleep(1.5)
    assert not list(tmp_path.iterdir())


def test_who_makes_a_run_here_waits_for_who_makes_it_elsewhere(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / ".locks").mkdir()
    process = holder(tmp_path / ".locks" / "0a.held")
    entered = threading.Event()

    def here() -> None:
        with store.exclusive("0a"):
            entered.set()

    thread = threading.Thread(target=here)
    thread.start()
    assert not entered.wait(1)
    process.kill()
    process.wait()
    assert entered.wait(20)
    thread.join()
    with store.exclusive("0a", everywhere=True):
        assert (tmp_path / ".locks" / "0a.held").exists()
