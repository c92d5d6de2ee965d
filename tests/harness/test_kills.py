"""Whatever is killed, and whenever: nothing is left, and the same command finishes the experiment.

``ONIONLAB_KILLS=20 pytest tests/harness/test_kills.py`` kills more often; ONIONLAB_KILLS_SEED draws
other moments and victims.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import psutil
import pytest
from uml.guest_support import traces

from onionlab.engines.uml.kernel import BuiltKernel
from onionlab.runs.store import Store

from .checkout import KILLED, Checkout, arguments, processes_below

KILLS = int(os.environ.get("ONIONLAB_KILLS", "4"))
SEED = int(os.environ.get("ONIONLAB_KILLS_SEED", "1"))
PATIENCE_S = 60.0
# Between the command and the simulation stand the workflow's own processes and a job for each run.
KINDS = ("command", "workflow", "job", "simulation")


def kind_of(process: psutil.Process, store: Store) -> str:
    """What a process below the command is for."""
    words = process.cmdline()
    if "run-one" in words:
        return "job"
    if str(store.directory) in process.cwd():
        return "simulation"
    return "workflow"


def part_of(command: subprocess.Popen[bytes], store: Store) -> dict[str, list[psutil.Process]]:
    """Processes of a command by kind."""
    parts: dict[str, list[psutil.Process]] = {}
    root = psutil.Process(command.pid)
    parts["command"] = [root]
    for process in root.children(recursive=True):
        try:
            parts.setdefault(kind_of(process, store), []).append(process)
        except psutil.Error:
            continue
    return parts


@pytest.mark.slow
@pytest.mark.uml
@pytest.mark.tor
def test_nothing_is_left_and_the_command_goes_on(
    checkout: Checkout, uml_kernel: BuiltKernel, circuit_policy_build: None
) -> None:
    store = checkout.store
    words = ["experiment", *arguments("uml", experiment=KILLED)]
    started = time.monotonic()
    assert checkout.onionlab(*words).returncode == 0
    whole_s = time.monotonic() - started
    run_id = checkout.run_names(KILLED.stem)[0]
    hashes = checkout.record_hashes(run_id)
    assert len(hashes) == 3

    draws = random.Random(SEED)
    before = traces()
    killed: list[str] = []
    kinds = [KINDS[number % len(KINDS)] for number in range(KILLS)]
    draws.shuffle(kinds)
    while len(killed) < KILLS:
        kind = kinds[len(killed)]
        checkout.remove_run(run_id)
        command = checkout.start(*words)
        at_s = draws.uniform(0.0, 0.9) * whole_s
        started = time.monotonic()
        while time.monotonic() - started < at_s or kind not in part_of(command, store):
            if command.poll() is not None:
                break
            time.sleep(0.02)
        if command.poll() is not None:
            # It was faster than those before: this was no kill, and the next one comes sooner.
            whole_s = min(whole_s, time.monotonic() - started)
            continue
        parts = part_of(command, store)
        everything = [process for processes in parts.values() for process in processes]
        victim = draws.choice(parts.get(kind, [psutil.Process(command.pid)]))
        os.kill(victim.pid, signal.SIGKILL)
        killed.append(kind)
        print(f"kill {len(killed)}: {kind} after {time.monotonic() - started:.1f} s", flush=True)
        status = command.wait(PATIENCE_S)
        # Towards the end of a command the run may be there, and only the report be missing.
        assert status != 0 or store.is_finished(run_id), f"killed {kind} after {at_s:.1f} s"
        _, left = psutil.wait_procs(everything, PATIENCE_S)
        assert not left, f"left after killing {kind} at {at_s:.1f} s: {left}"
        deadline = time.monotonic() + PATIENCE_S
        while below := processes_below(store.partial(run_id)):
            assert time.monotonic() < deadline, f"left after killing {kind}: {below}"
            time.sleep(0.1)
        if store.is_finished(run_id):
            assert checkout.record_hashes(run_id).items() <= hashes.items()
        assert traces() <= before
    print(f"{KILLS} kills: {sorted(killed)}")

    assert checkout.onionlab(*words).returncode == 0
    assert checkout.record_hashes(run_id) == hashes
    # What was being written when its writer was killed is not there for good.
    places = (store.run(run_id), checkout.results(KILLED.stem))
    unfinished = [path for place in places for path in place.rglob(".*-*") if path.is_dir()]
    assert unfinished == []
