"""Reserve CPUs for one simulation, so that no other user or checkout on this machine uses them.

Simulations pin their threads, so two simulations on one CPU would each run at half speed. Each run
therefore locks the CPUs that it uses. The lock file of a CPU names the process that locked the CPU.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from onionlab.errors import UserError
from onionlab.locks import file_lock, try_lock

FOLDER_VARIABLE = "ONIONLAB_CPU_LOCKS"
SHARED_FOLDERS = (Path("/run/lock"), Path("/tmp"))
RETRY_INTERVAL_S = 1.0
CPU_SAMPLE_S = 0.25
BUSY_PERCENT = 50.0
"""If the load of a CPU is higher, the CPU counts as busy with a program that does not use these
locks, such as a Shadow that was started by hand."""
MAX_PURPOSE_LENGTH = 200
PROC_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class LockOwner:
    """A process that holds the lock of a CPU. purpose: the run for which it uses the CPU."""

    cpu: int
    pid: int
    user: str
    purpose: str

    def __str__(self) -> str:
        return f"CPU {self.cpu} is held by {self.user}'s process {self.pid} ({self.purpose})"


def lock_folder() -> Path:
    """Return the folder of the lock files, which is the same for all users of the machine.

    The folder does not depend on a user's TMPDIR. In it, each user can create files, but cannot
    remove files of other users. If the machine has no such folder, each user gets a separate
    folder, and users do not see each other's locks. ONIONLAB_CPU_LOCKS names another folder; the
    test suite uses this variable so that its runs do not wait for other runs on the machine.
    """
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    open_to_all = stat.S_ISVTX | stat.S_IWOTH | stat.S_IXOTH
    for folder in SHARED_FOLDERS:
        with contextlib.suppress(OSError):
            is_open = folder.stat().st_mode & open_to_all == open_to_all
            if is_open and os.access(folder, os.W_OK):
                return folder
    own = Path(tempfile.gettempdir()) / f"onionlab-cpus-{os.getuid()}"
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    return own


@contextlib.contextmanager
def reserve_cpus(
    count: int,
    purpose: str = "",
    on_wait: Callable[[], None] = lambda: None,
    *,
    allocated: bool = False,
) -> Iterator[list[int]]:
    """Lock CPUs, bind this process and its future children to them, and yield their numbers.

    If this process may use fewer CPUs than `count`, it gets all CPUs it may use. purpose: text that
    other processes show while they wait for these CPUs. on_wait: called once if too few CPUs are
    free. allocated: whether a cluster has allocated the CPUs that this process may use. If so, and
    if this process gets all these CPUs, they are not locked. Raises UserError if a lock file cannot
    be opened.
    """
    allowed = sorted(os.sched_getaffinity(0))
    count = min(count, len(allowed))
    if allocated and count == len(allowed):
        yield allowed
        return
    folder, say_once = lock_folder(), functools.cache(on_wait)
    with contextlib.ExitStack() as locks:
        # Processes wait in the order of arrival, so that a new process cannot take a freed CPU
        # before the waiting processes, and one experiment cannot starve another.
        with file_lock(folder / _queue_name(allowed), say_once, open_file=_open_shared):
            while not (cpus := _try_reserve(folder, allowed, count, purpose, locks)):
                say_once()
                time.sleep(RETRY_INTERVAL_S)
        os.sched_setaffinity(0, cpus)
        try:
            yield cpus
        finally:
            os.sched_setaffinity(0, allowed)


def lock_owners(cpus: Iterable[int]) -> list[LockOwner]:
    """Return the owners of some CPUs' locks. A CPU whose lock file names no owner is left out."""
    folder = lock_folder()
    found = (_read_owner(cpu, _lock_file(folder, cpu)) for cpu in cpus)
    return [owner for owner in found if owner is not None]


def _lock_file(folder: Path, cpu: int) -> Path:
    return folder / f"onionlab-cpu{cpu}"


def _queue_name(allowed: list[int]) -> str:
    """Return the name of the lock file in which processes that may use the same CPUs queue.

    Processes that may use other CPUs have another queue. In a common queue, a process that may use
    only one CPU (because of taskset or a batch job) could block processes whose CPUs are free.
    """
    return f"onionlab-cpus-{hashlib.sha256(repr(allowed).encode()).hexdigest()[:12]}"


def _try_reserve(
    folder: Path, allowed: list[int], count: int, purpose: str, locks: contextlib.ExitStack
) -> list[int]:
    """Lock `count` CPUs and return them; if too few are free, lock none and return an empty list.

    A process must not keep some CPUs locked while it waits for more CPUs: two such processes could
    wait for each other forever.
    """
    cpus: list[int] = []
    with contextlib.ExitStack() as taken:
        for cpu in _idle_first(allowed) if count < len(allowed) else allowed:
            if len(cpus) < count:
                descriptor = _open_shared(_lock_file(folder, cpu))
                taken.callback(os.close, descriptor)
                if try_lock(descriptor):
                    taken.callback(_write_owner, descriptor, "")
                    _write_owner(descriptor, purpose)
                    cpus.append(cpu)
        if len(cpus) < count:
            return []
        locks.push(taken.pop_all())
    return cpus


def _idle_first(allowed: list[int]) -> list[int]:
    """Return `allowed` with busy CPUs at the end. A busy CPU may run a program without locks."""
    loads = psutil.cpu_percent(CPU_SAMPLE_S, percpu=True)
    # psutil returns the loads of the CPUs that are online, which PROC_STAT lists in this order.
    online = map(int, re.findall(r"^cpu(\d+) ", PROC_STAT.read_text(), re.MULTILINE))
    busy = {cpu for cpu, load in zip(online, loads, strict=False) if load > BUSY_PERCENT}
    return sorted(allowed, key=lambda cpu: (cpu in busy, cpu))


def _open_shared(path: Path) -> int:
    """Return a descriptor of a lock file that all users can lock.

    Raises UserError if the file cannot be opened, or is not an ordinary file.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    umask = os.umask(0)  # All users may open the file as soon as it exists.
    try:
        # Use O_CREAT only with O_EXCL: with fs.protected_regular, Linux rejects O_CREAT for another
        # user's existing file in a sticky folder, even for root.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666))
        descriptor = os.open(path, flags)
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from error
    finally:
        os.umask(umask)
    facts = os.fstat(descriptor)
    # The file is written to, so it must not be a hard link to a user's file.
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(descriptor)
        raise _unusable(path, "it is not an ordinary file with one name")
    return descriptor


def _unusable(path: Path, reason: str) -> UserError:
    return UserError(
        f"{path}, which locks CPUs for all users of this machine, cannot be used: {reason}",
        "ask its owner or root to remove it",
    )


def _write_owner(descriptor: int, purpose: str) -> None:
    """Write this process and its purpose into a lock file, or empty the file without a purpose."""
    text = json.dumps({"pid": os.getpid(), "what": purpose[:MAX_PURPOSE_LENGTH]}) if purpose else ""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def _read_owner(cpu: int, path: Path) -> LockOwner | None:
    """Return the owner that a lock file names; None if there is no such owner.

    Any user may write the file, so it may have any content.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = json.loads(file.read(4096))
        pid, purpose = int(data["pid"]), str(data["what"])[:MAX_PURPOSE_LENGTH]
        user = psutil.Process(pid).username()
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        ArithmeticError,
        RecursionError,
        psutil.Error,
    ):
        return None
    return LockOwner(cpu, pid, user, "".join(c if c.isprintable() else "?" for c in purpose))
