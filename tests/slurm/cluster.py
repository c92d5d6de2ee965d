"""Slurm on this machine: munge, slurmctld and two slurmd, whose nodes share everything.

The configuration is one that works without systemd. It has to stand in /etc/slurm, where jobs look
for it (docs/how-to/cluster.md). What stood there is put back.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
CONFIGURATION = Path("/etc/slurm/slurm.conf")
LOCK = Path("/run/lock/onionlab-tests-slurm")
MARK = "# Of onionlab's tests"
START_S = 60.0
END_S = 20.0
NODES = ("n1", "n2")
NODE_MEMORY_MB = 6000
SHORT_MINUTES = 5


def lacking() -> str | None:
    """Why there can be no cluster here; None where there can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"needs Slurm and munge (configs/apt-packages-slurm.txt): no {', '.join(missing)}"
    if os.geteuid() != 0:
        return "needs root, as slurmctld and slurmd do"
    return None


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class Cluster:
    """A cluster that runs; its daemons are children of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = free_ports(1 + len(NODES))
        self._munge_socket = Path("/run/munge/munge.socket.2")

    def configuration(self) -> str:
        """slurm.conf."""
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
PartitionName=short Nodes={NODES[0]} MaxTime={SHORT_MINUTES} State=UP
"""

    def start(self) -> None:
        """Start everything; return when both nodes are idle."""
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        CONFIGURATION.write_text(self.configuration())
        self._start_munge()
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self.wait(lambda: self.states() == dict.fromkeys(NODES, "idle"), "nodes that are idle")

    def _start_munge(self) -> None:
        if self._munge_socket.exists() and _succeeds("munge", "-n"):
            return  # Somebody's own.
        subprocess.run(
            ["install", "-d", "-o", "munge", "-g", "munge", "/run/munge"], check=True, timeout=10
        )
        user = ("--reuid=munge", "--regid=munge", "--clear-groups")
        self._daemon("munged", *user, "munged", "--foreground", "--force")
        self.wait(lambda: _succeeds("munge", "-n"), "munge")

    def start_controller(self) -> None:
        """Start slurmctld, or start it again with what it knew."""
        self._daemon("slurmctld", "slurmctld", "-D")
        self.wait(lambda: _succeeds("scontrol", "ping"), "slurmctld")

    def start_node(self, node: str, instead: Mapping[Path, Path] | None = None) -> None:
        """Start a node's slurmd. instead: what it and its jobs see -> at another one's place."""
        words = ["slurmd", "-D", "-N", node]
        if instead:
            mounts = [
                f"mount --bind {shlex.quote(str(seen))} {shlex.quote(str(place))}"
                for seen, place in instead.items()
            ]
            script = " && ".join([*mounts, f"exec {shlex.join(words)}"])
            words = ["unshare", "--mount", "--propagation=private", "sh", "-c", script]
        self._daemon(node, *words)

    def _daemon(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                # They end with the tests, however those end.
                ["setpriv", "--pdeathsig", "TERM", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "PATH": _path()},
                start_new_session=True,
            )

    def end_daemon(self, name: str, *, kill: bool = False) -> None:
        """End one of them, politely or not, and wait for its end."""
        process = self.daemons.pop(name)
        (process.kill if kill else process.terminate)()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_S)

    def lose_node(self, node: str) -> None:
        """Kill a node's slurmd and all of its jobs at once, as where its power goes."""
        identities = {f"[{line.split()[0]}." for line in self.jobs() if line.split()[-1] == node}
        daemon = self.daemons.pop(node)
        daemon.kill()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.cmdline())
                is_step = words.startswith("slurmstepd: ") and any(i in words for i in identities)
                if is_step or process.environ().get("SLURMD_NODENAME") == node:
                    process.kill()
        daemon.wait(END_S)

    def states(self) -> dict[str, str]:
        """Each node's state."""
        lines = ask("sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T")
        return dict(line.split() for line in lines)

    def answers(self, node: str) -> bool:
        """Whether a node that was started again takes jobs."""
        return bool(ask("srun", f"--nodelist={node}", "--mem=10", "--immediate=5", "echo", "here"))

    def jobs(self) -> list[str]:
        """Jobs that wait or run, as `id state node`."""
        return ask("squeue", "--noheader", "--format=%i %T %N")

    def wait(self, until: object, what: str, limit_s: float = START_S) -> None:
        """Wait until something is so. Raises TimeoutError with the daemons' last words."""
        assert callable(until)
        deadline_s = time.monotonic() + limit_s
        while not until():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"no {what} after {limit_s:.0f} s\n{self.last_words()}")
            time.sleep(0.2)

    def last_words(self) -> str:
        """The ends of all logs."""
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
        """Cancel what there is, end all daemons and whatever they left."""
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            self.cancel_all()
        for name in [*NODES, "slurmctld", "munged"]:
            if name in self.daemons:
                self.end_daemon(name)


def ask(*words: str) -> list[str]:
    """Lines that a command of Slurm prints."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def _succeeds(*words: str) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired, OSError):
        done = subprocess.run(words, capture_output=True, timeout=15, check=False)
        return done.returncode == 0
    return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A cluster, one at a time on this machine; it ends with the block."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = CONFIGURATION.read_bytes() if CONFIGURATION.exists() else None
        if before is not None and before.startswith(MARK.encode()):
            before = None  # Of tests that were killed.
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
