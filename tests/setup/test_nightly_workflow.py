"""The shipped configurations of GitHub Actions and GitLab for nightly runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from shell_scripts import write_script
from tor_repository import add_commit, git, make_repository

from onionlab.cli import build_parser

REPOSITORY = Path(__file__).resolve().parents[2]
WORKFLOW = REPOSITORY / "configs" / "ci" / "nightly.yml"
GITLAB = REPOSITORY / "configs" / "ci" / "nightly.gitlab-ci.yml"


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_finds_nothing() -> None:
    result = subprocess.run(
        ["actionlint", "-no-color", str(WORKFLOW)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize(
    ("schema", "path", "key"),
    [("github-workflows", WORKFLOW, "runs-on"), ("gitlab-ci", GITLAB, "interruptible")],
)
def test_a_recipe_follows_the_schema_of_its_forge(
    tmp_path: Path, schema: str, path: Path, key: str
) -> None:
    text = path.read_text(encoding="utf-8")
    (tmp_path / "wrong.yml").write_text(text.replace(f"{key}:", f"{key}: [1]\n    wrong:"))
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    results = [
        subprocess.run([*words, file], capture_output=True, text=True, check=False)
        for file in (path, tmp_path / "wrong.yml")
    ]
    assert [result.returncode for result in results] == [0, 1], results[0].stdout


def jobs() -> dict[str, Any]:
    content = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert content["permissions"] == {}
    found: dict[str, Any] = content["jobs"]
    return found


PIPEFAIL = ("-o", "pipefail")
"""Options with which GitLab runs scripts, unlike GitHub Actions."""


def bash(text: str, folder: Path, variables: dict[str, str], *options: str) -> int:
    """Run a script as GitHub Actions does. Return its exit status."""
    words = ["bash", "-e", *options, "-c", text]
    return subprocess.run(words, cwd=folder, env=variables, check=False).returncode


def script(job: str, name: str = "") -> str:
    steps = jobs()[job]["steps"]
    return "\n".join(step.get("run", "") for step in steps if name in step.get("name", ""))


def test_the_job_that_runs_code_may_only_read() -> None:
    run, publish = jobs()["run"], jobs()["publish"]
    assert run["permissions"] == {"contents": "read"}
    assert "github.token" not in str(run)
    checkouts = [step for step in run["steps"] if "actions/checkout@" in step.get("uses", "")]
    assert [step["with"]["persist-credentials"] for step in checkouts] == [False]
    assert publish["permissions"] == {"contents": "write", "issues": "write"}
    programs = re.findall(r"^ *(\S+)", script("publish"), re.MULTILINE)
    assert not [name for name in programs if "/" in name or name in ("make", "python3", "pip")]


def test_actions_are_pinned_to_commits() -> None:
    text = WORKFLOW.read_text(encoding="utf-8")
    uses = re.findall(r"uses: (.*)", text)
    assert len(uses) == 6
    assert all(re.fullmatch(r"actions/[a-z/-]+@[0-9a-f]{40} # v[\d.]+", one) for one in uses)


# This script replaces gh, and records its calls. `issue list` prints 7 once an issue is created.
GH = """\
echo "$1 $2 $3" >> "$CALLS"
case "$1 $2" in
"issue list") [ ! -e "$CALLS.open" ] || echo 7 ;;
"issue create") touch "$CALLS.open" ;;
esac
"""


@pytest.fixture
def publish(tmp_path: Path) -> Callable[[str], int]:
    """Return a function that runs a step of the job `publish` with a local repository."""
    write_script(tmp_path / "bin/gh", GH)
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path / "server/owner/name"], check=True)
    variables = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "CALLS": str(tmp_path / "calls"),
        "GITHUB_SERVER_URL": f"file://{tmp_path}/server",
        "GITHUB_REPOSITORY": "owner/name",
    }

    def run(step: str) -> int:
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
        return bash(script("publish", step), tmp_path, variables)

    return run


def test_each_night_is_a_commit(publish: Callable[[str], int], tmp_path: Path) -> None:
    artifact = tmp_path / "artifacts" / "nightly-state"
    (artifact / "baselines").mkdir(parents=True)
    (artifact / "baselines" / "other.sh").write_text("not a baseline")
    for night in ("one", "two", "two"):
        (artifact / "history.parquet").write_text(night)
        (artifact / "baselines" / "a.set.json").write_text("{}")
        assert publish("Keep") == 0
    log = ("log", "--name-only", "--format=%s", "nightly-state")
    shown = git(tmp_path / "server/owner/name", *log).split("\n")
    assert [line for line in shown if line and "Night of" not in line] == [
        "history.parquet",
        "baselines/a.set.json",
        "history.parquet",
    ]


def test_a_continuing_alarm_is_one_issue(publish: Callable[[str], int], tmp_path: Path) -> None:
    summary = tmp_path / "artifacts" / "nightly" / "summary.md"
    summary.parent.mkdir(parents=True)
    summary.write_text("slower " * 20_000)
    assert [publish("alarm"), publish("alarm"), publish("alarm")] == [1, 1, 1]
    calls = (tmp_path / "calls").read_text().splitlines()
    issue_calls = [call for call in calls if call.startswith(("issue create", "issue comment"))]
    assert issue_calls == ["issue create --title", "issue comment 7", "issue comment 7"]
    assert (tmp_path / "body.md").stat().st_size < 65_536


@pytest.mark.parametrize("ref", ["", "0123abc"])
def test_its_commands_exist_in_this_program(ref: str) -> None:
    (arguments,) = re.findall(r"onionlab (nightly .*?) \|\|", script("run"))
    given = f"UPDATE_BASELINE=1 ENGINE=uml TOR_REF=main REF={ref}"
    shell = ["sh", "-c", f"{given}; printf '%s\\n' {arguments}"]
    words = subprocess.run(shell, capture_output=True, text=True, check=True).stdout.split()
    parsed = build_parser("nightly").parse_args(words)
    assert (parsed.update_baseline, parsed.engine) == (True, "uml")
    assert (parsed.tor_git, parsed.ref) == ("build/tor.git", ref or "main")
    targets = set(re.findall(r"^make ([a-z-]+)", script("run"), re.MULTILINE))
    assert targets == {"setup"}


@pytest.mark.parametrize("status", [0, 1, 2, 70, 130, 137, 143])
def test_only_an_answer_is_a_night(tmp_path: Path, status: int) -> None:
    (script,) = (step["run"] for step in jobs()["run"]["steps"] if step.get("id") == "night")
    write_script(tmp_path / ".venv/bin/onionlab", f"exit {status}\n")
    more = {"GITHUB_OUTPUT": "output", "GITHUB_STEP_SUMMARY": "s", "ENGINE": "uml"}
    ended = bash(script, tmp_path, {**os.environ, **more})
    assert (ended == 0) is (status in (0, 1))
    assert (tmp_path / "output").read_text() == f"status={status}\n"


def test_a_new_commit_of_tor_keeps_the_engine_and_builds_tor(tmp_path: Path) -> None:
    steps = [step for step in jobs()["run"]["steps"] if "actions/cache/" in step.get("uses", "")]
    cache, save = steps
    key, prefix = cache["with"]["key"], cache["with"]["restore-keys"].strip()
    assert key == f"{prefix}${{{{ steps.tor.outputs.commit }}}}"
    assert "configs/uml/**" in prefix
    assert cache["with"]["path"] == save["with"]["path"] == "build"
    assert save["if"].startswith("always()")
    tor = tmp_path / "tor"
    commits = make_repository(tor, ["0.4.9", "0.4.10"])
    variables = {
        **os.environ,
        "GITHUB_OUTPUT": "output",
        "TOR_REPOSITORY": f"file://{tor}",
        "TOR_REF": "main",
    }
    for number in range(2):
        commit = add_commit(tor, "newest", "0.4.10") if number else commits[1]
        for step in ("Find Tor's newest commit", "Remove builds", "Fetch Tor"):
            assert bash(script("run", step), tmp_path, variables) == 0
        assert (tmp_path / "output").read_text().endswith(f"commit={commit}\n")
        assert git(tmp_path / "build/tor.git", "log", "--format=%H", "main").split()[0] == commit
        assert not (tmp_path / "build/tor").exists()
        (tmp_path / "build/tor").mkdir()
    variables["TOR_REF"] = "none"
    assert bash(script("run", "Find Tor's newest commit"), tmp_path, variables) != 0


# GitLab


def gitlab_job() -> dict[str, Any]:
    content = yaml.safe_load(GITLAB.read_text(encoding="utf-8"))
    assert list(content) == ["onionlab-nightly"]
    found: dict[str, Any] = content["onionlab-nightly"]
    return found


def test_the_gitlab_job_keeps_its_state_and_needs_no_token() -> None:
    job = gitlab_job()
    assert job["artifacts"]["reports"] == {"junit": "onionlab/results/nightly/junit.xml"}
    # Failed jobs keep their state too, because an alarm fails the job.
    assert {cache["when"] for cache in job["cache"]} == {job["artifacts"]["when"]} == {"always"}
    assert not re.search("TOKEN|PASSWORD|secrets", GITLAB.read_text(encoding="utf-8"))
    assert job["image"] in (REPOSITORY / "Containerfile").read_text(encoding="utf-8")


def test_gitlab_caches_of_tor_are_of_its_commit() -> None:
    keys = {path: cache["key"] for cache in gitlab_job()["cache"] for path in cache["paths"]}
    assert {path for path, key in keys.items() if "$CI_COMMIT_SHA" in key} == {
        "onionlab/build/tor/"
    }
    assert "onionlab/nightly/" in keys
    assert len(gitlab_job()["cache"]) <= 4


def test_the_gitlab_script_runs_twice_in_an_empty_root(tmp_path: Path) -> None:
    """The second run finds the files of the first run.

    Programs that need the Internet are replaced.
    """
    tor, onionlab, programs = (tmp_path / name for name in ("tor", "onionlab.git", "bin"))
    make_repository(onionlab, ["0.3"])
    (onionlab / "Makefile").write_text(
        "setup:\n\t@mkdir -p .venv/bin; cp ../../program .venv/bin/onionlab\n"
    )
    git(onionlab, "add", ".")
    git(onionlab, "commit", "-qm", "Makefile")
    commits = make_repository(tor, ["0.4.9", "0.4.10"])
    git(tor, "checkout", "-q", "--detach")
    write_script(
        tmp_path / "program",
        'echo "$@" >>../../calls\nmkdir -p nightly; echo x >>nightly/history\nexit 1\n',
    )
    write_script(programs / "apt-get", "")
    job = gitlab_job()
    variables = job["variables"] | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "CI_PROJECT_DIR": str(tor),
        "CI_COMMIT_SHA": commits[1],
        "ONIONLAB_REPOSITORY": f"file://{onionlab}",
    }
    text = "\n".join(job["script"])
    for update in ("1", ""):
        variables["UPDATE_BASELINE"] = update
        assert bash(text, tor, variables, *PIPEFAIL) == 1
    first, second = (tmp_path / "calls").read_text().splitlines()
    assert first == f"{second} --update-baseline"
    parsed = build_parser("nightly").parse_args(first.split())
    assert (parsed.tor_git, parsed.ref, parsed.engine) == (str(tor), commits[1], "uml")
    assert (tor / "onionlab/nightly/history").read_text() == "x\nx\n"
    # REF selects the commit, for example the baseline's commit after a change of onionlab.
    assert bash(text, tor, {**variables, "REF": commits[0]}, *PIPEFAIL) == 1
    assert f"--ref {commits[0]} " in (tmp_path / "calls").read_text().splitlines()[-1]
    # A newer version of onionlab replaces the older one, and the folder of nightly runs is kept.
    newer = add_commit(onionlab, "newer", "0.4")
    assert bash(text, tor, variables, *PIPEFAIL) == 1
    assert git(tor / "onionlab", "rev-parse", "HEAD") == newer
    assert (tor / "onionlab/nightly/history").read_text() == "x\nx\nx\nx\n"
