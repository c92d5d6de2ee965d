"""Nothing is left of a guest, whatever is killed, and whenever."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onionlab.engines.uml.engine import STATE_FOLDER, UmlEngine
from uml.guest_support import traces

pytestmark = [pytest.mark.uml, pytest.mark.slow]

KILLS = 20
LONGEST_S = 3.0
PATIENCE_S = 20.0

# Stands for the command that runs a simulation; what it prints last is how the run ended.
RUNNER = """
import json, sys
from pathlib import Path
from onionlab.engines.base import EngineFailureError
from uml.guest_support import run_endless_guest
try:
    run_endless_guest(Path(sys.argv[1]))
except EngineFailureError as error:
    print(json.dumps({"failed": error.message}))
"""


def processes_in(directory: Path) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == directory:
                found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


def test_nothing_is_left_of_a_guest_that_is_killed(tmp_path: Path, uml_engine: UmlEngine) -> None:
    draws = random.Random(20260101)
    before = traces()
    killed_kinds: dict[str, int] = {}
    for attempt in range(KILLS):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        runner = subprocess.Popen(
            [sys.executable, "-c", RUNNER, str(directory)],
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
                ),
            },
        )
        deadline = time.monotonic() + PATIENCE_S
        while not processes_in(directory):
            assert time.monotonic() < deadline, "the guest does not start"
            assert runner.poll() is None
            time.sleep(0.01)
        time.sleep(draws.uniform(0, LONGEST_S))
        kind = draws.choice(["runner", "kernel", "a process", "a process"])
        guest = sorted(processes_in(directory))
        victim = {"runner": runner.pid, "kernel": guest[0]}.get(kind) or draws.choice(guest)
        os.kill(victim, signal.SIGKILL)
        killed_kinds[kind] = killed_kinds.get(kind, 0) + 1
        output, _ = runner.communicate(timeout=PATIENCE_S)
        if kind != "runner":
            assert "failed" in json.loads(output.splitlines()[-1]), kind
        deadline = time.monotonic() + PATIENCE_S
        while left := processes_in(directory):
            assert time.monotonic() < deadline, f"left after killing {kind}: {left}"
            time.sleep(0.05)
        if kind != "runner":
            assert not (directory / STATE_FOLDER).exists()
    assert len(killed_kinds) == 3
    assert traces() <= before
