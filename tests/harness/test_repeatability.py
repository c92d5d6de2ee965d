"""Runs with the same identity give the same bytes, whatever the state of the machine."""

from __future__ import annotations

import compileall
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from analysis.formats.plan_file import Request
from onionlab.engines.uml import engine as uml
from onionlab.paths import code_root, working_root
from onionlab.programs.tor.variants import load_registry
from onionlab.rundir.compose import RunDirectory
from onionlab.rundir.verify import verify_tor_logs
from onionlab.runs import plan as plans
from onionlab.runs.plan import make_plan
from onionlab.runs.run_builder import RunBuilder, open_run_builder

from .checkout import DATA, TINY
from .test_end_to_end import ENGINES

REPEATED = DATA / "repeated.yaml"
TRANSFER = DATA / "transfer.yaml"
LOOK_FOR_FILES = "import os\n[os.path.exists('/nowhere') for _ in range(3000)]\n"
DAY_S = 86400.0


@dataclass(frozen=True)
class Surroundings:
    """Conditions on a machine that must not influence a run.

    Attributes:
        read_before_s: Time of the last access of the run's files, in seconds before the start of
            the run. Their last change is then five days before the start. None leaves both times
            unchanged.
        busy: Whether other programs read the run's files, start processes, and use memory and disk.
        other_checkout: Whether the embedded engine's guest runs compiled code from another folder.
            That code looks for thousands of missing files when it starts, as Python does if it has
            many folders of packages.
    """

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    umask: int = 0o022
    read_before_s: float | None = None
    busy: bool = False
    other_checkout: bool = False


# A run takes long, so most of these surroundings combine conditions of different kinds.
ALL_SURROUNDINGS = (
    Surroundings("an idle machine"),
    Surroundings(
        "files read before they were changed, another locale and folder for temporary files",
        {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "TMPDIR": "temporary files"},
        read_before_s=10 * DAY_S,
    ),
    Surroundings(
        "files read when they were changed, another time zone, another checkout",
        {"TZ": "Asia/Tokyo"},
        read_before_s=5 * DAY_S,
        other_checkout=True,
    ),
    Surroundings(
        "files read after they were changed, a busy machine, and everything else",
        {"LC_ALL": "C", "TZ": "America/Lima", "MALLOC_ARENA_MAX": "1", "EXTRA": "x" * 5000},
        umask=0o077,
        read_before_s=-5.0,
        busy=True,
        other_checkout=True,
    ),
)


