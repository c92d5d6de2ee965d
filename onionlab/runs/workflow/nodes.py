"""What a cluster's nodes are, as a job there sees it, beside what this machine is.

`onionlab node` prints it on a node; the doctor starts that on two of them through Slurm. Runs take
for granted that the checkout, Python, the libraries and the simulator are the same everywhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from onionlab.engines.examination import MISSING, OK, WARN, Finding
from onionlab.errors import UserError
from onionlab.paths import code_root
from onionlab.programs.installed import Tool, find_shadow, find_tgen
from onionlab.runs.attempts import node_directory
from onionlab.runs.workflow.slurm import Place, cancel, nodes_of

NODES = 2
WAIT_S = 120.0
"""For nodes that are free; a busy cluster is said to be busy."""
MEMORY_MB = 300
RUNTIME_MIN = 5
MARK = "onionlab-node: "


@dataclass(frozen=True)
class Node:
    """One machine.

    Attributes:
        name: As it calls itself, and as Slurm does where Slurm started this.
        programs: What has to be the same everywhere -> what it is here.
        sees_store: Whether the file is there that whoever asks has made in the store.
        is_locked_out: Whether a lock holds here that whoever asks holds on it.
        own_disk: Where attempts go on this node's own disk; empty where they go to the store.
        free_bytes: Of that disk.
        cpus: That this process may use.
    """

    name: str
    programs: dict[str, str]
    sees_store: bool
    is_locked_out: bool
    own_disk: str
    free_bytes: int
    cpus: int


def this_node(file: Path, shadow: str | None, tgen: str | None) -> Node:
    """What this machine is. file: in the store, made and locked by whoever asks."""
    own_disk = node_directory()
    return Node(
        name=os.environ.get("SLURMD_NODENAME") or platform.node(),
        programs={
            "Python": f"{platform.python_version()} at {sys.executable}",
            "libraries": " ".join(platform.libc_ver()),
            "code": _code(),
            "Shadow": _simulator(find_shadow, shadow),
            "TGen": _simulator(find_tgen, tgen),
        },
        sees_store=file.is_file(),
        is_locked_out=file.is_file() and _is_locked(file),
        own_disk=str(own_disk or ""),
        free_bytes=shutil.disk_usage(own_disk).free if own_disk else 0,
        cpus=len(os.sched_getaffinity(0)),
    )


def _code() -> str:
    """A hash of all that Python reads of the program."""
    root = code_root()
    digest = hashlib.sha256()
    for package in ("onionlab", "analysis"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return f"{digest.hexdigest()[:12]} in {root}"


def _simulator(find: Callable[[str | None], Tool], named: str | None) -> str:
    try:
        tool = find(named)
    except UserError as error:
        return f"missing ({error.message})"
    return f"{tool.version} at {tool.path}, {tool.sha256[:12]}"


def _is_locked(file: Path) -> bool:
    """Whether another process holds the lock of a file, as far as this machine can know."""
    try:
        with file.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # There are no locks there at all.
    return False


def answer(node: Node) -> str:
    """The line by which a node says what it is."""
    return MARK + json.dumps(asdict(node), sort_keys=True)


def parse_answers(text: str) -> list[Node]:
    """All nodes whose lines stand in a text, by name. Raises UserError for a line that is none."""
    lines = (line.removeprefix(MARK) for line in text.splitlines() if line.startswith(MARK))
    try:
        return sorted((Node(**json.loads(line)) for line in lines), key=lambda node: node.name)
    except (ValueError, TypeError) as error:
        raise UserError(f"a node answers in another program's words: {error}") from error


def examine_nodes(
    root: Path, place: Place, shadow: str | None = None, tgen: str | None = None
) -> list[Finding]:
    """Look at two nodes of a place, or at one where it has no more, and compare them with here.

    Raises UserError where Slurm does not answer. A cluster whose nodes are busy is not waited for.
    """
    count = min(NODES, nodes_of(place))
    with _held_file(root) as file:
        here = this_node(file, shadow, tgen)
        words = [sys.executable, "-m", "onionlab", "node", "--file", str(file)]
        for option, value in (("--shadow", shadow), ("--tgen", tgen)):
            words += [option, value] if value else []
        started = _on_nodes(count, place, words)
    if started is None:
        return [
            Finding(
                WARN,
                "nodes",
                f"not looked at: no {count} of them were free within {WAIT_S:.0f} s",
                "ask again later",
            )
        ]
    nodes = parse_answers(started.stdout)
    if not nodes:
        said = " ".join((started.stderr or started.stdout).split())[-600:]
        return [
            Finding(
                MISSING,
                "nodes",
                f"a job does not start there: {said or f'exit status {started.returncode}'}",
                f"the checkout and its Python have to be at the same place on all nodes: {root}",
            )
        ]
    return list(judge(here, nodes))


def _on_nodes(
    count: int, place: Place, words: Sequence[str]
) -> subprocess.CompletedProcess[str] | None:
    """Run a command on so many nodes, once on each; None where they did not come free."""
    name = f"onionlab-doctor-{uuid.uuid4().hex[:8]}"
    command = [
        *("srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"),
        *(f"--mem={MEMORY_MB}", f"--time={RUNTIME_MIN}", f"--job-name={name}", "--quiet"),
        *place.options(),
        *words,
    ]
    # As the workflow's jobs, they take the program's code from where this one has it.
    environment = {**os.environ, "PYTHONPATH": str(code_root())}
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=WAIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        cancel(name)
        return None


@contextlib.contextmanager
def _held_file(root: Path) -> Iterator[Path]:
    """A new file in the store, whose lock this process holds until the block ends."""
    store = root / "runs"
    store.mkdir(parents=True, exist_ok=True)
    file = store / f".nodes-{uuid.uuid4().hex}"
    try:
        with file.open("w") as lock:
            # A file system without locks says so when nodes are looked at.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
    finally:
        file.unlink(missing_ok=True)


def judge(here: Node, nodes: Sequence[Node]) -> Iterator[Finding]:
    """What follows for runs there."""
    names = ", ".join(node.name for node in nodes)
    blind = [node.name for node in nodes if not node.sees_store]
    if blind:
        yield Finding(
            MISSING,
            "nodes",
            f"{', '.join(blind)} cannot see a file that was made in the store here",
            "use a checkout on a file system that all nodes share",
        )
    differ = [
        f"{what} on {node.name}: {node.programs.get(what)}; here: {is_here}"
        for node in nodes
        for what, is_here in here.programs.items()
        if node.programs.get(what) != is_here
    ]
    if differ:
        yield Finding(
            MISSING,
            "nodes",
            "not the same everywhere: " + "; ".join(differ),
            "install the same on all nodes, or leave some out (slurm_extra in a profile)",
        )
    if not blind and not differ:
        yield Finding(OK, "nodes", f"{names}: checkout, Python and programs are the same as here")
    free = [node.name for node in nodes if node.sees_store and not node.is_locked_out]
    if free:
        yield Finding(
            WARN,
            "locks",
            f"those of the store's file system do not reach {', '.join(free)}",
            "runs have leases, which do; start all commands for this checkout on one machine",
        )
    elif not blind:
        yield Finding(OK, "locks", "those of the store's file system hold on all of them")
    in_store = [node.name for node in nodes if not node.own_disk]
    if in_store:
        yield Finding(
            WARN,
            "node's disk",
            f"{', '.join(in_store)}: none, so jobs write to the store while they simulate",
            "set TMPDIR for jobs to a folder on the node's own disk",
        )
    for node in nodes:
        if node.own_disk:
            free_gib = node.free_bytes / 2**30
            text = f"{node.name}: {free_gib:.1f} GiB are free in {node.own_disk}"
            yield Finding(OK, "node's disk", text)
