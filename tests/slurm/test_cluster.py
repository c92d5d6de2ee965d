"""A real Slurm of two nodes: what it refuses, runs as its jobs, and nothing left at any end.

All in one file: there is one cluster at a time on a machine, and files are tested side by side.
``ONIONLAB_ENDS=20 pytest tests/slurm -k whatever_ends`` ends more; ONIONLAB_ENDS_SEED draws others.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest
import yaml
from harness import imported
from harness.checkout import REPOSITORY, Checkout, arguments, processes_below

from analysis.formats.files import PROGRESS
from onionlab.errors import UserError
from onionlab.programs.installed import find_shadow, find_tgen
from onionlab.runs.attempts import node_directory
from onionlab.runs.workflow import nodes, slurm

from .cluster import NODE_MEMORY_MB, NODES, SHORT_MINUTES, Cluster, ask

SIZE = slurm.Size(cpus=1, memory_mb=1500, runtime_min=20)
START_LIMIT_S = 240.0
END_LIMIT_S = 60.0
"""Within which the jobs of a command have to end that was killed."""
AWAY_S = 45.0
"""A round of five questions, each of which waits for a controller that is away."""
ENDS = int(os.environ.get("ONIONLAB_ENDS", "1"))
SEED = int(os.environ.get("ONIONLAB_ENDS_SEED", "1"))
THROUGH_SLURM = ("--executor", "slurm", "--profile", "soon", "--partition", "main")
KINDS = ("node", "kill", "terminate", "cancel", "slurmd", "controller")
"""A node that loses its power; the command, killed or ended; a job; a daemon, restarted."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400 + 300 * (ENDS - 1))]


@pytest.fixture
def here(
    cluster: Cluster, checkout: Checkout, uml_kernel: object, circuit_policy_build: None
) -> Iterator[Checkout]:
    """A checkout whose nodes have all that runs take, and a profile that does not wait long."""
    profile = yaml.safe_load((REPOSITORY / "configs/slurm/config.yaml").read_text())
    profile["slurm-init-seconds-before-status-checks"] = 3
    folder = checkout.root / "soon"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(profile))
    yield checkout
    left = cluster.jobs()
    if left:
        cluster.cancel_all()  # or the tests after this one would wait behind them
    assert left == []
    assert processes_below(checkout.store.directory) == []


def runs(engine: str) -> list[str]:
    return ["run", *arguments(engine, "rr,ewma")]


