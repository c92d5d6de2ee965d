"""Run Slurm on this machine: munge, slurmctld, and two slurmd with shared files.

The configuration works without systemd. It has to be in /etc/slurm, where jobs look for it
(docs/how-to/cluster.md). An earlier configuration is restored at the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
CONFIGURATION = Path("/etc/slurm/slurm.conf")
LOCK = Path("/run/lock/onionlab-tests-slurm")
MARK = "# Of onionlab's tests"
START_S = 60.0
END_S = 20.0
NODES = ("n1", "n2")
NODE_MEMORY_MB = 6000


def lacking() -> str | None:
    """Return why a cluster cannot be started here, or None if it can be started."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"needs Slurm and munge (configs/apt-packages-slurm.txt): no {', '.join(missing)}"
    if os.geteuid() != 0:
        return "needs root, as slurmctld and slurmd do"
    return None


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class Cluster:
    """A running cluster; its daemons are children of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = free_ports(1 + len(NODES))
        self._munge_socket = Path("/run/munge/munge.socket.2")

    def configuration(self) -> str:
        """Return the content of slurm.conf."""
        host = socket.gethostname()
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 "
            f"RealMemory={NODE_MEMORY_MB} State=UNKNOWN"
            for name, port in zip(NODES, self.ports[1:], strict=True)
        )
        return f"""\
{MARK}
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={self.ports[0]}
SlurmUser=root
AuthType=auth/munge
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
MinJobAge=300
KillWait=5
InactiveLimit=0
SlurmctldTimeout=60
SlurmdTimeout=30
{nodes}
PartitionName=main Nodes={",".join(NODES)} Default=YES MaxTime=INFINITE State=UP
"""

    def start(self) -> None:
        """Start all daemons, and return when both nodes are idle."""
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        CONFIGURATION.write_text(self.configuration())
        self._start_munge()
        self.start_controller()
        for node in NODES:
            self._daemon(node, "slurmd", "-D", "-N", node)
        self.wait(lambda: self.states() == dict.fromkeys(NODES, "idle"), "nodes that are idle")

    def _start_munge(self) -> None:
        if self._munge_socket.exists() and _succeeds("munge", "-n"):
            return  # Munge already runs on this machine, so it is not started.
        subprocess.run(
            ["install", "-d", "-o", "munge", "-g", "munge", "/run/munge"], check=True, timeout=10
        )
        user = ("--reuid=munge", "--regid=munge", "--clear-groups")
        self._daemon("munged", *user, "munged", "--foreground", "--force")
        self.wait(lambda: _succeeds("munge", "-n"), "munge")

    def start_controller(self) -> None:
        """Start slurmctld, or restart it with its saved state."""
        self._daemon("slurmctld", "slurmctld", "-D")
        self.wait(lambda: _succeeds("scontrol", "ping"), "slurmctld")

    def _daemon(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                # The daemons end with the tests, even if the tests are killed.
                ["setpriv", "--pdeathsig", "TERM", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "PATH": _path()},
                start_new_session=True,
            )

    def end_daemon(self, name: str) -> None:
        """Terminate a daemon and wait for its end."""
        process = self.daemons.pop(name)
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_S)

    def states(self) -> dict[str, str]:
        """Return each node's state."""
        lines = ask("sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T")
        return dict(line.split() for line in lines)

    def jobs(self) -> list[str]:
        """Return the waiting and running jobs as `id state node`."""
        return ask("squeue", "--noheader", "--format=%i %T %N")

    def wait(self, until: Callable[[], object], what: str, limit_s: float = START_S) -> None:
        """Wait until a condition holds.

        After ``limit_s`` raise TimeoutError with the last lines of all logs.
        """
        deadline_s = time.monotonic() + limit_s
        while not until():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"no {what} after {limit_s:.0f} s\n{self.ends_of_logs()}")
            time.sleep(0.2)

    def ends_of_logs(self) -> str:
        """Return the last lines of the daemons' logs."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("*.out")]
        ends = (path.read_text(errors="replace")[-1500:] for path in logs)
        return "\n".join(f"{path.name}:\n{end}" for path, end in zip(logs, ends, strict=True))

    def cancel_all(self) -> None:
        """Cancel all jobs, and wait until they are gone."""
        identities = [line.split()[0] for line in self.jobs()]
        if identities:
            ask("scancel", *identities)
            self.wait(lambda: not self.jobs(), "empty queue", END_S)

    def end(self) -> None:
        """Cancel all jobs and end all daemons."""
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            self.cancel_all()
        for name in [*NODES, "slurmctld", "munged"]:
            if name in self.daemons:
                self.end_daemon(name)


def ask(*words: str) -> list[str]:
    """Return the lines that a Slurm command prints, or none if the command fails."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def _succeeds(*words: str) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired, OSError):
        done = subprocess.run(words, capture_output=True, timeout=15, check=False)
        return done.returncode == 0
    return False


def free_ports(count: int) -> list[int]:
    """Return ports that are not in use, below those that Linux gives to outgoing connections.

    A higher port could be given to an outgoing connection before the cluster starts.
    """
    found: list[int] = []
    for port in random.sample(range(20_000, 30_000), 10_000):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("0.0.0.0", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"found {len(found)} of {count} free ports from 20000 to 29999")


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """Run a cluster until the block ends.

    A machine can run only one cluster at a time, so wait until other test processes end theirs.
    """
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = CONFIGURATION.read_bytes() if CONFIGURATION.exists() else None
        if before is not None and before.startswith(MARK.encode()):
            before = None  # It was left by tests that were killed, so it is not restored.
        cluster = Cluster(folder)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.end()
            if before is None:
                CONFIGURATION.unlink(missing_ok=True)
            else:
                CONFIGURATION.write_bytes(before)
