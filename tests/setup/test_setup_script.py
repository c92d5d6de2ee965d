"""onionlab/setup.sh, on a machine that is played by scripts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onionlab import paths
from onionlab.errors import UserError

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
    "setpriv",
    "readlink",
]

# Installed is what stands in $MACHINE/installed; apt-get install adds to it. $MACHINE/locked is a
# number of calls that meet apt's lock.
DPKG_QUERY = """\
for name; do :; done
grep -qx "$name" "$MACHINE/installed" || exit 1
printf installed
"""
APT_GET = """\
echo "apt-get $*" >> "$MACHINE/calls"
[ ! -e "$MACHINE/offline" ] || exit 100
read -r left < "$MACHINE/locked" || left=0
if [ "$left" -gt 0 ]; then
  echo $((left - 1)) > "$MACHINE/locked"
  echo "E: Could not get lock /lock. It is held by process 7 (unattended-upgr)" >&2
  echo "E: Unable to lock directory /" >&2
  exit 100
fi
for word; do
  [ ! -e "$MACHINE/lacks-$word" ] || exit 100
done
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
    [ ! -L "$4" ] || exit 1
    mkdir -p "$4"
    (cd "$4" && rm -rf * && mkdir bin && touch pyvenv.cfg)
    cp "$MACHINE/pip" "$4/bin/python";;
  "-m onionlab.commands._ahead") echo begun >> "$MACHINE/builds"
    trap 'echo ended >> "$MACHINE/builds"; exit 1' TERM
    for _ in $(cat "$MACHINE/building"); do sleep 0.1; done
    echo done >> "$MACHINE/builds"
    [ ! -e "$MACHINE/no-source" ] || exit 1;;
esac
"""
PIP = """\
#!/bin/sh
[ ! -e "$MACHINE/slow" ] || sleep 0.3
echo "$*" | sed 's/^-m pip --disable-pip-version-check /pip /' >> "$MACHINE/calls"
[ ! -e "$MACHINE/no-index" ] || case "$*" in
  *"-r requirements.lock"*|*" download "*) exit 1;;
esac
[ ! -e "$MACHINE/no-runs" ] || case "$*" in *_ahead_of_runs) exit 1;; esac
[ ! -e "$MACHINE/full-disk" ] || case "$*" in
  *" install "*"-r requirements-dev.lock"*) exit 1;;