def on_slurm(engine: str = "uml") -> list[str]:
    return [*runs(engine), *THROUGH_SLURM]


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The engine of that name; skips the test, by name, where Shadow or TGen is missing."""
    if request.param == "shadow":
        try:
            find_shadow()
            find_tgen()
        except UserError as error:
            pytest.skip(f"needs Shadow and TGen: {error.message}")
    return str(request.param)


def wait_for(is_so: Callable[[], object], what: str, limit_s: float) -> float:
    """Wait until something is so; return how long that took."""
    started_s = time.monotonic()
    while not is_so():
        took_s = time.monotonic() - started_s
        assert took_s < limit_s, f"no {what} after {took_s:.0f} s"
        time.sleep(0.2)
    return time.monotonic() - started_s


def start(checkout: Checkout) -> subprocess.Popen[bytes]:
    """Start the runs, and wait until one of them simulates."""
    command = checkout.start(*on_slurm())
    partial = checkout.store.directory / ".partial"
    wait_for(
        lambda: command.poll() is not None or list(partial.glob(f"*/{PROGRESS}")),
        "run under way",
        START_LIMIT_S,
    )
    assert command.poll() is None
    return command


def hashes(checkout: Checkout) -> dict[str, dict[str, str]]:
    return {run: checkout.record_hashes(run) for run in checkout.run_names("tiny")}


@pytest.mark.parametrize("engine", ["uml", "shadow"], indirect=True)
def test_records_are_those_of_runs_made_here(here: Checkout, engine: str) -> None:
    made = here.onionlab(*on_slurm(engine))
    assert made.returncode == 0, made.stderr + log_of(here)
    assert "2 runs: 0 are there, 2 to do, at most 2 in the queue at a time, through slurm" in (
        made.stdout
    )
    # Both nodes made one.
    lines = ask("squeue", "--noheader", "--states=all", "--format=%N %T")
    assert {line.split()[0] for line in lines if line.endswith(" COMPLETED")} == set(NODES)
    through_slurm = hashes(here)
    assert all(through_slurm.values())
    for run in through_slurm:
        here.remove_run(run)
    again = here.onionlab(*runs(engine))
    assert again.returncode == 0, again.stderr
    assert hashes(here) == through_slurm


def test_an_imported_network_gives_the_same_bytes(here: Checkout, tmp_path: Path) -> None:
    imported.import_network(here, tmp_path / "tornet-1")
    made = here.onionlab(*imported.words("run", "uml", *THROUGH_SLURM))
    assert made.returncode == 0, made.stderr + log_of(here, imported.NAME)
    through_slurm = imported.hashes_of_run(here)
    here.remove_run(imported.the_run(here))
    again = here.onionlab(*imported.words("run", "uml"))
    assert again.returncode == 0, again.stderr
    assert imported.hashes_of_run(here) == through_slurm


def log_of(checkout: Checkout, experiment: str = "tiny") -> str:
    """What Snakemake said, and the jobs."""
    logs = [*checkout.results(experiment).glob("workflow.log")]
    logs += checkout.results(experiment).glob("job-logs/**/*.log")
    return "\n".join(path.read_text(errors="replace")[-3000:] for path in logs)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_jobs_end_with_their_command(
    here: Checkout, cluster: Cluster, number: signal.Signals
) -> None:
    command = start(here)
    os.kill(command.pid, number)
    assert command.wait(60) == (130 if number == signal.SIGTERM else -number)
    wait_for(lambda: not cluster.jobs(), "empty queue", END_LIMIT_S)
    assert processes_below(here.store.directory) == []
    # The same command goes on from there.
    made = here.onionlab(*on_slurm())
    assert made.returncode == 0, made.stderr + log_of(here)
    assert all(hashes(here).values())


def test_a_job_that_is_cancelled_is_made_again(here: Checkout, cluster: Cluster) -> None:
    command = start(here)
    first = cluster.jobs()[0].split()[0]
    ask("scancel", first)
    assert command.wait(600) == 0, log_of(here)
    assert all(hashes(here).values())


def test_a_controller_that_starts_again_ends_nothing(here: Checkout, cluster: Cluster) -> None:
    command = start(here)
    # Politely: killed, it may not have written yet that the jobs run, and then Slurm itself takes
    # the nodes away that report them ("Duplicate jobid on nodes n1, set to state DRAIN").
    cluster.end_daemon("slurmctld")
    cluster.start_controller()
    assert command.wait(900) == 0, log_of(here)
    assert all(hashes(here).values())


def test_a_controller_that_is_away_for_a_while_loses_no_job(
    here: Checkout, cluster: Cluster
) -> None:
    # Snakemake's plugin (2.8.0) gives all jobs up, without a word, when a round of its questions
    # finds nobody, and would wait for ever.
    command = start(here)
    cluster.end_daemon("slurmctld")
    time.sleep(AWAY_S)
    cluster.start_controller()
    assert command.wait(600) == 0, log_of(here)
    assert "begun anew" in log_of(here)
    assert all(hashes(here).values())


def test_whatever_ends_the_same_command_finishes(here: Checkout, cluster: Cluster) -> None:
    started_s = time.monotonic()
    made = here.onionlab(*on_slurm())
    assert made.returncode == 0, made.stderr + log_of(here)
    whole_s = time.monotonic() - started_s
    expected = hashes(here)
    assert len(expected) == 2
    draws = random.Random(SEED)
    kinds = [KINDS[number % len(KINDS)] for number in range(ENDS)]
    draws.shuffle(kinds)
    for number, kind in enumerate(kinds):
        for run in expected:
            here.remove_run(run)
        command = here.start(*on_slurm())
        at_s = whole_s * draws.uniform(0.2, 0.9)
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(at_s)
        end(kind, command, cluster, draws)
        print(f"end {number + 1}: {kind} after {at_s:.1f} s", flush=True)
        if kind in ("kill", "terminate"):
            command.wait(60)
            wait_for(lambda: not cluster.jobs(), "empty queue", END_LIMIT_S)
            require_nothing_at_work(here)
            made = here.onionlab(*on_slurm())
            assert made.returncode == 0, made.stderr + log_of(here)
        else:
            assert command.wait(900) == 0, log_of(here)
            wait_for(lambda: not cluster.jobs(), "empty queue", END_LIMIT_S)
        assert hashes(here) == expected, kind
        require_nothing_at_work(here)
        cluster.wait(lambda: set(cluster.states().values()) == {"idle"}, "nodes that are idle")


def end(
    kind: str, command: subprocess.Popen[bytes], cluster: Cluster, draws: random.Random
) -> None:
    """End something, which may have ended by itself."""
    if kind in ("kill", "terminate"):
        command.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
    elif kind == "cancel":
        if jobs := cluster.jobs():
            ask("scancel", draws.choice(jobs).split()[0])
    elif kind == "controller":
        cluster.end_daemon("slurmctld")
        cluster.start_controller()
    else:
        node = draws.choice(NODES)
        if kind == "node":
            cluster.lose_node(node)
        else:
            cluster.end_daemon(node, kill=True)
        time.sleep(draws.choice((1.0, 45.0)))  # sooner and later than SlurmdTimeout
        cluster.start_node(node)


def require_nothing_at_work(checkout: Checkout) -> None:
    """No process of a simulation, in the store or on the nodes' disk, and no Snakemake."""
    assert processes_below(checkout.store.directory) == []
    own_disk = node_directory()
    assert own_disk is not None
    assert processes_below(own_disk) == []
    assert snakemakes_of(checkout) == []


