"""Variables of make are text: the program gets every letter of them, and no shell reads them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from onionlab.programs.installed import ONIONTRACE, SHADOW, TGEN
from onionlab.tornet.generating import VARIABLE as TORNETTOOLS

REPOSITORY = Path(__file__).resolve().parents[2]
PREREQUISITES = (
    *("requirements-build.lock", "requirements.lock", "requirements-dev.lock", "pyproject.toml"),
    *("configs/apt-packages.txt", "onionlab/setup.sh"),
)
# Stands in for Python and for the setup: says with which words and which PYTHON it was called.
PROGRAM = """\
#!/bin/sh
printf '%s\\0' "$@" "PYTHON=$PYTHON"
"""
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
    """A checkout with the Makefile, and no more than make looks at before it calls the program."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mark = root.parent / "mark"
        for name in (*PREREQUISITES, ".venv/bin/python"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(PROGRAM)
            (root / name).chmod(0o755)
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

    def words(self, *words: str, **environment: str) -> list[str]:
        """What the program gets behind `python -m onionlab`."""
        result = self.make(*words, **environment)
        assert result.returncode == 0, result.stderr
        return result.stdout.split("\0")[2:-2]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "a folder, müßig (2)")


@pytest.mark.parametrize("letters", HOSTILE)
def test_what_make_is_given_is_text(project: Project, letters: str) -> None:
    text = letters.format(mark=project.mark)
    assert project.words("report", f"NAME={text}") == ["report", "--", text]
    assert project.words("report", NAME=text) == ["report", "--", text]
    assert project.words("compare", "A=x", f"B={text}") == ["compare", "--", "x", text]
    assert project.words("unpack", f"FROM={text}") == ["unpack", "--", text]
    imported = project.words("import-network", f"FROM={text}", f"NAME={text}")
    assert imported == ["import-network", f"--name={text}", "--", text]
    made = project.words(
        "generate-network", *(f"{name}={text}" for name in ("NAME", "STAGED", "TMODEL", "OPTIONS"))
    )
    expected = [f"--{name}={text}" for name in ("name", "staged", "tmodel", "options")]
    assert made == ["generate-network", *expected]
    consensus = project.words("import-consensus", f"FROM={text}", f"NAME={text}")
    assert consensus == ["import-consensus", f"--name={text}", "--", text]
    assert project.words("list", ANY_OTHER=text) == ["list"]
    # That of a make around this one.
    assert "list" in project.make("list", f"ANY_OTHER={text}", MAKELEVEL="1").stdout.split("\0")
    assert not project.mark.exists()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("SEED=3", "; did you mean SEEDS?"),
        ("VARIANT=rr", "; did you mean VARIANTS?"),
        ("SCALES=0.1", "; did you mean SCALE?"),
        ("name=quick", ""),
        ("ANY_OTHER=$(shell touch {mark})", ""),
    ],
)
def test_a_variable_that_nothing_reads_is_refused(project: Project, given: str, meant: str) -> None:
    """A slip: what was asked for is not what would be run."""
    result = project.make("run", "NAME=quick", given.format(mark=project.mark))
    name = given.partition("=")[0]
    assert result.returncode == 2
    assert f"{name} is no variable of this project{meant}: `make help` shows all" in result.stderr
    assert not result.stdout
    assert not project.mark.exists()


@pytest.mark.parametrize("letters", HOSTILE[:9:4])
def test_no_recipe_reads_a_variable(project: Project, letters: str) -> None:
    """Every target, with all variables that it has."""
    makefile = (project.root / "Makefile").read_text()
    text = letters.format(mark=project.mark)
    named = re.findall(r"^VARIABLES := ((?:.*\\\n)*.*)", makefile, re.MULTILINE)[0]
    variables = [f"{name}={text}" for name in named.replace("\\\n", " ").split()]
    assert len(variables) > 20
    recipes = re.findall(r"^([a-z-]+):.* ## .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    targets = [
        name
        for name, recipe in recipes
        # Of `lint`, other programs read files that are not here.
        if re.search(r"@\S*(ONIONLAB|setup.sh)", recipe) and "shellcheck" not in recipe
    ]
    assert len(targets) > 15
    for target in targets:
        result = project.make(target, *variables)
        assert result.returncode == 0, result.stderr
        assert not project.mark.exists(), target


def test_a_variable_for_the_tests_is_let_through(project: Project) -> None:
    assert project.make("run", "NAME=quick", "ONIONLAB_TESTS_SLOWER=2", SEDS="2").stderr == ""


def test_a_program_can_be_named(project: Project) -> None:
    """As docs/reference/dependencies.md says, and as the errors of missing programs do."""
    for name in (SHADOW.variable, TGEN.variable, ONIONTRACE.variable, TORNETTOOLS):
        assert project.make("list", f"{name}=/path/to/it").stderr == ""


def test_every_variable_that_is_explained_is_one(project: Project) -> None:
    shown = project.make("help").stdout
    explained = re.findall(r"^  ([A-Z_]+) ", shown, re.MULTILINE)
    assert len(explained) > 8
    assert project.make("list", *(f"{name}=1" for name in explained)).stderr == ""


def test_python_reaches_the_setup_as_it_is(project: Project) -> None:
    text = f'x"; touch {project.mark}; "'
    assert project.make("setup", f"PYTHON={text}").stdout == f"PYTHON={text}\0"
    assert not project.mark.exists()


def test_an_environment_of_another_place_is_set_up_anew(project: Project) -> None:
    program, setup = "-m\0onionlab\0list\0PYTHON=\0", "PYTHON=\0"
    assert project.make("list").stdout == program
    project.root = project.root.rename(project.root.with_name("moved to"))
    assert project.make("list").stdout == setup + program
    # Somebody's own arrangement.
    (project.root / ".venv").rename(project.root / "of-mine")
    (project.root / ".venv").symlink_to("of-mine")
    assert project.make("list").stdout == program


def test_a_clusters_variables_count_with_it_or_where_they_are_named(project: Project) -> None:
    """Somebody's ACCOUNT or PROFILE in the environment may be of something else."""
    theirs = {"ACCOUNT": "bank", "PROFILE": "shell"}
    assert project.words("run", "NAME=quick", **theirs) == ["run", "--", "quick"]
    assert project.words("run", "NAME=quick", "QOS=low", **theirs) == [
        *("run", "--qos=low", "--", "quick")
    ]
    assert project.words("run", "NAME=quick", "EXECUTOR=slurm", **theirs) == [
        *("run", "--executor=slurm", "--account=bank", "--profile=shell", "--", "quick")
    ]
