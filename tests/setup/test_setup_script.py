"""onionlab/setup.sh, on a machine that is played by scripts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
NEEDED = [
    "sh",
    "env",
    "sed",
    "tr",
    "cut",
    "cat",
    "touch",
    "rm",
    "dirname",
    "sha256sum",
    "mkdir",
    "flock",
    "grep",
    "cp",
    "sleep",
]

# Installed is what stands in $MACHINE/installed; apt-get install adds to it.
DPKG_QUERY = """\
for name; do :; done
grep -qx "$name" "$MACHINE/installed" || exit 1
printf installed
"""
APT_GET = """\
echo "apt-get $*" >> "$MACHINE/calls"
[ ! -e "$MACHINE/offline" ] || exit 100
for word; do
  case "$word" in -*|install|update) ;; *) echo "$word" >> "$MACHINE/installed";; esac
done
"""
SUDO = """echo sudo >> "$MACHINE/calls"; exec "$@"\n"""
PYTHON = """\
case "$1 $2" in
  "-c import sys; sys.exit"*) [ ! -e "$MACHINE/old-python" ];;
  "-c import sys; print"*) cat "$MACHINE/python-version";;
  "--version ") echo "Python 3.11.2";;
  "-m venv") echo "venv $3" >> "$MACHINE/calls"
    rm -rf "$4"; mkdir -p "$4/bin"; cp "$MACHINE/pip" "$4/bin/python";;
esac
"""
PIP = """\
#!/bin/sh
[ ! -e "$MACHINE/slow" ] || sleep 0.3
echo "$*" | sed 's/^-m pip --disable-pip-version-check /pip /' >> "$MACHINE/calls"
[ ! -e "$MACHINE/no-index" ] || case "$*" in *"-r requirements.lock"*) exit 1;; esac
"""


class Machine:
    """A checkout on a machine with a PATH of its own."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "machine"
        self.bin = folder / "bin"
        self.checkout = folder / "checkout"
        for path in (self.state, self.bin, self.checkout / "onionlab", self.checkout / "configs"):
            path.mkdir(parents=True)
        for name in NEEDED:
            found = shutil.which(name)
            assert found is not None
            (self.bin / name).symlink_to(found)
        for name, body in (
            ("dpkg-query", DPKG_QUERY),
            ("apt-get", APT_GET),
            ("sudo", SUDO),
            ("python3", PYTHON),
            ("id", 'echo "${FAKE_UID:-0}"\n'),
        ):
            self.program(name, body)
        (self.state / "pip").write_text(PIP)
        (self.state / "pip").chmod(0o755)
        (self.state / "installed").write_text("make\n")
        (self.state / "python-version").write_text("3.11.2 /usr\n")
        shutil.copy(REPOSITORY / "onionlab/setup.sh", self.checkout / "onionlab")
        (self.checkout / "configs/apt-packages.txt").write_text(
            "# x\nmake\n\ngcc # why\nlibc6-dev\n"
        )
        for name in ("requirements-build.lock", "requirements.lock", "pyproject.toml"):
            (self.checkout / name).write_text("")

    def program(self, name: str, body: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{body}")
        path.chmod(0o755)

    def start(self, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.checkout / "onionlab/setup.sh"],
            env={"PATH": str(self.bin), "MACHINE": str(self.state)} | variables,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, **variables: str) -> subprocess.CompletedProcess[str]:
        (self.state / "calls").write_text("")
        process = self.start(**variables)
        stdout, stderr = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    @property
    def calls(self) -> list[str]:
        return (self.state / "calls").read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


PIP_CALLS = [
    "pip install --quiet --no-compile --require-hashes -r requirements-build.lock",
    "pip install --quiet --no-compile --require-hashes --no-build-isolation --use-pep517 "
    "-r requirements.lock",
    "pip install --quiet --no-compile --no-deps --no-build-isolation --editable .",
    "pip check",
]


def test_a_new_machine(machine: Machine) -> None:
    result = machine.run()
    assert result.returncode == 0, result.stderr
    assert machine.calls == [
        "apt-get -q update",
        "apt-get -q install -y --no-install-recommends gcc libc6-dev",
        "venv --clear",
        *PIP_CALLS,
    ]
    # It says what it installs before it does.
    assert result.stdout.splitlines()[0] == "setup: Debian packages to install: gcc libc6-dev "


def test_nothing_is_done_twice(machine: Machine) -> None:
    machine.run()
    stamp = machine.checkout / ".venv/ready"
    os.utime(stamp, (0, 0))
    result = machine.run()
    assert (result.returncode, result.stdout, machine.calls) == (0, "", [])
    # make compares times: a stamp that stays old would run this for ever.
    assert stamp.stat().st_mtime > 0


def test_two_at_once_do_not_disturb_each_other(machine: Machine) -> None:
    (machine.state / "slow").touch()
    processes = [machine.start() for _ in range(2)]
    said = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    # The second one had nothing left to do, and said what it waited for.
    assert machine.calls[2:] == ["venv --clear", *PIP_CALLS]
    assert sum("another setup of this checkout is at work" in out for out, _ in said) == 1


