"""Commands and their processes are killed or stopped at random moments.

No process and no unfinished file must remain, and the same command must be able to continue.
``ONIONLAB_KILLS=25 pytest tests/harness/test_kills.py`` kills more often. ONIONLAB_KILLS_SEED
changes moments and victims, and ONIONLAB_KILLS_STOP_S sets how long processes are stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from uml.guest_support import traces

from analysis.comparison.history import read_history
from analysis.comparison.run_sets import read_run_set
from onionlab.engines.uml.kernel import BuiltKernel
from onionlab.runs.store import Store

from .checkout import KILLED, Checkout, arguments, processes_below

KILLS = int(os.environ.get("ONIONLAB_KILLS", "4"))
SEED = int(os.environ.get("ONIONLAB_KILLS_SEED", "1"))
STOP_S = float(os.environ.get("ONIONLAB_KILLS_STOP_S", "3"))
TIMEOUT_S = 120.0
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGINT)
COMMANDS = ("experiment", "nightly", "pack", "unpack")
# A command starts the workflow's processes, a job for each run, and the simulation.
KINDS = ("command", "workflow", "job", "simulation")
STATUSES = {
    # Possible statuses of an interrupted command. If the interrupt arrives while Python starts or
    # ends, Python kills itself with SIGINT. The subprocess module reports this as -SIGINT.
    signal.SIGTERM: (130, -signal.SIGTERM, -signal.SIGINT),
    signal.SIGINT: (130, -signal.SIGINT),
    # Possible statuses if the command itself or one of its processes was killed.
    signal.SIGKILL: (-signal.SIGKILL, 2),
    signal.SIGSTOP: (),
}
PERMANENT = {".locks", ".partial", ".failed", ".in-use", ".lock"}
"""Hidden files and folders that remain after a command."""


def process_kind(process: psutil.Process, store: Store) -> str:
    """Return the kind (see KINDS) of a descendant of the command."""
    words = process.cmdline()
    if "run-one" in words:
        return "job"
    if str(store.directory) in process.cwd():
        return "simulation"
    return "workflow"


def processes_by_kind(
    command: subprocess.Popen[bytes], store: Store
) -> dict[str, list[psutil.Process]]:
    """Return a command's process and its descendants, by kind.

    Call this before waiting for the command, because its process does not exist afterwards.
    """
    root = psutil.Process(command.pid)
    found = {"command": [root]}
    for process in root.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found.setdefault(process_kind(process, store), []).append(process)
    return found


def handles_sigterm(pid: int) -> bool:
    """Return whether a command has set its handler of SIGTERM, and so has started.

    Before that, Python itself is starting, and SIGINT may end it with exit status 1 instead of the
    status of an interrupted command.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


