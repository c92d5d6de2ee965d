"""`bisect` on a git repository, with fake builds and fake runs."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from tor_repository import add_commit, git, make_repository

from analysis.formats.plan_file import Request
from analysis.measures.metric import Statistic
from analysis.pages.bisection import Bisection
from analysis.pages.html import write_answer
from onionlab.cli import main
from onionlab.commands import bisect as command
from onionlab.engines import open_engine
from onionlab.errors import UserError
from onionlab.programs.building import BuildFailedError
from onionlab.programs.git import commits_between, list_commits
from onionlab.programs.tor.build import BuiltTor
from onionlab.programs.tor.variants import TorBuild
from onionlab.questions import bisect
from onionlab.questions.bisect import BisectRequest
from onionlab.runs.workflow.executor import Where

from .checkout import ship

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

ENDPOINT = "time_to_320kib_p50_s"


class Machine:
    """Replaces builds and runs by fakes.

    From ``commits[first_bad]`` on, downloads take ``step`` times as long as before.

    Attributes:
        built: the commits of the builds, in order.
        runs: the variant and the network of each finished run.
        dies_at: number of the call of ``make_runs`` that is interrupted, or 0 for none.
    """

    def __init__(self, root: Path, path: Path, commits: list[str], first_bad: int) -> None:
        self.root, self.path, self.commits, self.first_bad = root, path, commits, first_bad
        self.step = 1.2
        self.streams = 500.0
        self.streams_after = 500.0
        self.broken: set[str] = set()
        self.programs: dict[str, str] = {}
        self.without_value: set[str] = set()
        self.built: list[str] = []
        self.runs: set[tuple[str, int]] = set()
        self.calls = self.dies_at = 0

    def ensure_builds(self, root: Path, wanted: Mapping[TorBuild, object]) -> dict[TorBuild, Any]:
        (build,) = wanted
        assert build.source is not None
        commit = str(build.source.ref)
        self.built.append(commit)
        if commit in self.broken:
            raise BuildFailedError("Tor: compile failed (exit status 2)", "error: no semicolon")
        sha256 = self.programs.get(commit, commit)
        return {build: BuiltTor(Path("tor"), "0.4.9", sha256, {}, None, commit[:12])}

    def open_engine(self, name: str, *, root: Path, shadow: str | None, tgen: str | None) -> None:
        if name == "shadow":  # Opening the embedded engine would build its kernel.
            open_engine(name, root=root, shadow=shadow, tgen=tgen)

    def make_plan(self, root: Path, request: Request, *, out: Path) -> Any:
        settings = yaml.safe_load(Path(request.experiment).read_text())
        self.variants = settings["tor"]["variants"]
        self.size = request.seeds
        return SimpleNamespace(study=out, store=out)

    def make_runs(self, root: Path, plans: list[Any], where: Where) -> None:
        assert isinstance(self.size, int)
        self.calls += 1
        if self.calls == self.dies_at:
            raise KeyboardInterrupt
        self.runs |= {(name, seed) for name in self.variants for seed in range(1, self.size + 1)}

    def read_statistics(self, study: Any, store: Path) -> Any:
        assert isinstance(self.size, int)
        web: dict[tuple[str, str], dict[int, Statistic]] = {}
        for variant in self.variants:
            number = next(n for n, one in enumerate(self.commits) if variant == f"tor-{one[:12]}")
            factor = self.step if number >= self.first_bad else 1.0
            for seed in range(1, self.size + 1):
                noise = np.random.default_rng([seed, number]).normal(0, 0.04)
                value: float | None = 5 * factor * math.exp(noise + 0.3 * (seed % 3))
                if self.commits[number] in self.without_value:
                    value = None
                web.setdefault((ENDPOINT, variant), {})[seed] = Statistic(
                    value, "" if value else "fewer than half complete"
                )
                web.setdefault(("streams_started", variant), {})[seed] = Statistic(
                    self.streams_after if number >= self.first_bad else self.streams
                )
        return {("today", "web"): web}

    def write(self, result: Bisection, out: Path) -> Path:
        out.mkdir(parents=True, exist_ok=True)
        write_answer(out, result.answer)
        return out / "report.html"

    def search(self, **more: Any) -> tuple[Any, Path]:
        values: dict[str, Any] = {
            "repository": self.path,
            "good": self.commits[0],
            "bad": self.commits[-1],
            "endpoint": ENDPOINT,
            "runs": Request("today"),
            "budget": 20,
        }
        return bisect.BisectSearch(self.root, BisectRequest(**values | more), None).run()


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return a repository, which each test copies, and its commits."""
    path = tmp_path_factory.mktemp("history") / "tor"
    return path, make_repository(path, ["0.4.9"] * 13)


