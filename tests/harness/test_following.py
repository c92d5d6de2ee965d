"""The loop that follows an engine's process. It reports progress and leaves no process behind."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from onionlab.engines import following
from onionlab.engines.base import Progress, Usage
from onionlab.engines.following import Command, ExitInfo, follow
from onionlab.engines.processes import MemorySampler, kill_processes_below
from onionlab.engines.shadow.engine import LOG_TAIL_LINES, _log_tail, managed_shared_bytes

USAGE = Usage(1.0, 1.0, 1)


def command(directory: Path, code: str) -> Command:
    return Command([sys.executable, "-c", code], directory, directory / "log", {"A": "b"})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "POLL_INTERVAL_S", 0.05)


def test_it_is_followed_to_its_end(tmp_path: Path) -> None:
    seen: list[Progress] = []
    code = "import os, time; print(os.environ['A'], flush=True); time.sleep(0.5); exit(3)"
    ended = follow(
        command(tmp_path, code),
        simulated_s=lambda: float(len(seen)),
        stop_s=9.0,
        on_progress=seen.append,
    )
    assert ended.status == 3
    assert (tmp_path / "log").read_text() == "b\n"
    assert [progress.simulated_s for progress in seen[:3]] == [0.0, 1.0, 2.0]
    assert {progress.stop_s for progress in seen} == {9.0}
    assert ended.usage.wall_s >= 0.5
    assert ended.usage.peak_memory_bytes > 0
    assert (tmp_path / "free.log").exists()


def test_whoever_follows_can_end_it(tmp_path: Path) -> None:
    def refuse(progress: Progress) -> None:
        raise ValueError("enough")

    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    with pytest.raises(ValueError, match="enough"):
        follow(
            command(tmp_path, code),
            simulated_s=lambda: 0.0,
            stop_s=9.0,
            on_progress=lambda progress: refuse(progress) if pid.exists() else None,
        )
    assert not Path("/proc", pid.read_text()).exists()


@pytest.mark.parametrize("own_session", [True, False])
def test_processes_that_outlive_the_first_one_can_be_killed(
    tmp_path: Path, own_session: bool
) -> None:
    (tmp_path / "run").mkdir()
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"
    follow(
        replace(command(tmp_path / "run", code), own_session=own_session),
        simulated_s=lambda: 0.0,
        stop_s=9.0,
        on_progress=lambda progress: None,
    )
    left = int((tmp_path / "run" / "log").read_text())
    assert kill_processes_below(tmp_path / "run") == [left]


@pytest.mark.parametrize(
    ("status", "kills", "text"),
    [
        (1, 0, "ended with status 1"),
        (1, 2, "ended with status 1; meanwhile the system ran out of memory (processes killed: 2)"),
        (-9, 1, "was killed (SIGKILL); meanwhile the system ran out of memory (processes killed"),
        (-9, 0, "was killed (SIGKILL), by a user or by a program that guards memory"),
        (-9, None, "was killed (SIGKILL), probably because the system ran out of memory: check"),
        (-11, 0, "ended by a signal (SIGSEGV)"),
        (-40, 0, "ended by a signal (signal 40)"),
    ],
)
def test_the_end_of_a_program_is_described(status: int, kills: int | None, text: str) -> None:
    assert str(ExitInfo(status, kills, USAGE)).startswith(text)


def report(second: int) -> list[str]:
    head = "00:00:10.85 [2324:shadow] n/a [INFO] [n/a] [manager.rs:735] [shadow_rs::core::manager]"
    return [
        f"{head} Process resource usage at simtime {second}000000000 reported by getrusage(): x",
        f"{head} System memory usage in bytes at simtime {second}000000000 ns reported by y",
    ]


def test_unusual_lines_of_shadows_log_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "shadow.log"
    start = ["00:00:00 [1:shadow] n/a [INFO] [n/a] [shadow.rs:1] [shadow_rs::shadow] arg: a.yaml"]
    argv = [
        f"00:00:0{at} [1:shadow-worker] 00:01:01 [WARN] [a:1.2.3.4] [f.c:1] [open] {what}"
        for at, what in enumerate(["one file", "a socket", "one file"])
    ]
    lines = [*start, *argv[:2], *(line for at in range(0, 500, 5) for line in report(at))]
    log.write_text("".join(f"{line}\n" for line in [*lines, argv[2], "** Shadow"]))
    assert _log_tail(log) == [argv[1], report(495)[1], argv[2], "** Shadow"]
    log.write_text("".join(f"{line}\n" for line in [*lines, "[ERROR] it", *report(500)]))
    assert _log_tail(log) == ["[ERROR] it"]
    log.write_text("".join(f"{line} [INFO] {line}\n" for line in range(100)))
    assert len(_log_tail(log)) == LOG_TAIL_LINES
    log.write_text("".join(f"{line}\n" for line in range(100)))
    assert _log_tail(log) == [str(line) for line in range(100 - LOG_TAIL_LINES, 100)]


def test_heaps_that_shadow_keeps_in_shared_memory_count(tmp_path: Path) -> None:
    """Shadow and a simulated process both map the file of the heap. Its memory counts once."""
    code = """
import mmap, os, sys, time
heap = mmap.mmap(-1, 48 << 20)
heap.write(b"x" * len(heap))
if os.fork():
    time.sleep(60)
heap.seek(0)
heap.read()
print("held", flush=True)
time.sleep(60)
"""
    shadow = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert shadow.stdout
        shadow.stdout.readline()
        assert 48 << 20 <= managed_shared_bytes(shadow.pid) < 56 << 20
        sampler = MemorySampler(shadow.pid, tmp_path / "free.log", managed_shared_bytes)
        assert 48 << 20 <= sampler.sample() < 90 << 20
    finally:
        for child in psutil.Process(shadow.pid).children():
            child.kill()
        shadow.kill()
        shadow.communicate()
    assert managed_shared_bytes(shadow.pid) == 0