class CommandKiller:
    """Runs commands in a separate checkout, ends them at some moment, and repeats them."""

    def __init__(self, checkout: Checkout, temporary: Path) -> None:
        self.checkout = checkout
        self.temporary = temporary
        self.draws = random.Random(SEED)
        self.state = checkout.root / "nightly"
        self.pack = checkout.root / "runs.tar.xz"
        packed = checkout.root / "packed.tar.xz"
        # A list of nightly experiments names files in experiments/, so KILLED is copied there.
        experiments = checkout.root / "experiments"
        shipped = experiments.readlink()
        experiments.unlink()
        experiments.mkdir()
        shutil.copy(shipped / "quick.yaml", experiments)
        (experiments / "base").symlink_to(shipped / "base")
        text = KILLED.read_text().replace("../../../experiments/", "./")
        (experiments / KILLED.name).write_text(text)
        night = checkout.root / "night.yaml"
        night.write_text(
            "false_alarms_per_year: 2\nnights_per_year: 365\nfalse_steps_per_year: 1\n"
            "experiments:\n  - {name: killed, variants: [rr]}\n"
        )
        self.words = {
            "experiment": ["experiment", *arguments("uml", experiment=Path("killed"))],
            "nightly": [
                *("nightly", "--config", str(night), "--state-dir", str(self.state)),
                *("--update-baseline", "--engine", "uml"),
            ],
            "pack": ["pack", "killed", "--logs", "--out", str(self.pack)],
            "unpack": ["unpack", str(packed)],
        }
        self.expected: dict[str, Mapping[str, object]] = {}
        self.took_s: dict[str, float] = {}
        started = time.monotonic()
        self.succeed("experiment")
        self.took_s["experiment"] = time.monotonic() - started
        (self.run_id,) = checkout.run_names("killed")
        self.records = checkout.record_hashes(self.run_id)
        assert len(self.records) == 3
        self.expected["experiment"] = self.records
        self.succeed("pack")
        shutil.copy(self.pack, packed)

    def succeed(self, name: str) -> None:
        """Run a command to its end, and require success."""
        self.checkout.onionlab(*self.words[name])

    def clear(self, name: str, *, keep_run: bool = False) -> None:
        """Remove the output of a command. For `pack`, unpack the run if it is missing."""
        shutil.rmtree(self.state, ignore_errors=True)
        self.pack.unlink(missing_ok=True)
        if name == "pack":
            if not self.checkout.store.is_finished(self.run_id):
                self.succeed("unpack")
        elif not keep_run:
            self.checkout.remove_run(self.run_id)

    def result(self, name: str) -> Mapping[str, object]:
        """Return the output of a command."""
        if name == "pack":
            return {"pack": hashlib.sha256(self.pack.read_bytes()).hexdigest()}
        found: dict[str, object] = {**self.checkout.record_hashes(self.run_id)}
        if name == "nightly":
            (baseline,) = (self.state / "baselines").iterdir()
            history = read_history(self.state / "history.parquet")
            found["baseline"] = read_run_set(baseline).runs
            found["nights"] = self.nights()
            found["rows"] = history.drop_columns("night").to_pylist()
        return found

    def undisturbed(self, name: str) -> Mapping[str, object]:
        """Return the output of a command that runs without any interference."""
        # A pack contains the times of its run, and the run may have been repeated since the last
        # call. So the expected pack is written again.
        if name == "pack" or name not in self.expected:
            # `nightly` gives the same output whether it makes the run or finds it. Keep the run to
            # save time. A `nightly` that makes the run takes about as long as `experiment`.
            self.clear(name, keep_run=name == "nightly")
            started = time.monotonic()
            self.succeed(name)
            passed_s = time.monotonic() - started
            self.took_s[name] = self.took_s["experiment"] if name == "nightly" else passed_s
            self.expected[name] = self.result(name)
        return self.expected[name]

    def nights(self) -> int:
        """Return the number of nightly runs in the history."""
        return len(set(read_history(self.state / "history.parquet")["night"].to_pylist()))

    def leftovers(self) -> list[Path]:
        """Return files and folders that must not exist after the end of a command."""
        root = self.checkout.root
        hidden = [
            path
            for place in (root, root / "runs", root / "results", self.state)
            for path in (place.glob(".*") if place == root else place.rglob(".*"))
            if path.name not in PERMANENT
        ]
        unfinished = (root / "runs").glob(".[pf]a*/*")
        return [*hidden, *unfinished, *self.temporary.iterdir()]

    def moment(self, name: str, number: signal.Signals) -> tuple[subprocess.Popen[bytes], float]:
        """Start a command, and wait until a random moment before its end.

        Return the command, and the time in seconds since its start. If the command ends before this
        moment, start it again.
        """
        kind = self.draws.choice(KINDS if name in ("experiment", "nightly") else KINDS[:1])
        share = self.draws.uniform(0.0, 0.9)
        while True:
            self.clear(name)
            command = self.checkout.start(*self.words[name])
            started = time.monotonic()
            at_s = share * self.took_s[name]
            while time.monotonic() - started < at_s or (
                number == signal.SIGKILL
                and kind not in processes_by_kind(command, self.checkout.store)
            ):
                if command.poll() is not None:
                    break
                time.sleep(0.02)
            passed_s = time.monotonic() - started
            if command.poll() is None:
                self.victim = kind
                return command, passed_s
            self.took_s[name] = min(self.took_s[name], passed_s)

    def end(self, name: str, number: signal.Signals) -> tuple[str, int]:
        """End or stop a command at a random moment.

        Return a description for error messages, and the command's status.
        """
        store = self.checkout.store
        command, passed_s = self.moment(name, number)
        parts = processes_by_kind(command, store)
        everything = [process for processes in parts.values() for process in processes]
        what = f"{name}: {number.name} after {passed_s:.1f} s"
        # Near the end of a command, the killed process may no longer be needed. The command then
        # ends with 0.
        expected = {0, *STATUSES[number]}
        if number == signal.SIGSTOP:
            self.send(number, everything)
            time.sleep(STOP_S)
            self.send(signal.SIGCONT, everything)
        elif number == signal.SIGKILL:
            what += f" to the {self.victim}"
            self.send(number, [self.draws.choice(parts.get(self.victim, parts["command"]))])
        else:
            if number == signal.SIGINT and not handles_sigterm(command.pid):
                expected |= {1}
            command.send_signal(number)
        status = command.wait(TIMEOUT_S)
        what += f", status {status}"
        assert status in expected, what
        _, left = psutil.wait_procs(everything, TIMEOUT_S)
        assert not left, f"{what}: left {left}"
        deadline = time.monotonic() + TIMEOUT_S
        while below := processes_below(store.partial(self.run_id)):
            assert time.monotonic() < deadline, f"{what}: left {below}"
            time.sleep(0.1)
        if store.is_finished(self.run_id):
            found = self.checkout.record_hashes(self.run_id)
            assert found.items() <= self.records.items(), what
        return what, status

    def send(self, number: signal.Signals, processes: list[psutil.Process]) -> None:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


@pytest.fixture
def kills(
    checkout: Checkout,
    uml_kernel: BuiltKernel,
    circuit_policy_build: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> CommandKiller:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    return CommandKiller(checkout, temporary)


@pytest.mark.slow
@pytest.mark.uml
@pytest.mark.tor
def test_nothing_is_left_and_the_command_continues(kills: CommandKiller) -> None:
    before = traces()
    pairs = list(itertools.product(COMMANDS, SIGNALS))
    kills.draws.shuffle(pairs)
    # Order the pairs so that the first four contain each command and each signal once, and so do
    # the next four, and so on. A few kills then cover all commands and signals.
    pairs.sort(key=lambda pair: (COMMANDS.index(pair[0]) + SIGNALS.index(pair[1])) % 4)
    for name, number in itertools.islice(itertools.cycle(pairs), KILLS):
        expected = kills.undisturbed(name)
        what, status = kills.end(name, number)
        # If the signal came after the last write, the nightly run is complete, and repeating the
        # command would add another one.
        is_finished = status == 0 or (name == "nightly" and kills.nights() == expected["nights"])
        if not is_finished:
            kills.succeed(name)
        assert kills.result(name) == expected, what
        assert kills.leftovers() == [], what
        assert traces() <= before, what
        print(f"{what}; repeated: the same, nothing left", flush=True)
