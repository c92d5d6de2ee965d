"""Variables of make reach the program unchanged; neither make nor a shell executes them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from shell_scripts import write_script

from onionlab import cli
from onionlab.commands._renamed import RENAMED, replace_former_names, variable_name
from onionlab.errors import UserError
from onionlab.make import (
    CLUSTER_VARIABLES,
    ENVIRONMENT_VARIABLES,
    PROGRAM_VARIABLES,
    command_line,
    command_variables,
)
from onionlab.programs.installed import ONIONTRACE, SHADOW, TGEN
from onionlab.tornet.generating import VARIABLE as TORNETTOOLS

REPOSITORY = Path(__file__).resolve().parents[2]
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
LOCKS = ("requirements-build.lock", "requirements.lock", "requirements-dev.lock")
PREREQUISITES = (*LOCKS, "pyproject.toml", "configs/apt-packages.txt", "onionlab/setup.sh")
# This script replaces Python, the setup script and lint-imports. It prints its arguments and some
# variables.
PROGRAM = """printf '%s\\0' "$@" "NAME=$NAME" "PYTHON=$PYTHON" "MAKE_VARIABLES=$MAKE_VARIABLES"\n"""
HOSTILE = (
    'quick"; touch {mark}; "',
    "quick'; touch {mark}; '",
    "quick; touch {mark}",
    "quick\ntouch {mark}",
    "`touch {mark}`",
    "$(touch {mark})",
    "$$(touch {mark})",
    "$$$$(touch {mark})",
    "$(shell touch {mark})",
    "${{shell touch {mark}}}",
    "$(eval x := $(shell touch {mark}))",
    "a && touch {mark} & b | touch {mark} > {mark}",
    "--help",
    "it's  two   words, $HOME # no comment \\",
    "Zürich, {mark}/über uns",
)


class Project:
    """A checkout with the Makefile, and programs that only print how they are called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mark = root.parent / "mark"
        for name in (*PREREQUISITES, ".venv/bin/python", ".venv/bin/lint-imports"):
            write_script(root / name, PROGRAM)
        (root / ".venv/place").write_text(f"{root}\n")
        for stamp in (".venv/ready", ".venv/ready-dev"):
            (root / stamp).touch()
        shutil.copy(REPOSITORY / "Makefile", root)

    def make(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", *words],
            cwd=self.root,
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "a folder, müßig (2)")


@pytest.mark.parametrize("text", HOSTILE)
def test_the_program_gets_the_value_unchanged(project: Project, text: str) -> None:
    text = text.format(mark=project.mark)
    called = ["-m", "onionlab.make", "report", f"NAME={text}", "PYTHON="]
    result = project.make("report", f"NAME={text}")
    assert result.stdout.split("\0")[:-1] == [*called, "MAKE_VARIABLES=NAME"]
    result = project.make("report", NAME=text)
    assert result.stdout.split("\0")[:-1] == [*called, "MAKE_VARIABLES="]
    # An outer make may pass on its own variables, so unknown ones are accepted from it.
    assert project.make("report", f"ANY_OTHER={text}", MAKELEVEL="1").returncode == 0
    assert project.make("setup", f"PYTHON={text}").stdout.split("\0")[1] == f"PYTHON={text}"
    assert not project.mark.exists()


@pytest.mark.parametrize("text", HOSTILE[:9:4])
def test_no_target_executes_a_variable(project: Project, text: str) -> None:
    text = text.format(mark=project.mark)
    variables = [f"{name}={text}" for name in sorted(_all_variables())]
    targets = set(re.findall(r"^([a-z-]+):.* ## ", MAKEFILE, re.MULTILINE))
    # Leave out targets that call none of the replaced programs, or that also call real programs.
    unfit = {"help", "lint", "lock"} | {one for one in targets if "clean" in one}
    for target in sorted(targets - unfit):
        result = project.make(target, *variables)
        assert result.returncode == 0, result.stderr
        assert not project.mark.exists(), target


def _all_variables() -> set[str]:
    return PROGRAM_VARIABLES.union(*map(command_variables, cli.command_modules()))


def arguments(verb: str, **given: str) -> list[str]:
    """Return the command line that results from variables on make's command line."""
    return command_line(verb, {**given, "MAKE_VARIABLES": " ".join(given)})


def test_options_read_the_variables_of_their_names() -> None:
    given = {"NAME": "-x y", "SCALE": "0.1", "SEEDS": "2", "NETWORKS": "3", "JOBS": ""}
    assert sorted(arguments("run", **given)) == sorted(
        ["run", "--scale=0.1", "--seeds=2", "--networks=3", "--", "-x y"]
    )
    given = {"A": "x", "B": "y", "UNPAIRED": "1"}
    assert arguments("compare", **given) == ["compare", "--unpaired", "--", "x", "y"]
    assert arguments("import-network", FROM="a b", NAME="--n") == [
        *("import-network", "--name=--n", "--", "a b")
    ]
    assert arguments("doctor") == ["doctor"]
    # `make build run NAME=quick` passes all variables to both commands, so `build` ignores NAME.
    assert arguments("build", NAME="quick", SCALE="2", JOBS="3") == ["build", "--jobs=3"]


