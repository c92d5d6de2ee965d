"""The variants and the experiment that `compare-tor` writes."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tor_repository import git

from onionlab.cli import build_parser
from onionlab.commands import compare, compare_tor, experiment
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.programs.tor.tor_source import TorSource
from onionlab.programs.tor.variants import load_variants
from onionlab.questions.tor_commits import shorten, write_experiment

from .checkout import ship

Calls = list[dict[str, object]]
"""The arguments of each command that `compare-tor` calls."""

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a git repository with the branches `main` and `Fix_1`. `Fix_1` is checked out."""
    path = tmp_path / "tor"
    path.mkdir()
    git(path, "init", "-qb", "main")
    for branch in ("main", "Fix_1"):
        git(path, "switch", "-qC", branch)
        (path / "file").write_text(branch)
        git(path, "add", ".")
        git(path, "commit", "-qm", branch)
    git(path, "tag", "fix-1", "main")
    return path


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    root.mkdir()
    ship(root)
    monkeypatch.setattr(compare_tor, "working_root", lambda: root)
    monkeypatch.setenv("VARIANTS_FILE", "")
    return root


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Return a list to which each called command adds its arguments.

    These commands and the builds are replaced and do nothing. The replacement of `compare` returns
    the status 3.
    """
    found: Calls = []

    def record(args: argparse.Namespace) -> int:
        found.append({**vars(args)})
        return 3 if len(found) > 1 else 0

    monkeypatch.setattr(
        compare_tor,
        "ensure_variants",
        lambda root, names: {name: SimpleNamespace(sha256=name) for name in names},
    )
    monkeypatch.setattr(experiment, "print_costs", lambda args: None)
    monkeypatch.setattr(experiment, "make", record)
    monkeypatch.setattr(compare, "run", record)
    return found


def run(repository: Path, a: str, b: str, *more: str) -> int:
    words = ["compare-tor", a, b, f"--tor-git={repository}", *more]
    return compare_tor.run(build_parser("compare-tor").parse_args(words))


def source_of(root: Path, variant: str) -> TorSource:
    source = load_variants(root)[variant].source
    assert source is not None
    return source


def test_it_runs_both_commits_and_compares_them(root: Path, repository: Path, calls: Calls) -> None:
    assert run(repository, "main", "Fix_1", "--networks=3") == 3
    ran, compared = calls
    written = load(str(ran["name"]), root=root)
    assert (written.name, ran["networks"]) == ("today-main-fix-1", 3)
    assert (written.variants, written.baseline) == (("tor-main", "tor-fix-1"), "tor-main")
    (level,), (today,) = (one.levels.values() for one in (written, load("today", root=root)))
    assert level.settings.network == today.settings.network
    # The title and the description of `today` are about its own variants, so they are replaced.
    assert written.header.title == "Tor at main and Fix_1, in the experiment today"
    assert "Fix_1" in written.header.description
    sides = ["today-main-fix-1:tor-main", "today-main-fix-1:tor-fix-1"]
    assert [compared["a"], compared["b"]] == sides
    assert compared["allow_diff"] == "variant,tor"
    variants = load_variants(root)
    for name, ref in (("tor-main", "main"), ("tor-fix-1", "Fix_1")):
        source = source_of(root, name)
        # The branch may change before the runs are finished, so the variant names the commit.
        assert (source.git, source.ref) == (str(repository), git(repository, "rev-parse", ref))
        assert variants[name].torrc == variants["stock"].torrc
        assert variants[name].label == ref


def test_the_same_program_is_not_run(
    root: Path,
    repository: Path,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    built = SimpleNamespace(sha256="a")
    monkeypatch.setattr(
        compare_tor, "ensure_variants", lambda root, names: dict.fromkeys(names, built)
    )
    assert run(repository, "main", "Fix_1") == 0
    assert calls == []
    assert "main and Fix_1 are the same program" in capsys.readouterr().out


def test_an_error_in_the_arguments_is_found_before_the_builds(
    root: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "working_root", lambda: root)
    monkeypatch.setattr(compare_tor, "ensure_variants", lambda *_: pytest.fail("it builds"))
    with pytest.raises(UserError, match="--max-networks goes with --networks auto"):
        run(repository, "main", "Fix_1", "--max-networks=9")


def test_it_says_which_commits_only_one_side_has(
    root: Path, repository: Path, calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    base = git(repository, "rev-parse", "main")
    run(repository, "main", "Fix_1")
    contained = "Commits that only Fix_1 has: 1. Commits that only main has: 0.\n"
    assert capsys.readouterr().out.startswith(contained)
    git(repository, "switch", "-q", "main")
    for number in range(2):
        git(repository, "commit", "-q", "--allow-empty", "-m", f"newer {number}")
    run(repository, "main", "Fix_1")
    assert capsys.readouterr().out.splitlines()[:2] == [
        "Commits that only Fix_1 has: 1. Commits that only main has: 2.",
        f"The effect is that of both. For the commits of Fix_1 alone: A={base}",
    ]
    run(repository, "main", base)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Commits that only {base} has: 0. Commits that only main has: 2."
    assert "The effect is that of both" not in "\n".join(lines)
    git(repository, "switch", "-q", "--orphan", "other")
    git(repository, "commit", "-q", "--allow-empty", "-m", "unrelated")
    run(repository, "main", "other")
    assert "Commits that only other has: 1." in (out := capsys.readouterr().out)
    assert "A=" not in out
    (repository / "draft").write_text("draft")
    run(repository, git(repository, "rev-parse", "HEAD"), "HEAD")
    assert "Commits that" not in capsys.readouterr().out


def test_it_says_which_hosts_run_b(
    root: Path, repository: Path, calls: Calls, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(repository, "main", "Fix_1")
    assert "B runs on" not in capsys.readouterr().out
    own = tmp_path / "own.yaml"
    for deployment, text in (("relays", "relays"), ('{clients: "25 %"}', "25 % of the clients")):
        own.write_text(f"extends: today.yaml\ntor: {{deployment: {deployment}}}\n")
        run(repository, "main", "Fix_1", f"--name={own}")
        assert f"B runs on: {text}. The other hosts run A.\n" in capsys.readouterr().out
    own.write_text(
        "extends: today.yaml\nlevels:\n  few: {label: few}\n"
        "  many: {label: many, overrides: {tor: {deployment: clients}}}\n"
    )
    run(repository, "main", "Fix_1", f"--name={own}")
    assert "B runs on: clients in many. The other hosts run A.\n" in capsys.readouterr().out


def test_an_experiment_may_set_what_only_the_branch_knows(
    root: Path, repository: Path, calls: Calls, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    # The second name is similar to the name of a parameter of Tor 0.4.9.
    own.write_text(
        "extends: today.yaml\ntor: {consensus_params: {cc_alg: 3, cc_cwnd_full_gaps: 5}}\n"
    )
    with pytest.raises(UserError, match="did you mean"):
        load(str(own), root=root)
    run(repository, "main", "Fix_1", f"--name={own}")
    written = load(str(calls[0]["name"]), root=root)
    (level,) = written.levels.values()
    assert level.settings.tor.consensus_params["cc_alg"] == 3
    assert len([one for one in written.warnings if "only a Tor that knows it" in one]) == 2


def test_uncommitted_changes_are_compared_with_their_commit(
    root: Path, repository: Path, calls: Calls
) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    (repository / "file").write_text("draft")
    run(repository, commit, "HEAD")
    assert load(str(calls[0]["name"]), root=root).name == f"today-{commit[:12]}-head"
    assert source_of(root, "tor-head").ref == "HEAD"


def test_a_branch_that_moved_does_not_change_the_files_of_running_jobs(
    root: Path, repository: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = git(repository, "rev-parse", "HEAD")
    run(repository, "main", "Fix_1")
    variants = os.environ["VARIANTS_FILE"]
    git(repository, "commit", "-q", "--allow-empty", "-m", "newest")
    run(repository, "main", "Fix_1")
    monkeypatch.setenv("VARIANTS_FILE", variants)
    assert source_of(root, "tor-fix-1").ref == before


LONG = "a" * 59 + "-" + "b" * 120


@pytest.mark.parametrize(
    ("a", "b", "name"), [("Fix_1", "fix-1", "fix-1"), (f"{LONG}c", f"{LONG}d", "a" * 59)]
)
def test_names_that_differ_only_in_signs_or_after_their_cut_are_kept_apart(
    root: Path, repository: Path, calls: Calls, a: str, b: str, name: str
) -> None:
    git(repository, "branch", f"{LONG}c", "main")
    git(repository, "branch", f"{LONG}d", "Fix_1")
    run(repository, a, b)
    assert load(str(calls[0]["name"]), root=root).variants == (f"tor-{name}-a", f"tor-{name}-b")


@pytest.mark.parametrize("ref", ["12345678e901" + "0" * 28, "1" * 20 + "e" + "1" * 19, "null", "Ü"])
def test_a_name_that_looks_like_a_number_is_a_text(root: Path, tmp_path: Path, ref: str) -> None:
    variants = {"tor-a": (ref, shorten(ref))}
    files, tor = tmp_path / "files", tmp_path / "tor"
    file = write_experiment(root, files, "today-a", "today", tor, variants)
    assert load(str(file), root=root).variants == ("tor-a",)
    assert load_variants(root)["tor-a"].label == shorten(ref)
    assert source_of(root, "tor-a").ref == ref


@pytest.mark.parametrize(
    ("a", "b", "more", "message"),
    [
        ("main", "fix-1", (), "main and fix-1 are the same commit of"),
        ("main", "no", (), 'has no branch, tag or commit "no"'),
        ("main", "Fix_1", ("--name=quik",), 'no experiment called "quik"; did you mean "quick"?'),
        ("main", "Fix_1", ("--name=slowstart",), "slowstart does not run Tor"),
    ],
)
def test_bad_input_runs_nothing(
    root: Path, repository: Path, calls: Calls, a: str, b: str, more: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        run(repository, a, b, *more)
    assert message in caught.value.message
    assert calls == []
    assert not (root / "build").exists()
