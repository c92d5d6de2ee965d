"""A guest's start, what its programs see, and one clear error for each failure."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from shell_scripts import write_script

from onionlab.engines.base import EngineFailureError, Process, Progress
from onionlab.engines.following import Command, ExitInfo, follow
from onionlab.engines.uml import engine
from onionlab.engines.uml.console import GuestWatch
from onionlab.engines.uml.engine import LOG, UmlEngine
from onionlab.engines.uml.guest.file_systems import CALLS
from onionlab.engines.uml.kernel import BuiltKernel
from uml.guest_support import MBIT, Net, processes_in, read_output, run_guest
from uml.traffic_support import client_graphml

pytestmark = [pytest.mark.uml]

STALL_S = 8.0
# The stall timeout for a kernel that prints nothing.
SILENCE_S = 1.0
TIMEOUT_S = 60.0


def one_host(*arguments: str, at_ms: int = 1000, **options: object) -> Net:
    net = Net(options=options)
    net.host("a")
    net.host("b")
    net.run("a", *arguments, at_ms=at_ms)
    return net


def leftovers(directory: Path) -> list[str]:
    """Return the processes that work in ``directory``, and the kernel's files in it."""
    return [*map(str, processes_in(directory)), *map(str, directory.glob("uml.state*"))]


def test_a_program_runs_on_the_described_host(
    tmp_path: Path, uml_engine: UmlEngine, uml_kernel: BuiltKernel
) -> None:
    started_s = time.monotonic()
    seen: list[Progress] = []
    usage = run_guest(
        tmp_path, uml_engine, one_host("facts", at_ms=1500), stop_s=100, on_progress=seen.append
    )
    (facts,) = read_output(tmp_path, "a")
    assert facts["host_name"] == "a"
    assert facts["own_address"] == "100.10.0.1"
    assert facts["time_s"] == pytest.approx(946684801.5, abs=0.01)
    assert facts["open_files"] >= 65536
    assert facts["working_directory"].endswith("/shadow.data/hosts/a")
    assert "OPENSSL_ia32cap" in facts["environment"]
    # This machine's time zone and OpenSSL configuration do not affect a run.
    assert facts["environment"]["TZ"] == "UTC0"
    assert facts["environment"]["OPENSSL_CONF"] == "/dev/null"
    names = {"PATH", "HOME", "LC_ALL", "TZ", "OPENSSL_CONF", "OPENSSL_ia32cap", "LD_PRELOAD"}
    assert set(facts["environment"]) <= names
    # System calls go through the library, if the kernel can be called as a function here.
    if uml_kernel.calls is not None and not uml_kernel.ptrace_because:
        assert facts["library"] == f"{CALLS}/calls.so"
    # A hundred idle seconds of simulated time take little time, and the resource usage is measured.
    assert time.monotonic() - started_s < TIMEOUT_S
    assert 0 < usage.cpu_s <= usage.wall_s + 1
    # A short run may have only one sample of its memory, taken during the boot.
    assert 5e6 < usage.peak_memory_bytes < 500e6
    assert seen[-1].stop_s == 100
    assert leftovers(tmp_path) == []
    assert json.loads((tmp_path / "uml.result.json").read_text())["message"] == ""


class SeenError(Exception):
    """Raised when the expected output has arrived."""


def test_output_of_a_watched_host_is_visible_during_the_run(
    tmp_path: Path, uml_engine: UmlEngine
) -> None:
    net = Net(watched=("a",))
    for name, other in (("a", "b"), ("b", "a")):
        net.host(name, up=2 * MBIT, down=2 * MBIT)
        net.run(name, "facts")
        net.run(name, "serve")
        net.run(name, "send", other, "100000", at_ms=2000)
    log = tmp_path / "shadow.data" / "hosts" / "a" / "python.1000.stdout"

    def look(progress: Progress) -> None:
        assert progress.wall_s < TIMEOUT_S
        if log.exists():
            raise SeenError

    with pytest.raises(SeenError):
        run_guest(tmp_path, uml_engine, net, stop_s=100_000, on_progress=look)
    (facts,) = read_output(tmp_path, "a")
    assert facts["host_name"] == "a"
    assert not (tmp_path / "shadow.data" / "hosts" / "b").exists()
    assert leftovers(tmp_path) == []