def test_the_second_one_can_begin_while_the_first_one_works(machine: Machine) -> None:
    """Linux does not execute a file that somebody has open to write it ("text file busy")."""
    (machine.state / "slow").touch()
    first = machine.start()
    while not (machine.checkout / ".venv").exists():
        time.sleep(0.01)
    second = machine.start()
    assert second.communicate(timeout=60) == (
        "setup: another setup of this checkout is at work; waiting for it\n",
        "",
    )
    assert (second.returncode, first.wait(timeout=60)) == (0, 0)
    first.communicate()


def test_one_that_was_killed_holds_nobody_up(machine: Machine) -> None:
    (machine.state / "slow").touch()
    first = machine.start()
    while not (machine.checkout / ".venv").exists():
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate(timeout=60)
    result = machine.run()
    assert (result.returncode, result.stderr) == (0, "")
    assert machine.calls == ["venv --clear", *PIP_CALLS]


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-build.lock", "pyproject.toml"])
def test_a_changed_lock_installs_again_into_the_same_environment(
    machine: Machine, name: str
) -> None:
    machine.run()
    (machine.checkout / name).write_text("# changed\n")
    machine.run()
    assert machine.calls == PIP_CALLS
    machine.run()
    assert machine.calls == []


def test_another_python_makes_another_environment(machine: Machine) -> None:
    machine.run()
    (machine.state / "python-version").write_text("3.13.0 /usr\n")
    machine.run()
    assert machine.calls == ["venv --clear", *PIP_CALLS]


def test_a_checkout_that_was_moved_makes_another_environment(machine: Machine) -> None:
    machine.run()
    machine.checkout = machine.checkout.rename(machine.checkout.with_name("moved"))
    machine.run()
    assert machine.calls == ["venv --clear", *PIP_CALLS]


def test_an_installation_that_was_cut_short_begins_anew(machine: Machine) -> None:
    machine.run()
    (machine.checkout / "requirements.lock").write_text("# changed\n")
    (machine.state / "no-index").touch()
    result = machine.run()
    assert result.returncode == 2
    assert "error: pip could not install the Python packages" in result.stderr
    assert not (machine.checkout / ".venv/ready").exists()
    (machine.state / "no-index").unlink()
    machine.run()
    assert machine.calls == ["venv --clear", *PIP_CALLS]


def test_sudo_is_used_where_it_is_needed_and_said(machine: Machine) -> None:
    result = machine.run(FAKE_UID="1000")
    assert result.returncode == 0
    assert machine.calls[:4] == [
        "sudo",
        "apt-get -q update",
        "sudo",
        "apt-get -q install -y --no-install-recommends gcc libc6-dev",
    ]
    assert "setup: installing them with sudo" in result.stdout


def test_neither_root_nor_sudo(machine: Machine) -> None:
    (machine.bin / "sudo").unlink()
    result = machine.run(FAKE_UID="1000")
    assert result.returncode == 2
    assert result.stderr == (
        "error: installing packages takes root, and there is no sudo here\n"
        "As root: apt-get install --no-install-recommends gcc libc6-dev \n"
    )
    assert machine.calls == []


def test_neither_is_needed_where_nothing_is_missing(machine: Machine) -> None:
    (machine.bin / "sudo").unlink()
    (machine.state / "installed").write_text("make\ngcc\nlibc6-dev\n")
    assert machine.run(FAKE_UID="1000").returncode == 0
    assert machine.calls == ["venv --clear", *PIP_CALLS]


def test_apt_fails(machine: Machine) -> None:
    (machine.state / "offline").touch()
    result = machine.run()
    assert result.returncode == 2
    assert "error: apt-get could not install: gcc libc6-dev" in result.stderr
    assert not any("install" in call for call in machine.calls)


def test_another_system(machine: Machine) -> None:
    (machine.bin / "apt-get").unlink()
    result = machine.run()
    assert result.returncode == 0
    assert "this is not Debian or Ubuntu" in result.stdout
    assert "make gcc libc6-dev" in result.stdout


def test_no_python_that_fits(machine: Machine) -> None:
    (machine.state / "old-python").touch()
    result = machine.run()
    assert result.returncode == 2
    assert result.stderr.startswith("error: there is no Python 3.11, 3.12 or 3.13 on the PATH\n")
    result = machine.run(PYTHON="python3")
    assert result.stderr == "error: PYTHON=python3 is not Python 3.11, 3.12 or 3.13\n"


def test_the_python_that_is_named(machine: Machine) -> None:
    machine.program("python3.12", PYTHON)
    machine.program("python3", "exit 1\n")
    assert machine.run().returncode == 0
    shutil.rmtree(machine.checkout / ".venv")
    assert machine.run(PYTHON="python3.12").returncode == 0


def test_the_script_is_clean() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    scripts = [REPOSITORY / "onionlab/setup.sh", REPOSITORY / ".ci/run"]
    subprocess.run(["shellcheck", *scripts], check=True)
