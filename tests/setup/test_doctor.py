"""Findings of `onionlab doctor` on simulated machines."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

import pytest
from shell_scripts import write_script

from onionlab import doctor
from onionlab.cli import build_parser
from onionlab.commands import doctor as verb
from onionlab.engines.examination import MISSING, OK, WARN, Finding, Need, Question
from onionlab.engines.shadow import examine as for_shadow
from onionlab.engines.uml import examine as for_uml
from onionlab.engines.uml.kernel import BuiltKernel
from onionlab.programs import installed
from onionlab.runs.costs.estimate import available_memory_bytes

REPOSITORY = Path(__file__).resolve().parents[2]
SMALL = Need("small", memory_bytes=2**30, disk_bytes=2**30, processes=100)
HUGE = Need("huge", memory_bytes=2**60, disk_bytes=2**60, processes=10**9)


@pytest.mark.parametrize(
    ("version", "status"),
    [((3, 10), MISSING), ((3, 11), OK), ((3, 12), OK), ((3, 13), OK), ((3, 14), MISSING)],
)
def test_python(version: tuple[int, int], status: str) -> None:
    assert doctor.python_version(version).status == status


def test_packages_as_in_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("pytest==0.0.1 \\\n    --hash=sha256:0\nno-such-package==1.0 \\\n")
    finding = doctor.python_packages(lock)
    assert finding.status == MISSING
    assert "not 0.0.1 and 1 more" in finding.text
    assert finding.fix == "make setup"
    lock.write_text(f"pytest=={pytest.__version__} \\\n    --hash=sha256:0\n")
    assert doctor.python_packages(lock).status == OK


def test_builds_that_are_missing_are_a_warning(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "tor-patches", tmp_path / "tor-patches")
    finding = doctor.tor_builds(tmp_path)
    assert finding.status == WARN
    assert finding.text.startswith("not built yet: stock, circuit-policy, stream-order")
    # The finding names the builds that `make build` makes. The series cell-trace alone is not among
    # them, since no variant consists of it. Users' own series come after the shipped ones.
    names = finding.text.removeprefix("not built yet: ").split(", ")
    assert "cell-trace" not in names
    for name in names:
        program = tmp_path / "build" / "tor" / name / "bin" / f"tor-{name}"
        program.parent.mkdir(parents=True)
        program.touch()
    assert doctor.tor_builds(tmp_path).status == OK
    shutil.rmtree(tmp_path / "tor-patches")
    finding = doctor.tor_builds(tmp_path)
    assert finding.status == MISSING
    assert finding.fix


def test_shared_memory(tmp_path: Path) -> None:
    assert for_shadow.shared_memory(tmp_path, None).status == WARN
    root = Path("/")
    assert for_shadow.shared_memory(root, SMALL).status == OK
    assert for_shadow.shared_memory(root, HUGE).status == MISSING


def set_limit(monkeypatch: pytest.MonkeyPatch, subject: str, value: int | None) -> for_shadow.Limit:
    limit = next(one for one in for_shadow.LIMITS if one.subject.startswith(subject))
    played = for_shadow.Limit(limit.subject, lambda: value, limit.wanted, limit.fix)
    monkeypatch.setattr(for_shadow, "LIMITS", (played,))
    return played


@pytest.mark.parametrize("subject", [limit.subject for limit in for_shadow.LIMITS])
def test_limits(monkeypatch: pytest.MonkeyPatch, subject: str) -> None:
    limit = set_limit(monkeypatch, subject, None)
    assert next(for_shadow.limits(SMALL, needed=True)).text == "unlimited"
    enough = limit.wanted(SMALL.processes)
    set_limit(monkeypatch, subject, enough)
    assert next(for_shadow.limits(SMALL, needed=True)).status == OK
    set_limit(monkeypatch, subject, enough - 1)
    finding = next(for_shadow.limits(SMALL, needed=True))
    assert finding.status == MISSING
    assert f"{enough - 1}; small needs about {enough}" in finding.text
    assert for_shadow.SYSTEM_CONFIGURATION in finding.fix
    assert next(for_shadow.limits(None, needed=True)).status == WARN
    assert next(for_shadow.limits(SMALL, needed=False)).status == WARN


def test_memory_and_disk() -> None:
    assert doctor.memory(2**30, SMALL).status == OK
    assert doctor.memory(2**30 - 1, SMALL).status == MISSING
    assert doctor.memory(1, None).status == OK
    assert doctor.disk(doctor.BUILD_DISK_BYTES + 2**30, SMALL).status == OK
    assert doctor.disk(doctor.BUILD_DISK_BYTES + 2**30 - 1, SMALL).status == MISSING
    assert doctor.disk(doctor.BUILD_DISK_BYTES - 1, None).status == MISSING
    assert 0 < available_memory_bytes() < 2**50


@pytest.mark.parametrize(
    ("arguments", "variable", "expected"),
    [
        ([], "", "uml"),
        (["--engine", ""], "", "uml"),
        (["--engine", "shadow"], "", "shadow"),
        (["--engine", "uml"], "/opt/shadow", "uml"),
        ([], "/opt/shadow", "shadow"),
        (["--tgen", "/opt/tgen"], "", "shadow"),
    ],
)
def test_the_engine_that_is_judged_is_the_one_that_would_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    variable: str,
    expected: str,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TGEN", raising=False)
    monkeypatch.setenv("SHADOW", variable)
    judged = []

    def examine(question: Question) -> list[Finding]:
        judged.append(question.engine)
        return [Finding(OK, "one", "fine")]

    monkeypatch.setattr(verb, "examine", examine)
    assert verb.run(parsed(*arguments)) == 0
    assert judged == [expected]


def parsed(*arguments: str) -> argparse.Namespace:
    return build_parser("doctor").parse_args(["doctor", *arguments])


def test_the_verb_fails_where_something_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = [Finding(OK, "one", "fine"), Finding(WARN, "two", "look", "do\nthis")]
    monkeypatch.setattr(verb, "examine", lambda _: findings)
    assert verb.run(parsed()) == 0
    assert capsys.readouterr().out == (
        "ok       one  fine\nwarn     two  look\n              do\n              this\n"
    )
    findings.append(Finding(MISSING, "three", "gone"))
    assert verb.run(parsed()) == 1
    assert capsys.readouterr().out.endswith("Missing: three.\n")


def test_an_experiment_is_checked_against_its_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Finished runs in the tests' checkout would change the cost, so they are ignored.
    monkeypatch.setattr("onionlab.runs.costs.estimate.find_finished_runs", lambda store: [])

    def examine_need(*words: str) -> tuple[Need, Finding]:
        need, (cost,) = verb.experiment_need(parsed("quick", *words), REPOSITORY)
        assert need is not None
        return need, cost

    (one, _), (three, cost) = examine_need("--seeds", "1"), examine_need("--seeds", "3")
    assert three.disk_bytes == pytest.approx(3 * one.disk_bytes)
    assert three.memory_bytes == one.memory_bytes > 0
    part, _ = examine_need("--seeds", "3", "--variants", "rr")
    assert part.disk_bytes < three.disk_bytes
    assert cost.status == OK
    assert cost.text.startswith("6 runs to make (0 of 6 exist), about ")


@pytest.mark.parametrize(
    ("rustc", "expected"),
    [
        ("is built", (OK, "not needed: Arti 2.7.0 is built")),
        ("echo rustc 1.95.0", (OK, "rustc 1.95.0, for Arti 2.7.0")),
        ("echo rustc 1.85.0", (MISSING, "Arti 2.7.0 needs Rust 1.92, and this is rustc 1.85.0")),
        ("exit 1", (MISSING, "Arti 2.7.0 is built with Rust, and `rustc` is missing")),
    ],
)
def test_clients_of_arti_need_rust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rustc: str, expected: tuple[str, str]
) -> None:
    monkeypatch.setattr("onionlab.runs.costs.estimate.find_finished_runs", lambda store: [])
    write_script(tmp_path / "cargo", "exit 1")
    write_script(tmp_path / "rustc", rustc)
    monkeypatch.setattr("onionlab.programs.arti.is_built", lambda *_: rustc == "is built")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    _, (_, rust) = verb.experiment_need(parsed("arti-clients"), REPOSITORY)
    assert (rust.status, rust.text) == expected
    _, (_, *other) = verb.experiment_need(parsed("arti-clients", "--variants", "ewma"), REPOSITORY)
    assert not other


# The embedded engine


def embedded(root: Path, *, needed: bool = True) -> dict[str, Finding]:
    findings = for_uml.examine(Question(root, "uml"), needed=needed)
    return {finding.subject.removeprefix("embedded engine: "): finding for finding in findings}


def test_a_shadow_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    old = tmp_path / "shadow"
    write_script(old, "echo Shadow 1.15.0\n")
    assert for_shadow.tool(installed.SHADOW, str(old), needed=True).status == MISSING
    finding = for_shadow.tool(installed.SHADOW, str(old), needed=False)
    assert finding.status == OK
    assert f"1.15.0 at {old} is too old" in finding.text


@pytest.mark.parametrize(("needed", "status"), [(True, MISSING), (False, WARN)])
def test_missing_tools_for_the_kernel_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: bool, status: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("LINUX_SOURCE", raising=False)
    found = embedded(tmp_path, needed=needed)
    assert found["kernel build"].status == status
    assert "flex" in found["kernel build"].fix
    # Without apt, the kernel's source package is missing, too.
    assert (found["kernel"].status, "LINUX_SOURCE" in found["kernel"].fix) == (WARN, True)


def test_the_package_that_the_kernel_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_script(tmp_path / "apt-cache", "echo linux-source-6.1; echo linux-source-6.12\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("LINUX_SOURCE", raising=False)
    assert embedded(tmp_path)["kernel"].text == "not built yet; from linux-source-6.12"
    monkeypatch.setenv("LINUX_SOURCE", "/somewhere/linux.tar.xz")
    assert embedded(tmp_path)["kernel"].text == "not built yet; from /somewhere/linux.tar.xz"


def test_a_kernel_that_uses_ptrace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = BuiltKernel(tmp_path, "6.12.1", "", ptrace_because="the host is old")
    monkeypatch.setattr(for_uml, "find_kernel", lambda root: built)
    finding = embedded(tmp_path)["system calls"]
    assert (finding.status, "the host is old" in finding.text) == (WARN, True)
