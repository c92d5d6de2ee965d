"""CPUs of its own for each simulation.

Simulations pin their threads; two on the same CPU would run at half speed while another idles. Each
takes a lock on every CPU that it uses; the locks end with the process that holds them. They hold
between all users and checkouts of a machine, and say who holds them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from onionlab.errors import UserError

RETRY_S = 1.0
PLACE_VARIABLE = "ONIONLAB_CPU_LOCKS"
SHARED_PLACES = (Path("/run/lock"), Path("/tmp"))
QUEUE = "onionlab-cpus"
MAKER_PATIENCE_S = 1.0
SHOWN_LETTERS = 200
LOOK_S = 0.25
BUSY_PERCENT = 50.0
"""What somebody else's program, such as a Shadow that was started by hand, takes of its CPU."""


@dataclass(frozen=True)
class Holder:
    """Who holds the lock of a CPU, as far as can be known. what: the run that it makes."""

    cpu: int
    pid: int
    user: str
    what: str

    def __str__(self) -> str:
        return f"CPU {self.cpu} is held by {self.user}'s process {self.pid} ({self.what})"


def lock_directory() -> Path:
    """Where the locks are: at one place for the whole machine, whoever asks.

    That is a folder in which everybody may make files and remove their own alone, and which follows
    from the machine, not from a user's TMPDIR. Where there is none, users do not see each other.
    The test suite names a folder of its own: its runs share CPUs with the machine's other ones
    rather than wait for them, for hours.
    """
    if named := os.environ.get(PLACE_VARIABLE):
        return Path(named)
    for place in SHARED_PLACES:
        with contextlib.suppress(OSError):
            open_to_all = stat.S_ISVTX | stat.S_IWOTH | stat.S_IXOTH
            mode = place.stat().st_mode
            if mode & open_to_all == open_to_all and os.access(place, os.W_OK):
                return place
    own = Path(tempfile.gettempdir()) / f"onionlab-cpus-{os.getuid()}"
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    return own


@contextlib.contextmanager
def own_cpus(
    count: int,
    what: str = "",
    on_wait: Callable[[], None] = lambda: None,
    *,
    allocated: bool = False,
) -> Iterator[list[int]]:
    """Take `count` CPUs (or all there are, if fewer) and bind the calling process to them.

    Waits until they are free, and calls `on_wait` before it does. Child processes inherit the
    binding. what: what the CPUs are taken for; others are shown it. allocated: a cluster gave this
    process its CPUs; where it may use no others, they are its own without a lock. Raises UserError
    where a lock may not be opened.
    """
    allowed = sorted(os.sched_getaffinity(0))
    wanted = min(count, len(allowed))
    if allocated and len(allowed) <= count:
        yield allowed
        return
    with contextlib.ExitStack() as stack:
        cpus = _take(lock_directory(), allowed, wanted, stack, what, on_wait)
        os.sched_setaffinity(0, cpus)
        try:
            yield cpus
        finally:
            os.sched_setaffinity(0, allowed)


def holders(among: Iterable[int]) -> list[Holder]:
    """Who holds which of some CPUs now."""
    directory = lock_directory()
    found = (_holder(cpu, _cpu_lock(directory, cpu)) for cpu in among)
    return [holder for holder in found if holder is not None]


def _cpu_lock(directory: Path, cpu: int) -> Path:
    return directory / f"onionlab-cpu{cpu}"


def _queue_name(allowed: list[int]) -> str:
    """One queue for those who may use the same CPUs.

    Else whoever may use some alone (taskset, a batch job) would keep those waiting whose CPUs are
    free.
    """
    return f"{QUEUE}-{hashlib.sha256(repr(allowed).encode()).hexdigest()[:12]}"


