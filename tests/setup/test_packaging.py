"""Locks, lists of packages and the page that explains them agree; the Makefile keeps its word."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
LOCKS = {
    "requirements.in": "requirements.lock",
    "requirements-dev.in": "requirements-dev.lock",
    "requirements-build.in": "requirements-build.lock",
}


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def listed(name: str) -> set[str]:
    """Package names of a list with comments."""
    lines = (line.split("#")[0].strip() for line in read(name).splitlines())
    return {re.split(r"[<>=]", line)[0] for line in lines if line}


def explained(heading: str) -> set[str]:
    """First column of the tables below a heading of docs/reference/dependencies.md."""
    section = read("docs/reference/dependencies.md").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^\s`]+) \|", section, re.MULTILINE)
    return {row for row in rows if row not in {"Package", "Program", "List"}}


def test_every_direct_dependency_is_explained_and_nothing_else() -> None:
    assert explained("Python packages") == set().union(*(listed(source) for source in LOCKS))
    lists = [path.relative_to(REPOSITORY) for path in REPOSITORY.glob("configs/apt-packages*.txt")]
    wanted = set().union(*(listed(str(path)) for path in lists))
    assert explained("Debian packages") == {name.removesuffix("?") for name in wanted}


@pytest.mark.parametrize(("source", "lock"), LOCKS.items())
def test_a_lock_holds_what_is_asked_for_with_hashes(source: str, lock: str) -> None:
    entries = re.split(r"\n(?=[a-z0-9])", "\n" + read(lock).strip())[1:]
    names = set()
    for entry in entries:
        head = re.match(r"([a-z0-9.-]+)==[^ ;]+ \\\n", entry)
        assert head, entry.splitlines()[0]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry)
        names.add(head[1])
    assert listed(source) <= names


@pytest.mark.parametrize("lock", sorted(set(LOCKS.values())))
def test_a_lock_names_no_place(lock: str) -> None:
    assert not re.search(r"://|--index|--extra-index|--find-links|--trusted| @ |file:", read(lock))


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_the_lock_is_for_every_python(lock: str) -> None:
    """A marker would leave a package out somewhere, and silently."""
    assert ";" not in read(lock)


def test_a_package_stands_in_one_lock() -> None:
    """What tests take goes on top of what experiments run with, and changes nothing of that."""
    locks = [re.findall(r"^([a-z0-9.-]+)==", read(lock), re.MULTILINE) for lock in LOCKS.values()]
    names = [name for lock in locks for name in lock]
    assert len(names) > 100
    assert len(names) == len(set(names))


def make(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Make, in a dry run: it prints what it would do."""
    clean = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    return subprocess.run(
        ["make", "-n", "-o", ".venv/ready", "-o", ".venv/ready-dev", *arguments],
        cwd=REPOSITORY,
        env=clean | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.* ## ", read("Makefile"), re.MULTILINE))


def test_help_is_the_default_and_lists_every_target() -> None:
    result = subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    shown = set(re.findall(r"^  ([a-z-]+) +\S", result.stdout, re.MULTILINE))
    phony = set(" ".join(re.findall(r"^\.PHONY: (.*)", read("Makefile"), re.MULTILINE)).split())
    assert shown == targets() == phony
    assert "NAME" in result.stdout


@pytest.mark.parametrize("target", sorted(targets()))
def test_a_recipe_is_one_line_or_two(target: str) -> None:
    result = make(
        target,
        NAME="quick",
        A="quick:ewma",
        B="quick:rr",
        FROM="runs.tar.xz",
        STAGED="staged",
        TMODEL="tmodel",
    )
    assert result.returncode == 0, result.stderr
    assert 1 <= len(result.stdout.strip().splitlines()) <= 6


@pytest.mark.parametrize("target", ["generate", "run", "experiment", "analyse", "report", "pack"])
def test_a_name_is_asked_for(target: str) -> None:
    result = make(target)
    assert result.returncode == 2
    assert f"NAME is missing: `make {target} NAME=quick`" in result.stderr


def test_only_variables_that_are_set_reach_the_program() -> None:
    plain = make("experiment", "NAME=quick").stdout.replace("\\\n", " ")
    assert plain.split()[-3:] == ["experiment", "--", '"${NAME}"']
    full = make("experiment", *(f"{name}=x" for name in OPTIONS)).stdout
    for name, option in OPTIONS.items():
        assert f'--{option}="${{{name}}}"' in full if option else f'-- "${{{name}}}"' in full


def test_a_nights_list_and_state_reach_the_program() -> None:
    said = make("nightly", "LIST=mine.yaml", "STATE=elsewhere").stdout
    assert '--list="${LIST}"' in said
    assert '--state="${STATE}"' in said


OPTIONS = {
    "NAME": "",
    "SCALE": "scale",
    "SEEDS": "seeds",
    "VARIANTS": "variants",
    "JOBS": "jobs",
    "ENGINE": "engine",
    "SHADOW": "shadow",
    "TGEN": "tgen",
}
"""Variables of `experiment`, and its options of these."""


def test_tors_source_reaches_every_verb(tmp_path: Path) -> None:
    makefile = tmp_path / "Makefile"
    text = read("Makefile").replace(".venv/bin/python -m onionlab", "env; true")
    makefile.write_text(text)
    result = subprocess.run(
        ["make", "-f", makefile, "-o", ".venv/ready", "build", "TOR_SOURCE=/src/tor.tar.gz"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "TOR_SOURCE=/src/tor.tar.gz" in result.stdout.splitlines()


def test_what_make_starts_may_keep_compiled_modules() -> None:
    result = subprocess.run(
        ["make", "--eval=say: ; @env", "say"],
        env={"PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "PATH=" in result.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in result.stdout


def test_every_verb_of_the_makefile_is_one_of_the_program() -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "onionlab", "--help"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for verb in re.findall(r"\$\(ONIONLAB\) ([a-z-]+)", read("Makefile")):
        assert re.search(rf"^    {verb}$|^    {verb} ", help_text, re.MULTILINE), verb


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_generated_places_are_ignored_by_git() -> None:
    names = [".venv/x", "build/x", "runs/x", "results/x", "onionlab.egg-info/x", "a/__pycache__/x"]
    result = subprocess.run(
        ["git", "check-ignore", *names], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if result.returncode == 128:
        pytest.skip("not a git work tree")
    assert result.stdout.split() == names


def test_the_container_takes_what_experiments_take() -> None:
    text = read("Containerfile")
    assert "configs/apt-packages.txt" in text
    # Without a registry's name, so that everybody's own is used.
    base = r"^ARG BASE=debian:bookworm@sha256:[0-9a-f]{64}\nFROM \$\{BASE\}$"
    assert re.search(base, text, re.MULTILINE)
    # What is made stays out of the image.
    ignored = read(".dockerignore").split()
    assert {".venv", "build", "results", "runs", "nightly"} <= set(ignored)
