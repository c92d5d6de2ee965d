"""Lock files, package lists and their documentation agree, and make's targets are complete."""

from __future__ import annotations

import os
import re
import subprocess
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


def listed_packages(name: str) -> set[str]:
    """Return the names of the packages in a file that lists one per line, with comments."""
    lines = (line.split("#")[0].strip() for line in read(name).splitlines())
    return {re.split(r"[<>=]", line)[0] for line in lines if line}


def documented_packages(heading: str) -> set[str]:
    """Return the first column of the tables below a heading of docs/reference/dependencies.md."""
    section = read("docs/reference/dependencies.md").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^\s`]+) \|", section, re.MULTILINE)
    return {row for row in rows if row not in {"Package", "Program", "List"}}


def test_every_direct_dependency_is_explained_and_nothing_else() -> None:
    assert documented_packages("Python packages") == set().union(
        *(listed_packages(source) for source in LOCKS)
    )
    lists = [path.relative_to(REPOSITORY) for path in REPOSITORY.glob("configs/apt-packages*.txt")]
    wanted = set().union(*(listed_packages(str(path)) for path in lists))
    assert documented_packages("Debian packages") == {name.removesuffix("?") for name in wanted}


@pytest.mark.parametrize(("source", "lock"), LOCKS.items())
def test_a_lock_file_has_the_requested_packages_with_hashes(source: str, lock: str) -> None:
    entries = re.split(r"\n(?=[a-z0-9])", "\n" + read(lock).strip())[1:]
    names = set()
    for entry in entries:
        head = re.match(r"([a-z0-9.-]+)==[^ ;]+ \\\n", entry)
        assert head, entry.splitlines()[0]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry)
        names.add(head[1])
    assert listed_packages(source) <= names
    # The lock file names no package index, because users have mirrors of their own.
    assert not re.search(r"://|--index|--extra-index|--find-links|--trusted| @ |file:", read(lock))


def test_a_package_is_in_one_lock() -> None:
    """With a package in two locks, `make test` could change the version that experiments use."""
    locks = [re.findall(r"^([a-z0-9.-]+)==", read(lock), re.MULTILINE) for lock in LOCKS.values()]
    names = [name for lock in locks for name in lock]
    assert len(names) > 100
    assert len(names) == len(set(names))


def make(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run make so that it prints its recipes instead of executing them."""
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
    return set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))


def test_help_is_the_default_and_lists_every_target() -> None:
    result = subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    shown = set(re.findall(r"^  ([a-z-]+) +\S", result.stdout, re.MULTILINE))
    assert shown == targets()
    assert "NAME" in result.stdout


def test_the_container_installs_the_packages_of_experiments() -> None:
    text = read("Containerfile")
    assert "configs/apt-packages.txt" in text
    # The base image is named without a registry, so that users can take it from a mirror.
    base = r"^ARG BASE=debian:bookworm@sha256:[0-9a-f]{64}\nFROM \$\{BASE\}$"
    assert re.search(base, text, re.MULTILINE)
    # The image does not contain generated files.
    ignored = read(".dockerignore").split()
    assert {".venv", "build", "results", "runs", "nightly"} <= set(ignored)