@contextlib.contextmanager
def other_work(directory: Path, scratch: Path) -> Iterator[None]:
    """Read the run's files, start processes, and use memory and disk while the block lasts."""
    command = (
        f"while :; do find '{directory}' -type f -exec cat {{}} + >'{scratch}';"
        " head -c 30000000 /dev/zero | sort -z | wc -c; sleep 0.2; done"
    )
    worker = subprocess.Popen(
        ["sh", "-c", command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


@contextlib.contextmanager
def apply_surroundings(surroundings: Surroundings, directory: Path) -> Iterator[None]:
    """Set up the conditions for a run whose files are in `directory`."""
    now = time.time()
    if surroundings.read_before_s is not None:
        for path in directory.rglob("*"):
            os.utime(path, (now - surroundings.read_before_s, now - 5 * DAY_S))
    with contextlib.ExitStack() as stack:
        change = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in surroundings.environment.items():
            if name == "TMPDIR":
                value = str(directory.with_name(value))
                Path(value).mkdir()
            change.setenv(name, value)
        if surroundings.other_checkout:
            use_other_checkout(directory.with_name("a checkout with a much longer name"), change)
        if surroundings.busy:
            stack.enter_context(other_work(directory, directory.with_name("scratch")))
        yield


def use_other_checkout(checkout: Path, change: pytest.MonkeyPatch) -> None:
    """Let the embedded engine's guest run compiled code from a copy of this checkout.

    The code of the copy also looks for missing files when it starts.
    """
    for package in ("analysis", "onionlab"):
        shutil.copytree(
            code_root() / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    start = checkout / "onionlab/engines/uml/guest/__main__.py"
    first, mark, rest = start.read_text().partition("if __name__")
    assert mark
    start.write_text(first + LOOK_FOR_FILES + mark + rest)
    compileall.compile_dir(checkout, quiet=1)
    change.setattr(uml, "__file__", str(checkout / "onionlab/engines/uml/engine.py"))
    change.setattr(uml, "code_root", lambda: checkout)


def composed(experiment: Path, engine: str, variant: str) -> tuple[RunBuilder, RunDirectory]:
    """Return the run builder of an experiment with one level, and the composed run on network 1."""
    bench = open_run_builder(working_root(), Request(str(experiment), engine=engine))
    (level,) = bench.experiment.levels
    return bench, bench.compose(level, variant, 1)


def hashes_of_run(
    run: RunDirectory, bench: RunBuilder, surroundings: Surroundings, directory: Path
) -> dict[str, str]:
    """Make a run in these surroundings.

    Returns:
        The SHA-256 of each output file of the programs, by its path relative to the hosts' folder.
        Before hashing, the path of the run's folder is removed from the files' content, because Tor
        logs this path on Shadow.
    """
    directory.parent.mkdir()
    old_umask = os.umask(surroundings.umask)
    try:
        directory.mkdir()
        run.write(directory)
        with apply_surroundings(surroundings, directory):
            bench.engine.run(
                directory,
                simulation=run.simulation,
                programs=bench.executables(),
                on_progress=lambda _progress: None,
            )
    finally:
        os.umask(old_umask)
    hosts = directory / "shadow.data" / "hosts"
    return {
        str(path.relative_to(hosts)): hashlib.sha256(
            path.read_bytes().replace(bytes(directory), b"")
        ).hexdigest()
        for path in sorted(hosts.rglob("*.stdout"))
    }


@pytest.mark.uml
@pytest.mark.tor
@pytest.mark.slow
def test_runs_have_the_same_names_whichever_process_composes_them(
    tmp_path: Path, uml_kernel: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(str(TINY), seeds=[1, 2], engine="uml")
    planned = []
    for least in (1, 1000):
        monkeypatch.setattr(plans, "MIN_CONCURRENT_RUNS", least)
        planned.append(make_plan(working_root(), request, out=tmp_path / str(least)).runs)
    assert planned[0] == planned[1]
    assert [run.seed for run in planned[0]] == sorted(run.seed for run in planned[0])
    assert len({run.run_id for run in planned[0]}) == len(planned[0]) >= 4


@pytest.mark.tor
@pytest.mark.slow
@ENGINES
def test_a_run_gives_the_same_logs_in_all_surroundings(tmp_path: Path, engine: str) -> None:
    bench, run = composed(REPEATED if engine == "uml" else TINY, engine, "rr")
    first: dict[str, str] = {}
    for surroundings in ALL_SURROUNDINGS:
        hashes = hashes_of_run(run, bench, surroundings, tmp_path / surroundings.name / "run")
        first = first or hashes
        different = [name for name, sha256 in first.items() if hashes.get(name) != sha256]
        assert not different, f"{surroundings.name}: other logs of {', '.join(different[:5])}"
        assert hashes.keys() == first.keys()
    hosts = tmp_path / ALL_SURROUNDINGS[0].name / "run" / "shadow.data" / "hosts"
    proofs = verify_tor_logs(hosts, run.expectations, load_registry(working_root()).proof_prefixes)
    clients = len(list(hosts.glob("*client*")))
    assert proofs == {"Circuit policy in use: RR.": 3 + 4 + clients}
    successes = sum(
        path.read_text().count("[stream-success]") for path in hosts.glob("webclient*/tgen.*")
    )
    assert successes > clients


@pytest.mark.uml
@pytest.mark.slow
def test_the_same_seed_gives_the_same_transfer_to_the_byte(
    tmp_path: Path, uml_kernel: object
) -> None:
    bench, run = composed(TRANSFER, "uml", "slow-start")
    hashes = [
        hashes_of_run(run, bench, surroundings, tmp_path / surroundings.name / "run")
        for surroundings in (ALL_SURROUNDINGS[0], ALL_SURROUNDINGS[-1])
    ]
    assert len(hashes[0]) == 2
    assert hashes[0] == hashes[1]
