"""The workflow file for GitHub Actions that comes along."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from onionlab.cli import build_parser

REPOSITORY = Path(__file__).resolve().parents[2]
WORKFLOW = REPOSITORY / "configs" / "ci" / "nightly.yml"


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_finds_nothing() -> None:
    result = subprocess.run(
        ["actionlint", "-no-color", str(WORKFLOW)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (0, "")


def scripts() -> str:
    content = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return "\n".join(step.get("run", "") for step in content["jobs"]["nightly"]["steps"])


def test_its_commands_are_those_of_this_program() -> None:
    (arguments,) = re.findall(r"onionlab (nightly .*?) \|\|", scripts())
    shell = ["sh", "-c", f"ACCEPT=1 ENGINE=uml; printf '%s\\n' {arguments}"]
    words = subprocess.run(shell, capture_output=True, text=True, check=True).stdout.split()
    parsed = build_parser("nightly").parse_args(words)
    assert (parsed.accept, parsed.engine) == (True, "uml")
    targets = set(re.findall(r"^make ([a-z-]+)", scripts(), re.MULTILINE))
    makefile = (REPOSITORY / "Makefile").read_text()
    assert targets == {"setup", "build"}
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


@pytest.mark.parametrize("status", [0, 1, 2, 70, 130, 137, 143])
def test_only_an_answer_is_a_night(tmp_path: Path, status: int) -> None:
    content = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    (script,) = (s["run"] for s in content["jobs"]["nightly"]["steps"] if s.get("id") == "night")
    program = tmp_path / ".venv/bin/onionlab"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nexit {status}\n")
    program.chmod(0o755)
    (tmp_path / "shell").write_text(script)
    # As GitHub starts it.
    result = subprocess.run(
        ["bash", "-e", "shell"],
        cwd=tmp_path,
        env={**os.environ, "GITHUB_OUTPUT": "output", "GITHUB_STEP_SUMMARY": "s", "ENGINE": "uml"},
        check=False,
    )
    assert (result.returncode == 0) is (status in (0, 1))
    assert (tmp_path / "output").read_text() == f"status={status}\n"


def test_its_cache_hashes_what_is_there() -> None:
    patterns = re.findall(r"'([^']+/\*\*)'", WORKFLOW.read_text())
    assert patterns
    assert all((REPOSITORY / pattern.removesuffix("/**")).is_dir() for pattern in patterns)


def test_its_files_are_those_that_a_night_writes() -> None:
    from onionlab.questions import night as nightly

    source = Path(nightly.__file__).read_text()
    assert all(name in source for name in ("summary.md", "history.parquet", '"baselines"'))
    assert all(name in scripts() for name in ("summary.md", "history.parquet", "baselines"))
