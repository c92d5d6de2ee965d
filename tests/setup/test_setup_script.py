"""onionlab/setup.sh on a simulated machine, whose programs are scripts that record their calls."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shell_scripts import write_script

from onionlab import paths
from onionlab.errors import UserError

REPOSITORY = Path(__file__).resolve().parents[2]
REAL_PROGRAMS = (
    *("sh", "env", "sed", "cat", "touch", "rm", "dirname", "mkdir", "flock", "cp", "sleep"),
    *("readlink",),
)

# The file $MACHINE/installed lists the installed packages; apt-get adds packages to it. The file
# $MACHINE/locked contains a number. This many further calls of apt-get fail, as if another process
# held apt's lock.
DPKG_QUERY = """\
for name; do :; done
while read -r package; do [ "$package" != "$name" ] || printf installed; done < "$MACHINE/installed"
"""
APT_GET = """\
shift 3
echo "apt-get $*" >> "$MACHINE/calls"
read -r left < "$MACHINE/locked"
if [ "$left" -gt 0 ]; then
  echo $((left - 1)) > "$MACHINE/locked"
  echo "E: Could not get lock /lock. It is held by process 7 (unattended-upgr)" >&2
  exit 100
fi
for word; do
  [ ! -e "$MACHINE/lacks-$word" ] || { echo "E: no $word" >&2; exit 100; }
done
for word; do
  case "$word" in -*|install|update) ;; *) echo "$word" >> "$MACHINE/installed";; esac
