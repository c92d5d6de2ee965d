"""Nights (nightly runs) on a git repository of Tor: the commits, the baseline, the summary."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from analysis_synthetic import known
from runset_synthetic import ENGINE, FILES, make_set
from shipped import REPOSITORY
from test_nightly import SEEDS, START, Machine, nightly_list
from tor_repository import add_commit, git, make_repository

from analysis.comparison.history import last_commit, read_history
from analysis.comparison.run_sets import TorBuild
from onionlab.commands import nightly as command
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.programs.tor.variants import load_variants
from onionlab.questions import nightly
from onionlab.questions.nightly import WATCHED, baseline_inputs, watch_repository

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(nightly, "write_forest", lambda compared, base: None)
    monkeypatch.setenv("VARIANTS_FILE", "")
    root = tmp_path / "checkout"
    root.mkdir()
    for name in ("configs", "experiments", "libtorrent-patches", "tor-patches"):
        (root / name).symlink_to(REPOSITORY / name)
    return Machine(root)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path at which a test can make a repository. Nothing exists there yet."""
    return tmp_path / "tor"


def night(machine: Machine, path: Path, ref: str = "main", **more: Any) -> Any:
    """Run a night on the current commit of ``ref``.

    more: ``accept``, whether the night's runs become the baseline; ``name``, the experiment's name
    in the list; ``false_alarms``, the number of false alarms per year in the list of nightly
    experiments; and arguments of ``make_set``.
    """
    name = more.pop("name", "today")
    lists = nightly_list(
        experiments=[{"name": name, "variants": ["stock"], "networks": 10}],
        false_alarms_per_year=more.pop("false_alarms", 2),
    )
    watched, repository = watch_repository(machine.root, lists, path, ref)
    tor = repository.tor
    source = str({"tor": {"kind": "git", "commit": tor.commit, "version": tor.version}})
    build = TorBuild(version=tor.version, sha256=tor.commit, source=source)
    accept = more.pop("accept", False)
    made = make_set(
        variant=WATCHED, level="today", seeds=SEEDS, noise_seed=machine.nights,
        tor={f"tor-stock-{tor.commit[:12]}": build}, **more,
    )  # fmt: skip
    return machine.night(made, accept=accept, nights=watched, repository=repository)


def test_a_night_runs_the_newest_commit_alone(machine: Machine, path: Path) -> None:
    first, second = make_repository(path, ["0.4.9.1-alpha", "0.4.9.2-alpha"])
    (path / "file").write_text("draft")
    lists = nightly_list(
        experiments=[{"name": "today", "variants": ["stock"], "scale": 2}, {"name": "quick"}]
    )
    watched, repository = watch_repository(machine.root, lists, path, "main")
    assert (repository.tor.commit, repository.tor.version) == (second, "0.4.9.2-alpha")
    assert repository.tor.sentence == f"Tor 0.4.9.2-alpha, commit {second[:12]} of main."
    assert [(one.variants, one.scale) for one in watched.experiments] == [
        ((WATCHED,), 2),
        ((WATCHED,), None),
    ]
    for entry, name in zip(watched.experiments, ("today", "quick"), strict=True):
        experiment = load(entry.name, root=machine.root)
        assert (experiment.name, experiment.variants, experiment.baseline) == (
            name, (WATCHED,), WATCHED,
        )  # fmt: skip
    source = known(load_variants(machine.root)[WATCHED].source)
    # Uncommitted changes of the work tree are not part of the commit.
    assert (source.git, source.ref) == (str(path), second)
    _, repository = watch_repository(machine.root, lists, path, first)
    assert repository.tor.sentence == f"Tor 0.4.9.1-alpha, commit {first[:12]}."