esac
"""


KEYS = ("requirements-build.lock", "requirements.lock", "pyproject.toml")


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
        (self.state / "locked").write_text("0\n")
        (self.state / "building").write_text("1 2 3")
        (self.state / "python-version").write_text("3.11.2 /usr\n")
        shutil.copy(REPOSITORY / "onionlab/setup.sh", self.checkout / "onionlab")
        (self.checkout / "configs/apt-packages.txt").write_text(
            "# x\nmake\n\ngcc # why\nlibc6-dev\n"
        )
        (self.checkout / "configs/tests.txt").write_text("cc\nbrowser? # why\n")
        for name in (*KEYS, "requirements-dev.lock"):
            (self.checkout / name).write_text("")

    def program(self, name: str, body: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{body}")
        path.chmod(0o755)

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.checkout / "onionlab/setup.sh", *arguments],
            env={"PATH": str(self.bin), "MACHINE": str(self.state)} | variables,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        (self.state / "calls").write_text("")
        process = self.start(*arguments, **variables)
        stdout, stderr = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    @property
    def builds(self) -> list[str]:
        """What became of the first builds."""
        builds = self.state / "builds"
        return builds.read_text().splitlines() if builds.exists() else []

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
DEV_CALLS = [
    "pip download --quiet --no-deps --only-binary :all: --require-hashes "
    "-r requirements-dev.lock --dest .venv/dev-wheels",
    "pip install --quiet --no-compile --no-deps --no-index --find-links .venv/dev-wheels "
    "--require-hashes -r requirements-dev.lock",
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


@pytest.mark.parametrize("name", KEYS)
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


def test_a_link_to_an_environment_of_another_checkout_is_refused(machine: Machine) -> None:
    machine.run()
    first = machine.checkout
    second = first.with_name("second")
    shutil.copytree(first, second, ignore=shutil.ignore_patterns(".venv"))
    (second / ".venv").symlink_to(first / ".venv")
    machine.checkout = second
    result = machine.run()
    assert result.returncode == 2
    assert result.stderr == (
        f"error: .venv is a link to an environment of {first}, which is left as it is\n"
        "For one of this checkout: rm .venv\n"
    )
    assert machine.calls == []
    machine.checkout = first
    assert (machine.run().returncode, machine.calls) == (0, [])


def test_an_environment_may_lie_elsewhere(machine: Machine) -> None:
    elsewhere = machine.checkout.with_name("large disk")
    elsewhere.mkdir()
    (machine.checkout / ".venv").symlink_to(elsewhere)
    assert machine.run().returncode == 0
    (machine.state / "python-version").write_text("3.13.0 /usr\n")
    assert machine.run().returncode == 0
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


def test_the_first_builds_begin_beside_the_packages(machine: Machine) -> None:
    (machine.state / "slow").touch()
    process = machine.start("--ahead")
    while not machine.builds:
        time.sleep(0.01)
    assert PIP_CALLS[1] not in machine.calls
    # It ends when both are there.
    assert process.wait(timeout=60) == 0
    process.communicate()
    assert machine.builds == ["begun", "done"]
    # Once: where the environment is there, whoever needs a build makes it.
    assert machine.run("--ahead").returncode == 0
    assert machine.builds == ["begun", "done"]


def test_nothing_is_built_where_nobody_asks(machine: Machine) -> None:
    machine.run()
    assert machine.builds == []


def test_a_build_that_fails_is_the_next_commands_matter(machine: Machine) -> None:
    (machine.state / "no-source").touch()
    assert machine.run("--ahead").returncode == 0
    assert (machine.checkout / ".venv/ready").exists()


def test_builds_end_with_a_setup_that_fails(machine: Machine) -> None:
    (machine.state / "building").write_text("1 " * 300)
    (machine.state / "slow").touch()
    (machine.state / "no-index").touch()
    assert machine.run("--ahead").returncode == 2
    deadline = time.monotonic() + 30
    while machine.builds != ["begun", "ended"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert machine.builds == ["begun", "ended"]


def test_a_builder_holds_no_other_setup_up(machine: Machine) -> None:
    (machine.state / "building").write_text("1 " * 300)
    first = machine.start("--ahead")
    while not machine.builds:
        time.sleep(0.01)
    first.kill()
    first.wait(timeout=60)
    result = machine.run()
    assert (result.returncode, result.stderr) == (0, "")
    first.communicate()


def test_what_runs_take_is_made_beside_the_first_builds(machine: Machine) -> None:
    machine.run("--ahead", NAME="quick")
    assert machine.calls[-1] == "-m onionlab.commands._ahead_of_runs"
    assert machine.builds == ["begun", "done"]
    # Everything is there: nothing is made ahead any more.
    machine.run("--ahead", NAME="quick")
    assert machine.calls == []


def test_no_runs_are_prepared_where_none_are_named(machine: Machine) -> None:
    machine.run("--ahead")
    assert not [call for call in machine.calls if "ahead" in call]


def test_runs_that_cannot_be_prepared_are_left_to_the_command_that_follows(
    machine: Machine,
) -> None:
    (machine.state / "no-runs").touch()
    result = machine.run("--ahead", NAME="quick")
    assert (result.returncode, machine.builds) == (0, ["begun", "done"])


def test_the_first_builds_take_no_package() -> None:
    """Of this interpreter the standard library alone is to be seen."""
    text = (
        "import sys; sys.path.insert(0, '.')\n"
        "import onionlab.commands._ahead\n"
        "from onionlab.engines.uml import kernel\n"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", text], cwd=REPOSITORY, check=True)


def test_what_tests_take_goes_on_top(machine: Machine) -> None:
    machine.run()
    result = machine.run("--dev")
    assert (result.returncode, result.stderr, machine.calls) == (0, "", DEV_CALLS)
    stamp = machine.checkout / ".venv/ready-dev"
    os.utime(stamp, (0, 0))
    result = machine.run("--dev")
    assert (result.returncode, result.stdout, machine.calls) == (0, "", [])
    assert stamp.stat().st_mtime > 0
    # An experiment does not ask for it, nor undo it.
    (machine.checkout / "requirements-dev.lock").write_text("# changed\n")
    assert machine.run().returncode == 0
    assert machine.calls == []
    machine.run("--dev")
    assert machine.calls == DEV_CALLS


def test_what_tests_take_goes_onto_a_new_machine(machine: Machine) -> None:
    assert machine.run("--dev").returncode == 0
    assert machine.calls[2:] == ["venv --clear", *PIP_CALLS, *DEV_CALLS]


def test_a_changed_lock_is_checked_with_what_stands_on_top(machine: Machine) -> None:
    """Before that is changed too, they need not fit together."""
    machine.run("--dev")
    (machine.checkout / "requirements.lock").write_text("# changed\n")
    machine.run()
    assert machine.calls == PIP_CALLS[:-1]
    machine.run("--dev")
    assert machine.calls == DEV_CALLS


def test_without_a_network_tests_wait_and_experiments_go_on(machine: Machine) -> None:
    machine.run()
    (machine.state / "no-index").touch()
    result = machine.run("--dev")
    assert result.returncode == 2
    assert result.stderr.startswith(
        "error: pip could not fetch the packages for tests, checks and documentation\n"
    )
    assert machine.calls == DEV_CALLS[:1]
    result = machine.run()
    assert (result.returncode, result.stdout, machine.calls) == (0, "", [])
    (machine.state / "no-index").unlink()
    assert machine.run("--dev").returncode == 0
    assert machine.calls == DEV_CALLS


def test_tests_packages_that_were_cut_short_are_made_anew(machine: Machine) -> None:
    machine.run()
    (machine.state / "full-disk").touch()
    result = machine.run("--dev")
    assert result.returncode == 2
    assert "error: pip could not install the Python packages" in result.stderr
    assert not (machine.checkout / ".venv/ready-dev").exists()
    (machine.state / "full-disk").unlink()
    # What experiments take is whole.
    result = machine.run()
    assert (result.returncode, machine.calls) == (0, [])
    result = machine.run("--dev")
    assert "setup: an installation was cut short" in result.stdout
    assert machine.calls == ["venv --clear", *PIP_CALLS, *DEV_CALLS]
    machine.run("--dev")
    assert machine.calls == []


def test_an_experiment_and_tests_set_up_at_once(machine: Machine) -> None:
    (machine.state / "slow").touch()
    processes = [machine.start("--dev"), machine.start()]
    said = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert machine.calls[2:] == ["venv --clear", *PIP_CALLS, *DEV_CALLS]


def test_lists_of_packages_are_installed_and_no_more(machine: Machine) -> None:
    result = machine.run("configs/tests.txt", "configs/apt-packages.txt")
    assert (result.returncode, result.stderr) == (0, "")
    assert machine.calls == [
        "apt-get -q update",
        "apt-get -q install -y --no-install-recommends cc gcc libc6-dev",
        "apt-get -q install -y --no-install-recommends browser",
    ]
    assert machine.run("configs/tests.txt").stdout == ""
    assert machine.calls == []


def test_what_is_only_wanted_stops_nobody(machine: Machine) -> None:
    (machine.state / "lacks-browser").touch()
    result = machine.run("configs/tests.txt")
    assert result.returncode == 0
    assert "setup: goes on without browser, which apt-get could not install" in result.stdout
    # What is needed does.
    (machine.state / "lacks-cc").touch()
    (machine.state / "installed").write_text("")
    assert machine.run("configs/tests.txt").returncode == 2


def test_what_is_only_wanted_takes_no_root(machine: Machine) -> None:
    (machine.bin / "sudo").unlink()
    (machine.state / "installed").write_text("cc\n")
    result = machine.run("configs/tests.txt", FAKE_UID="1000")
    assert (result.returncode, machine.calls) == (0, [])
    assert "setup: goes on without them: installing takes root" in result.stdout


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


@pytest.mark.parametrize("locked", [1, 3])
def test_the_lock_of_apt_is_waited_for(machine: Machine, locked: int) -> None:
    """Whether `update` meets it or `install`; optional packages are not given up for it."""
    machine.program("sleep", "")
    (machine.state / "locked").write_text(f"{locked}\n")
    result = machine.run("configs/tests.txt")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("setup: waiting for process 7 (unattended-upgr), which holds") == 1
    assert machine.calls.count("apt-get -q update") == locked + 1
    assert (machine.state / "installed").read_text().split() == ["make", "cc", "browser"]


def test_a_lock_that_stays_is_an_error_for_optional_packages_too(machine: Machine) -> None:
    machine.program("sleep", "")
    (machine.state / "installed").write_text("cc\n")
    (machine.state / "locked").write_text("1000\n")
    result = machine.run("configs/tests.txt")
    assert result.returncode == 2
    assert result.stderr == (
        "error: process 7 (unattended-upgr) still holds apt's lock after ten minutes\n"
        "Let it end or stop it. Then run the same command again.\n"
    )


def test_another_system(machine: Machine) -> None:
    (machine.bin / "apt-get").unlink()
    result = machine.run()
    assert result.returncode == 0
    assert "this is not Debian or Ubuntu" in result.stdout
    assert "make gcc libc6-dev" in result.stdout


@pytest.mark.parametrize(
    ("name", "named"),
    [
        *((f"a{character}b", f"the character {character}") for character in '"$`\\{}:'),
        *((f"a{character}b", "a control character") for character in "\n\t\x1b\x7f"),
        ("line\n", "a control character"),
        (os.fsdecode(b"a\xffb"), "bytes that are not UTF-8"),
    ],
)
def test_paths_that_tools_cannot_handle_are_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str, named: str
) -> None:
    """Before anything is installed; and where a wheel is used, by the program."""
    folder = machine.checkout.rename(machine.checkout.with_name(name))
    machine.checkout = folder
    result = machine.run()
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: the path of this checkout contains {named}")
    assert "Move or rename the folder" in result.stderr
    assert machine.calls == []
    monkeypatch.setattr(paths, "SHARE", folder)
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match="cannot handle"):
        paths.working_root()


def test_any_other_path_is_accepted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "müßig & (so) [*] 'on' #%;=,~!?<|>^"
    machine.checkout = machine.checkout.rename(machine.checkout.with_name(name))
    assert machine.run().returncode == 0
    monkeypatch.setattr(paths, "SHARE", machine.checkout)
    monkeypatch.chdir(machine.checkout)
    assert paths.working_root() == machine.checkout


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