done
"""
PYTHON = """\
case "$1 $2" in
  "-c import sys; sys.exit"*) [ ! -e "$MACHINE/old-python" ];;
  "-c import sys; print"*) cat "$MACHINE/python-version";;
  "-m onionlab.paths") [ ! -e "$MACHINE/bad-path" ];;
  "-c import ensurepip"*) [ ! -e "$MACHINE/no-pip" ] && echo pip.whl;;
  "-m zipfile") echo "unpack $4 ${5##*/}" >> "$MACHINE/calls";;
  "-m venv") echo "venv $3 $4" >> "$MACHINE/calls"
    rm -rf "$5"/*
    mkdir -p "$5/bin" "$5/lib/python3.11/site-packages"
    touch "$5/pyvenv.cfg"
    cp "$MACHINE/pip" "$5/bin/python"
    cp "$MACHINE/uv" "$5/bin/uv";;
esac
"""
PROGRAMS = {
    "dpkg-query": DPKG_QUERY,
    "apt-get": APT_GET,
    "sudo": 'echo sudo >> "$MACHINE/calls"; exec "$@"\n',
    "python3": PYTHON,
    "id": 'echo "${FAKE_UID:-0}"\n',
}
PIP = """\
case "$3" in
  config) [ ! -e "$MACHINE/mirror" ] || cat "$MACHINE/mirror";;
  *) echo "$*" | sed 's/^-m //' >> "$MACHINE/calls";;
esac
"""
UV = """\
case "$1" in --version) exit;; esac
[ ! -e "$MACHINE/slow" ] || sleep 0.5
echo "uv $*${UV_DEFAULT_INDEX:+ from $UV_DEFAULT_INDEX}" >> "$MACHINE/calls"
[ ! -e "$MACHINE/offline" ]
"""

UV_OPTIONS = "--python .venv --no-build-isolation"
INSTALL_UV = (
    "pip install --quiet --disable-pip-version-check --no-compile --require-hashes "
    "-r .venv/first.lock"
)
CREATE = ["venv --clear --without-pip", "unpack pip.whl site-packages", INSTALL_UV]
SYNC = [
    f"uv --quiet pip sync {UV_OPTIONS} --require-hashes requirements-build.lock requirements.lock",
    f"uv --quiet pip install {UV_OPTIONS} --no-deps --editable .",
]
DEV_SYNC = [f"{SYNC[0]} requirements-dev.lock", SYNC[1]]
APT_INSTALL = "apt-get install -y --no-install-recommends"


class Machine:
    """A checkout on a simulated machine with its own PATH."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "machine"
        self.bin = folder / "bin"
        self.checkout = folder / "checkout, müßig & (so) [*] 'on' #%;=~!?<|>^"
        for path in (self.state, self.bin, self.checkout / "onionlab", self.checkout / "configs"):
            path.mkdir(parents=True)
        for name in REAL_PROGRAMS:
            found = shutil.which(name)
            assert found is not None
            (self.bin / name).symlink_to(found)
        for name, body in PROGRAMS.items():
            self.add_program(name, body)
        for name, text in (("pip", PIP), ("uv", UV)):
            write_script(self.state / name, text)
        (self.state / "installed").write_text("make\n")
        (self.state / "locked").write_text("0\n")
        (self.state / "python-version").write_text("3.11.2 /usr\n")
        shutil.copy(REPOSITORY / "onionlab/setup.sh", self.checkout / "onionlab")
        shutil.copy(REPOSITORY / "requirements-build.lock", self.checkout)
        (self.checkout / "configs/apt-packages.txt").write_text("# x\nmake\n\ngcc # why\nbc\n")
        (self.checkout / "configs/tests.txt").write_text("cc\nbrowser? # why\n")

    def add_program(self, name: str, body: str) -> None:
        (self.bin / name).unlink(missing_ok=True)
        write_script(self.bin / name, body)

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.checkout / "onionlab/setup.sh", *arguments],
            env={"PATH": str(self.bin), "MACHINE": str(self.state)} | variables,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        (self.state / "calls").write_text("")
        process = self.start(*arguments, **variables)
        stdout, stderr = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    @property
    def calls(self) -> list[str]:
        return (self.state / "calls").read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_new_machine(machine: Machine) -> None:
    result = machine.run()
    assert (result.returncode, result.stderr) == (0, "")
    assert machine.calls == ["apt-get update", f"{APT_INSTALL} gcc bc", *CREATE, *SYNC]
    lock = (machine.checkout / ".venv/first.lock").read_text()
    package = r"(\S+)==\S+ \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+    # via .*\n"
    assert re.findall(package, lock) == ["setuptools", "uv"]
    assert re.sub(package, "", lock) == ""
    assert result.stdout.splitlines()[0] == "setup: installing Debian packages: gcc bc"
    assert (machine.checkout / ".venv/ready").exists()
    machine.run()
    assert machine.calls == SYNC


def test_a_python_without_pip_is_reported(machine: Machine) -> None:
    (machine.state / "no-pip").touch()
    result = machine.run()
    assert result.returncode == 2
    assert result.stderr == (
        f"error: {machine.bin / 'python3'} cannot create an environment\n"
        "On Debian and Ubuntu: apt-get install python3-venv\n"
    )
    assert not (machine.checkout / ".venv").exists()


def test_dev_packages_are_added_and_stay(machine: Machine) -> None:
    machine.run()
    machine.run("--dev")
    assert machine.calls == DEV_SYNC
    assert (machine.checkout / ".venv/ready-dev").exists()
    machine.run()
    assert machine.calls == DEV_SYNC


def test_two_setups_run_one_after_the_other(machine: Machine) -> None:
    (machine.state / "slow").touch()
    first = machine.start()
    while not (machine.checkout / ".venv").exists():
        time.sleep(0.01)
    second = machine.start()
    assert second.communicate(timeout=60)[0].startswith("setup: waiting for another setup")
    first.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0)
    assert machine.calls[2:] == [*CREATE, *SYNC, *SYNC]


def test_another_python_or_a_moved_checkout_requires_a_new_environment(machine: Machine) -> None:
    machine.run()
    (machine.state / "python-version").write_text("3.13.0 /usr\n")
    machine.run()
    assert machine.calls == [*CREATE, *SYNC]
    machine.checkout = machine.checkout.rename(machine.checkout.with_name("moved"))
    machine.run()
    assert machine.calls == [*CREATE, *SYNC]


def test_the_environment_of_another_checkout_is_not_changed(machine: Machine) -> None:
    machine.run()
    first = machine.checkout
    machine.checkout = first.with_name("second")
    shutil.copytree(first, machine.checkout, ignore=shutil.ignore_patterns(".venv"))
    (machine.checkout / ".venv").symlink_to(first / ".venv")
    result = machine.run()
    assert (result.returncode, machine.calls) == (2, [])
    assert result.stderr == (
        f"error: .venv is a link to an environment of {first}\n"
        "To create one for this checkout: rm .venv\n"
    )


def test_an_interrupted_installation_is_repaired(machine: Machine) -> None:
    machine.run()
    (machine.state / "offline").touch()
    result = machine.run("--dev")
    assert result.returncode == 2
    assert "error: uv could not install the Python packages" in result.stderr
    # uv downloads everything before it changes anything, so the environment still works.
    assert (machine.checkout / ".venv/ready").exists()
    assert not (machine.checkout / ".venv/ready-dev").exists()
    (machine.state / "offline").unlink()
    machine.run("--dev")
    assert "--require-hashes --reinstall requirements-build.lock" in machine.calls[0]
    machine.run("--dev")
    assert machine.calls == DEV_SYNC


def test_pips_mirror_is_used_for_all_packages(machine: Machine) -> None:
    (machine.state / "mirror").write_text("https://mirror.example/simple\n")
    machine.run()
    assert machine.calls[-1] == f"{SYNC[1]} from https://mirror.example/simple"
    machine.run(PIP_INDEX_URL="https://two.example")
    assert machine.calls[-1] == f"{SYNC[1]} from https://two.example"
    machine.run(UV_DEFAULT_INDEX="https://three.example")
    assert machine.calls[-1] == f"{SYNC[1]} from https://three.example"


def test_only_the_packages_of_the_given_lists_are_installed(machine: Machine) -> None:
    result = machine.run("configs/tests.txt", "configs/apt-packages.txt")
    assert (result.returncode, result.stderr) == (0, "")
    assert machine.calls == ["apt-get update", f"{APT_INSTALL} cc gcc bc", f"{APT_INSTALL} browser"]
    assert machine.run("configs/tests.txt").stdout == ""
    assert machine.calls == []


def test_optional_packages_may_be_missing(machine: Machine) -> None:
    (machine.state / "lacks-browser").touch()
    result = machine.run("configs/tests.txt")
    assert result.returncode == 0
    assert "setup: continuing without browser, which apt-get could not install" in result.stdout
    (machine.bin / "sudo").unlink()
    result = machine.run("configs/tests.txt", FAKE_UID="1000")
    assert (result.returncode, machine.calls) == (0, [])
    assert "setup: skipping them" in result.stdout


def test_apts_lock_is_waited_for(machine: Machine) -> None:
    machine.add_program("sleep", "")
    (machine.state / "locked").write_text("3\n")
    result = machine.run("configs/tests.txt")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("waiting for apt's lock /lock. It is held by process 7") == 1
    assert (machine.state / "installed").read_text().split() == ["make", "cc", "browser"]
    (machine.state / "installed").write_text("")
    (machine.state / "locked").write_text("1000\n")
    result = machine.run("configs/tests.txt")
    assert result.returncode == 2
    assert "It is held by process 7 (unattended-upgr)\nerror: apt-get" in result.stderr


def test_sudo_is_used_without_root(machine: Machine) -> None:
    assert machine.run(FAKE_UID="1000").returncode == 0
    assert machine.calls[:4] == ["sudo", "apt-get update", "sudo", f"{APT_INSTALL} gcc bc"]
    (machine.bin / "sudo").unlink()
    assert machine.run(FAKE_UID="1000").returncode == 0
    (machine.state / "installed").write_text("make\n")
    result = machine.run(FAKE_UID="1000")
    assert (result.returncode, machine.calls) == (2, [])
    assert result.stderr == (
        "error: installing packages requires root, and sudo is not installed\n"
        "As root: apt-get install --no-install-recommends gcc bc\n"
    )


@pytest.mark.parametrize("name", [*(f"a{one}b" for one in '"$`\\{}:\n\t\x7f'), "line\n", "\udcff"])
def test_paths_that_tools_cannot_handle_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(paths, "code_root", lambda: Path("/checkouts") / name)
    with pytest.raises(UserError, match="the path of this checkout"):
        paths.working_root()


def test_nothing_is_installed_in_a_refused_path(machine: Machine) -> None:
    (machine.state / "bad-path").touch()
    assert (machine.run().returncode, machine.calls) == (2, [])


def test_the_path_is_checked_without_any_package(tmp_path: Path) -> None:
    checkout = tmp_path / "a$b"
    for file in ("__init__.py", "paths.py", "errors.py"):
        (checkout / "onionlab").mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / "onionlab" / file, checkout / "onionlab")
    (checkout / "analysis").mkdir()
    for file in ("__init__.py", "errors.py"):
        shutil.copy(REPOSITORY / "analysis" / file, checkout / "analysis")
    result = subprocess.run(
        [sys.executable, "-S", "-m", "onionlab.paths"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr.startswith("error: the path of this checkout, ")
    assert result.stderr.endswith("move or rename the folder\n")


def test_the_python_to_use(machine: Machine) -> None:
    machine.add_program("python3.12", PYTHON)
    machine.add_program("python3", "exit 1\n")
    assert machine.run().returncode == 0
    result = machine.run(PYTHON="python3")
    assert result.stderr == "error: PYTHON=python3 is not Python 3.11, 3.12 or 3.13\n"
    (machine.state / "old-python").touch()
    result = machine.run()
    assert result.returncode == 2
    assert result.stderr.startswith("error: Python 3.11, 3.12 or 3.13 is not on the PATH\n")