def test_a_second_night_leaves_the_files_of_the_first_one(
    machine: Machine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second night does not change the files of the first, whose runs may still read them.

    With the same STATE_DIR, a second night is refused, but only after it has written its files.
    With another STATE_DIR, it is allowed.
    """
    first, second = make_repository(path, ["0.4.9"] * 2)
    watched, _ = watch_repository(machine.root, nightly_list(), path, first)
    variants = os.environ["VARIANTS_FILE"]
    watch_repository(machine.root, nightly_list(), path, second)
    monkeypatch.setenv("VARIANTS_FILE", variants)
    source = known(load_variants(machine.root)[WATCHED].source)
    assert source.ref == first
    assert Path(watched.experiments[0].name).parent == Path(variants).parent


def test_bad_input_is_refused(machine: Machine, path: Path, tmp_path: Path) -> None:
    make_repository(path, ["0.4.9"])
    git(path, "switch", "-qc", "other")
    (path / "configure.ac").write_text("AC_INIT([chutney],[1])")
    git(path, "commit", "-qam", "not Tor")
    peers = nightly_list(experiments=[{"name": "slowstart"}])
    for lists, place, ref, message in (
        (nightly_list(), tmp_path, "main", "not a git repository"),
        (nightly_list(), tmp_path / "none", "main", "is not a folder"),
        (nightly_list(), path, "maint", 'no branch, tag or commit "maint"; did you mean "main"'),
        (nightly_list(), path, "other", "is not Tor's source"),
        (peers, path, "main", "slowstart does not run Tor"),
    ):
        with pytest.raises(UserError, match=message):
            watch_repository(machine.root, lists, place, ref)


def test_the_summary_names_the_commits(machine: Machine, path: Path) -> None:
    commits = make_repository(path, ["0.4.9"])
    first, _ = night(machine, path, accept=True)
    assert list(first.tor.ranges) == []
    commits += [add_commit(path, f"<b>`{n}`</b>", "0.4.10") for n in range(2)]
    second, paths = night(machine, path)
    (since,) = second.tor.ranges
    what = f"since the last night and the baseline ({commits[0][:12]})"
    assert since.sentence == f"2 commits {what}:"
    page = paths.markdown.read_text()
    assert (
        f"\n\n2 commits {what}:\n\n    {commits[2][:12]} <b>`1`</b>\n    {commits[1][:12]}" in page
    )
    assert "<b>" not in paths.html.read_text()
    assert f"&lt;b&gt;`1`&lt;/b&gt;\n{commits[1][:12]}" in paths.html.read_text()
    commits.append(add_commit(path, "newest", "0.4.10"))
    third, paths = night(machine, path)
    assert [one.sentence for one in third.tor.ranges] == [
        f"1 commit since the last night ({commits[2][:12]}):",
        f"3 commits since the baseline ({commits[0][:12]}):",
    ]
    again, _ = night(machine, path)
    assert again.tor.ranges[0].sentence == f"No commits since the last night ({commits[3][:12]})."
    older, _ = night(machine, path, commits[1])
    assert [one.sentence for one in older.tor.ranges] == [
        f"No commits since the last night ({commits[3][:12]}), which has 2 that this one lacks.",
        f"1 commit since the baseline ({commits[0][:12]}):",
    ]
    _, paths = night(machine, path)
    history = read_history(paths.history)
    assert last_commit(history, "today", WATCHED) == commits[3][:12]
    assert last_commit(history, "today", "stock") == last_commit(history, "x", WATCHED) == ""
    assert set(history["tor"].to_pylist()) == {
        f"0.4.9 {commits[0][:12]}", *(f"0.4.10 {one[:12]}" for one in commits[1:]),
    }  # fmt: skip


def test_long_ranges_and_rewritten_histories(machine: Machine, path: Path, tmp_path: Path) -> None:
    make_repository(path, ["0.4.9"])
    night(machine, path, accept=True)
    for number in range(21):
        add_commit(path, f"later {number}", "0.4.9")
    made, _ = night(machine, path)
    (since,) = made.tor.ranges
    assert since.sentence.endswith("; the newest 20:")
    assert (since.count, len(since.lines)) == (21, 20)
    other = tmp_path / "other"
    make_repository(other, ["0.4.9", "0.4.10"])
    git(other, "commit", "--amend", "-qm", "another history")
    made, _ = night(machine, other)
    assert "unknown, because the repository does not contain" in made.tor.ranges[0].sentence


def test_a_step_is_between_two_commits(machine: Machine, path: Path) -> None:
    commits = make_repository(path, ["0.4.9"])
    made, paths = night(machine, path, accept=True)
    for number in range(1, 11):
        commits.append(add_commit(path, f"change {number}", "0.4.9"))
        made, paths = night(machine, path, effect=1.05 if number >= 7 else 1.0)
    places = {(one.last_before[1], one.first_after[1]) for one in made.steps if one.worse}
    expected = [f"0.1.0 c0ffee, Tor 0.4.9 {commits[number][:12]}" for number in (6, 7)]
    assert tuple(expected) in places
    assert f"[{expected[1]}]" in paths.markdown.read_text()


def inputs(
    commit: str,
    *,
    torrc: str = "t1",
    load: str = "l1",
    engine: str = "1",
    known: str = "",
    only_tor: bool = True,
) -> dict[str, Any]:
    """Return the inputs of runs whose engine's file contains the path of Tor's program.

    The path contains the commit, so it differs between nights with different commits. If this Tor
    does not know the option "new", its torrc does not contain the option.
    """
    settings = SimpleNamespace(
        compared=SimpleNamespace(baseline=WATCHED), model_dump_json=lambda include: "{}"
    )

    def compose(level: str, variant: str, seed: int) -> Any:
        is_known = builder.known_options is None or "new" in builder.known_options
        files = {
            "conf/tor.common.torrc": f"{torrc} new" if is_known else torrc,
            "conf/tgen.web.graphml": load,
            "uml.json": f"run tor-stock-{commit}",
        }
        return SimpleNamespace(files={name: text.encode() for name, text in files.items()})

    builder: Any = SimpleNamespace(
        known_options=frozenset(known.split()),
        engine=SimpleNamespace(identity={"name": "uml", "version": engine}),
        variants={WATCHED: SimpleNamespace(source_id=commit)},
        selected=(WATCHED,),
        experiment=SimpleNamespace(levels={"today": SimpleNamespace(settings=settings)}),
        compose=compose,
    )
    return baseline_inputs(builder, only_tor=only_tor)


def test_only_the_harness_needs_a_new_baseline() -> None:
    first = inputs("a" * 12)
    assert inputs("b" * 12, known="new") == first
    assert inputs("a" * 12, torrc="t2") != first
    assert inputs("a" * 12, load="l2") != first
    assert inputs("a" * 12, engine="2") != first
    # If Tor does not come from a repository, the nights compare versions of this project. Different
    # versions may write different torrc files, so torrc files do not count as inputs.
    first = inputs("a" * 12, only_tor=False)
    assert inputs("a" * 12, torrc="t2", only_tor=False) == first
    assert inputs("a" * 12, load="l2", only_tor=False) != first


def test_a_changed_harness_says_what_changed_and_what_to_do(machine: Machine, path: Path) -> None:
    (commit,) = make_repository(path, ["0.4.9"])
    git(path, "branch", "maint")
    night(machine, path, accept=True)
    files = {**FILES, f"conf/tor.variant.{WATCHED}.torrc": WATCHED}
    machine.key = "key2"
    for engine, changed_files, changes in (
        ({**ENGINE, "version": "3.4.0"}, {}, r"engine \(version\)"),
        (ENGINE, {"conf/tgen.web.graphml": "l2", "conf/tor.common.torrc": "t2"}, "load, config"),
        (ENGINE, {"shadow.config.yaml": "s2"}, "engine files"),
    ):
        machine.inputs = {"engine": engine, "levels": {"today": {"files": files | changed_files}}}
        with pytest.raises(UserError, match=rf"runs differ .* of Tor\) in {changes}") as caught:
            night(machine, path, "maint")
        command = "make nightly UPDATE_BASELINE=1"
        accept = f"make this night's runs the baseline of the whole list: {command} REF=maint"
        assert (caught.value.hint or "").endswith(f"{command} REF={commit}\nor {accept}")
    assert machine.measured == 1
    # Damaged baselines are ignored, so there is no newest one to suggest.
    for file in (machine.root / "nightly" / "baselines").iterdir():
        file.write_text("{")
    with pytest.raises(UserError, match="today has no baseline for this engine") as caught:
        night(machine, path)


def test_a_line_that_is_added_needs_the_commit_of_the_other_baselines(
    machine: Machine, path: Path
) -> None:
    first, _ = make_repository(path, ["0.4.9"] * 2)
    night(machine, path, first, accept=True)
    (baseline,) = (machine.root / "nightly/baselines").iterdir()
    baseline.rename(baseline.with_name(baseline.name.replace("today", "quick")))
    with pytest.raises(UserError, match="today has no baseline") as caught:
        night(machine, path)
    repeat = f"make nightly UPDATE_BASELINE=1 REF={first}"
    assert (caught.value.hint or "").startswith(
        "repeat the commit of the baseline of 2026-01-02T03:00:00Z, and then this night: "
        f"{repeat}\nor make this"
    )


@pytest.mark.parametrize(
    ("false_alarms", "sentence", "what", "command"),
    [
        (
            *(2, "1 of 1 experiment is worse than the baseline: today.", "To find the commit"),
            "make bisect GOOD={a} BAD={b} ENDPOINT=web:time_to_320kib_p50_s TOR_GIT={path} "
            "NAME=today",
        ),
        (
            *(1e-6, "No alarm in 1 experiment; 2 endpoints are suggested to be worse.", "For an"),
            "make compare-tor A={a} B={b} NETWORKS=auto TOR_GIT={path} NAME=today",
        ),
    ],
)
def test_a_worse_endpoint_comes_with_a_command(
    machine: Machine, path: Path, false_alarms: float, sentence: str, what: str, command: str
) -> None:
    first, second = make_repository(path, ["0.4.9"] * 2)
    night(machine, path, first, accept=True)
    made, paths = night(machine, path, effect=1.08, false_alarms=false_alarms)
    assert made.sentence == sentence
    step = made.results[0].next_step
    assert step[0].startswith(what)
    assert step[1] == command.format(a=first[:12], b=second[:12], path=path)
    for summary in (paths.markdown, paths.html):
        assert step[1] in summary.read_text()
        assert sentence in summary.read_text()


def test_the_command_names_the_experiment_as_the_list_does(machine: Machine, path: Path) -> None:
    own = path.parent / "my own" / "today.yaml"
    own.parent.mkdir()
    # An experiment of the list may also set a value that only the watched Tor knows.
    own.write_text("extends: today.yaml\ntor: {consensus_params: {cc_alg: 3}}\n")
    first, _ = make_repository(path, ["0.4.9"] * 2)
    night(machine, path, first, accept=True, name=str(own))
    made, _ = night(machine, path, effect=1.08, name=str(own))
    assert made.results[0].next_step[1].endswith(f" NAME='{own}'")


def test_the_newest_baseline_is_that_of_the_last_night(machine: Machine, path: Path) -> None:
    """The newest baseline is the one whose file contains the newest date.

    The files' modification times do not count, because a git checkout changes them. Baselines of
    another experiment do not count either, even if its name begins with this experiment's name.
    """
    commits = make_repository(path, ["0.4.9"] * 3)
    for number, key in enumerate(("key3", "key1", "key2")):
        machine.key = key
        night(machine, path, commits[number], accept=True)
    baselines = machine.root / "nightly/baselines"
    for age, file in enumerate(sorted(baselines.iterdir())):
        os.utime(file, (START.timestamp() - age, START.timestamp() - age))
    night_of_other = nightly_list(experiments=[{"name": "today-full"}])
    watched, repository = watch_repository(machine.root, night_of_other, path, commits[0])
    machine.key = "key9"
    machine.night(make_set(variant=WATCHED), accept=True, nights=watched, repository=repository)
    machine.key = "key4"
    machine.inputs = {"engine": ENGINE, "levels": {}}
    with pytest.raises(UserError, match=f"newest baseline .commit {commits[2][:12]} of Tor"):
        night(machine, path)
    machine.key = "key5"
    for file in baselines.glob("today-key*"):
        file.unlink()
    with pytest.raises(UserError, match="today has no baseline for this engine") as caught:
        night(machine, path)
    assert caught.value.message.endswith("today-key5.set.json)")


def test_the_command_passes_the_repository_on(
    machine: Machine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_repository(path, ["0.4.9"])
    monkeypatch.setattr(command, "working_root", lambda: machine.root)
    monkeypatch.setattr(command, "print_cost", lambda *_: None)
    calls: list[Any] = []

    def run_nightly(root: Path, lists: Any, overrides: Any, **more: Any) -> Any:
        calls.append((lists, more))
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_nightly", run_nightly)
    parser = argparse.ArgumentParser()
    command.setup_arguments(parser)
    with pytest.raises(KeyboardInterrupt):
        command.run(parser.parse_args([f"--tor-git={path}"]))
    lists, more = calls[0]
    assert [one.variants for one in lists.experiments] == [(WATCHED,)]
    assert more["repository"].tor.ref == "main"
    assert more["baseline_command"] == f"make nightly UPDATE_BASELINE=1 TOR_GIT={path}"
    with pytest.raises(KeyboardInterrupt):
        command.run(parser.parse_args([]))
    assert calls[1][1]["repository"] is None
    with pytest.raises(UserError, match="TOR_GIT is missing"):
        command.run(parser.parse_args(["--ref=main"]))