@pytest.fixture
def machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: tuple[Path, list[str]]
) -> Machine:
    root = tmp_path / "checkout"
    root.mkdir()
    ship(root)
    monkeypatch.setenv("VARIANTS_FILE", "")
    path = tmp_path / "tor"
    shutil.copytree(history[0], path)
    made = Machine(root, path, history[1], 5)
    runs = ("make_plan", "make_runs", "read_statistics")
    for name in ("open_engine", "ensure_builds", *runs, "write"):
        monkeypatch.setattr(bisect, name, getattr(made, name))
    study = SimpleNamespace(levels=[SimpleNamespace(name="today")], endpoints=(), margins={})
    monkeypatch.setattr(bisect, "load_study", lambda path: study)
    return made


def test_it_finds_the_commit_with_few_runs(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    result, report = machine.search()
    assert result.search.found == machine.commits[5]
    assert "the first bad commit is" in (report.parent / "answer.txt").read_text()
    assert len({name for name, _ in machine.runs}) <= 2 + 4
    first, *steps = [one.getMessage() for one in caplog.records if one.name == bisect.LOG.name]
    assert first.startswith("12 commits from")
    assert len(steps) == len(result.search.examinations)
    assert steps[0].startswith(f"12 commits left; {machine.commits[-1][:12]}: bad, ")
    assert "against GOOD" in steps[-1]


@pytest.mark.parametrize("first_bad", [1, 12])
def test_the_first_and_the_last_commit_are_found(machine: Machine, first_bad: int) -> None:
    machine.first_bad = first_bad
    assert machine.search()[0].search.found == machine.commits[first_bad]


def test_without_a_step_there_is_no_such_commit(machine: Machine) -> None:
    machine.first_bad = 99
    result, report = machine.search()
    assert result.search.left == ()
    assert (report.parent / "answer.txt").read_text().startswith("No such commit")
    assert len(machine.runs) == 2 * 20


def test_an_interrupted_search_continues(machine: Machine) -> None:
    whole, _ = machine.search()
    runs, calls = machine.runs, machine.calls
    for killed_at in range(1, calls, 6):
        machine.runs, machine.calls, machine.dies_at = set(), 0, killed_at
        with pytest.raises(KeyboardInterrupt):
            machine.search()
        machine.dies_at = 0
        assert machine.runs < runs
        assert machine.search()[0].search == whole.search
        assert machine.runs == runs


def test_commits_that_do_not_build_are_skipped(machine: Machine) -> None:
    machine.broken = set(machine.commits[5:7])
    left = machine.search()[0].search.left
    assert {machine.commits.index(one) for one in left} == {5, 6, 7}
    machine.broken = set(machine.commits[8:10])
    assert machine.search()[0].search.found == machine.commits[5]
    result, _ = machine.search(skip=machine.commits[4:6])
    assert {machine.commits.index(one) for one in result.search.left} == {4, 5, 6}


def test_a_commit_without_a_value_is_skipped(machine: Machine) -> None:
    machine.without_value = {machine.commits[6]}
    search = machine.search()[0].search
    (skipped,) = (one for one in search.examinations if one.decision == "skipped")
    assert skipped.note == (
        "not compared: 4 of 4 pairs lack a value; this commit has none on network 1, 2, 3, 4 "
        "(fewer than half complete), so it may be worse than GOOD"
    )
    compared = "of GOOD and BAD cannot be compared: 4 of 4 pairs lack a value"
    for end, name, more in ((0, "GOOD", "$"), (-1, "BAD", ", so it may be worse than GOOD$")):
        machine.without_value = {machine.commits[end]}
        who = rf"{name} has none on network 1, 2, 3, 4 \(fewer than half complete\)"
        with pytest.raises(UserError, match=f"(?m){compared}; {who}{more}") as caught:
            machine.search()
        assert "(failure_rate or timeout_rate), or an experiment in which" in (
            caught.value.hint or ""
        )


def test_too_few_streams_ask_for_a_longer_experiment(machine: Machine) -> None:
    machine.streams_after = 9.0
    with pytest.raises(UserError, match=r"(?m)with BAD: too few streams \(9 of 10\)$") as caught:
        machine.search()
    assert "a longer time.measured or more clients" in (caught.value.hint or "")
    assert len({name for name, _ in machine.runs}) == 2
    machine.runs, machine.streams = set(), 9.0
    with pytest.raises(UserError, match=r"(?m)compared: too few streams \(9 of 10\)$") as caught:
        machine.search()
    assert len(machine.runs) == 2 * 4
    assert "a longer time.measured or more clients" in (caught.value.hint or "")
    assert "another endpoint" not in (caught.value.hint or "")


def test_the_same_program_is_run_once(machine: Machine) -> None:
    machine.programs = {
        commit: "b" if number >= 5 else "a" for number, commit in enumerate(machine.commits)
    }
    assert machine.search()[0].search.found == machine.commits[5]
    assert len({name for name, _ in machine.runs}) == 2
    machine.programs = dict.fromkeys(machine.commits, "a")
    _, report = machine.search()
    assert "(the same program as" in (report.parent / "answer.txt").read_text()


def test_a_branch_that_was_merged(machine: Machine) -> None:
    git(machine.path, "switch", "-qc", "side", machine.commits[2])
    side = [add_commit(machine.path, f"side {n}", "0.4.9") for n in range(3)]
    git(machine.path, "switch", "-q", "main")
    git(machine.path, "merge", "-q", "--no-edit", "-s", "ours", "side")
    machine.commits = [*machine.commits, *side, git(machine.path, "rev-parse", "HEAD")]
    # Only the branch's second and later commits, and the merge, are worse.
    machine.first_bad = 14
    assert machine.search()[0].search.found == side[1]


def test_bad_input_builds_nothing(machine: Machine) -> None:
    c, path = machine.commits, machine.path
    git(path, "switch", "-qc", "side", c[3])
    side = add_commit(path, "side", "0.4.9")
    git(path, "switch", "-q", "--orphan", "other")
    orphan = add_commit(path, "other", "0.4.9")
    (path / "configure.ac").write_text("AC_INIT([chutney])")
    git(path, "commit", "-qam", "not Tor")
    foreign = git(path, "rev-parse", "HEAD")
    own = machine.root / "own.yaml"
    own.write_text("extends: today.yaml\nendpoints: [{class: web, metric: streams_started}]\n")
    no_shadow = {"runs": Request("today", engine="shadow", shadow="none")}
    directionless = {"runs": Request(str(own)), "endpoint": "streams_started"}
    cases: list[tuple[dict[str, Any], str, str]] = [
        (directionless, "streams_started has no better direction", "such as ttfb_p50_s"),
        ({"good": "no"}, 'has no branch, tag or commit "no"', "git tag"),
        ({"repository": path.parent}, "git in .*: fatal: not a git repository", ""),
        ({"repository": path / "none"}, "is not a folder", ""),
        ({"bad": foreign}, "is not Tor's source", "commit of Tor"),
        ({"bad": c[0]}, "are the same commit", "Name two"),
        ({"good": c[5], "bad": c[1]}, "BAD .* is an ancestor of GOOD", f"GOOD={c[1]} BAD={c[5]}"),
        ({"good": side}, "GOOD .* is not an ancestor of BAD", f"GOOD={c[3]}"),
        ({"bad": orphan}, "have no common history", "--unshallow"),
        ({"endpoint": "ttfb"}, 'today has no endpoint "ttfb"', "web:ttfb_p50_s"),
        ({"endpoint": f"wev:{ENDPOINT}"}, 'no class "wev"; did you mean "web"', "bulk, web"),
        ({"runs": Request("quik")}, "no experiment called", "make list"),
        ({"runs": Request("slowstart")}, "does not run Tor", "NAME=today"),
        ({"runs": Request("swrr-load")}, "several levels", "NAME=today"),
        (no_shadow, "Shadow not found at none", "SHADOW="),
        ({"budget": 3}, "MAX_NETWORKS: at least 4", ""),
    ]
    for more, message, hint in cases:
        with pytest.raises(UserError, match=message) as caught:
            machine.search(**more)
        assert hint in (caught.value.hint or ""), more
    assert machine.built == []


def test_an_experiment_may_set_what_only_the_commits_know(machine: Machine) -> None:
    own = machine.root / "own.yaml"
    own.write_text("extends: today.yaml\ntor: {consensus_params: {cc_alg: 3}}\n")
    assert machine.search(runs=Request(str(own)))[0].search.found == machine.commits[5]


def test_an_endpoint_that_the_runs_lack(machine: Machine) -> None:
    with pytest.raises(UserError, match='today has no endpoint "goodput_bytes_per_s"') as caught:
        machine.search(endpoint="goodput_bytes_per_s")
    assert caught.value.hint == f"its endpoints: web:{ENDPOINT}"
    with pytest.raises(UserError, match='today has no endpoint "bulk:'):
        machine.search(endpoint=f"bulk:{ENDPOINT}")
    assert machine.search(endpoint=f"web:{ENDPOINT}")[0].search.found


def test_ends_or_a_range_that_do_not_build(machine: Machine) -> None:
    machine.broken = {machine.commits[-1]}
    with pytest.raises(UserError, match=r"BAD .* does not build: Tor: compile failed") as caught:
        machine.search()
    assert "no semicolon" in (caught.value.hint or "")
    assert "BAD=COMMIT" in (caught.value.hint or "")
    assert machine.calls == 0
    machine.broken = set(machine.commits[1:-1])
    with pytest.raises(UserError, match="none of the 11 commits between GOOD and BAD"):
        machine.search()


def test_a_failed_run_names_the_commit_to_skip(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(root: Path, plans: object, where: Where) -> None:
        if len(machine.variants) == 3:
            raise UserError("1 of 3 runs failed", "its log")
        machine.make_runs(root, [], where)

    monkeypatch.setattr(bisect, "make_runs", fail)
    with pytest.raises(UserError, match="1 of 3 runs failed") as caught:
        machine.search()
    assert (caught.value.hint or "").startswith("its log\nto search without this commit: SKIP=")


def test_a_commit_that_is_not_tor_is_named_to_be_skipped(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit may come from another project, whose history was merged into Tor's."""

    def build(root: Path, wanted: Mapping[TorBuild, object]) -> dict[TorBuild, Any]:
        (source,) = (build.source for build in wanted)
        assert source is not None
        if source.ref == machine.commits[6]:
            raise UserError("it is not Tor's source", "Name a commit of Tor.")
        return machine.ensure_builds(root, wanted)

    monkeypatch.setattr(bisect, "ensure_builds", build)
    with pytest.raises(UserError, match="not Tor's source") as caught:
        machine.search(skip=["main~4"])
    assert (caught.value.hint or "").endswith(f"SKIP=main~4,{machine.commits[6][:12]}")
    assert machine.search(skip=[machine.commits[6]])[0].search.found == machine.commits[5]


@pytest.mark.parametrize(("first_bad", "broken", "status"), [(5, 0, 0), (99, 0, 1), (5, 2, 3)])
def test_exit_statuses(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    first_bad: int,
    broken: int,
    status: int,
) -> None:
    monkeypatch.setattr(command, "working_root", lambda: machine.root)
    machine.first_bad = first_bad
    machine.broken = set(machine.commits[5 : 5 + broken])
    words = ["--good", machine.commits[0], "--bad=main", f"--tor-git={machine.path}"]
    words += [f"--endpoint={ENDPOINT}", "--max-networks=20"]
    assert main(["bisect", *words]) == status
    assert capsys.readouterr().out.splitlines()[-1].endswith("report.html")


def test_the_lists_of_commits_do_not_depend_on_settings(tmp_path: Path) -> None:
    path = tmp_path / "tor"
    commits = make_repository(path, ["0.4.9"] * 3)
    git(path, "config", "color.ui", "always")
    git(path, "config", "log.showSignature", "true")
    git(path, "config", "log.decorate", "full")
    assert list_commits(path, commits[0], "main") == [
        (commits[1], "change 1"),
        (commits[2], "change 2"),
    ]
    assert commits_between(path, commits[0], "main", 1) == (0, 2, (f"{commits[2][:12]} change 2",))
    assert commits_between(path, "f" * 40, "main") is None
    subject = "one\x0cline\u2028alone"
    newest = add_commit(path, subject, "0.4.9")
    assert list_commits(path, commits[2], "main") == [(newest, subject)]
    assert commits_between(path, commits[2], "main") == (0, 1, (f"{newest[:12]} {subject}",))