def snakemakes_of(checkout: Checkout) -> list[str]:
    """Snakemake's processes that work for a checkout."""
    words = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    ours = str(checkout.root)
    return [line for line in map(" ".join, words) if "snakemake" in line and ours in line]


@pytest.fixture
def tgen(checkout: Checkout) -> Path:
    """What calls itself TGen."""
    return program(checkout.root / "tgen", "Initializing TGen v1.1.2 running GLib 2.74.6")


def program(path: Path, says: str) -> Path:
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def doctor(checkout: Checkout, tgen: Path) -> list[str]:
    """What it says of a cluster."""
    words = ["doctor", "--executor", "slurm", "--partition", "main", "--tgen", str(tgen)]
    lines = checkout.onionlab(*words).stdout.splitlines()
    return [" ".join(line.split()) for line in lines]


@pytest.fixture
def second_node(cluster: Cluster) -> Iterator[Callable[[Mapping[Path, Path]], None]]:
    """Starts the second node anew, which sees other things at some places until the test ends."""

    def restart(instead: Mapping[Path, Path] | None = None) -> None:
        cluster.end_daemon(NODES[1])
        cluster.start_node(NODES[1], instead)
        cluster.wait(lambda: cluster.answers(NODES[1]), "answer of the second node")

    yield restart
    restart()


def test_the_doctor_compares_two_nodes(checkout: Checkout, cluster: Cluster, tgen: Path) -> None:
    found = doctor(checkout, tgen)
    assert "ok nodes n1, n2: checkout, Python and programs are the same as here" in found
    assert "ok locks those of the store's file system hold on all of them" in found
    assert cluster.jobs() == []
    assert not list(checkout.store.directory.glob(".nodes-*"))