def _take(
    directory: Path,
    allowed: list[int],
    wanted: int,
    stack: contextlib.ExitStack,
    what: str,
    on_wait: Callable[[], None],
) -> list[int]:
    """Take all or none at a time: two that each hold half would wait for ever."""
    waits = _Once(on_wait)
    # First come, first served: else whoever asks just when a CPU falls free takes it from those
    # who wait, and one experiment's runs keep another's out.
    with _queue(directory / _queue_name(allowed), waits):
        while True:
            with contextlib.ExitStack() as round_:
                taken: dict[int, int] = {}
                for cpu in _idle_first(allowed) if wanted < len(allowed) else allowed:
                    if len(taken) == wanted:
                        break
                    lock = _locked(_cpu_lock(directory, cpu))
                    if lock is not None:
                        taken[cpu] = lock
                        round_.callback(_release, lock)
                if len(taken) == wanted:
                    for lock in taken.values():
                        _sign(lock, what)
                    stack.push(round_.pop_all())
                    return list(taken)
            waits()
            time.sleep(RETRY_S)


def _idle_first(allowed: list[int]) -> list[int]:
    """CPUs that nobody keeps busy before those that somebody does, who may know of no locks."""
    shares = psutil.cpu_percent(LOOK_S, percpu=True)
    busy = {cpu for cpu, share in enumerate(shares) if share > BUSY_PERCENT}
    return sorted(allowed, key=lambda cpu: (cpu in busy, cpu))


class _Once:
    """Calls something the first time alone."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def __call__(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


@contextlib.contextmanager
def _queue(path: Path, waits: Callable[[], None]) -> Iterator[None]:
    """Stand at the head of the queue."""
    while True:
        lock = _open_lock(path)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waits()
                fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_there(lock, path):
                yield
                return
        finally:
            os.close(lock)


def _locked(path: Path) -> int | None:
    """The descriptor of a lock that this process holds now; None where another one holds it."""
    lock = _open_lock(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_there(lock, path):
            return lock
    except BlockingIOError:
        pass
    os.close(lock)
    return None


def _is_there(lock: int, path: Path) -> bool:
    """Whether an open lock still is the one of that name, and nobody has removed it."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock), path.stat())
    return False


def _open_lock(path: Path) -> int:
    """Open a lock, which is made where it is missing; any user may open it then.

    Raises UserError where somebody has put something else there.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    deadline_s = time.monotonic() + MAKER_PATIENCE_S
    while True:
        try:
            # Without O_CREAT, which Linux refuses to all others, root among them, for a file that
            # is there in such a place (fs.protected_regular).
            lock = os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                lock = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(lock, 0o666)  # whatever the umask
                return lock
            continue
        except OSError as error:
            # Its maker may be about to open it to all.
            if time.monotonic() < deadline_s:
                time.sleep(0.05)
                continue
            raise _unusable(path, error.strerror) from error
        facts = os.fstat(lock)
        # It is written to: it is not to be another name of somebody's file.
        if stat.S_ISREG(facts.st_mode) and facts.st_nlink <= 1:
            return lock
        os.close(lock)
        raise _unusable(path, "no plain file, or one of several names")


def _unusable(path: Path, why: str | None) -> UserError:
    return UserError(
        f"{path}, which locks CPUs for all users of this machine, cannot be used: {why}",
        "let its owner remove it, or root",
    )


def _sign(lock: int, what: str) -> None:
    """Let others read who holds a lock; they do not have to be able to."""
    text = json.dumps({"pid": os.getpid(), "what": what[:SHOWN_LETTERS]})
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, text.encode(), 0)


def _release(lock: int) -> None:
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
    os.close(lock)


def _holder(cpu: int, path: Path) -> Holder | None:
    """Who signed a lock and is there still. Anybody may have written anything into the file."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            data = json.loads(os.read(lock, 4096))
        finally:
            os.close(lock)
        pid, what = int(data["pid"]), str(data["what"])[:SHOWN_LETTERS]
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    if not _is_alive(pid):
        return None
    return Holder(cpu, pid, _user_of(pid), "".join(c if c.isprintable() else "?" for c in what))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # Another user's.
    except (ProcessLookupError, OverflowError):
        return False
    return pid > 0


def _user_of(pid: int) -> str:
    """The name of the user whose process it is."""
    try:
        number = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return "another user"  # Some machines hide them.
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
