"""If a process of a guest is killed, no process and no file of the guest remains."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from onionlab.engines.base import EngineFailureError
from onionlab.engines.uml.engine import STATE_FOLDER, UmlEngine
from onionlab.engines.uml.kernel import BuiltKernel
from uml.guest_support import processes_in, run_endless_guest, traces

pytestmark = [pytest.mark.uml, pytest.mark.slow]

KILLS = 20
LONGEST_S = 2.0
TIMEOUT_S = 20.0

# The fork server imports the engine once for all processes.
RUNNERS = multiprocessing.get_context("forkserver")
RUNNERS.set_forkserver_preload(["onionlab.engines.uml.engine", "onionlab.engines.uml.kernel"])


def run_simulation(directory: Path, engine: UmlEngine, ended: Connection) -> None:
    """Run a simulation as a command does, and send the error with which it ends."""
    try:
        run_endless_guest(directory, engine)
    except EngineFailureError as error:
        ended.send(error.message)


def test_killing_a_guest_leaves_nothing(tmp_path: Path, uml_engine: UmlEngine) -> None:
    draws = random.Random(20260101)
    before = traces()
    killed_kinds: dict[str, int] = {}
    for attempt in range(KILLS):
        directory = tmp_path / str(attempt)
        ended, its_end = RUNNERS.Pipe(duplex=False)
        runner = RUNNERS.Process(target=run_simulation, args=(directory, uml_engine, its_end))
        runner.start()
        assert runner.pid is not None
        its_end.close()
        deadline = time.monotonic() + TIMEOUT_S
        while not processes_in(directory):
            assert time.monotonic() < deadline, "the guest does not start"
            assert runner.is_alive()
            time.sleep(0.01)
        time.sleep(draws.uniform(0, LONGEST_S))
        kind = draws.choice(["runner", "kernel", "a process", "a process"])
        guest = sorted(processes_in(directory))
        victim = {"runner": runner.pid, "kernel": guest[0]}.get(kind) or draws.choice(guest)
        os.kill(victim, signal.SIGKILL)
        killed_kinds[kind] = killed_kinds.get(kind, 0) + 1
        runner.join(TIMEOUT_S)
        assert runner.exitcode is not None
        if kind != "runner":
            assert ended.recv(), kind
        ended.close()
        deadline = time.monotonic() + TIMEOUT_S
        while left := processes_in(directory):
            assert time.monotonic() < deadline, f"left after killing {kind}: {left}"
            time.sleep(0.05)
        if kind != "runner":
            assert not (directory / STATE_FOLDER).exists()
    assert len(killed_kinds) == 3
    assert traces() <= before


EARLY_KILLS = 700
EARLY_S = 0.04
"""A guest starts its first processes in less than this time, in seconds. Each guest is killed at a
random instant of this time."""


def find_processes(program: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "exe").readlink() == program:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_killing_a_starting_kernel_leaves_no_process(
    tmp_path: Path, uml_kernel: BuiltKernel
) -> None:
    # Without patch 0008, one guest in 430 left a stopped process behind.
    kernel = tmp_path / "linux"
    shutil.copy2(uml_kernel.path, kernel)
    draws = random.Random(20261123)
    arguments = ["mem=64M", "con=null", "root=/dev/root", "rootfstype=hostfs", "rootflags=/"]
    for attempt in range(EARLY_KILLS):
        process = subprocess.Popen(
            [kernel, *arguments, f"uml_dir={tmp_path / str(attempt)}", "init=/bin/true"],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": "/dev/shm"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(draws.uniform(0, EARLY_S))
        process.kill()
        process.wait()
    deadline = time.monotonic() + TIMEOUT_S
    while left := find_processes(kernel):
        assert time.monotonic() < deadline, f"left: {left}"
        time.sleep(0.05)