def test_the_doctor_says_what_a_node_has_otherwise(
    checkout: Checkout, tgen: Path, second_node: Callable[[Mapping[Path, Path]], None]
) -> None:
    other = program(checkout.root / "other", "Initializing TGen v1.1.3 running GLib 2.74.6")
    second_node({other: tgen})
    (line,) = [line for line in doctor(checkout, tgen) if line.startswith("missing nodes")]
    assert f"not the same everywhere: TGen on n2: 1.1.3 at {tgen}" in line
    assert "n1" not in line
    empty = checkout.root / "empty"
    empty.mkdir()
    checkout.store.directory.mkdir(exist_ok=True)
    second_node({empty: checkout.store.directory})
    (line,) = [line for line in doctor(checkout, tgen) if line.startswith("missing nodes")]
    assert line == "missing nodes n2 cannot see a file that was made in the store here"


def test_the_doctor_does_not_wait_for_nodes_that_are_busy(
    checkout: Checkout, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "WAIT_S", 3.0)
    for _ in NODES:
        assert ask("sbatch", "--mem=10", f"--output={checkout.root}/out", "--wrap=sleep 60")
    cluster.wait(lambda: all(" RUNNING " in job for job in cluster.jobs()), "nodes at work")
    (found,) = nodes.examine_nodes(checkout.root, slurm.Place("main", None, None))
    assert found.text == "not looked at: no 2 of them were free within 3 s"
    assert len(cluster.jobs()) == len(NODES)
    cluster.cancel_all()


def test_a_job_that_fits_is_accepted_and_nothing_is_submitted(cluster: Cluster) -> None:
    found = slurm.require_cluster(slurm.Place("main", None, None), SIZE)
    assert found == slurm.Cluster(accounts=False)
    assert slurm.require_cluster(slurm.Place(None, None, None), SIZE) == found
    assert cluster.jobs() == []


@pytest.mark.parametrize(
    ("place", "size", "message"),
    [
        (slurm.Place("fast", None, None), SIZE, "this cluster has no partition fast"),
        (slurm.Place("main", "me", None), SIZE, "ACCOUNT=me: this cluster has no accounts"),
        (slurm.Place("short", None, None), SIZE, f"short: 1 CPU, {NODE_MEMORY_MB} MB, 5 minutes"),
        (slurm.Place("main", None, None), slurm.Size(1, NODE_MEMORY_MB + 1, 20), "one run needs"),
        (slurm.Place("main", None, None), slurm.Size(2, 1500, 20), "2 CPUs"),
    ],
)
def test_what_slurm_would_not_take_is_said(
    cluster: Cluster, place: slurm.Place, size: slurm.Size, message: str
) -> None:
    assert SHORT_MINUTES == 5
    with pytest.raises(UserError) as caught:
        slurm.require_cluster(place, size)
    assert message in f"{caught.value.message}\n{caught.value.hint}"
    assert cluster.jobs() == []


def test_slurms_own_reason_is_passed_on(cluster: Cluster) -> None:
    with pytest.raises(UserError, match=r"Slurm would not take a job of .*: invalid partition"):
        slurm._require_acceptance(slurm.Place("fast", None, None), SIZE)


def test_jobs_are_found_by_the_beginning_of_their_name_and_cancelled(
    cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("onionlab-tests-a", "onionlab-tests-b", "other"):
        words = ["sbatch", f"--job-name={name}", "--mem=10", "--comment=rule_x_wildcards_0a"]
        assert ask(*words, f"--output={tmp_path}/out", "--wrap=sleep 60")
    found = [job for job in slurm.queue("onionlab-tests-") if not job.is_over]
    assert [job.run_id for job in found] == ["0a", "0a"]
    assert slurm.cancel("onionlab-tests-") == 2
    cluster.wait(lambda: len(cluster.jobs()) == 1, "job that is left")
    assert slurm.cancel("other") == 1
    cluster.wait(lambda: not cluster.jobs(), "empty queue")
    states = {job.state for job in slurm.queue("onionlab-tests-")}
    assert states == {"CANCELLED"}


def test_a_controller_that_is_away_is_said(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "TIMEOUT_S", 10.0)
    cluster.end_daemon("slurmctld")
    try:
        with pytest.raises(UserError, match="Slurm does not answer: scontrol"):
            slurm.require_cluster(slurm.Place(None, None, None), SIZE)
    finally:
        cluster.start_controller()