def test_late_copies_of_lines_are_not_duplicated_in_the_logs(
    tmp_path: Path, uml_engine: UmlEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of a watched host are on the console, and in the logs that the guest copies later.

    In this test, the engine reads the console only after the guest has ended, so it finds each line
    twice.
    """

    def follow_late(command: Command, **more: Any) -> ExitInfo:
        look = more.pop("simulated_s")
        ended = follow(command, simulated_s=lambda: 0.0, **more)
        assert look() == 12.0
        return ended

    monkeypatch.setattr(engine, "follow", follow_late)
    net = Net(watched=("a",))
    net.host("a", up=2 * MBIT, down=2 * MBIT)
    net.run("a", "facts")
    run_guest(tmp_path, uml_engine, net, stop_s=12)
    repeated = (tmp_path / "uml.log").read_text().count("\nonionlab-log a python.1000.stdout ")
    assert len(read_output(tmp_path, "a")) == repeated == 1


def test_a_hosts_random_numbers_do_not_depend_on_the_others(
    tmp_path: Path, uml_engine: UmlEngine
) -> None:
    def drawn(name: str, net: Net) -> list[str]:
        run_guest(tmp_path / name, uml_engine, net, stop_s=10)
        return [read_output(tmp_path / name, "a", position)[0]["random"] for position in range(2)]

    quiet, busy = one_host("facts"), one_host("facts")
    for net in (quiet, busy):
        net.run("a", "facts", at_ms=2000)
    for at_ms in (500, 1500):
        busy.run("b", "facts", at_ms=at_ms)
    first, other = drawn("quiet", quiet), drawn("busy", busy)
    assert first == other
    # Two programs of one host, and the same program in two hosts, get different random numbers.
    (in_b,) = read_output(tmp_path / "busy", "b", 0)
    assert len({*first, in_b["random"]}) == 3


def test_a_program_cannot_write_the_hosts_files(tmp_path: Path, uml_engine: UmlEngine) -> None:
    target = tmp_path / "outside"
    target.mkdir()
    run_guest(tmp_path / "run", uml_engine, one_host("touch", str(target / "file")), stop_s=3)
    (line,) = read_output(tmp_path / "run", "a")
    assert "refused" in line
    assert list(target.iterdir()) == []


def test_the_error_names_a_program_that_ends_early(tmp_path: Path, uml_engine: UmlEngine) -> None:
    with pytest.raises(EngineFailureError) as caught:
        run_guest(tmp_path, uml_engine, one_host("fail", "3"), stop_s=50)
    assert caught.value.message.startswith("python of a ended with status 3 after 1.")
    assert caught.value.log_tail[-1] == "the last words"
    # What the program has printed is kept.
    assert (tmp_path / "shadow.data" / "hosts" / "a" / "python.1000.stderr").exists()
    assert leftovers(tmp_path) == []


def test_a_program_that_is_missing_is_an_error(tmp_path: Path, uml_engine: UmlEngine) -> None:
    programs = {"python": Path("/nowhere/python")}
    with pytest.raises(EngineFailureError, match="/nowhere/python"):
        run_guest(tmp_path, uml_engine, one_host("facts"), stop_s=5, programs=programs)


def test_programs_do_not_react_to_the_end_of_the_traffic(
    tmp_path: Path, uml_engine: UmlEngine
) -> None:
    """Programs are stopped before the traffic ends, because their reactions may take minutes."""
    net = one_host("serve")
    net.processes["a"].append(Process("tgen", ("../../../conf/graph.graphml",), 1500))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/graph.graphml").write_text(client_graphml(5000, host="localhost"))
    run_guest(tmp_path, uml_engine, net, stop_s=5)
    (log,) = (tmp_path / "shadow.data/hosts/a").glob("tgen*.stdout")
    assert "streams-pending=1" in log.read_text()
    # The server prints a line when a connection ends, but was stopped before that.
    assert read_output(tmp_path, "a") == []


def test_the_error_names_the_last_action_of_a_guest_that_does_not_end(tmp_path: Path) -> None:
    log = tmp_path / LOG
    log.write_text("onionlab-time 720 1000\nonionlab-end copying logs\nonionlab-")
    watch = GuestWatch(log, tmp_path, timeout_s=0.05, memory_bytes=2**30)
    assert watch.poll() == 720
    time.sleep(0.1)
    with log.open("a") as more:
        more.write("end copying logs\n")
    assert watch.poll() == 720
    time.sleep(0.1)
    with pytest.raises(EngineFailureError, match=r"is over, .* not end: copying logs has taken"):
        watch.poll()


@pytest.mark.parametrize(
    ("free_mib", "cause"),
    [
        (
            13,
            r"The guest is short of memory: 13 of 704 MiB were free\. Give it more: `engine: \{uml",
        ),
        (300, "A program that never sleeps causes this"),
    ],
)
def test_the_error_names_the_cause_of_a_stall(tmp_path: Path, free_mib: int, cause: str) -> None:
    log = tmp_path / LOG
    log.write_text(f"onionlab-time 5 {600 * 2**20}\nonionlab-time 6 {free_mib * 2**20}\n")
    watch = GuestWatch(log, tmp_path, timeout_s=0.05, memory_bytes=704 * 2**20)
    assert watch.poll() == 6
    time.sleep(0.1)
    with pytest.raises(EngineFailureError, match=cause):
        watch.poll()


def test_a_stopped_guest_has_not_stalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long gap between polls means that the watching process and the guest were both stopped.

    Such a gap counts as 10 s at most, so the guest counts as stalled only after further polls.
    """
    wall_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: wall_s)
    log = tmp_path / LOG
    log.write_text("onionlab-time 5 1000\n")
    watch = GuestWatch(log, tmp_path, timeout_s=120, memory_bytes=2**30)
    wall_s += 3600
    assert watch.poll() == 5
    wall_s += 3600
    assert watch.poll() == 5
    for _ in range(11):
        wall_s += 10
        watch.poll()
    wall_s += 10
    with pytest.raises(EngineFailureError, match="does not advance"):
        watch.poll()