def test_only_general_variables_count_in_the_environment() -> None:
    environment = {"NAME": "quick", "ENGINE": "uml", "OUT": "x", "ACCOUNT": "bank"}
    assert command_line("run", environment) == ["run", "--engine=uml", "--", "quick"]
    assert command_line("pack", environment) == ["pack", "--", "quick"]
    cluster = command_line("run", {**environment, "EXECUTOR": "slurm"})
    assert cluster == ["run", "--engine=uml", "--executor=slurm", "--account=bank", "--", "quick"]
    assert arguments("run", NAME="quick", QOS="low") == ["run", "--qos=low", "--", "quick"]


@pytest.mark.parametrize(
    ("verb", "missing", "example"),
    [
        ("experiment", "NAME", "make experiment NAME=quick"),
        ("report", "NAME", "make report NAME=quick"),
        ("compare", "A", "make compare A=quick:ewma B=quick:rr"),
        ("unpack", "FROM", "make unpack FROM=runs.tar.xz"),
        ("import-consensus", "FROM", "make import-consensus FROM=consensus NAME=name"),
        ("generate-network", "NAME", "make generate-network NAME=name STAGED_DIR=dir"),
    ],
)
def test_a_missing_variable_is_named(verb: str, missing: str, example: str) -> None:
    with pytest.raises(UserError, match=f"{missing} is missing") as raised:
        arguments(verb)
    assert example in str(raised.value.hint)


@pytest.mark.parametrize(
    ("name", "similar"),
    [("SEED", "SEEDS"), ("VARIANT", "VARIANTS"), ("SCALES", "SCALE"), ("name", "")],
)
def test_an_unknown_variable_is_refused(name: str, similar: str) -> None:
    with pytest.raises(UserError) as raised:
        arguments("run", **{"NAME": "quick", name: "3"})
    expected = f"unknown variable {name}" + (f"; did you mean {similar}?" if similar else "")
    assert raised.value.message == expected
    outer = {"NAME": "quick", name: "3", "MAKE_VARIABLES": name, "MAKELEVEL": "2"}
    assert command_line("run", outer) == ["run", "--", "quick"]
    assert arguments("list", ONIONLAB_TESTS_SLOWER="2") == ["list"]


def test_former_names_work_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert replace_former_names(
        ["compare", "--about", "tor", "--paired", "no", "--", "--about"]
    ) == [*("compare", "--allow-diff", "tor", "--unpaired", "--", "--about")]
    assert capsys.readouterr().err == (
        "warning: --about (ABOUT) is now --allow-diff (ALLOW_DIFF); the former name is accepted "
        "until version 0.4\n"
        "warning: --paired=no (PAIRED=no) is now --unpaired (UNPAIRED); the former name is "
        "accepted until version 0.4\n"
    )
    assert replace_former_names(["figures", "--from=a", "b"]) == ["figures", "--packs=a", "b"]
    assert replace_former_names(["compare", "--paired=yes"]) == ["compare"]
    assert replace_former_names(["unpack", "--from"]) == ["unpack", "--from"]
    capsys.readouterr()
    assert arguments("nightly", STATE="x") == ["nightly", "--state-dir=x"]
    made = arguments("generate-network", NAME="n", STAGED="a", TMODEL="b")
    assert made[1:] == ["--name=n", "--staged-dir=a", "--tmodel-dir=b"]
    assert arguments("nightly", ACCEPT="1") == ["nightly", "--update-baseline"]
    assert arguments("compare", A="a", B="b", PAIRED="no")[1] == "--unpaired"
    assert capsys.readouterr().err.count("warning: ") == 5
    with pytest.raises(UserError, match="PAIRED=maybe is not known"):
        arguments("compare", A="a", B="b", PAIRED="maybe")


@pytest.mark.parametrize("verb", RENAMED)
def test_present_names_are_options(verb: str) -> None:
    present = {variable_name(new).partition("=")[0] for new in RENAMED[verb].values() if new}
    assert present <= command_variables(verb)


def test_every_target_calls_a_command() -> None:
    (commands,) = re.findall(r"^COMMANDS := ((?:.*\\\n)*.*)", MAKEFILE, re.MULTILINE)
    assert set(commands.replace("\\\n", " ").split()) <= set(cli.command_modules())


def test_documented_variables_are_known(project: Project) -> None:
    shown = project.make("help").stdout
    explained = set(re.findall(r"^  ([A-Z_]+) ", shown, re.MULTILINE))
    assert explained <= _all_variables()
    words = set(re.findall(r"\b[A-Z_]{3,}\b", shown))
    assert words >= ENVIRONMENT_VARIABLES | CLUSTER_VARIABLES | PROGRAM_VARIABLES
    programs = (SHADOW.variable, TGEN.variable, ONIONTRACE.variable, TORNETTOOLS)
    assert PROGRAM_VARIABLES.issuperset(programs)


def test_an_environment_of_another_place_is_set_up_again(project: Project) -> None:
    calls = "onionlab.make"
    assert project.make("list").stdout.startswith("-m\0" + calls)
    project.root = project.root.rename(project.root.with_name("moved to"))
    assert project.make("list").stdout.startswith("NAME=")
    (project.root / ".venv").rename(project.root / "mine")
    (project.root / ".venv").symlink_to("mine")
    assert project.make("list").stdout.startswith("-m\0" + calls)