@pytest.mark.slow
def test_a_program_that_never_sleeps_is_an_error(tmp_path: Path, uml_engine: UmlEngine) -> None:
    started_s = time.monotonic()
    with pytest.raises(EngineFailureError, match="simulated time does not advance: after 1 s"):
        run_guest(tmp_path, uml_engine, one_host("spin", stall_timeout_s=STALL_S), stop_s=50)
    assert time.monotonic() - started_s < TIMEOUT_S
    assert leftovers(tmp_path) == []


def test_a_guest_without_memory_is_an_error(tmp_path: Path, uml_engine: UmlEngine) -> None:
    with pytest.raises(EngineFailureError, match="the guest ran out of memory"):
        run_guest(tmp_path, uml_engine, one_host("hoard", memory_bytes=128 * 2**20), stop_s=50)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("script", ["echo boom; exit 3", "exec sleep 1000"])
def test_a_kernel_that_does_not_boot_is_an_error(tmp_path: Path, script: str) -> None:
    kernel = write_script(tmp_path / "kernel", f"{script}\n")
    run = tmp_path / "run"
    with pytest.raises(EngineFailureError) as caught:
        run_guest(
            run,
            UmlEngine(BuiltKernel(kernel, "0", "0")),
            one_host("facts", stall_timeout_s=SILENCE_S),
            stop_s=5,
        )
    if "boom" in script:
        assert "the guest ended prematurely: its kernel ended with status 3" in caught.value.message
        assert caught.value.log_tail[-1] == "boom"
    else:
        assert "it does not start" in caught.value.message
    assert leftovers(run) == []


def test_a_guest_that_is_killed_is_an_error(tmp_path: Path, uml_engine: UmlEngine) -> None:
    """The host's kernel may kill any process of a guest if memory runs out."""

    def kill(progress: Progress) -> None:
        with contextlib.suppress(ProcessLookupError):
            for process in processes_in(tmp_path)[:1]:
                os.kill(process, 9)

    with pytest.raises(EngineFailureError, match="the guest ended prematurely"):
        run_guest(tmp_path, uml_engine, one_host("spin"), stop_s=50, on_progress=kill)
    assert (tmp_path / LOG).exists()
    assert leftovers(tmp_path) == []


def test_the_same_simulation_has_the_same_bytes(tmp_path: Path, uml_engine: UmlEngine) -> None:
    outputs = []
    for attempt in ("one", "two", "other"):
        net = one_host("facts", at_ms=1234)
        net.seed = 2 if attempt == "other" else 1
        run_guest(tmp_path / attempt, uml_engine, net, stop_s=5)
        outputs.append(read_output(tmp_path / attempt, "a"))
    assert outputs[0] == outputs[1]
    assert outputs[0][0]["random"] != outputs[2][0]["random"]
